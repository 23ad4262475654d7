"""UET on the simulator: the worker's own traffic, whose fabric endpoints are hosts of the simulated network."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from testbed.endpoints.sockets import Marking
from testbed.endpoints.worker.datagrams.uet_traffic import UetTraffic
from testbed.endpoints.worker.program import Program, Settings
from testbed.endpoints.worker.stack_sockets import StackLoop
from testbed.endpoints.worker.traffic import Listener, Traffic
from testbed.endpoints.worker.transports.uet import UetSettings
from testbed.protocols.datagram import Incoming, Outgoing
from testbed.protocols.simulation.nic import NicHost
from testbed.protocols.uet.config import UetConfig
from testbed.protocols.uet.fep import Fep
from testbed.protocols.uet.packets.codes import UDP_PORT
from testbed.run.placed.placed_workload import PlacedWorkload
from testbed.run.simulated.site import RunSite
from testbed.run.simulated.transport_registry import SimulatedTransport
from testbed.run.transports.lab_transport import LabTransport
from testbed.run.transports.uet import Uet
from testbed.run.transports.user_space import pairs_by_host

if TYPE_CHECKING:
    from testbed.endpoints.worker.buffers import CollectiveBuffers
    from testbed.protocols.uet.security.tss import SecureDomain

JOB_ID = 1


class FepHost(NicHost):
    """A NIC whose endpoint is a FEP: what compiled code knows, it calls three times as fast as what might be any."""

    def _next_timer(self) -> int | None:
        fep = self.endpoint
        assert isinstance(fep, Fep)
        return fep.next_timer()

    def _receive(self, incoming: Incoming, now: int) -> None:
        fep = self.endpoint
        assert isinstance(fep, Fep)
        fep.receive((incoming,), now)

    def _transmit(self, now: int) -> list[Outgoing]:
        fep = self.endpoint
        assert isinstance(fep, Fep)
        return fep.transmit(now, 1)

    def _urgent(self) -> int:
        fep = self.endpoint
        assert isinstance(fep, Fep)
        return fep.urgent


def make_traffic(
    program: Program, site: RunSite, buffers: CollectiveBuffers | None, listener: Listener, loop: StackLoop
) -> Traffic:
    """Return the traffic of one host's program."""
    settings = program.transport
    assert isinstance(settings, UetSettings)

    def open_fep(address: str, config: UetConfig, security: SecureDomain | None) -> Fep:
        fep = site.endpoints[address] = Fep(address, config, site.random(address), 0, security=security)
        return fep

    return UetTraffic(program, settings, site, open_fep, buffers, listener)


def settings_of(transport: LabTransport, placement: PlacedWorkload) -> Callable[[str], Settings]:
    """Return what tells the settings of each host: those of an emulated run, with a key that is the seed's."""
    assert isinstance(transport, Uet)
    key = simulated_key(placement.seed) if transport.secured else ""
    pairs = pairs_by_host(placement.ranks, placement.channels)
    return lambda host: transport.host_settings(pairs.get(host, ()), job_id=JOB_ID, key=key)


def simulated_key(seed: int) -> str:
    """Return the key of TSS of a run, in hexadecimal digits: another one for each seed."""
    return hashlib.sha256(f"tss {seed}".encode()).hexdigest()


def marking_of(settings: Settings) -> Marking:
    """Return how datagrams are marked."""
    assert isinstance(settings, UetSettings)
    return settings.marking


TRANSPORT = SimulatedTransport(
    make_traffic=make_traffic, host=FepHost, port=UDP_PORT, marking_of=marking_of, settings_of=settings_of
)
