"""Transfers over UET: what a worker is told of them, and where what moves them is found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from testbed.base.json_values import LONGEST_DELAY_NS, Json, read_delays, read_object, read_text, read_whole
from testbed.base.program_errors import ProgramError
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


@dataclass(frozen=True, slots=True, kw_only=True)
class UetSettings(Settings):
    """`config` has fields of `transport.uet.config.UetConfig` other than `entropies` and `least_rtts_ns`."""

    kind: ClassVar[str] = "uet"
    config: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    mode: str = "RUD"
    dscp: int = 26
    control_dscp: int = 48
    delays_ns: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By own address: what datagrams from a peer's address are held for."""
    least_rtts_ns: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By own address: the round trip of a full packet to a peer's address and back while nothing else is sent."""
    tick_ns: int = 0
    """How often the worker looks for what has come and is due, at most; 0: at once."""
    job_id: int = 1
    security_key: str = ""
    """Of TSS, hexadecimal; "": none."""

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


def _decode(values: dict[str, Json]) -> UetSettings:
    config = read_object(values["config"], "transport.config")
    for name, value in config.items():
        if not isinstance(value, bool | int | float | str):
            raise ProgramError(f"transport.config.{name}", "is no number, text or truth value")
    return UetSettings(
        config=config,
        mode=read_text(values["mode"], "transport.mode"),
        dscp=read_whole(values["dscp"], "transport.dscp", 64),
        control_dscp=read_whole(values["control_dscp"], "transport.control_dscp", 64),
        delays_ns=read_delays(values["delays_ns"], "transport.delays_ns"),
        least_rtts_ns=read_delays(values["least_rtts_ns"], "transport.least_rtts_ns"),
        tick_ns=read_whole(values["tick_ns"], "transport.tick_ns", LONGEST_DELAY_NS),
        job_id=read_whole(values["job_id"], "transport.job_id", 1 << 24),
        security_key=read_text(values["security_key"], "transport.security_key"),
    )


TRANSPORT = WorkerTransport(settings=UetSettings, decode=_decode, make_traffic=_make_traffic)
