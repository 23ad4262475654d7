"""TCP on the simulator: the worker's own traffic over sockets of our own stack, whose hosts are in the network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from testbed.base.errors import ScenarioError
from testbed.endpoints.sockets import Marking
from testbed.endpoints.worker.program import Program, Settings
from testbed.endpoints.worker.stack_sockets import StackLoop, StackSockets
from testbed.endpoints.worker.traffic import Listener, Traffic
from testbed.endpoints.worker.transports.tcp import StackTcpSettings, TcpSettings, TcpTraffic
from testbed.lab.core.model.tcp import DEFAULT_TCP_CC
from testbed.lab.core.plan.user_space.uet import ETHERNET_BYTES, IPV4_BYTES
from testbed.protocols.datagram import Incoming, Outgoing
from testbed.protocols.simulation.events import Events
from testbed.protocols.simulation.nic import Endpoint, NicHost
from testbed.protocols.tcp.congestion.registry import TCP_CONTROLS
from testbed.protocols.tcp.stack import TcpStack
from testbed.run.placed.placed_workload import PlacedWorkload
from testbed.run.schema.model import Transport
from testbed.run.simulated.site import RunSite
from testbed.run.simulated.transport_registry import SimulatedTransport
from testbed.run.transports.lab_transport import LabTransport, address_of
from testbed.run.transports.tcp import Tcp

if TYPE_CHECKING:
    from testbed.endpoints.worker.buffers import CollectiveBuffers

BELOW_TCP_BYTES = ETHERNET_BYTES + IPV4_BYTES
"""The bytes of a segment at a port beside its header and payload."""
NO_PORT = 0
"""Segments have their own destination port, beside the source's in a frame's entropy."""


class TcpHost(NicHost):
    """A NIC whose endpoint is a stack of TCP, for the same reason as `FepHost`."""

    def __init__(
        self,
        number: int,
        endpoint: Endpoint,
        events: Events,
        numbers: dict[str, int],
        addresses: list[str],
        overhead_bytes: int,
    ) -> None:
        super().__init__(number, endpoint, events, numbers, addresses, BELOW_TCP_BYTES)

    def _next_timer(self) -> int | None:
        stack = self.endpoint
        assert isinstance(stack, TcpStack)
        return stack.next_timer()

    def _receive(self, incoming: Incoming, now: int) -> None:
        stack = self.endpoint
        assert isinstance(stack, TcpStack)
        stack.receive((incoming,), now)

    def _transmit(self, now: int) -> list[Outgoing]:
        stack = self.endpoint
        assert isinstance(stack, TcpStack)
        return stack.transmit(now, 1)

    def _urgent(self) -> int:
        stack = self.endpoint
        assert isinstance(stack, TcpStack)
        return stack.urgent


def open_stacks(addresses: Iterable[str], mtu_bytes: Mapping[str, int], site: RunSite, loop: StackLoop) -> None:
    """Give NICs of one host their stacks."""
    for address in addresses:
        if address not in loop.stacks:
            stack = TcpStack(address, site.random(address), mtu_bytes=mtu_bytes[address])
            loop.stacks[address] = site.endpoints[address] = stack


def make_traffic(
    program: Program, site: RunSite, buffers: CollectiveBuffers | None, listener: Listener, loop: StackLoop
) -> Traffic:
    """Return the traffic of one host's program."""
    settings = program.transport
    assert isinstance(settings, StackTcpSettings)
    own = (endpoint.address for endpoint in program.endpoints if endpoint.rank in program.own)
    open_stacks(own, settings.mtu_bytes, site, loop)
    return TcpTraffic(program, loop, buffers, listener, StackSockets(site, loop))


def settings_of(transport: LabTransport, placement: PlacedWorkload) -> Callable[[str], Settings]:
    """Return what tells the settings of each host: those of an emulated run, with the MTUs of the NICs."""
    assert isinstance(transport, Tcp)
    settings = StackTcpSettings(
        congestion_control=transport.transport.cc or DEFAULT_TCP_CC,
        tos=transport.tos,
        mtu_bytes={address_of(nic): nic.mtu_bytes for nic in placement.ranks},
    )
    return lambda host: settings


def marking_of(settings: Settings) -> Marking:
    """Return how segments are marked: all of them alike."""
    assert isinstance(settings, TcpSettings)
    dscp = settings.tos >> 2
    return Marking(data=dscp, retransmission=dscp, control=dscp, notification=dscp)


def approximations(transport: LabTransport) -> list[str]:
    """Return what a run over a TCP of our own does not reproduce."""
    cc = transport.transport.cc or DEFAULT_TCP_CC
    return [
        f"TCP ({cc}) is a model of Linux' in lab time, with its least time-out of 200 ms and its delayed"
        " acknowledgements, without offloads, and without a queue of the host's own in front of its NIC."
    ]


def check_transport(transport: Transport) -> None:
    """Raise `ScenarioError` for a congestion control that is the kernel's alone."""
    if transport.cc is not None and transport.cc not in TCP_CONTROLS:
        raise ScenarioError(
            f"--backend simulation has TCP with {', '.join(TCP_CONTROLS)}, and not with {transport.cc}",
            hint=f"transport: {{kind: {transport.kind}, cc: {DEFAULT_TCP_CC}}}, or leave --backend out: emulation can",
        )


TRANSPORT = SimulatedTransport(
    make_traffic=make_traffic,
    host=TcpHost,
    port=NO_PORT,
    marking_of=marking_of,
    settings_of=settings_of,
    approximations=approximations,
    check=check_transport,
)
