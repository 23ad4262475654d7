"""Ultra Ethernet Transport in user space: an endpoint for each NIC, whose times follow from the lab's base RTT."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from testbed.base.errors import ScenarioError
from testbed.base.units import Duration
from testbed.lab.core.fabric.graph import LabGraph
from testbed.lab.core.model import BalancingMode
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.lab.core.plan.user_space.uet import (
    ETHERNET_BYTES,
    HEADER_BYTES,
    IPV4_BYTES,
    UDP_BYTES,
    largest_payload_bytes,
    uet_config,
)
from testbed.protocols.uet.config import UetConfig
from testbed.protocols.uet.packets.codes import UDP_PORT, Mode
from testbed.protocols.uet.packets.crc import CRC_BYTES
from testbed.protocols.uet.paths import DEFAULT_PATHS, PathKind
from testbed.run.placed.channels import ChannelRules
from testbed.run.schema.model import Scalar
from testbed.run.schema.transport_rules import UET_BYTES
from testbed.run.transports.lab_transport import PathChoice, address_of
from testbed.run.transports.user_space import NicPair, UserSpaceTransport, pairs_by_host
from testbed.workload.oracles.serialisation import Framing

if TYPE_CHECKING:
    from testbed.endpoints.worker.program import Settings
    from testbed.endpoints.worker.transports.uet import UetSettings
    from testbed.run.placed.placed_workload import PlacedWorkload

_TSS_BYTES = 12 + 16
"""Security header and the tag of AES-GCM (UE Specification 1.0, section 3.7)."""
_JOBS = 1 << 24
_OWN_OPTIONS = {"mode", "tss"}
"""The options that are not `UetConfig`'s."""
_BLIND = {BalancingMode.SPRAY, BalancingMode.ADAPTIVE, BalancingMode.STATIC}
"""The modes of switches that choose whatever the entropy value is."""
_LEAST_WINDOW_PACKETS = 10
"""Sprayed over two paths, two flows with windows of six packets carry 64 % of what the links do, and with thirteen
81 %, which is what they carry without a window."""


class Uet(UserSpaceTransport):
    """An endpoint of `testbed.protocols.uet` for each NIC."""

    counts_gaps: ClassVar[bool] = False
    of_links_alone: ClassVar[bool] = True

    def check(self) -> None:
        mode = str(self.transport.options.get("mode", "RUD")).upper()
        if mode not in ("RUD", "ROD"):
            raise ScenarioError(f"transport.mode: {mode} carries no messages for certain; RUD and ROD do")
        super().check()

    def check_config(self, nic: PortPlan) -> None:
        UetConfig(**self._config(nic))  # type: ignore[arg-type]

    def warnings(self) -> list[str]:
        """Paths that switches take no notice of, and a round trip so short that the window, 1.5 BDP of it, has too few
        packets to be sprayed."""
        return [*self._idle_paths(), *self._small_windows()]

    def _idle_paths(self) -> Iterator[str]:
        qos = self.lab.plan.qos
        modes = {buffer.mode for buffer in qos.buffers if buffer.node} if qos is not None else set()
        if self.transport.paths is not None and modes and modes <= _BLIND:
            mode = " or ".join(sorted(mode.value for mode in modes))
            yield (
                f"transport.paths: {self.transport.paths} is of no effect, since switches choose paths by themselves"
                f" (mode: {mode}); with qos: {{load_balancing: {{mode: flow}}}} they go by what it chooses"
            )

    def _small_windows(self) -> list[str]:
        nic = next((nic for host in self.lab.plan.hosts for nic in host.nics), None)
        if nic is None or self.single_path or self.transport.cc not in (None, "nscc", "both"):
            return []
        config = UetConfig(**self._config(nic))  # type: ignore[arg-type]
        window_bytes = replace(config.nscc(), base_rtt_ns=max(1, self._times.idle_rtt_ns)).max_wnd_bytes
        packets = int(window_bytes // config.packet_bytes)
        if packets >= _LEAST_WINDOW_PACKETS or not self._has_choice():
            return []
        rtt = Duration(round(self._times.idle_rtt_ns / self.lab.plan.k))
        return [
            f"NSCC's window is {packets} packets at most, 1.5 times what a base round trip of {rtt} holds: too few to"
            " fill links over which they are sprayed; delays of links or qos.base_rtt make it what a fabric's is"
        ]

    def approximations(self) -> list[str]:
        return [*super().approximations(), *(f"{said}." for said in self.warnings())]

    def _has_choice(self) -> bool:
        """Tell whether a switch of NICs has more than one link to others."""
        graph = LabGraph(self.lab.model)
        return any(sum(map(len, graph.switches.neighbours[switch].values())) > 1 for switch in graph.nics)

    # --- paths and delays --------------------------------------------------------------------------------

    @property
    def mode(self) -> Mode:
        """Return how messages are delivered: ROD in order, RUD as they come."""
        return Mode[str(self.transport.options.get("mode", "RUD")).upper()]

    @property
    def single_path(self) -> bool:
        """Tell whether each NIC keeps to one entropy value."""
        return self.transport.paths == PathKind.SINGLE or self.mode is Mode.ROD

    @property
    def path_choice(self) -> PathChoice:
        if self.single_path:
            return PathChoice.HASHED
        oblivious = (self.transport.paths or DEFAULT_PATHS) == PathKind.OBLIVIOUS
        return PathChoice.OBLIVIOUS if oblivious else PathChoice.ADAPTIVE

    @property
    def channel_rules(self) -> ChannelRules:
        return ChannelRules(destination_port=UDP_PORT, one_for_each_pair=True, keeps_port=self.single_path)

    # --- packets -----------------------------------------------------------------------------------------

    @property
    def secured(self) -> bool:
        """Tell whether transport security (TSS) is asked for."""
        return bool(self.transport.options.get("tss", False))

    def framing(self, nic: PortPlan) -> Framing:
        guard = _TSS_BYTES if self.secured else CRC_BYTES if self.transport.options.get("crc") else 0
        below = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES
        return Framing(payload_bytes=self._payload_bytes(nic) - guard, overhead_bytes=below + HEADER_BYTES + guard)

    def _payload_bytes(self, nic: PortPlan) -> int:
        """Return the payload of a full packet as `UetConfig` counts it: with what TSS or a CRC takes of it. Raises
        `ScenarioError` where the one asked for does not fit into the link's MTU."""
        wanted = self.transport.options.get("payload_bytes")
        if wanted is None:
            return largest_payload_bytes(nic.mtu_bytes)
        room = nic.mtu_bytes - UET_BYTES
        if int(wanted) > room:
            raise ScenarioError(
                f"transport.payload_bytes: {wanted} bytes do not fit into the MTU of {nic.node}:{nic.name},"
                f" {nic.mtu_bytes} bytes, which leaves {room} beside the headers"
            )
        return int(wanted)

    # --- workers -----------------------------------------------------------------------------------------

    def worker_settings(self, placement: PlacedWorkload) -> Callable[[str], Settings]:
        self._runs += 1
        job_id = 1 + (self._runs - 1) % (_JOBS - 1)
        key = secrets.token_hex(32) if self.secured else ""
        pairs = pairs_by_host(placement.ranks, placement.channels)
        return lambda host: self.host_settings(pairs.get(host, ()), job_id=job_id, key=key)

    def host_settings(self, pairs: Sequence[NicPair], *, job_id: int, key: str) -> UetSettings:
        """Return the settings of the worker of a host with these pairs of NICs; `key` is that of TSS in hexadecimal
        digits, "" without."""
        from testbed.endpoints.worker.transports.uet import UetSettings

        own, delays = self.own_nic_and_delays(pairs)
        return UetSettings(
            config={} if own is None else self._config(own),
            mode=self.mode.name,
            dscp=self.dscp,
            control_dscp=self.control_dscp,
            delays_ns=delays,
            least_rtts_ns=self._least_rtts_ns(pairs),
            tick_ns=self.tick_ns,
            job_id=job_id,
            security_key=key,
        )

    def _least_rtts_ns(self, pairs: Sequence[NicPair]) -> dict[str, dict[str, int]]:
        """Return the time of a full packet and its answer through the idle fabric, by own address and the peer's."""
        found: dict[str, dict[str, int]] = {}
        for a, b in pairs:
            framing = self.framing(a)
            frame_bytes = framing.payload_bytes + framing.overhead_bytes
            found.setdefault(address_of(a), {})[address_of(b)] = self._times.least_rtt_ns(
                self.path(a, b), self.path(b, a), frame_bytes
            )
        return found

    def _config(self, nic: PortPlan) -> dict[str, Scalar]:
        given = {name: value for name, value in self.transport.options.items() if name not in _OWN_OPTIONS}
        profile = self.profile
        trimming = profile is not None and profile.trimming
        config: dict[str, Scalar] = {
            **uet_config(nic, self.base_rtt_ns, self.lab.plan.k, trimming=trimming),
            "payload_bytes": self._payload_bytes(nic),
        }
        if self.transport.cc is not None:
            config["cc"] = self.transport.cc
        if self.transport.paths is not None:
            config["paths"] = self.transport.paths
        return config | given


TRANSPORT = Uet
