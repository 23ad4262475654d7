"""RoCEv2 on the simulator: the worker's own traffic, whose RNICs are hosts of the simulated network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.endpoints.sockets import Marking
from testbed.endpoints.worker.datagrams.roce_traffic import RoceTraffic
from testbed.endpoints.worker.program import Program, Settings
from testbed.endpoints.worker.stack_sockets import StackLoop
from testbed.endpoints.worker.traffic import Listener, Traffic
from testbed.endpoints.worker.transports.roce import RoceSettings
from testbed.protocols.datagram import Incoming, Outgoing
from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.roce.packets.opcodes import UDP_PORT
from testbed.protocols.roce.rnic import Rnic
from testbed.protocols.simulation.nic import NicHost
from testbed.run.simulated.site import RunSite
from testbed.run.simulated.transport_registry import SimulatedTransport

if TYPE_CHECKING:
    from testbed.endpoints.worker.buffers import CollectiveBuffers


class RnicHost(NicHost):
    """A NIC whose endpoint is an RNIC, for the same reason as `FepHost`."""

    def _next_timer(self) -> int | None:
        rnic = self.endpoint
        assert isinstance(rnic, Rnic)
        return rnic.next_timer()

    def _receive(self, incoming: Incoming, now: int) -> None:
        rnic = self.endpoint
        assert isinstance(rnic, Rnic)
        rnic.receive((incoming,), now)

    def _transmit(self, now: int) -> list[Outgoing]:
        rnic = self.endpoint
        assert isinstance(rnic, Rnic)
        return rnic.transmit(now, 1)

    def _urgent(self) -> int:
        rnic = self.endpoint
        assert isinstance(rnic, Rnic)
        return rnic.urgent

    def _on_room(self, now: int) -> None:
        rnic = self.endpoint
        assert isinstance(rnic, Rnic)
        rnic.on_room(now)


def make_traffic(
    program: Program, site: RunSite, buffers: CollectiveBuffers | None, listener: Listener, loop: StackLoop
) -> Traffic:
    """Return the traffic of one host's program."""
    settings = program.transport
    assert isinstance(settings, RoceSettings)

    def open_rnic(address: str, config: RoceConfig) -> Rnic:
        rnic = site.endpoints[address] = Rnic(address, config, site.random(address), 0)
        return rnic

    return RoceTraffic(program, settings, site, open_rnic, buffers, listener)


def marking_of(settings: Settings) -> Marking:
    """Return how datagrams are marked."""
    assert isinstance(settings, RoceSettings)
    return settings.marking


TRANSPORT = SimulatedTransport(make_traffic=make_traffic, host=RnicHost, port=UDP_PORT, marking_of=marking_of)
