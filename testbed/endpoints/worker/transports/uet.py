"""Transfers over UET: what a worker is told of them, and where what moves them is found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta

from testbed.base.typed_json import Delays, Nanoseconds, Text
from testbed.endpoints.sockets import Marking, SocketConfig
from testbed.endpoints.worker.datagrams.hosting import AgentHosting
from testbed.endpoints.worker.datagrams.uet_traffic import UetTraffic
from testbed.endpoints.worker.poll_loop import WatchingLoop
from testbed.endpoints.worker.program import Program, Settings
from testbed.endpoints.worker.traffic import Listener
from testbed.endpoints.worker.transport_registry import WorkerTransport
from testbed.protocols.uet.config import UetConfig
from testbed.protocols.uet.fep import Fep

if TYPE_CHECKING:
    from testbed.endpoints.worker.buffers import CollectiveBuffers
    from testbed.protocols.uet.security.tss import SecureDomain


Dscp = Annotated[int, Meta(ge=0, lt=64)]


@dataclass(frozen=True, slots=True, kw_only=True)
class UetSettings(Settings):
    """`config` has fields of `transport.uet.config.UetConfig` other than `entropies` and `least_rtts_ns`."""

    kind: ClassVar[str] = "uet"
    config: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    mode: Text = "RUD"
    dscp: Dscp = 26
    control_dscp: Dscp = 48
    delays_ns: Delays = field(default_factory=dict)
    """By own address: what datagrams from a peer's address are held for."""
    least_rtts_ns: Delays = field(default_factory=dict)
    """By own address: the round trip of a full packet to a peer's address and back while nothing else is sent."""
    tick_ns: Nanoseconds = 0
    """The least interval at which the worker looks for what has come and is due; 0: at once."""
    job_id: Annotated[int, Meta(ge=0, lt=1 << 24)] = 1
    security_key: Text = ""
    """The key of TSS, hexadecimal; "": none."""

    @property
    def marking(self) -> Marking:
        """Return how its datagrams are marked."""
        return Marking(data=self.dscp, retransmission=self.dscp, control=self.control_dscp)


def _make_traffic(
    program: Program, loop: WatchingLoop, buffers: CollectiveBuffers | None, listener: Listener
) -> UetTraffic:
    settings = program.transport
    assert isinstance(settings, UetSettings)
    hosting = AgentHosting(program, loop, settings.tick_ns)

    def open_fep(address: str, config: UetConfig, security: SecureDomain | None) -> Fep:
        return hosting.agent.open(
            address,
            config,
            sockets=SocketConfig(marking=settings.marking),
            delay_ns=settings.delays_ns.get(address, 0),
            paced=True,
            security=security,
        )

    return UetTraffic(program, settings, hosting, open_fep, buffers, listener)


TRANSPORT = WorkerTransport(settings=UetSettings, make_traffic=_make_traffic)
