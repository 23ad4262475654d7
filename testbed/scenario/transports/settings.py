"""What a scenario's `transport:` means on a lab: DSCP, congestion control, the base RTT, delays, and a packet's cost.

Times are in lab time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from typing import assert_never

from testbed.errors import ScenarioError
from testbed.fabric.base_rtt import model_base_rtt
from testbed.model.scenario import Scalar, Transport, TransportKind
from testbed.names import nearest
from testbed.plan.link_delays import PathModel, WirePaths
from testbed.plan.operations import PortPlan, PortProfile
from testbed.scenario.run.channels import ChannelPlan
from testbed.scenario.run.lab import LiveLab
from testbed.scenario.run.measured import Ideals
from testbed.transport.uet.config import UetConfig
from testbed.transport.uet.errors import UsageError
from testbed.transport.uet.packets.codes import Mode
from testbed.worker.program import TcpSettings, UetSettings
from testbed.workload.oracles.serialisation import Framing, serialisation_s, tcp_framing

CONTROL_DSCP = 48
ECT0 = 2
"""ECN-capable transport (RFC 3168)."""
RTO_RTTS = 16
"""A packet may wait in its own NIC for 1.5 BDP, at each switch for one, and be trimmed and sent again: with less, an
incast ends in time-outs that nothing was lost for."""
_ETHERNET_BYTES, _IPV4_BYTES, _UDP_BYTES = 14, 20, 8
"""A shaped port of the lab counts Ethernet headers and no gap."""
_UET_HEADER_BYTES = 12 + 44
"""RUD request and standard SES header (UE Specification 1.0, tables 3-30 and 3-8)."""
_UET_LARGEST_PAYLOAD = 4096
_TSS_BYTES = 12 + 16
"""Security header and the tag of AES-GCM (UE Specification 1.0, section 3.7)."""
_MAX_RTO_RETX = 12
"""More than the specification's 5: a hold timer of BGP (9 s) or a busy machine is no reason to give a peer up, since
the run's own time limit is there, and with time-outs that double this is half a minute."""
_BTH_BYTES, _RETH_BYTES, _ICRC_BYTES = 12, 16, 4
_RXE_HEADROOM_BYTES = 80
"""What rxe takes off an interface's MTU before it chooses its own (rxe_param.h, RXE_MAX_HDR_LENGTH)."""
_ROCE_MTUS = (4096, 2048, 1024, 512, 256)
_OWN_OPTIONS = {"mode", "tss"}
_SET_BY_LAB = {"link_rate_bps", "base_rtt_ns", "time_scale", "entropies", "cc", "paths"}


class TransportSettings:
    """Of one lab and transport. Raises `ScenarioError` for what does not fit together."""

    def __init__(self, lab: LiveLab, transport: Transport) -> None:
        self.kind = transport.kind
        self._lab = lab
        self._transport = transport
        self._paths: dict[tuple[str, str], PathModel] = {}
        self.dscp = self._choose_dscp()
        """What packets are marked with."""
        if transport.kind is TransportKind.UET:
            self._check_uet_options()
        elif transport.kind is TransportKind.TCP and transport.options:
            raise ScenarioError(f"transport.options: TCP has none, not {min(transport.options)!r}")

    @cached_property
    def base_rtt_ns(self) -> int:
        modelled_ns = model_base_rtt(self._lab.model).scaled(self._lab.plan.k).ns
        return max(1000, modelled_ns + 2 * self.pipeline_ns)

    @cached_property
    def pipeline_ns(self) -> int:
        """What our own endpoints add to every path, each way: the part of the base RTT that the topology's `qos:`
        declares and its links do not have (NICs, switch pipelines). Kernel TCP gets none."""
        if self.kind is not TransportKind.UET or self._lab.model.qos is None:
            return 0
        declared_ns = max((item.base_rtt.ns for item in self._lab.model.qos.profiles if item.base_rtt), default=0)
        return max(0, round((declared_ns - model_base_rtt(self._lab.model).ns) * self._lab.plan.k / 2))

    @property
    def single_path(self) -> bool:
        """Whether UET keeps to one entropy value for each NIC."""
        return self._transport.paths == "single" or self._mode is Mode.ROD

    @property
    def traffic_class(self) -> int:
        """The TOS byte of RDMA's packets: switches mark them (ECT(0), RFC 3168) where they would drop others."""
        return self.dscp << 2 | ECT0

    # --- for programs ------------------------------------------------------------------------------------

    def tcp(self) -> TcpSettings:
        return TcpSettings(congestion_control=self._transport.cc, tos=self.dscp << 2)

    def uet(self, host: str, ranks: Sequence[PortPlan], channels: ChannelPlan, *, job_id: int, key: str) -> UetSettings:
        """Of one host."""
        delays: dict[str, dict[str, int]] = {}
        own: PortPlan | None = None
        for channel in channels.channels:
            for near, far in ((channel.source, channel.destination), (channel.destination, channel.source)):
                a, b = ranks[near], ranks[far]
                if a.node == host:
                    own = own or a
                    delay_ns = self._path(b, a).endpoint_ns + self.pipeline_ns
                    if delay_ns:
                        delays.setdefault(_address(a), {})[_address(b)] = delay_ns
        return UetSettings(
            config={} if own is None else self._uet_config(own),
            mode=self._mode.name,
            dscp=self.dscp,
            control_dscp=self._control_dscp(),
            delays_ns=delays,
            job_id=job_id,
            security_key=key,
        )

    @property
    def secured(self) -> bool:
        """Whether UET's transport security (TSS) is asked for."""
        return bool(self._transport.options.get("tss", False))

    # --- for ideals --------------------------------------------------------------------------------------

    def ideals(self) -> Ideals:
        return Ideals(
            framing=self.framing,
            one_way_s=lambda a, b, size_bytes: self.one_way_s(a, b, size_bytes, self.framing(a)),
        )

    def framing(self, nic: PortPlan) -> Framing:
        """Of messages that this NIC sends."""
        below = _ETHERNET_BYTES + _IPV4_BYTES + _UDP_BYTES
        match self.kind:
            case TransportKind.TCP:
                return tcp_framing(nic.mtu_bytes)
            case TransportKind.UET:
                tss = _TSS_BYTES if self.secured else 0
                return Framing(
                    payload_bytes=self._uet_payload(nic.mtu_bytes) - tss, overhead_bytes=below + _UET_HEADER_BYTES + tss
                )
            case TransportKind.RDMA:
                room = int(self._transport.options.get("path_mtu", nic.mtu_bytes))
                room = min(room, nic.mtu_bytes - _RXE_HEADROOM_BYTES)
                payload = next((size for size in _ROCE_MTUS if size <= room), _ROCE_MTUS[-1])
                return Framing(
                    payload_bytes=payload, overhead_bytes=below + _BTH_BYTES + _ICRC_BYTES, first_bytes=_RETH_BYTES
                )
            case _:
                assert_never(self.kind)

    def one_way_s(self, a: PortPlan, b: PortPlan, size_bytes: int, framing: Framing) -> float:
        """A transfer alone: all its bytes through the slowest port, and its last packet through the others."""
        path = self._path(a, b)
        wire = framing.wire_bytes(size_bytes)
        packet = min(wire, framing.payload_bytes + framing.overhead_bytes)
        slowest = min(path.rates_bps)
        others_ns = path.serialisation_ns(packet) - 8 * packet * 1_000_000_000 // slowest
        delay_ns = path.kernel_ns + (path.endpoint_ns + self.pipeline_ns if self.kind is TransportKind.UET else 0)
        return serialisation_s(wire, slowest) + (others_ns + delay_ns) / 1e9

    def _path(self, a: PortPlan, b: PortPlan) -> PathModel:
        key = f"{a.node}:{a.name}", f"{b.node}:{b.name}"
        if key not in self._paths:
            self._paths[key] = self._wire.path(*key)
        return self._paths[key]

    @cached_property
    def _wire(self) -> WirePaths:
        return WirePaths(self._lab.plan.ports, [host.node for host in self._lab.plan.hosts])

    def _profile(self) -> PortProfile | None:
        qos = self._lab.plan.qos
        return None if qos is None else next((p for p in qos.profiles if p.switch), qos.profiles[0])

    def _choose_dscp(self) -> int:
        """The lowest of the class asked for; else of the lossless one, the first with ECN, or, for TCP, the default."""
        profile, wanted = self._profile(), self._transport.traffic_class
        if profile is None:
            if wanted is not None:
                raise ScenarioError(f"traffic_class {wanted}: the lab has no qos, so no classes")
            return 0
        found = {profile.class_of_dscp[dscp]: dscp for dscp in range(63, -1, -1)}
        classes = [item for item in profile.classes if item.priority in found]
        if wanted is not None:
            named = next((item for item in classes if item.name == wanted), None)
            if named is None:
                known = ", ".join(item.name for item in classes)
                raise ScenarioError(f"the lab has no traffic class {wanted!r}", hint=f"one of {known}")
            return found[named.priority]
        if self.kind is TransportKind.TCP:
            return 0
        preferred = [item for item in classes if item.lossless]
        preferred += [item for item in classes if item.kmin_bytes is not None and not item.strict]
        return found[preferred[0].priority] if preferred else 0

    def _control_dscp(self) -> int:
        """DSCP of acknowledgements and the like."""
        profile = self._profile()
        if profile is None:
            return CONTROL_DSCP
        found = [dscp for dscp, item in enumerate(profile.class_of_dscp) if item == profile.control_class]
        return CONTROL_DSCP if CONTROL_DSCP in found or not found else found[0]

    # --- UET ---------------------------------------------------------------------------------------------

    @property
    def _mode(self) -> Mode:
        return Mode[str(self._transport.options.get("mode", "RUD")).upper()]

    def _check_uet_options(self) -> None:
        options = self._transport.options
        known = {item.name for item in fields(UetConfig)} - _SET_BY_LAB | _OWN_OPTIONS
        for name in options:
            if name not in known:
                guess = nearest(name, known)
                raise ScenarioError(
                    f"transport.options: UET has none called {name!r}", hint=f"did you mean {guess}?" if guess else None
                )
        mode = str(options.get("mode", "RUD")).upper()
        if mode not in ("RUD", "ROD"):
            raise ScenarioError(f"transport.mode: {mode} carries no messages for certain; RUD and ROD do")
        any_nic = next((nic for host in self._lab.plan.hosts for nic in host.nics), None)
        if any_nic is not None:
            self._check_config(self._uet_config(any_nic))

    def _check_config(self, config: Mapping[str, Scalar]) -> None:
        try:
            UetConfig(**config)  # type: ignore[arg-type]
        except (UsageError, TypeError) as error:
            raise ScenarioError(f"transport: {error}") from None

    def _uet_config(self, nic: PortPlan) -> dict[str, Scalar]:
        given = {name: value for name, value in self._transport.options.items() if name not in _OWN_OPTIONS}
        profile = self._profile()
        config: dict[str, Scalar] = {
            "link_rate_bps": nic.rate_bps,
            "base_rtt_ns": self.base_rtt_ns,
            "rto_min_ns": RTO_RTTS * self.base_rtt_ns,
            "time_scale": self._lab.plan.k,
            "payload_bytes": self._uet_payload(nic.mtu_bytes),
            "trimming": profile is not None and profile.trimming,
            "max_rto_retx": _MAX_RTO_RETX,
        }
        if self._transport.cc is not None:
            config["cc"] = self._transport.cc
        if self._transport.paths is not None:
            config["paths"] = self._transport.paths
        return config | given

    def _uet_payload(self, mtu_bytes: int) -> int:
        """As `UetConfig` counts it: with what TSS takes of it."""
        fits = min(_UET_LARGEST_PAYLOAD, mtu_bytes - _IPV4_BYTES - _UDP_BYTES - _UET_HEADER_BYTES)
        return min(int(self._transport.options.get("payload_bytes", fits)), fits)


def _address(nic: PortPlan) -> str:
    assert nic.address is not None
    return str(nic.address.ip)
