"""Transfers over RoCEv2 in user space: what a worker is told of them, and where what moves them is found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from testbed.base.json_values import LONGEST_DELAY_NS, Json, read_delays, read_object, read_whole
from testbed.base.program_errors import ProgramError
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
MOST_DCIS = 256
CONNECTIONS = ("rc", "dct")
"""Reliable connections, a queue pair for each channel at both ends, or dynamic ones, from a pool of initiators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoceSettings(Settings):
    """`config` has fields of `transport.roce.config.RoceConfig` other than `cc_parameters`."""

    kind: ClassVar[str] = "roce"
    config: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    cc_parameters: Mapping[str, bool | int | float] = field(default_factory=dict)
    """Single parameters of the congestion control."""
    dscp: int = 26
    ack_dscp: int = 26
    """Of acknowledgements: as a rule that of data."""
    notification_dscp: int = 48
    """Of CNPs."""
    delays_ns: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By own address: what datagrams from a peer's address are held for."""
    tick_ns: int = 0
    """How often the worker looks for what has come and is due, at most; 0: at once."""
    qps: int = 1
    """Queue pairs of a channel, or targets of a NIC."""
    connections: str = CONNECTIONS[0]
    """One of `CONNECTIONS`."""
    dcis: int = DEFAULT_INITIATORS
    """Initiators of a NIC with dynamic connections."""
    first_qpn: int = 0
    """Numbers of queue pairs are counted from here on: another run's packets are not taken for this one's."""
    first_psn: int = 0
    domain: int = 0
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


def _decode(values: dict[str, Json]) -> RoceSettings:
    config = read_object(values["config"], "transport.config")
    for name, value in config.items():
        if not isinstance(value, bool | int | float | str):
            raise ProgramError(f"transport.config.{name}", "is no number, text or truth value")
    parameters = read_object(values["cc_parameters"], "transport.cc_parameters")
    for name, value in parameters.items():
        if not isinstance(value, bool | int | float):
            raise ProgramError(f"transport.cc_parameters.{name}", "is no number or truth value")
    qps = read_whole(values["qps"], "transport.qps", MOST_QPS + 1)
    if not qps:
        raise ProgramError("transport.qps", "is 0")
    connections = values["connections"]
    if connections not in CONNECTIONS:
        raise ProgramError("transport.connections", f"is none of {', '.join(CONNECTIONS)}")
    dcis = read_whole(values["dcis"], "transport.dcis", MOST_DCIS + 1)
    if not dcis:
        raise ProgramError("transport.dcis", "is 0")
    return RoceSettings(
        config=config,
        cc_parameters=parameters,
        dscp=read_whole(values["dscp"], "transport.dscp", 64),
        ack_dscp=read_whole(values["ack_dscp"], "transport.ack_dscp", 64),
        notification_dscp=read_whole(values["notification_dscp"], "transport.notification_dscp", 64),
        delays_ns=read_delays(values["delays_ns"], "transport.delays_ns"),
        tick_ns=read_whole(values["tick_ns"], "transport.tick_ns", LONGEST_DELAY_NS),
        qps=qps,
        connections=str(connections),
        dcis=dcis,
        first_qpn=read_whole(values["first_qpn"], "transport.first_qpn", 1 << 24),
        first_psn=read_whole(values["first_psn"], "transport.first_psn", 1 << 24),
        domain=read_whole(values["domain"], "transport.domain", 1 << 32),
    )


TRANSPORT = WorkerTransport(settings=RoceSettings, decode=_decode, make_traffic=_make_traffic)
