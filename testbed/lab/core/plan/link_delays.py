"""The wire of a lab: who realises each link's delay, the delay of a path, and its modelled round-trip time.

`kernel` is netem on an ifb device that a port's arrivals pass through; `endpoint` leaves the delay to our own
transports, which hold received datagrams for the path's delay (kernel TCP and rxe get none); `auto` is the kernel
where it can and else the endpoints; `ignore` is no delay at all. Everything here is pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from testbed.base.errors import CapabilityError, PlanError
from testbed.lab.core.fabric.graph import Graph
from testbed.lab.core.model import BACKEND, Delay, DelayBy, Lab
from testbed.lab.core.model.overlay import VXLAN_BYTES
from testbed.lab.core.plan.lab_plan import LabPlan, PortPlan
from testbed.lab.core.plan.operations import DelayPort

SMALLEST_FRAME_BYTES = 64
LEAST_LIMIT_PACKETS = 1000
IFB_IFINDEX = 1 << 20
"""An ifb's index is this plus its port's: ports stay below 32,768."""
NETEM_OPTION = "CONFIG_NET_SCH_NETEM"
IFB_OPTION = "CONFIG_IFB"
MIRRED_OPTION = "CONFIG_NET_ACT_MIRRED"
REDIRECT_KERNEL = "Linux 6.4"
"""Before, ifb drops what eBPF redirects to it ("bpf: Set skb redirect and from_ingress info in __bpf_tx_skb")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireCapabilities:
    """The parts of the kernel that delaying needs: "" where it has one, else its words for why not.

    `mirred` sends arrivals through an ifb in a lab without `qos:`; with it the port's eBPF program does, which needs
    `redirect`.
    """

    netem: str
    ifb: str
    mirred: str = ""
    redirect: str = ""

    def missing(self, *, has_qos: bool) -> tuple[str, str]:
        """Return what to ask for first (a kernel option or version) and the kernel's words; "" where nothing is
        missing."""
        needed = [(NETEM_OPTION, self.netem), (IFB_OPTION, self.ifb)]
        needed.append((REDIRECT_KERNEL, self.redirect) if has_qos else (MIRRED_OPTION, self.mirred))
        return next(((option, why) for option, why in needed if why), ("", ""))


def check_losses(lab: Lab) -> None:
    """Raise `PlanError` where a link has a loss that nothing realises."""
    for link in lab.links:
        if link.loss and lab.qos_of(link.network) is None:
            raise PlanError(
                f"{link.a} to {link.b}: loss on the wire needs the eBPF data path",
                field="links.loss",
                code="loss-without-qos",
                hint="add `qos: {preset: uec}`",
            )


def has_delays(lab: Lab) -> bool:
    """Tell whether any link has a delay that somebody must realise."""
    return any(_is_wanted(link.delay) for link in lab.links)


def _is_wanted(delay: Delay | None) -> bool:
    return delay is not None and bool(delay.value or delay.jitter) and delay.by is not DelayBy.IGNORE


def decide_delay(lab: Lab, capabilities: WireCapabilities) -> DelayBy:
    """Return what `by: auto` means for this lab on this machine: KERNEL or ENDPOINT.

    Raises `CapabilityError` where a link insists on the kernel and the kernel cannot.
    """
    able = True
    for name in lab.network_names or (BACKEND,):
        seen = lab.of_network(name)
        has_qos = seen.qos is not None
        if not capabilities.missing(has_qos=has_qos)[0]:
            continue
        able = able and name != BACKEND and not has_delays(seen)
        for link in seen.links:
            if link.delay is not None and link.delay.by is DelayBy.KERNEL and _is_wanted(link.delay):
                raise kernel_delay_error(f"{link.a} to {link.b}: delay by kernel", capabilities, has_qos=has_qos)
    return DelayBy.KERNEL if able else DelayBy.ENDPOINT


def kernel_delay_error(what: str, capabilities: WireCapabilities, *, has_qos: bool) -> CapabilityError:
    """The error for something that needs netem where the kernel lacks it. `what` begins its sentence."""
    missing, reason = capabilities.missing(has_qos=has_qos)
    return CapabilityError(
        f"{what} needs {missing}, which this kernel does not have ({reason})",
        missing=missing,
        hint="run a kernel that has it (Debian's and Ubuntu's do, as a module), or say `by: auto` or `by: endpoint`:"
        " then our own transports hold packets for the path's delay, and TCP gets none",
    )


def mechanism(delay: Delay | None, auto: DelayBy) -> DelayBy:
    """Return who realises a link's delay: KERNEL, ENDPOINT, or IGNORE where there is none."""
    if delay is None or not _is_wanted(delay):
        return DelayBy.IGNORE
    return auto if delay.by is DelayBy.AUTO else delay.by


def delay_operation(
    port: PortPlan, number: int, *, rate_bps: int, delay_ns: int, jitter_ns: int, has_qos: bool
) -> DelayPort:
    """Delay what `port` (the `number`-th of the lab, from 1) receives.

    `rate_bps` is what its peer sends at. The queue holds two bandwidth-delay products of the smallest frames, so that
    netem never drops: packets on a wire are in no buffer.
    """
    in_flight = rate_bps * (delay_ns + 4 * jitter_ns) // (8 * 1_000_000_000 * SMALLEST_FRAME_BYTES)
    return DelayPort(
        node=port.node,
        name=port.name,
        ifindex=port.ifindex,
        port=number,
        ifb_name=f"_wire{port.ifindex}",
        ifb_ifindex=IFB_IFINDEX + port.ifindex,
        mtu_bytes=port.mtu_bytes,
        delay_ns=delay_ns,
        jitter_ns=jitter_ns,
        limit_packets=max(LEAST_LIMIT_PACKETS, 2 * in_flight),
        clsact=not has_qos,
    )


def delay_operations(ports: Sequence[PortPlan], *, has_qos: bool, first: int = 1) -> list[DelayPort]:
    """One operation for each port whose link's delay the kernel realises. `first` is the number of the first port."""
    return [
        delay_operation(
            port,
            number,
            rate_bps=port.rate_bps,
            delay_ns=port.delay_ns,
            jitter_ns=port.jitter_ns,
            has_qos=has_qos,
        )
        for number, port in enumerate(ports, start=first)
        if port.delay_by is DelayBy.KERNEL
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class PathModel:
    """The shortest paths from one NIC to another, one way, in lab time.

    `rates_bps` are those of the ports that send on the way. `kernel_ns` and `endpoint_ns` are delays by who realises
    them; where equal-cost paths differ, they are those of the longest, and `least_ns` is the shortest one's delay.
    """

    switches: int
    rates_bps: tuple[int, ...]
    kernel_ns: int
    endpoint_ns: int
    least_ns: int
    wrapped_bps: tuple[int, ...] = ()
    """The rates of those ports that send a tenant's packet wrapped in VXLAN: the ports between its switches."""

    @property
    def delay_ns(self) -> int:
        return self.kernel_ns + self.endpoint_ns

    def serialisation_ns(self, frame_bytes: int) -> int:
        """The time a frame spends being sent at all ports of the way (store and forward)."""
        wrapping = sum(8 * VXLAN_BYTES * 1_000_000_000 // rate for rate in self.wrapped_bps)
        return wrapping + sum(8 * frame_bytes * 1_000_000_000 // rate for rate in self.rates_bps)

    def base_rtt_ns(self, frame_bytes: int) -> int:
        """The round trip of a frame of this size each way through idle queues."""
        return 2 * (self.delay_ns + self.serialisation_ns(frame_bytes))


_Way = tuple[int, tuple[str, ...]]
"""The delay of a way (ns), and the ports that send on it."""
_Timing = tuple[int, int, DelayBy]
"""The properties of a port that a path's times follow from: its rate, its link's delay, and who realises that."""


class WirePaths:
    """Delays of paths between NICs of a lab, from its ports as they are planned, or as they have been changed since.

    A path that was asked for once is kept, and so are the ways between switches. Switches that are alike, as the leaves
    of a pod are, have the same ways to all others: their links lead to the same switches in the same order, with the
    same rates and delays each way. So the fabric is walked through once for each kind of switch, not for each pair.
    """

    def __init__(self, ports: Iterable[PortPlan], hosts: Iterable[str]) -> None:
        self._found: dict[tuple[str, str], PathModel] = {}
        self._alike: dict[Hashable, PathModel] = {}
        """By the kinds of the two switches, and what is the NICs' own."""
        self._ways: dict[str, tuple[Mapping[str, _Way], Mapping[str, _Way]]] = {}
        """By switch, the shortest ways from there to each other one with the least delay, and with the most."""
        self._ports = {f"{port.node}:{port.name}": port for port in ports}
        self._hosts = frozenset(hosts)
        self._switches: Graph[str] = Graph()
        """An edge is the name of the port that sends into it."""
        for key, port in self._ports.items():
            peer = port.peer.partition(":")[0]
            if port.node not in self._hosts and peer not in self._hosts and not port.out_of_band:
                self._switches.add_edge(port.node, peer, key)

    @classmethod
    def of(cls, plan: LabPlan) -> WirePaths:
        """The paths of a lab as it is planned."""
        return cls(plan.ports, [host.node for host in plan.hosts])

    def path(self, a: str, b: str) -> PathModel:
        """The path from NIC `a` to NIC `b`, both "node:interface". Raises `PlanError` where there is none."""
        if (a, b) not in self._found:
            self._found[a, b] = self._find(a, b)
        return self._found[a, b]

    @cached_property
    def _kinds(self) -> Mapping[str, int]:
        """The kind of each switch: those of one number are alike."""
        to: defaultdict[str, list[tuple[str, tuple[_Timing, ...]]]] = defaultdict(list)
        back: defaultdict[str, list[tuple[str, tuple[_Timing, ...]]]] = defaultdict(list)
        for node, neighbours in self._switches.neighbours.items():
            for neighbour, keys in neighbours.items():
                timings = tuple(_timing(self._ports[key]) for key in keys)
                to[node].append((neighbour, timings))
                back[neighbour].append((node, timings))
        numbers: dict[Hashable, int] = {}
        return {
            node: numbers.setdefault((tuple(to[node]), frozenset(back[node])), len(numbers))
            for node in self._switches.neighbours
        }

    def _find(self, a: str, b: str) -> PathModel:
        for end in (a, b):
            if end not in self._ports:
                raise PlanError(f"{end} is not a port of this lab", code="unknown-port")
        start, target = self._ports[a], self._ports[b]
        if start.node == target.node:
            raise PlanError(f"{a} and {b} belong to one host: nothing between them is a wire", code="same-node")
        first, last = start.peer, target.peer
        if first == b:
            return self._model([[a]])
        first_switch, last_switch = first.partition(":")[0], last.partition(":")[0]
        if first_switch in self._hosts or last_switch in self._hosts:
            raise PlanError(f"no path leads from {a} to {b}", code="no-path")
        kinds = (self._kinds.get(first_switch, first_switch), self._kinds.get(last_switch, last_switch))
        alike = (first_switch == last_switch, *kinds, _timing(start), bool(start.tenant), _timing(self._ports[last]))
        if alike not in self._alike:
            extremes = self._extremes(first_switch, last_switch, a, b)
            self._alike[alike] = self._model([[a, *middle, last] for middle in extremes])
        return self._alike[alike]

    def _extremes(self, source: str, target: str, a: str, b: str) -> list[tuple[str, ...]]:
        """The sending ports of the shortest way with the least delay, and of that with the most."""
        if source == target:
            return [(), ()]
        if source not in self._ways:
            self._ways[source] = self._walk(source)
        least, most = self._ways[source]
        if target not in least:
            raise PlanError(f"no path leads from {a} to {b}", code="no-path")
        return [least[target][1], most[target][1]]

    def _walk(self, source: str) -> tuple[Mapping[str, _Way], Mapping[str, _Way]]:
        """The shortest ways from a switch to each that it reaches, with the least delay and with the most."""
        least: dict[str, _Way] = {source: (0, ())}
        most: dict[str, _Way] = {source: (0, ())}
        ports = self._ports
        for wave in self._switches.waves(source) if source in self._switches.neighbours else ():
            for node, arrivals in wave.items():
                # of ways with equal delays, the last one
                steps = [(before, key, ports[key].delay_ns) for before, keys in arrivals for key in keys][::-1]
                before, key, delay_ns = min(steps, key=lambda step: least[step[0]][0] + step[2])
                least[node] = (least[before][0] + delay_ns, (*least[before][1], key))
                before, key, delay_ns = max(steps, key=lambda step: most[step[0]][0] + step[2])
                most[node] = (most[before][0] + delay_ns, (*most[before][1], key))
        return least, most

    def _total_ns(self, keys: Sequence[str]) -> int:
        return sum(self._ports[key].delay_ns for key in keys)

    def _model(self, ways: Sequence[Sequence[str]]) -> PathModel:
        longest = max(ways, key=self._total_ns)
        between = longest[1:-1] if self._ports[longest[0]].tenant else ()
        kernel = [key for key in longest if self._ports[key].delay_by is DelayBy.KERNEL]
        kernel_ns = self._total_ns(kernel)
        return PathModel(
            switches=len(longest) - 1,
            rates_bps=tuple(self._ports[key].rate_bps for key in longest),
            kernel_ns=kernel_ns,
            endpoint_ns=self._total_ns(longest) - kernel_ns,
            least_ns=min(self._total_ns(way) for way in ways),
            wrapped_bps=tuple(self._ports[key].rate_bps for key in between),
        )


def _timing(port: PortPlan) -> _Timing:
    return port.rate_bps, port.delay_ns, port.delay_by


def mechanism_text(ports: Iterable[PortPlan]) -> str:
    """Which mechanism acts in a lab, as a sentence; "" for a lab without delays."""
    found = {port.delay_by for port in ports} - {DelayBy.IGNORE}
    sentences = {
        frozenset(): "",
        frozenset({DelayBy.KERNEL}): "link delay by the kernel (netem at the receiving port)",
        frozenset({DelayBy.ENDPOINT}): "link delay by the endpoints: our own transports hold received datagrams for the"
        " path's delay; TCP and kernel RDMA get none",
        frozenset({DelayBy.KERNEL, DelayBy.ENDPOINT}): "link delay by the kernel on some links and by the endpoints on"
        " others, where TCP and kernel RDMA get none",
    }
    return sentences[frozenset(found)]
