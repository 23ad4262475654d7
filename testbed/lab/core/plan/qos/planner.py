"""The numbers of switch ports and NICs: `Lab.qos` becomes profiles in bytes, buffers, and an `InstallPort` a port.

Ports of the same QoS, rate, MTU and kind, on switches whose buffers are shared alike, have one `PortProfile`; each is
computed once, so that thousands of ports cost little. Depths in BDP are of the real line rate and the real base RTT:
the time scale divides the one and multiplies the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import Any

from testbed.base.datapath.abi import MAX_PORTS, MOST_PATHS
from testbed.base.datapath.traffic_class import ClassPlan
from testbed.base.errors import PlanError
from testbed.base.keys import said_in
from testbed.base.units import ByteCount, Duration, Rate
from testbed.lab.core.fabric import model_base_rtt
from testbed.lab.core.fabric.queue_depths import (
    LEAST_XOFF_FRAMES,
    RESERVED_FRAMES,
    PortShape,
    lossless_share,
    needed_bytes,
    pause_depths,
    shapes_of_ports,
)
from testbed.lab.core.model import (
    BACKEND,
    BalancingMode,
    Depth,
    HashEngine,
    Lab,
    LinkKind,
    NodeKind,
    NonEct,
    QosPolicy,
    QosProfile,
    Role,
    TrafficClass,
)
from testbed.lab.core.model.qos import CODE_POINTS
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.lab.core.plan.link_delays import delay_operations
from testbed.lab.core.plan.operations import DelayPort, InstallPort, ShapePort
from testbed.lab.core.plan.qos.qos_plan import BufferPlan, PortProfile, QosPlan, QosTables
from testbed.lab.core.plan.qos.shaping import burst_bytes
from testbed.lab.core.plan.stable import DEFAULT_REACTION_NS
from testbed.lab.core.plan.sysctls import planned_seed

QUEUE_PACKETS = 32_767
"""Packets that a port's kernel queues take: more than a buffer of full packets, so that eBPF alone drops.

Newer kernels refuse a longer queue (7.2 does: "integer out of range").
"""
HOST_QUEUE_BYTES = 64_000_000
"""A NIC's queues: more than sockets may have in flight, so that they wait: a NIC drops nothing of its own host."""
MOST_QUANTUM_BYTES = 200_000
"""A class sends no more than this in its turn (HTB's own bound for a quantum)."""
HINT_OF_TOO_MANY = "scenarios run on it with --backend flows"
CONTROL_DSCP = 48
"""CS6, network control (RFC 2474 section 4.2.2.2): FRR's BGP and BFD, and NICs' congestion notifications."""
_PLANNED = frozenset(each.name for each in fields(ClassPlan))
WATCHDOG_DRAINS = 8
"""The watchdog waits at least so many times what one sender's queue takes to drain: so many may share a port."""


class QosPlanner:
    """Plans the QoS of a lab that has `qos`, at time scale `k`, and knows the profile of each port.

    `reaction_ns` is the lab time from crossing XOFF until the sender's gate is closed. Raises `PlanError` where a
    switch's buffer cannot hold what its queues reserve, or one has more paths than it sees.
    """

    def __init__(self, lab: Lab, k: float, reaction_ns: int = DEFAULT_REACTION_NS, *, any_size: bool = False) -> None:
        if lab.qos is None:
            raise PlanError(f"{lab.name} has no qos", field="qos", code="qos")
        if 2 * len(lab.links) > MAX_PORTS and not any_size:
            raise PlanError(
                f"{2 * len(lab.links)} ports; with qos a lab has {MAX_PORTS} at most",
                field="qos",
                code="too-many-ports",
                hint=HINT_OF_TOO_MANY,
            )
        if not any_size:
            _check_paths(lab, lab.qos)
        self._lab = lab
        self._policy: QosPolicy = lab.qos
        self._k = k
        self._reaction_ns = reaction_ns
        self._profiles: dict[PortProfile, int] = {}
        self._switches = {node.name for node in lab.nodes if node.kind is NodeKind.SWITCH}
        self._shapes = shapes_of_ports(
            lab, lab.qos, lambda profile: profile.base_rtt or self._modelled_rtt, self._flight_bytes
        )
        """One for each port, in the order of the links."""
        self._profile_of_port: list[int] = [0] * len(self._shapes)
        self._buffer_of_node: dict[str, int] = {}
        self.plan = self._plan()

    @cached_property
    def _modelled_rtt(self) -> Duration:
        return model_base_rtt(self._lab)

    def _flight_bytes(self, rate: Rate, delay: Duration) -> int:
        flight_ns = 2 * delay.scaled(self._k).ns + self._reaction_ns
        return -(-rate.scaled(self._k).bps * flight_ns // (8 * 10**9))

    # ------------------------------------------------------------------ profiles

    def _plan(self) -> QosPlan:
        ports_of: dict[str, list[int]] = {}
        ends = (end for link in self._lab.links for end in (link.a, link.b))
        for port, end in enumerate(ends):
            ports_of.setdefault(end.node, []).append(port)
        nic_profiles: dict[int, int] = {}
        alike: dict[tuple[int, frozenset[tuple[int, int]]], tuple[Mapping[int, int], int]] = {}
        by_id = {id(shape): shape for shape in self._shapes}
        buffers = [_no_buffer()]
        strides = _strides(self._lab)
        for node in self._lab.nodes:
            mine = ports_of.get(node.name, [])
            if node.name not in self._switches:
                for port in mine:
                    key = id(self._shapes[port])
                    if key not in nic_profiles:
                        nic_profiles[key] = self._add(_nic_profile(self._shapes[port], self._policy, self._k))
                    self._profile_of_port[port] = nic_profiles[key]
                continue
            index = self._policy.of_node.get(node.name, 0)
            counts = Counter(id(self._shapes[port]) for port in mine)
            kind = (index, frozenset(counts.items()))
            if kind not in alike:
                alike[kind] = self._switch(node.name, index, {by_id[key]: count for key, count in counts.items()})
            profiles, headroom = alike[kind]
            for port in mine:
                self._profile_of_port[port] = profiles[id(self._shapes[port])]
            self._buffer_of_node[node.name] = len(buffers)
            buffer = _buffer(node.name, self._policy.profiles[index], headroom, self._k)
            if buffer.mode is BalancingMode.STATIC:
                buffer = replace(buffer, stride=strides.get(node.role, 1))
            buffers.append(buffer)
        least = WATCHDOG_DRAINS * max((_drain_ns(profile) for profile in self._profiles), default=0)
        return QosPlan(
            profiles=tuple(self._profiles),
            buffers=tuple(_patient(buffer, least) for buffer in buffers),
            base_rtt_ns=self._modelled_rtt.ns,
            reaction_ns=self._reaction_ns,
        )

    def _add(self, profile: PortProfile) -> int:
        return self._profiles.setdefault(profile, len(self._profiles))

    def _switch(self, node: str, index: int, ports: Mapping[PortShape, int]) -> tuple[Mapping[int, int], int]:
        """Profile indexes by the identity of a shape, and the headroom in all, of a switch with these ports."""
        profile = self._policy.profiles[index]
        shared = profile.buffer.shared_bytes
        share = lossless_share(shared, ports)
        needed = needed_bytes(ports, share)
        if needed > shared:
            raise PlanError(
                f"{node}: {sum(ports.values())} ports need {ByteCount(needed)} of buffer at k = {self._k:g},"
                f" more than the {ByteCount(shared)} it shares",
                field="qos.buffer.shared",
                code="buffer-too-small",
                hint=self._why_too_small(ports),
            )
        found: dict[int, int] = {}
        headroom = 0
        for shape, count in ports.items():
            planned = _switch_profile(shape, profile, share, self._policy, self._k)
            found[id(shape)] = self._add(planned)
            headroom += count * sum(item.headroom_bytes for item in planned.classes)
        return found, headroom

    def _why_too_small(self, ports: Mapping[PortShape, int]) -> str:
        flight = max(shape.flight_bytes for shape in ports)
        lossless = any(item.lossless for shape in ports for item in shape.profile.classes)
        if not lossless:
            return f"each queue keeps {RESERVED_FRAMES} frames; enlarge buffer.shared or lower the MTU"
        return (
            f"each lossless ingress queue keeps its xoff (at least {LEAST_XOFF_FRAMES} frames) and {ByteCount(flight)}"
            f" for what is sent in the {Duration(self._reaction_ns)} of lab time until a pause is obeyed; enlarge"
            " buffer.shared, or raise scale.time"
        )

    # ------------------------------------------------------------------ operations

    def install(
        self, ports: Sequence[PortPlan], profiles: Sequence[int], *, before: int, buffers: int
    ) -> list[InstallPort]:
        """The operations for `ports`, which are those of the lab's links in order, both ends of each.

        `before` them so many ports of the lab have numbers, and so many `buffers`; `profiles` are the numbers of the
        network's own.
        """
        seeds: dict[str, int] = {}
        operations = []
        for number, port in enumerate(ports):
            node = port.node
            buffer = self._buffer_of_node.get(node, 0)
            if node not in seeds:
                seeds[node] = self.plan.buffers[buffer].seed
            operations.append(
                InstallPort(
                    node=node,
                    name=port.name,
                    ifindex=port.ifindex,
                    port=before + number + 1,
                    peer=before + (number ^ 1) + 1,
                    rate_bps=port.rate_bps,
                    burst_bytes=burst_bytes(port.rate_bps),
                    mtu_bytes=port.mtu_bytes,
                    profile=profiles[self._profile_of_port[number]],
                    buffer=buffer and buffers + buffer,
                    switch=buffer != 0,
                    last_hop=buffer != 0 and ports[number ^ 1].node not in self._switches,
                    seed=seeds[node],
                    grouped=self._lab.links[number // 2].kind in (LinkKind.MEMBER, LinkKind.PEER),
                )
            )
        return operations


class QueuePlanner:
    """Plans the queues of all networks of a lab, and the delays of their wires.

    Ports with QoS have numbers that follow one another, the back end's first; so do profiles and buffers. A lab that
    nobody is going to deploy may be of `any_size`.
    """

    def __init__(self, views: Mapping[str, Lab], k: float, reaction_ns: int, *, any_size: bool = False) -> None:
        self._planners = {
            name: _planner(name, view, k, reaction_ns, any_size=any_size)
            for name, view in views.items()
            if view.qos is not None
        }
        self.plans = {name: planner.plan for name, planner in self._planners.items()}
        self._switches_of = {link.network: name for name, view in views.items() for link in view.links}
        """The network on whose switches the ports of each network are; none for management ports."""
        numbered = sum(2 * len(views[name].links) for name in self.plans)
        if numbered > MAX_PORTS and not any_size:
            raise PlanError(
                f"{numbered} ports have qos; there are {MAX_PORTS} at most",
                field="qos",
                code="too-many-ports",
                hint=HINT_OF_TOO_MANY,
            )
        self.tables: QosTables | None = None
        profiles: dict[PortProfile, int] = {}
        self._profiles = {
            name: [profiles.setdefault(profile, len(profiles)) for profile in plan.profiles]
            for name, plan in self.plans.items()
        }
        """The numbers in the tables of each network's profiles: networks share those that say the same."""
        if self.plans:
            self.tables = QosTables(
                profiles=tuple(profiles),
                buffers=(_no_buffer(), *(buffer for plan in self.plans.values() for buffer in plan.buffers[1:])),
            )

    def operations(self, ports: Sequence[PortPlan]) -> list[InstallPort | ShapePort | DelayPort]:
        """The operations for all ports of the lab: the queues of all of them, then the delays."""
        first, buffer = 0, 0
        queues: list[InstallPort | ShapePort | DelayPort] = []
        delays: list[DelayPort] = []
        if BACKEND not in self.plans:
            plain = self._on(ports, BACKEND)
            queues += _shaping(plain)
            delays += delay_operations(plain, has_qos=False)
        for name, planner in self._planners.items():
            mine = self._on(ports, name)
            queues += planner.install(mine, self._profiles[name], before=first, buffers=buffer)
            delays += delay_operations(mine, has_qos=True, first=first + 1)
            first += len(mine)
            buffer += len(planner.plan.buffers) - 1
        plain = [port for port in ports if self._switches_of.get(port.network) not in {BACKEND, *self.plans}]
        return [*queues, *_shaping(plain), *delays, *delay_operations(plain, has_qos=False)]

    def _on(self, ports: Sequence[PortPlan], network: str) -> list[PortPlan]:
        """The ports of links on the switches of a network."""
        return [port for port in ports if self._switches_of.get(port.network) == network]


def _planner(network: str, view: Lab, k: float, reaction_ns: int, *, any_size: bool) -> QosPlanner:
    """The planner of a network, whose errors name the section that it has its QoS from."""
    try:
        return QosPlanner(view, k, reaction_ns, any_size=any_size)
    except PlanError as error:
        if network != BACKEND:
            error.field = f"networks.{network}.{error.field}"
        raise


def _shaping(ports: Sequence[PortPlan]) -> list[ShapePort]:
    return [
        ShapePort(
            node=port.node,
            name=port.name,
            ifindex=port.ifindex,
            rate_bps=port.rate_bps,
            burst_bytes=burst_bytes(port.rate_bps),
        )
        for port in ports
    ]


def _drain_ns(profile: PortProfile) -> int:
    """The lab time in which a lossless class of such a port sends what lies between XOFF and XON."""
    longest = 0
    for item in profile.classes:
        if item.lossless and profile.switch:
            share = 1.0 if item.strict else max(item.weight, 1) / 100
            longest = max(longest, round((item.xoff_bytes - item.xon_bytes) * 8e9 / (profile.rate_bps * share)))
    return longest


def _patient(buffer: BufferPlan, least_ns: int) -> BufferPlan:
    """The buffer with a watchdog that does not take congestion for a stuck port.

    The watchdog is in lab time, and a pause lasts k times as long as in the real fabric.
    """
    if not buffer.watchdog_detect_ns or buffer.watchdog_detect_ns >= least_ns:
        return buffer
    return replace(buffer, watchdog_detect_ns=least_ns)


# ---------------------------------------------------------------------- of a switch


def _no_buffer() -> BufferPlan:
    """Index 0: NICs have no shared buffer, and balance nothing."""
    return BufferPlan(
        node="",
        shared_bytes=0,
        headroom_bytes=0,
        mode=BalancingMode.FLOW,
        hash=HashEngine.EBPF,
        gap_ns=0,
        seed=0,
    )


def _buffer(node: str, profile: QosProfile, headroom: int, k: float) -> BufferPlan:
    balancing, watchdog = profile.load_balancing, profile.watchdog
    return BufferPlan(
        node=node,
        shared_bytes=profile.buffer.shared_bytes,
        headroom_bytes=headroom,
        mode=balancing.mode,
        hash=balancing.hash,
        hash_fields=balancing.hash_fields,
        per=balancing.per,
        hysteresis_bytes=balancing.hysteresis or 0,
        gap_ns=balancing.gap.scaled(k).ns if balancing.has_flowlets else 0,
        seed=planned_seed(node, balancing),
        fixed_seed=balancing.seed is not None,
        watchdog_detect_ns=0 if watchdog is None else watchdog.detect.ns,
        watchdog_restore_ns=0 if watchdog is None else watchdog.restore.ns,
    )


def _check_paths(lab: Lab, policy: QosPolicy) -> None:
    """Raise `PlanError` where a switch that chooses a path by itself may have more than it sees."""
    upwards = Counter(link.a.node for link in lab.links if link.kind is LinkKind.FABRIC)
    for node, links in upwards.items():
        balancing, paths = policy.of(node).load_balancing, min(links, lab.routing.ecmp)
        if paths > MOST_PATHS and balancing.asks_kernel:
            raise PlanError(
                f"{node} has {paths} ways up; with mode: {balancing.mode} a switch chooses among {MOST_PATHS} at most",
                field="qos.load_balancing.mode",
                code="not-built",
                hint=f"routing: {{ecmp: {MOST_PATHS}}}, or mode: flow",
            )


def _strides(lab: Lab) -> dict[Role | None, int]:
    """Return how many destinations in a row a switch of each tier pins to one path: D-mod-K (Zahavi, "Fat-tree routing
    and node ordering providing contention free traffic for MPI global collectives", JPDC 2012).

    The tier below has sent every n-th of them here, where n is the number of its paths upwards.
    """
    upwards = Counter(link.a.node for link in lab.links if link.kind is LinkKind.FABRIC)
    widest: dict[Role | None, int] = {}
    for node in lab.nodes:
        widest[node.role] = max(widest.get(node.role, 1), min(upwards[node.name], lab.routing.ecmp))
    leaves = max(widest.get(Role.RAIL, 1), widest.get(Role.LEAF, 1))
    return {Role.SPINE: leaves, Role.SUPER_SPINE: leaves * widest.get(Role.SPINE, 1)}


def _switch_profile(shape: PortShape, owner: QosProfile, share: int, policy: QosPolicy, k: float) -> PortProfile:
    """`owner` is the profile of the switch, which its buffer comes from."""
    quanta = quantum_bytes(shape.profile.classes, shape.frame)
    classes = tuple(
        _switch_class(item, shape, owner, share, quantum, k)
        for item, quantum in zip(shape.profile.classes, quanta, strict=True)
    )
    return _profile(shape, classes, policy, k, switch=True)


def _switch_class(
    item: TrafficClass, shape: PortShape, owner: QosProfile, share: int, quantum: int, k: float
) -> ClassPlan:
    shared, bdp, ecn = owner.buffer.shared_bytes, shape.bdp, item.ecn
    planned = _rules(item, shape, quantum, k) | {"limit_bytes": shared, "pmax": 0.0}
    if ecn is not None:
        kmin, kmax = planned["kmin_bytes"], planned["kmax_bytes"]
        if kmin > kmax:
            raise PlanError(
                f"Kmin ({ecn.kmin}, {ByteCount(kmin)}) of class {item.name} is above Kmax ({ecn.kmax},"
                f" {ByteCount(kmax)}) at a BDP of {ByteCount(bdp)}",
                field=f"qos.classes.{item.name}.ecn",
                code="ecn-curve",
            )
        planned |= {"pmax": ecn.pmax, "drop_non_ect": ecn.non_ect is NonEct.DROP, "mark_by": ecn.by}
    if item.lossless:
        depths = pause_depths(item, shape, share)
        if depths.xon > depths.xoff:
            raise PlanError(
                f"XON ({ByteCount(depths.xon)}) of class {item.name} is above XOFF ({ByteCount(depths.xoff)})",
                field=f"qos.classes.{item.name}.pfc",
                code="pfc-thresholds",
            )
        planned |= {"xoff_bytes": depths.xoff, "xon_bytes": depths.xon, "headroom_bytes": depths.headroom}
    else:
        planned["alpha"] = owner.buffer.alpha
        if item.limit is not None:
            planned["limit_bytes"] = min(item.limit.bytes_at(bdp), shared)
    return ClassPlan(**planned)


# ---------------------------------------------------------------------- of a NIC


def _nic_profile(shape: PortShape, policy: QosPolicy, k: float) -> PortProfile:
    """A NIC schedules and obeys pauses; it neither marks nor trims, and its queues make sockets wait."""
    quanta = quantum_bytes(shape.profile.classes, shape.frame)
    classes = tuple(
        ClassPlan(**_rules(item, shape, quantum, k, nic=True) | {"limit_bytes": HOST_QUEUE_BYTES})
        for item, quantum in zip(shape.profile.classes, quanta, strict=True)
    )
    return _profile(shape, classes, policy, k, switch=False)


# ---------------------------------------------------------------------- of both


def _rules(item: TrafficClass, shape: PortShape, quantum: int, k: float, *, nic: bool = False) -> dict[str, Any]:
    """The fields of a class's plan: those that follow from a key by its name, and what every queue has."""
    planned: dict[str, Any] = {"priority": item.priority, "name": item.name, "quantum_bytes": quantum}
    planned |= {"reserved_bytes": RESERVED_FRAMES * shape.frame}
    for name, value in said_in(item, lambda key: not (nic and key.of_switch)):
        match value:
            case Depth():
                planned[f"{name}_bytes"] = value.bytes_at(shape.bdp)
            case Duration():
                planned[f"{name}_ns"] = value.scaled(k).ns
            case _:
                planned[name] = value
    return {name: value for name, value in planned.items() if name in _PLANNED}


def _profile(
    shape: PortShape, classes: tuple[ClassPlan, ...], policy: QosPolicy, k: float, *, switch: bool
) -> PortProfile:
    profile = shape.profile
    table = class_of_dscp(profile.classes)
    strict = [item.priority for item in profile.classes if item.strict]
    named = any(CONTROL_DSCP in item.dscp for item in profile.classes)
    control = table[CONTROL_DSCP] if named or not strict else max(strict)
    return PortProfile(
        profile=policy.profiles.index(profile),
        switch=switch,
        rate_bps=Rate(shape.line_rate_bps).scaled(k).bps,
        mtu_bytes=shape.mtu_bytes,
        bdp_bytes=shape.bdp,
        classes=classes,
        class_of_dscp=table,
        control_class=control,
        trimmed_class=max(strict, default=control),
        trimming=switch and profile.trimming,
        marks_account=profile.marks_account,
    )


def class_of_dscp(classes: Sequence[TrafficClass]) -> tuple[int, ...]:
    """The priority of each of the 64 code points: of the class that names it, else of the default class.

    Raises `PlanError` unless one class is the default and none names another's DSCP.
    """
    defaults = [item.priority for item in classes if item.default]
    if len(defaults) != 1:
        raise PlanError(
            f"{len(defaults)} default classes; there must be one", field="qos.classes", code="default-class"
        )
    table = [defaults[0]] * CODE_POINTS
    named: set[int] = set()
    for item in classes:
        for code_point in item.dscp:
            if code_point in named or not 0 <= code_point < CODE_POINTS:
                raise PlanError(
                    f"DSCP {code_point} is named twice or out of 0..63", field="qos.classes", code="duplicate-dscp"
                )
            named.add(code_point)
            table[code_point] = item.priority
    return tuple(table)


def quantum_bytes(classes: Sequence[TrafficClass], frame: int) -> tuple[int, ...]:
    """Return what each class sends in its turn: a frame by the smallest weight, the others in proportion, at most 200
    kB.

    HTB serves a class a whole frame even if its quantum is smaller, so that less than a frame would not be a share.
    """
    smallest = min((item.weight for item in classes if not item.strict), default=1) or 1
    return tuple(
        frame if item.strict else min(max(frame, frame * item.weight // smallest), max(frame, MOST_QUANTUM_BYTES))
        for item in classes
    )
