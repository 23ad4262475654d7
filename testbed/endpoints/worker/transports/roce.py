"""Transfers over RoCEv2 in user space: what a worker is told of them, and where what moves them is found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta

from testbed.base.typed_json import Delays, Nanoseconds
from testbed.endpoints.sockets import Marking, SocketConfig
from testbed.endpoints.worker.datagrams.hosting import AgentHosting
from testbed.endpoints.worker.datagrams.roce_traffic import RoceTraffic
from testbed.endpoints.worker.poll_loop import WatchingLoop
from testbed.endpoints.worker.program import Program, Settings
from testbed.endpoints.worker.traffic import Listener
from testbed.endpoints.worker.transport_registry import WorkerTransport
from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.roce.dynamic import DEFAULT_INITIATORS
from testbed.protocols.roce.rnic import Rnic

if TYPE_CHECKING:
    from testbed.endpoints.worker.buffers import CollectiveBuffers

MOST_QPS = 256
Dscp = Annotated[int, Meta(ge=0, lt=64)]
Pool = Annotated[int, Meta(ge=1, le=MOST_QPS)]
First = Annotated[int, Meta(ge=0, lt=1 << 24)]
CONNECTIONS = ("rc", "dct")
"""Reliable connections, a queue pair for each channel at both ends, or dynamic ones, from a pool of initiators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoceSettings(Settings):
    """`config` has fields of `transport.roce.config.RoceConfig` other than `cc_parameters`."""

    kind: ClassVar[str] = "roce"
    config: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    cc_parameters: Mapping[str, bool | int | float] = field(default_factory=dict)
    """Single parameters of the congestion control."""
    dscp: Dscp = 26
    ack_dscp: Dscp = 26
    """The DSCP of acknowledgements: as a rule that of data."""
    notification_dscp: Dscp = 48
    """The DSCP of CNPs."""
    delays_ns: Delays = field(default_factory=dict)
    """By own address: what datagrams from a peer's address are held for."""
    tick_ns: Nanoseconds = 0
    """The least interval at which the worker looks for what has come and is due; 0: at once."""
    qps: Pool = 1
    """Queue pairs of a channel, or targets of a NIC."""
    connections: Annotated[str, Meta(pattern="^(rc|dct)$")] = CONNECTIONS[0]
    """One of `CONNECTIONS`."""
    dcis: Pool = DEFAULT_INITIATORS
    """Initiators of a NIC with dynamic connections."""
    first_qpn: First = 0
    """Numbers of queue pairs are counted from here on: another run's packets are not taken for this one's."""
    first_psn: First = 0
    domain: Annotated[int, Meta(ge=0, lt=1 << 32)] = 0
    """The protection domain of the run."""

    @property
    def marking(self) -> Marking:
        """Return how its datagrams are marked."""
        return Marking(
            data=self.dscp, retransmission=self.dscp, control=self.ack_dscp, notification=self.notification_dscp
        )


def _make_traffic(
    program: Program, loop: WatchingLoop, buffers: CollectiveBuffers | None, listener: Listener
) -> RoceTraffic:
    settings = program.transport
    assert isinstance(settings, RoceSettings)
    hosting = AgentHosting(program, loop, settings.tick_ns)

    def open_rnic(address: str, config: RoceConfig) -> Rnic:
        return hosting.agent.open_rnic(
            address,
            config,
            sockets=SocketConfig(marking=settings.marking),
            delay_ns=settings.delays_ns.get(address, 0),
            paced=True,
        )

    return RoceTraffic(program, settings, hosting, open_rnic, buffers, listener)


TRANSPORT = WorkerTransport(settings=RoceSettings, make_traffic=_make_traffic)
