"""From a planned lab to its simulated fabric: the same ports, classes, buffers, routes and link delays."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address

from testbed.base.datapath.traffic_class import ClassPlan
from testbed.endpoints.sockets import Marking
from testbed.lab.core.model import AdaptPer, DelayBy, Lab
from testbed.lab.core.model.overlay import VXLAN_BYTES
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.lab.core.plan.operations import PLAIN_QUEUE_PACKETS, InstallPort
from testbed.lab.core.plan.qos.qos_plan import BufferPlan, PortProfile
from testbed.lab.core.plan.sysctls import hash_seed
from testbed.lab.core.plan.user_space.uet import ETHERNET_BYTES, IPV4_BYTES, UDP_BYTES
from testbed.protocols.simulation import (
    Endpoint,
    FabricNetwork,
    FabricPortSettings,
    NicHost,
    SwitchMemory,
    SwitchSettings,
)
from testbed.protocols.simulation.faults import Impairments
from testbed.protocols.simulation.link import LinkSettings
from testbed.protocols.simulation.settings import KINDS
from testbed.run.ideals.fabric_graph import fabric_graph
from testbed.run.placed.lab import LiveLab, PlannedLab
from testbed.run.simulated.time_scale import REAL_TIME
from testbed.run.transports.lab_transport import address_of

PAUSE_REACTION_NS = 0
"""From the arrival of a pause frame until the port sends no more but what it has begun: as in HPCC's simulator, and as
good as in an emulated lab, whose hundreds of microseconds are some ten nanoseconds of the fabric at a time scale of
20,000. A MAC may take longer: 905 pause quanta of 512 bit times at 400 Gbit/s, 1.2 us (IEEE 802.3, 31B.3.7)."""
OVERHEAD_BYTES = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES
"""The bytes of a datagram at a port beside its payload, as an emulated lab counts them: no preamble, no gap."""
NIC_JITTER_PACKETS = 0.1
"""Up to how much of a full packet's time a packet leaves its NIC late, at random. Without it, hosts that begin together
stay in step for ever, and a full queue refuses the same ones each time (Floyd and Jacobson, "On traffic phase effects
in packet-switched gateways", 1992): eight senders lost a quarter fewer packets than an emulated lab's, and with it as
many."""
LAB_JITTER_NS = 100_000
"""Up to how late a packet leaves its NIC at the lab's scale, where timers of the kernel let it go."""
LAB_HOP_NS = 50_000
"""The time that a link takes beside its delay at the lab's scale, as the kernel of a host or switch passes packets on.
Of 713 mice of mice-hash-evenly, emulated transfers of one packet over four links took 0.18 ms at least."""
TRIMMED_PAYLOAD_BYTES = 64 - IPV4_BYTES - UDP_BYTES
"""The payload of a packet that was cut to 64 bytes behind its Ethernet header."""


@dataclass(slots=True, kw_only=True)
class SimulatedFabric:
    """The network, and the buffer of each switch by its node's name. Lines are named after the port that sends."""

    network: FabricNetwork
    k: float = 1.0
    """The time scale that its rates and delays have."""
    buffers: dict[str, SwitchMemory] = field(default_factory=dict)
    ends: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By line, the nodes of the network that it leads from and to: a switch by its name, a NIC by its address."""
    delays: dict[str, int] = field(default_factory=dict)
    """By line, its propagation as it was built, ns."""
    storms: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By port and priority, the pause frames of storms."""
    planned: Callable[[], Mapping[str, Mapping[str, tuple[str, ...]]]] = dict
    """Gives the lines by which each switch reaches each NIC, by their names and addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """The properties that all hosts of one transport share."""

    make: type[NicHost]
    port: int
    """The UDP port of their transport."""
    marking: Marking
    pipeline_ns: int = 0
    """The time that NICs and switches add to every path, each way; it is added behind all queues, as an emulated lab's
    endpoints do."""
    addresses: frozenset[str] | None = None
    """The addresses that they are at; None: all."""

    def has(self, address: str) -> bool:
        """Tell whether the host at an address is one of them."""
        return self.addresses is None or address in self.addresses


def planned_lab(model: Lab, k: float = 1.0) -> PlannedLab:
    """Plan a lab for the simulator at a time scale. Raises `PlanError` where there can be no such lab."""
    plan = plan_lab(model, k=k, auto_delay=DelayBy.KERNEL, reaction_ns=PAUSE_REACTION_NS, any_size=True)
    return PlannedLab(model=model, plan=plan)


def build_fabric(
    lab: LiveLab, endpoints: Sequence[Endpoint], hosts: Sequence[Hosts], *, placed: Sequence[PortPlan], seed: int
) -> SimulatedFabric:
    """Build the network between these endpoints, each of which has the address of a NIC of a rank (`placed`), and
    `hosts` of one transport or of several.

    `seed` is that of the run, which switches' hashes follow, too.
    """
    made = {item.address: next(one.make for one in hosts if one.has(item.address)) for item in endpoints}
    tables = lab.plan.tables
    order = {str(IPv4Address(address)): number for address, number in (tables.destinations if tables else ())}
    network = FabricNetwork(
        endpoints,
        seed=seed,
        overhead_bytes=OVERHEAD_BYTES,
        destination_port=next((one.port for one in hosts if one.port), 0),
        hosts=made,
        order=order or None,
    )
    markings = [one.marking for one in hosts]
    of_tenants, places = _tenant_classes(lab, placed), dict[tuple[int, int], int]()
    for address, nic in network.nics.items():
        place = next(place for place, one in enumerate(hosts) if one.has(address))
        dscp = of_tenants.get(address)
        if dscp is not None:
            if (place, dscp) not in places:
                places[place, dscp] = len(markings)
                markings.append(Marking(data=dscp, retransmission=dscp, control=dscp, notification=dscp))
            place = places[place, dscp]
        nic.kinds = KINDS * place
    fabric = SimulatedFabric(network=network, k=lab.plan.k)
    _Builder(lab, fabric, hosts, markings, placed, run=seed).build()
    return fabric


def _tenant_classes(lab: LiveLab, placed: Sequence[PortPlan]) -> Mapping[str, int]:
    """Return the DSCP of the class that switches put a tenant's packets into, by the addresses of its NICs."""
    overlay, qos = lab.model.overlay, lab.model.qos
    if overlay is None or qos is None:
        return {}
    named = {one.name: qos.profiles[0].dscp_of(one.traffic_class) for one in overlay.tenants if one.traffic_class}
    found = ((address_of(nic), named.get(nic.tenant)) for nic in placed)
    return {address: dscp for address, dscp in found if dscp is not None}


_Group = tuple[str, frozenset[str]]
"""The group of an endpoint in the graph, and the nodes that deliver to it."""


class _Builder:
    """The tables that a fabric is built from."""

    def __init__(
        self,
        lab: LiveLab,
        fabric: SimulatedFabric,
        hosts: Sequence[Hosts],
        markings: Sequence[Marking],
        placed: Sequence[PortPlan],
        *,
        run: int,
    ) -> None:
        self._lab = lab
        self._fabric = fabric
        self._network = fabric.network
        self._hosts = hosts
        self._graph = fabric_graph(lab.model, lab.plan)
        self._ports = {f"{port.node}:{port.name}": port for port in lab.plan.ports}
        self._classes = _PortClasses(lab, markings, run)
        known = [nic for host in lab.plan.hosts for nic in host.nics if nic.address is not None]
        self._placed = {
            f"{nic.node}:{nic.name}": nic for nic in (*known, *placed) if address_of(nic) in self._network.nics
        }
        """The NICs that take part, by "node:interface"."""
        self._nics = {name: address_of(nic) for name, nic in self._placed.items()}
        """The address of each."""

    def build(self) -> None:
        links = self._graph.links
        switches = dict.fromkeys(
            node for link in links for node in (link.source, link.destination) if node not in self._graph.group_of
        )
        groups = self._groups()
        self._network.share_routes({self._nics[one]: group for group, members in groups.items() for one in members})
        for name in switches:
            self._add_switch(name)
        for link in links:
            ends = [self._place(node) for node in (link.source, link.destination)]
            if ends[0] is not None and ends[1] is not None:
                self._connect(link.name, ends[0], ends[1])
        for name in list(self._network.outputs):
            self._network.obey(name, PAUSE_REACTION_NS)
        self._add_tunnels()
        self._fabric.planned = lambda: {name: dict(self._routes_of(name)) for name in switches}
        for name in switches:
            for (_, near), members in groups.items():
                for endpoint in members if name in near else members[:1]:
                    hops = self._graph.next_hops(name, endpoint)
                    if hops:
                        self._network.route(name, self._nics[endpoint], [links[number].name for number in hops])

    def _groups(self) -> Mapping[_Group, Sequence[str]]:
        """Return the NICs that take part, those together that the same routes lead to."""
        near: defaultdict[str, list[str]] = defaultdict(list)
        for link in self._graph.links:
            if link.destination in self._nics:
                near[link.destination].append(link.source)
        found: defaultdict[_Group, list[str]] = defaultdict(list)
        for endpoint in self._nics:
            found[self._graph.group_of.get(endpoint, endpoint), frozenset(near[endpoint])].append(endpoint)
        return found

    def _routes_of(self, switch: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the address of each NIC that a switch has routes to, and the lines that lead there."""
        links = self._graph.links
        for endpoint, address in self._nics.items():
            if hops := self._graph.next_hops(switch, endpoint):
                yield address, tuple(links[number].name for number in hops)

    def _add_tunnels(self) -> None:
        """Have the leaves of tenants' NICs put their packets into those of VXLAN, and take them out again."""
        nics = self._network.nics
        tenants = {name: address for name, address in self._nics.items() if self._placed[name].tenant}
        if not tenants:
            return
        addresses = set(tenants.values())
        numbers = frozenset(nics[address].number for address in addresses)
        vteps = {target for source, target in self._fabric.ends.values() if source in addresses}
        for line, (source, _) in self._fabric.ends.items():
            if source in vteps:
                port = self._network.outputs[line]
                port.tunnel_bytes, port.tenants = VXLAN_BYTES, numbers

    def _pipeline_ns(self, address: str) -> int:
        return next(one.pipeline_ns for one in self._hosts if one.has(address))

    def _place(self, node: str) -> str | None:
        """Return what the network calls a node of the graph; None for a NIC that takes no part."""
        return node if node not in self._graph.group_of else self._nics.get(node)

    def _add_switch(self, name: str) -> None:
        node = name.partition(" ")[0]  # a switch whose rails are apart is several of the graph
        settings = self._classes.switch(node)
        switch = self._network.add_fabric_switch(name, settings)
        switch.buffer = self._fabric.buffers.setdefault(node, switch.buffer)

    def _connect(self, name: str, source: str, target: str) -> None:
        port = self._ports[name]
        to_nic = target in self._network.nics
        self._fabric.ends[name] = (source, target)
        packet_ns = (port.mtu_bytes + ETHERNET_BYTES) * 8 * 10**9 // port.rate_bps
        jitter_ns = round(NIC_JITTER_PACKETS * packet_ns)
        if self._lab.plan.k != REAL_TIME:
            jitter_ns = min(jitter_ns, LAB_JITTER_NS)
        hop_ns = 0 if self._lab.plan.k == REAL_TIME else LAB_HOP_NS
        self._fabric.delays[name] = delay_ns = port.delay_ns + (self._pipeline_ns(target) if to_nic else 0) + hop_ns
        self._network.connect(
            name,
            source,
            target,
            LinkSettings(
                rate_bps=port.rate_bps,
                delay_ns=delay_ns,
                impairments=Impairments(loss=port.loss) if port.loss else None,
                jitter_ns=jitter_ns if source in self._network.nics else 0,
                at_once=self._lab.plan.k != REAL_TIME,
            ),
            out=self._classes.port(port),
            into=self._classes.port(self._ports[port.peer]),
        )
        if self._lab.plan.k != REAL_TIME:  # it guards in lab time
            self._network.outputs[name].guard(*self._classes.watchdog(port.node))


class _PortClasses:
    """The settings of each port and switch, those of equal profiles made once."""

    def __init__(self, lab: LiveLab, markings: Sequence[Marking], run: int) -> None:
        self._lab = lab
        self._markings = markings
        self._run = run
        self._qos = lab.plan.tables
        self._installs: Mapping[tuple[str, str], InstallPort] = {
            (item.node, item.name): item for item in lab.plan.installs
        }
        buffers: tuple[BufferPlan, ...] = () if self._qos is None else self._qos.buffers
        self._buffers = {buffer.node: buffer for buffer in buffers if buffer.node}
        self._made: dict[int, FabricPortSettings] = {}

    def switch(self, node: str) -> SwitchSettings:
        buffer = self._buffers.get(node)
        if buffer is None:
            return SwitchSettings(seed=hash_seed(node, run=self._run))
        return SwitchSettings(
            balancing=buffer.mode,
            seed=buffer.seed_in(self._run),
            gap_ns=buffer.gap_ns,
            buffer_bytes=max(0, buffer.shared_bytes - buffer.headroom_bytes),
            hash_fields=buffer.hash_fields,
            flowlets=buffer.per is AdaptPer.FLOWLET,
            hysteresis_bytes=buffer.hysteresis_bytes,
            stride=buffer.stride,
        )

    def watchdog(self, node: str) -> tuple[int, int]:
        """Return after how many ns the PFC watchdog of a switch frees a queue, and guards it again; 0: no watchdog."""
        buffer = self._buffers.get(node)
        return (0, 0) if buffer is None else (buffer.watchdog_detect_ns, buffer.watchdog_restore_ns)

    def port(self, port: PortPlan) -> FabricPortSettings:
        install = self._installs.get((port.node, port.name))
        if self._qos is None or install is None:
            return _plain(port, len(self._markings), by_packets=self._lab.plan.k != REAL_TIME)
        if install.profile not in self._made:
            self._made[install.profile] = self._of_profile(self._qos.profiles[install.profile])
        return self._made[install.profile]

    def _of_profile(self, profile: PortProfile) -> FabricPortSettings:
        kinds: list[int] = []
        for marking in self._markings:
            sent = (marking.data, marking.retransmission, marking.control, marking.notification)
            named = [profile.class_of_dscp[dscp] for dscp in sent] + [profile.trimmed_class]
            kinds += named + [named[0]] * (KINDS - len(named))
        obeying = tuple(replace(item, lossless=False) for item in profile.classes)  # a NIC asks for no pauses
        return FabricPortSettings(
            classes=profile.classes if profile.switch else obeying,
            priority_of=tuple(kinds),
            trimming=profile.trimming,
            trim_bytes=TRIMMED_PAYLOAD_BYTES,
        )


def _plain(port: PortPlan, transports: int, *, by_packets: bool) -> FabricPortSettings:
    """The one queue of a port without QoS. Its bound is in packets (`by_packets`), or in bytes of as many full ones."""
    plain = ClassPlan(priority=0)
    if not by_packets:
        plain = replace(plain, limit_bytes=PLAIN_QUEUE_PACKETS * (port.mtu_bytes + ETHERNET_BYTES))
    return FabricPortSettings(
        classes=(plain,),
        priority_of=(0,) * (KINDS * transports),
        limit_packets=PLAIN_QUEUE_PACKETS if by_packets else 0,
    )
