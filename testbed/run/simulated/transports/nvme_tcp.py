"""NVMe/TCP on the simulator: the worker's own hosts and targets, over sockets of our own TCP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING

from testbed.endpoints.sockets import Marking
from testbed.endpoints.worker.nvme.settings import NvmeTcpSettings, StackNvmeTcpSettings
from testbed.endpoints.worker.program import Program, Settings
from testbed.endpoints.worker.stack_sockets import StackLoop, StackSockets
from testbed.endpoints.worker.traffic import Listener, Traffic
from testbed.endpoints.worker.transports.nvme_tcp import NvmeTcpTraffic
from testbed.lab.core.model.tcp import DEFAULT_TCP_CC
from testbed.run.placed.placed_workload import PlacedWorkload
from testbed.run.simulated.site import RunSite
from testbed.run.simulated.transport_registry import SimulatedTransport
from testbed.run.simulated.transports.tcp import NO_PORT, TcpHost, approximations, check_transport, open_stacks
from testbed.run.transports.lab_transport import LabTransport

if TYPE_CHECKING:
    from testbed.endpoints.worker.buffers import CollectiveBuffers


def make_traffic(
    program: Program, site: RunSite, buffers: CollectiveBuffers | None, listener: Listener, loop: StackLoop
) -> Traffic:
    """Return the traffic of one host's program. A target has all its addresses, whichever of them ranks are at."""
    settings = program.transport
    assert isinstance(settings, StackNvmeTcpSettings)
    hosts = {endpoint.host for endpoint in program.endpoints if endpoint.rank in program.own}
    own = [endpoint.address for endpoint in program.endpoints if endpoint.rank in program.own]
    own += [address for host in hosts for address in settings.ports.get(host, ())]
    open_stacks(own, settings.mtu_bytes, site, loop)
    return NvmeTcpTraffic(program, loop, listener, StackSockets(site, loop))


def settings_of(transport: LabTransport, placement: PlacedWorkload) -> Callable[[str], Settings]:
    """Return what tells the settings of each host: those of an emulated run, with the MTUs of the lab's NICs."""
    emulated = transport.worker_settings(placement)
    nics = [nic for host in transport.lab.plan.hosts for nic in host.nics if nic.address is not None]
    mtu_bytes = {str(nic.address.ip): nic.mtu_bytes for nic in nics if nic.address is not None}

    def of_host(host: str) -> Settings:
        found = emulated(host)
        assert isinstance(found, NvmeTcpSettings)
        values = {item.name: getattr(found, item.name) for item in fields(found)}
        values["congestion_control"] = found.congestion_control or DEFAULT_TCP_CC
        return StackNvmeTcpSettings(**values, mtu_bytes=mtu_bytes)

    return of_host


def marking_of(settings: Settings) -> Marking:
    """Return how segments are marked: all of them alike."""
    assert isinstance(settings, NvmeTcpSettings)
    dscp = settings.tos >> 2
    return Marking(data=dscp, retransmission=dscp, control=dscp, notification=dscp)


TRANSPORT = SimulatedTransport(
    make_traffic=make_traffic,
    host=TcpHost,
    port=NO_PORT,
    marking_of=marking_of,
    settings_of=settings_of,
    approximations=approximations,
    check=check_transport,
)
