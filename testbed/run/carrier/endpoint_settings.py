"""The settings of the endpoints that carry TCP, as a lab decides them: rates, times, classes, and what holds packets
for the delays of links that the kernel does not delay. Times are in lab time.

They are what a scenario has that says no more than `transport: {kind: uet}` or `roce`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from testbed.base.errors import PlanError, TestbedError
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.lab_plan import LabPlan, PortPlan
from testbed.lab.core.plan.link_delays import PathModel, WirePaths
from testbed.lab.core.plan.user_space.marks import control_dscp, data_dscp, port_profile
from testbed.lab.core.plan.user_space.roce import roce_config
from testbed.lab.core.plan.user_space.times import EndpointTimes
from testbed.lab.core.plan.user_space.uet import (
    FRAMING_BYTES,
    IPV4_BYTES,
    UDP_BYTES,
    largest_payload_bytes,
    uet_config,
)
from testbed.protocols.roce.config import MTUS

PACKETS_PER_ENTROPY = 4
"""As many as one ACK covers: a turn sends several at once, and each value that REPS chooses can come back. With one,
the busiest of four uplinks that four streams fill carried a quarter more than the idlest."""
_ROCE_HEADER_BYTES = IPV4_BYTES + UDP_BYTES + 12 + 16 + 4


class CarrierRefused(TestbedError):
    """TCP of these NICs cannot be carried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSettings:
    """The settings of one NIC's endpoint: fields of `UetConfig` or `RoceConfig`, how it marks, and by a peer's address
    what its datagrams are held for, and the round trip of a full packet through the idle fabric (UET)."""

    config: Mapping[str, bool | int | float | str]
    dscp: int
    control_dscp: int
    delays_ns: Mapping[str, int] = field(default_factory=dict)
    least_rtts_ns: Mapping[str, int] = field(default_factory=dict)


class LabEndpoints:
    """The endpoints of a lab's NICs, in the networks that the model and the plan are seen in."""

    def __init__(self, model: Lab, plan: LabPlan) -> None:
        self._plan = plan
        self._times = EndpointTimes(model, plan.k)
        self._profile = port_profile(plan)
        self._wire = WirePaths.of(plan)
        self._ports = {f"{port.node}:{port.name}": port for port in plan.ports}
        self._paths: dict[tuple[object, ...], PathModel | None] = {}

    # --- times -------------------------------------------------------------------------------------------

    @property
    def base_rtt_ns(self) -> int:
        """The round trip of a full packet and its answer over the longest way, or the one that `qos.base_rtt` says."""
        return self._times.base_rtt_ns

    def tick_ns(self, nics: Sequence[PortPlan]) -> int:
        """The least time between two turns of a process that drives these endpoints; 0 where a round trip is short."""
        return self._times.serving_tick_ns(nics)

    def bdp_bytes(self, nic: PortPlan) -> int:
        """The bytes that a NIC sends in a base round trip."""
        return nic.rate_bps * self.base_rtt_ns // 8_000_000_000

    def _path(self, a: PortPlan, b: PortPlan) -> PathModel | None:
        """The way from one NIC to another, which is that of all like them; None where there is none."""
        first, last = self._ports[a.wire], self._ports[b.wire]
        key = (
            *(first.peer.partition(":")[0], first.rate_bps, first.delay_ns, first.delay_by, bool(first.tenant)),
            *(last.peer.partition(":")[0], last.rate_bps, last.delay_ns, last.delay_by),
            first.peer == b.wire,
        )
        if key not in self._paths:
            try:
                self._paths[key] = self._wire.path(a.wire, b.wire)
            except PlanError:
                self._paths[key] = None
        return self._paths[key]

    # --- settings ----------------------------------------------------------------------------------------

    def payload_bytes(self, nic: PortPlan, kind: str) -> int:
        """The payload of a full packet. Raises `CarrierRefused` where the MTU is too small for one of RoCE."""
        if kind == "uet":
            return largest_payload_bytes(nic.mtu_bytes)
        room = nic.mtu_bytes - _ROCE_HEADER_BYTES
        fitting = max((mtu for mtu in MTUS if mtu <= room), default=0)
        if not fitting:
            raise CarrierRefused(f"the MTU of {nic.node}:{nic.name}, {nic.mtu_bytes} bytes, is too small for RoCE")
        return fitting

    def settings(self, kind: str, nics: Sequence[PortPlan]) -> dict[str, EndpointSettings]:
        """Return the settings of these NICs' endpoints, `kind` "uet" or "roce", by their IPv4 address."""
        found: dict[str, EndpointSettings] = {}
        for nic in nics:
            frame_bytes = self.payload_bytes(nic, "uet") + FRAMING_BYTES
            delays: dict[str, int] = {}
            least: dict[str, int] = {}
            for peer in nics:
                if peer.node == nic.node:
                    continue
                there, back = self._path(nic, peer), self._path(peer, nic)
                if there is None or back is None:
                    continue
                if held_ns := self._times.held_ns(back):
                    delays[address_of(peer)] = held_ns
                least[address_of(peer)] = self._times.least_rtt_ns(there, back, frame_bytes)
            found[address_of(nic)] = EndpointSettings(
                config=self._uet(nic) if kind == "uet" else self._roce(nic),
                dscp=data_dscp(self._profile),
                control_dscp=control_dscp(self._profile),
                delays_ns=delays,
                least_rtts_ns=least if kind == "uet" else {},
            )
        return found

    def _uet(self, nic: PortPlan) -> dict[str, bool | int | float | str]:
        trimming = self._profile is not None and self._profile.trimming
        return {
            **uet_config(
                nic, self.base_rtt_ns, self._plan.k, trimming=trimming, packets_per_entropy=PACKETS_PER_ENTROPY
            )
        }

    def _roce(self, nic: PortPlan) -> dict[str, bool | int | float | str]:
        return {**roce_config(nic, self.base_rtt_ns, self._plan.k, mtu=self.payload_bytes(nic, "roce"))}


def address_of(nic: PortPlan) -> str:
    """Return the IPv4 address of a NIC, which it has."""
    assert nic.address is not None
    return str(nic.address.ip)
