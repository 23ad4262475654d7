"""A scenario's transport on a lab: the base class of what every transport decides there, and what most have in common.

A transport owns how its packets are marked and framed, what an idle fabric would do for it, which channels and flows it
has, what workers are told, and what a report must say of it. Times are in lab time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from testbed.base.datapath.traffic_class import ClassPlan
from testbed.base.errors import CapabilityError, ScenarioError
from testbed.base.names import choice_hint
from testbed.lab.core.fabric.base_rtt import model_base_rtt
from testbed.lab.core.model.overlay import VXLAN_BYTES
from testbed.lab.core.model.tcp import DEFAULT_TCP_CC
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.lab.core.plan.link_delays import PathModel, WirePaths
from testbed.lab.core.plan.qos.qos_plan import PortProfile
from testbed.lab.core.plan.user_space.marks import data_dscp, port_profile
from testbed.run.placed.channels import CONNECTIONS, ChannelPlan, ChannelRules, plan_channels
from testbed.run.placed.lab import congestion_controls
from testbed.run.schema.model import Transport
from testbed.run.schema.transport_rules import PLANNED
from testbed.run.schema.transports import TRANSPORTS
from testbed.workload.oracles.serialisation import Framing, serialisation_s
from testbed.workload.steps import Transfer, Workload

if TYPE_CHECKING:
    from testbed.endpoints.worker.program import Settings
    from testbed.run.measuring.measured import Measured
    from testbed.run.measuring.reports import Ideals
    from testbed.run.placed.lab import LiveLab
    from testbed.run.placed.placed_workload import PlacedWorkload
    from testbed.run.placed.traffic import RunTraffic
    from testbed.run.programs.timed_flows import FlowWatch
    from testbed.run.schema.model import Workload as ScenarioWorkload

TCP_PROTOCOL, UDP_PROTOCOL = 6, 17
"""In the IP header, for whoever hashes it."""


class PathChoice(StrEnum):
    """The way in which the packets of one flow choose among paths of equal cost."""

    HASHED = "hashed"
    """All of them take the path that the flow's ports hash to."""
    OBLIVIOUS = "oblivious"
    """Each takes any, whatever is going on there."""
    ADAPTIVE = "adaptive"
    """Each takes one, and paths that are congested are avoided."""
    REPATHED = "repathed"
    """All of them take one path, until it has been congested for a while, and then another."""
    ROUTED = "routed"
    """All of them take the path of their destination's address in the tables of a subnet manager."""


class LabTransport(ABC):
    """Raises `ScenarioError` where the lab and the scenario's transport do not fit together."""

    protocol: ClassVar[int] = UDP_PROTOCOL
    """The protocol number of the IP header."""
    in_user_space: ClassVar[bool] = False
    """Every packet costs time of our own processes, so that the machine's CPUs bound what a scenario may send."""
    workers_own_sysfs: ClassVar[bool] = False
    """Workers must see only their host's devices in /sys."""
    shares_workers: ClassVar[bool] = True
    """One process can work for many hosts, by sockets that it opens in the network of each."""
    counts_gaps: ClassVar[bool] = True
    """Its count of packets out of order has those that follow a lost one, too."""
    of_links_alone: ClassVar[bool] = False
    """The time that a transfer takes is a matter of links and of its own packets, and of nothing behind a NIC."""
    by_default_lossless: ClassVar[bool] = True
    """Without a `traffic_class`, packets are of the lossless class, or the first with ECN, rather than the default."""

    def __init__(self, lab: LiveLab, transport: Transport) -> None:
        self.lab = lab
        self.transport = transport
        self.dscp = self._choose_dscp()
        """Packets are marked with it."""
        self.check()

    # --- what each transport says ------------------------------------------------------------------------

    @abstractmethod
    def framing(self, nic: PortPlan) -> Framing:
        """Return what messages that this NIC sends cost on a link, in packets and headers."""

    @abstractmethod
    def worker_settings(self, placement: PlacedWorkload) -> Callable[[str], Settings]:
        """Return, for one run, what tells the settings of each host's worker by the host's name."""

    @abstractmethod
    def approximations(self) -> list[str]:
        """Return what a run over it does not reproduce of the fabric it models, a sentence each."""

    def check(self) -> None:
        """Raise `ScenarioError` for an option that this transport does not have."""
        kind = self.transport.kind
        known = [parameter.name for parameter in TRANSPORTS[kind.value].parameters]
        for name in sorted(self.transport.options):
            if name not in known:
                message = f"transport.options: {kind.upper()} has none called {name!r}"
                raise ScenarioError(message, hint=choice_hint(name, known))

    @classmethod
    def check_machine(cls, transport: Transport) -> None:
        """Raise `CapabilityError` where this machine lacks what moves the bytes, before any moves."""
        if cls.protocol != TCP_PROTOCOL or transport.cc is None:
            return
        from testbed.endpoints.worker.streams.tcp_socket import has_congestion_control

        if not has_congestion_control(transport.cc):
            raise CapabilityError(
                f"transport.cc: this kernel has no congestion control {transport.cc!r}",
                missing=transport.cc,
                hint="`testbed doctor` lists what it has; the lab VM's has dctcp and bbr",
            )

    def as_run(self) -> dict[str, object]:
        """Return the transport in the keys of its file, with what the lab decides where it says nothing."""
        written: dict[str, object] = dict(self.transport.written())
        has_cc = any(parameter.name == "cc" for parameter in TRANSPORTS[self.transport.kind.value].parameters)
        if self.transport.cc is None and has_cc and self.protocol == TCP_PROTOCOL:
            written["cc"] = self.lab_congestion_control
        return written

    @cached_property
    def lab_congestion_control(self) -> str:
        """Return what connections of the kernel's TCP have in the lab's hosts where nothing is said, all that there are
        where hosts differ; the default for a lab that is only planned."""
        found = congestion_controls(self.lab, (host.node for host in self.lab.plan.hosts))
        return DEFAULT_TCP_CC if found is None else "/".join(sorted(set(found.values())))

    def warnings(self) -> list[str]:
        """Return what is allowed, and hardly meant: a sentence each, without a full stop."""
        return []

    def check_ranks(self, nics: Sequence[PortPlan]) -> None:  # noqa: B027 - most can send from any NIC
        """Raise `ScenarioError` for the first of these NICs that it cannot send from."""

    def run_timed(self, workload: ScenarioWorkload, traffic: RunTraffic, watch: FlowWatch, measured: Measured) -> None:
        """Have pairs of programs send what the run carries, and put what they measured into `measured`.

        They send for the workload's duration, or, where latency is measured, so many messages. Raises `FlowFailed`, and
        `ScenarioError` where there is nothing to send or a NIC cannot.
        """
        raise ScenarioError(f"no program sends over {self.transport.kind} for a duration", hint="bytes: 64bdp")

    @property
    def goes_back(self) -> bool:
        """Tell whether a packet that is lost has all behind it sent again."""
        return False

    @property
    def channel_rules(self) -> ChannelRules:
        """Return which transfers share a channel, and how its ports are chosen."""
        return CONNECTIONS

    @property
    def path_choice(self) -> PathChoice:
        """Return how its packets choose among paths where switches hash each packet's ports."""
        return PathChoice.HASHED

    @cached_property
    def pipeline_ns(self) -> int:
        """Return what its endpoints add to every path, each way: the part of the base RTT that the topology's `qos:`
        declares and its links do not have (NICs, switch pipelines). A transport of the kernel adds none."""
        return 0

    def held_ns(self, path: PathModel) -> int:
        """Return how long its endpoints hold what arrives over a path, beside what the kernel delays."""
        return 0

    def observe_run(self, ranks: Sequence[PortPlan]) -> Callable[[Measured], None]:
        """Begin to count what only the hosts' devices know; the function returned adds it to what was measured."""
        return lambda measured: None

    def message_ideals_s(self, traffic: RunTraffic) -> Sequence[float]:
        """Return what an idle fabric takes for each pair's message that is alone (s), where that is measured."""
        return ()

    def expected_latency_s(self, traffic: RunTraffic) -> float:
        """Return how long an idle fabric takes for all messages of a run that measures latency (s).

        Raises `ScenarioError` where the test cannot have such messages.
        """
        return 0.0

    def endpoint_bps(self, nic: PortPlan) -> float:
        """Return the most that the end of a transfer at this NIC can send or receive, in lab bit/s."""
        return float(nic.nic_bps)

    def pulls(self, step: Transfer, ranks: Sequence[PortPlan]) -> bool:
        """Tell whether the destination of a transfer begins it, by asking for the bytes."""
        return False

    # --- what all have -----------------------------------------------------------------------------------

    @property
    def tos(self) -> int:
        """The IP header's former type of service: the DSCP, and ECN bits that are the transport's own affair."""
        return self.dscp << 2

    def plan_channels(self, workload: Workload, ranks: Sequence[PortPlan], *, seed: int) -> ChannelPlan:
        """Return the channels of one run with this seed; `ranks[i]` is the NIC of rank i."""
        kind = self.transport.kind.value
        if not TRANSPORTS[kind].by_fio and any(step.job is not None for step in workload.transfers):
            raise ScenarioError(f"{workload.name} has jobs of fio, and {kind} does not go by fio")
        plan = plan_channels(workload, ranks, self.channel_rules, seed=seed)
        if self.transport.paths != PLANNED:
            return plan
        from testbed.run.ideals.planned_channels import plan_channel_paths

        self.check_paths(ranks)
        return plan_channel_paths(
            self.lab, plan, workload, ranks, self.channel_rules, protocol=self.protocol, seed=seed
        )

    def check_paths(self, ranks: Sequence[PortPlan]) -> None:
        """Raise `ScenarioError` where paths are to be planned, and it is not the switches' hash that chooses them."""
        if self.transport.paths != PLANNED:
            return
        from testbed.run.ideals.planned_channels import check_plannable, no_plan

        if self.path_choice is PathChoice.REPATHED:
            message = "the congestion control leaves a path that stays congested"
            raise no_plan(message, hint="paths: hashed, or parameters with repath_rounds 0")
        check_plannable(self.lab, ranks, protocol=self.protocol, port=self.channel_rules.destination_port)

    @cached_property
    def base_rtt_ns(self) -> int:
        """The longest round trip through the idle fabric: modelled, unless the file declares one that this transport
        makes up."""
        modelled_ns = model_base_rtt(self.lab.model).scaled(self.lab.plan.k).ns
        return max(1000, modelled_ns + 2 * self.pipeline_ns)

    def ideals(self) -> Ideals:
        """Return what an idle fabric would do for its transfers."""
        from testbed.run.measuring.reports import Ideals

        return Ideals(
            framing=self.framing,
            goodput_bps=self.goodput_bps,
            one_way_s=lambda a, b, size_bytes: self.one_way_s(a, b, size_bytes, self.framing(a)),
        )

    def one_way_s(self, a: PortPlan, b: PortPlan, size_bytes: int, framing: Framing) -> float:
        """Return the time of a transfer alone (s): all its bytes through the slowest port, and its last packet through
        the others. Between switches, what is in a tenant has the bytes of VXLAN, too."""
        path = self.path(a, b)
        wire = framing.wire_bytes(size_bytes)
        packet = min(wire, framing.payload_bytes + framing.overhead_bytes)
        ports = [(wire, packet, min(path.rates_bps))]
        if path.wrapped_bps:
            more = framing.packets(size_bytes) * VXLAN_BYTES
            ports.append((wire + more, packet + VXLAN_BYTES, min(path.wrapped_bps)))
        whole, last, slowest = max(ports, key=lambda port: port[0] / port[2])
        others_ns = path.serialisation_ns(packet) - 8 * last * 1_000_000_000 // slowest
        return serialisation_s(whole, slowest) + (others_ns + path.kernel_ns + self.held_ns(path)) / 1e9

    def goodput_bps(self, a: PortPlan, b: PortPlan) -> float:
        """Return what a flow alone would get between two NICs, in lab bit/s of payload: the slower one's rate times the
        payload efficiency.

        In a tenant, the ports between switches send the bytes of VXLAN as well, which makes them the limit if they are
        no faster than the NICs; if they are slower, the ideal does not know, as it does not elsewhere.
        Acknowledgements of what the NIC receives go the same way and are not counted in: those of TCP cost up to
        66 / (2 * (MTU + 14)), 0.7 % at 4500 bytes.
        """
        framing = self.framing(min((a, b), key=lambda nic: nic.mtu_bytes))
        rate = min(a.nic_bps, b.nic_bps)
        plain = rate * framing.efficiency
        wrapped_bps = self.path(a, b).wrapped_bps if a.tenant else ()
        if not wrapped_bps:
            return plain
        return min(plain, max(rate, min(wrapped_bps)) * framing.wrapped(VXLAN_BYTES).efficiency)

    def is_slowed_by_vxlan(self, a: PortPlan, b: PortPlan) -> bool:
        """Tell whether a port of the way that sends a tenant's packets with the bytes of VXLAN is no faster than the
        NICs, so that it is the limit of a flow between them."""
        wrapped_bps = self.path(a, b).wrapped_bps if a.tenant else ()
        return bool(wrapped_bps) and min(wrapped_bps) <= min(a.rate_bps, b.rate_bps)

    def path(self, a: PortPlan, b: PortPlan) -> PathModel:
        """Return the model of the way from one NIC to another."""
        return self._wire.path(a.wire, b.wire)

    @cached_property
    def _wire(self) -> WirePaths:
        return WirePaths.of(self.lab.plan)

    @property
    def traffic_class(self) -> ClassPlan | None:
        """Return the class that its packets are of; None for a lab without `qos:`."""
        profile = self.profile
        if profile is None:
            return None
        priority = profile.class_of_dscp[self.dscp]
        return next((item for item in profile.classes if item.priority == priority), None)

    @property
    def profile(self) -> PortProfile | None:
        """Return how the lab's switches treat packets; None for a lab without `qos:`."""
        return port_profile(self.lab.plan)

    def dscp_of_class(self, name: str, key: str) -> int:
        """Return the lowest DSCP of a traffic class of the lab, which `transport.key` names; else `ScenarioError`."""
        profile = self.profile
        if profile is None:
            raise ScenarioError(f"{key} {name}: the lab has no qos, so no classes")
        found = {profile.class_of_dscp[dscp]: dscp for dscp in range(63, -1, -1)}
        classes = {item.name: found[item.priority] for item in profile.classes if item.priority in found}
        if name not in classes:
            raise ScenarioError(f"the lab has no traffic class {name!r}", hint=choice_hint(name, classes))
        return classes[name]

    def _choose_dscp(self) -> int:
        """The lowest of the class asked for; else of the lossless one or the first with ECN, or the default."""
        profile, wanted = self.profile, self.transport.traffic_class
        if wanted is not None:
            return self.dscp_of_class(wanted, "traffic_class")
        return data_dscp(profile) if self.by_default_lossless else 0


def address_of(nic: PortPlan) -> str:
    """Return a NIC's IPv4 address as text. Ranks have one (`plan_channels` has seen to it)."""
    assert nic.address is not None
    return str(nic.address.ip)
