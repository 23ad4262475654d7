"""The operations a plan is made of. Data, not calls: drivers apply them, `--dry-run` prints them, tests compare them.

As text, each is a line, such as `create veth p1-s1-h1:rail1 <-> p1-s1-rail1:down1 mtu 4500`.

Order matters only between stages; `LabPlan.operations` is already in the order in which it is applied.
Names are those of nodes, never of namespaces: a driver maps a node to its runtime. Interface indexes are decided by
the plan (`ifindex` is unique inside a node), so that no operation needs to look one up.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network

from testbed.base.units import ByteCount, Duration, Rate
from testbed.daemons.lag.groups import CreateBond, LinkGroupPlan
from testbed.lab.core.model import BACKEND, Bfd, DelayBy, Guards, NodeKind, Protocol, Role
from testbed.lab.core.plan.overlay_plan import EvpnPlan, OverlayPlan
from testbed.lab.core.plan.qos.qos_plan import QosPlan, QosTables
from testbed.lab.features.containers.model import Container
from testbed.lab.features.management.plan.management_plan import FormCommunity, GuardManagement, ManagementPlan
from testbed.lab.features.management.plan.monitoring import MonitoringStation
from testbed.lab.features.management.plan.service_operations import StartService
from testbed.lab.features.overlay.plan.device_operations import CreateVrf, CreateVrfDevice, CreateVxlan, PreferVrfs
from testbed.lab.features.overlay.plan.policy_operations import SetBorder, SetPolicy
from testbed.lab.features.scale_up.plan.wires import DomainPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateNode:
    """A network namespace for a node. `cpu_slot` spreads receive steering over CPUs."""

    node: str
    cpu_slot: int

    def __str__(self) -> str:
        return f"create node {self.node}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartContainer:
    """A container without networks for a node, started: its network namespace is the node's. `cpu_slot` as above."""

    node: str
    kind: NodeKind
    cpu_slot: int
    container: Container
    env: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"start container {self.node} of {self.container.image or self.container.runtime}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSysctl:
    """Write `value` to `/proc/sys/<key>` (key with slashes) inside the node.

    `optional`: a key that this kernel does not have is passed over, and so is a value that it lacks or lets nobody set.
    """

    node: str
    key: str
    value: str
    optional: bool = False

    def __str__(self) -> str:
        return f"set {self.node} {self.key.replace('/', '.')} = {self.value}{' (if present)' if self.optional else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateBridge:
    """A rail on a switch, or a VNI: a bridge without STP, carrying the gateway address.

    `ageing_s` is how long it remembers a MAC that is silent; 0 for the kernel's default of five minutes. `master` is
    the VRF device that it is routed by, 0 for none.
    """

    node: str
    name: str
    ifindex: int
    mac: str
    mtu_bytes: int
    ageing_s: int = 0
    master: int = 0

    def __str__(self) -> str:
        within = f" in VRF device {self.master}" if self.master else ""
        return f"create bridge {self.node}:{self.name} mtu {self.mtu_bytes}{within}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetBridgePort:
    """Whether a port of a bridge learns MACs, and whether the bridge answers ARP and ND that would leave by it.

    No frame passes between two ports that are `isolated`.
    """

    node: str
    name: str
    ifindex: int
    learning: bool = True
    neighbour_suppression: bool = False
    isolated: bool = False

    def __str__(self) -> str:
        on = {True: "on", False: "off"}
        return (
            f"set bridge port {self.node}:{self.name} learning {on[self.learning]}"
            f" neighbour suppression {on[self.neighbour_suppression]}{' isolated' if self.isolated else ''}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VethEnd:
    """One end of a veth pair. `master` is the ifindex of the bridge or VRF device it joins, 0 for none."""

    node: str
    name: str
    ifindex: int
    mac: str
    master: int = 0
    ipv6: bool = False
    """Whether the interface has IPv6 (link-local, for unnumbered BGP)."""

    def __str__(self) -> str:
        return f"{self.node}:{self.name}"


PLAIN_QUEUE_PACKETS = 200
"""Depth of the one queue of a port without QoS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateVeth:
    """A link, created in place in both nodes, down. `queue_packets` is the depth of each port's queue."""

    a: VethEnd
    b: VethEnd
    mtu_bytes: int
    queue_packets: int = PLAIN_QUEUE_PACKETS

    def __str__(self) -> str:
        return f"create veth {self.a} <-> {self.b} mtu {self.mtu_bytes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapePort:
    """One HTB class at the scaled line rate. `burst_bytes` is burst and cburst.

    Here and below, `vrf` is the node whose namespace a port of `node` lies in where that is a VRF's.
    """

    node: str
    name: str
    ifindex: int
    rate_bps: int
    burst_bytes: int
    vrf: str = ""

    def __str__(self) -> str:
        return f"shape {self.node}:{self.name} to {Rate(self.rate_bps)} burst {ByteCount(self.burst_bytes)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallPort:
    """The full port set on an interface that `qos:` describes: see `testbed.lab.core.plan.qos.planner` for the numbers.

    HTB with the line class and one class for each traffic class of profile `profile` (an index of
    `QosTables.profiles`), a gate (TBF) in each lossless class, and the eBPF programs. `port` is the port's
    number in the lab, `peer` that of the other end; `buffer` is an index of `QosTables.buffers`. What comes in above
    `cap_bps` (lab rate; 0: no cap) is dropped. `grouped` ports have a hook for the programs of a link group, too.
    `last_hop`: it is a switch's, and a host's NIC is at the other end.
    """

    node: str
    name: str
    ifindex: int
    port: int
    peer: int
    rate_bps: int
    burst_bytes: int
    mtu_bytes: int
    profile: int
    buffer: int
    switch: bool
    seed: int
    vrf: str = ""
    cap_bps: int = 0
    grouped: bool = False
    last_hop: bool = False

    def __str__(self) -> str:
        capped = f" cap {Rate(self.cap_bps)}" if self.cap_bps else ""
        at = f"at {Rate(self.rate_bps)} burst {ByteCount(self.burst_bytes)}"
        return f"install port {self.node}:{self.name} {at} profile {self.profile}{capped}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayPort:
    """Delay what an interface receives: an ifb with netem at its root that arrivals go through.

    `clsact`: a filter of the kernel sends them there (a lab without `qos:`); else the port's own eBPF program does,
    after its work, by `delay_ifindex` of its map entry `port`. Times are in lab time.
    """

    node: str
    name: str
    ifindex: int
    port: int
    ifb_name: str
    ifb_ifindex: int
    mtu_bytes: int
    delay_ns: int
    jitter_ns: int
    limit_packets: int
    clsact: bool
    vrf: str = ""

    def __str__(self) -> str:
        varying = f" +- {Duration(self.jitter_ns)}" if self.jitter_ns else ""
        by = f"{Duration(self.delay_ns)}{varying}, at most {self.limit_packets} packets"
        return f"delay what {self.node}:{self.name} receives by {by}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedPort:
    """A port of a switch that a host is on, and who that host is: its MAC and its addresses on the port.

    Its link-local address of IPv6, which it makes of its MAC, goes without saying. `gateway`, and `gateway6` of IPv6,
    are the switch's addresses that the host may ask for an echo. `member_mac` is set at a port of a link group: the MAC
    of the host's member, which slow protocols (LACP) alone come from.
    """

    name: str
    ifindex: int
    mac: str
    addresses: tuple[IPv4Address | IPv6Address, ...]
    gateway: IPv4Address | None
    member_mac: str = ""
    gateway6: IPv6Address | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSwitch:
    """The guards of all ports of a switch, or of a VRF on it, that hosts are on, put in force together.

    `vrf` is the node whose namespace the ports lie in where that is a VRF's; where it is a device, `tenant` tells its
    ports from others of the namespace. `switches` are the addresses of the network's switches, which hosts are kept
    from, and `routers` the MACs of their interfaces that have IPv6, whose link-local addresses are such addresses, too;
    `stations` the MACs that a frame to is not flooded.
    """

    node: str
    guards: Guards
    ports: tuple[GuardedPort, ...]
    switches: tuple[IPv4Address | IPv6Address, ...]
    stations: tuple[str, ...]
    vrf: str = ""
    tenant: str = ""
    routers: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"guard {len(self.ports)} ports of {self.node} by {', '.join(self.guards.kinds)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUp:
    """Bring an interface up. `lo` has ifindex 1."""

    node: str
    name: str
    ifindex: int
    vrf: str = ""

    def __str__(self) -> str:
        return f"set up {self.node}:{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddAddress:
    node: str
    name: str
    ifindex: int
    address: IPv4Interface | IPv6Interface

    def __str__(self) -> str:
        return f"add address {self.node}:{self.name} {self.address}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRoute:
    """A unicast route in `table` of a node. `gateway` None: on-link. `source`: preferred source.

    Of several routes to one destination that with the least `metric` counts, as long as its interface is up.
    """

    node: str
    destination: IPv4Network | IPv6Network
    gateway: IPv4Address | IPv6Address | None
    ifindex: int
    table: int
    source: IPv4Address | IPv6Address | None = None
    metric: int = 0
    onlink: bool = False
    """The gateway is behind the interface though no prefix of it says so."""

    def __str__(self) -> str:
        where = "default" if self.destination.prefixlen == 0 else str(self.destination)
        via = f" via {self.gateway}" if self.gateway is not None else ""
        by = f" source {self.source}" if self.source is not None else ""
        by += f" metric {self.metric}" if self.metric else ""
        return f"add route {self.node} {where}{via} interface {self.ifindex} table {self.table}{by}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNeighbour:
    """Have an interface send what is for `address` to `mac`, without asking."""

    node: str
    name: str
    ifindex: int
    address: IPv4Address | IPv6Address
    mac: str

    def __str__(self) -> str:
        return f"set neighbour {self.node}:{self.name} {self.address} at {self.mac}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRule:
    """`ip rule add from <source> lookup <table> pref <priority>`.

    `destination`: only for packets to it, and not by a default route of the table. Table 0 is none: what the rule is
    for is unreachable.
    """

    node: str
    source: IPv4Address | IPv6Address
    table: int
    priority: int
    destination: IPv4Network | None = None

    def __str__(self) -> str:
        to = f" to {self.destination}" if self.destination is not None else ""
        what = f"table {self.table}" if self.table else "unreachable"
        return f"add rule {self.node} from {self.source}{to} {what} priority {self.priority}"


LocalOperation = (
    CreateVrfDevice
    | PreferVrfs
    | CreateBond
    | CreateBridge
    | SetBridgePort
    | ShapePort
    | InstallPort
    | DelayPort
    | SetUp
    | AddAddress
    | AddRoute
    | AddRule
    | SetNeighbour
)
"""What happens inside one node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRdma:
    """A soft RoCEv2 device on the interface `name`, which has its address. `device` is unique on the machine."""

    node: str
    name: str
    device: str

    def __str__(self) -> str:
        return f"create rxe device {self.device} on {self.node}:{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRouting:
    """Start the routing daemons of a switch, or of a host that speaks BGP, as its `SwitchPlan` says."""

    node: str
    daemons: tuple[str, ...]

    def __str__(self) -> str:
        return f"start {' '.join(self.daemons)} on {self.node}"


def place_of(operation: LocalOperation) -> str:
    """Return the node in whose namespace an operation is carried out: that of its VRF, where its port is in one."""
    match operation:
        case ShapePort() | InstallPort() | DelayPort() | SetUp():
            return operation.vrf or operation.node
    return operation.node


Operation = (
    CreateNode
    | StartContainer
    | CreateVrf
    | CreateVrfDevice
    | PreferVrfs
    | SetSysctl
    | CreateBond
    | CreateBridge
    | CreateVxlan
    | SetBridgePort
    | CreateVeth
    | ShapePort
    | InstallPort
    | DelayPort
    | GuardSwitch
    | SetPolicy
    | SetBorder
    | GuardManagement
    | FormCommunity
    | SetNeighbour
    | SetUp
    | AddAddress
    | AddRoute
    | AddRule
    | CreateRdma
    | StartRouting
    | StartService
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortPlan:
    """An interface as decided. `rate_bps` is the scaled (lab) rate, `line_rate_bps` the real one.

    `delay_ns` is the link's one-way delay in lab time (the real one times k), `jitter_ns` how much it varies, and
    `delay_by` who realises it (KERNEL, ENDPOINT or IGNORE); a link end, so no bridges. `loss` is the wire's, 0 to 1.

    `address` is the NIC's or gateway's IPv4 address where it has one, `address6` a NIC's of IPv6; `rail` its rail (0:
    none); `peer` the other end as "node:interface"; `network` that of the link. `tenant` is that of the overlay ("":
    none), and `vrf` the node whose namespace a switch's port lies in where that is a VRF's. `nic_ports` is 1, but where
    hosts speak BGP: the port that has the address of such a NIC stands for so many ports.
    """

    node: str
    name: str
    ifindex: int
    mac: str
    mtu_bytes: int
    peer: str
    rate_bps: int
    line_rate_bps: int
    delay_ns: int = 0
    jitter_ns: int = 0
    delay_by: DelayBy = DelayBy.IGNORE
    loss: float = 0.0
    address: IPv4Interface | None = None
    gateway: IPv4Address | None = None
    rail: int = 0
    network: str = BACKEND
    tenant: str = ""
    vrf: str = ""
    nic_ports: int = 1
    address6: IPv6Interface | None = None
    gateway6: IPv6Address | None = None
    member: str = ""
    """Of an aggregate, the first of its members, whose wire stands for all of them."""
    out_of_band: bool = False
    """Whether its link is one of management: no data goes over it, and its rates and times are not scaled."""

    @property
    def wire(self) -> str:
        """The port ("node:interface") at whose link a NIC's packets enter the fabric."""
        return f"{self.node}:{self.member or self.name}"

    @property
    def nic_bps(self) -> int:
        """What all ports of the NIC carry together, at lab rates; one flow goes by one of them."""
        return self.rate_bps * self.nic_ports

    @property
    def place(self) -> str:
        """The node whose namespace the interface lies in."""
        return self.vrf or self.node


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbor:
    """An unnumbered BGP neighbour on `interface`. `remote` names the node behind it, whose role is None for a host.

    `accepts` is what is taken of what it announces, `told` what is announced to it; None: everything.
    """

    interface: str
    remote: str
    remote_role: Role | None
    remote_asn: int
    remote_interface: str = ""
    accepts: tuple[IPv4Network, ...] | None = None
    told: tuple[IPv4Network, ...] | None = None
    bfd: bool = True
    """Whether the session has BFD where its switch has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchPlan:
    """All that FRR's configuration of one switch is rendered from, or that of a host or a router outside (no role)."""

    node: str
    role: Role | None
    asn: int
    router_id: IPv4Address
    loopback: IPv4Interface
    neighbors: tuple[Neighbor, ...]
    networks: tuple[IPv4Network, ...]
    """Connected prefixes this switch originates (loopback, rail subnets, routed links)."""
    aggregates: tuple[IPv4Network, ...]
    """Summaries it announces instead of their more specifics."""
    protocol: Protocol
    ecmp: int
    bfd: Bfd | None
    cluster_id: IPv4Address | None = None
    """iBGP route reflection: the cluster; None where the switch reflects nothing."""
    reflector_client_interfaces: tuple[str, ...] = ()
    network: str = BACKEND
    evpn: EvpnPlan | None = None
    """None: no overlay."""
    originates: tuple[IPv4Network, ...] = ()
    """Prefixes that it announces though it has no route to the whole of them."""
    compare_router_id: bool = False
    """Whether the choice between equally long paths matters to others here, and must not depend on which came first."""
    password: bool = False
    """Whether sessions have the lab's password, which no plan knows."""
    ttl_security: bool = False
    monitoring: MonitoringStation | None = None
    """To whom it reports its sessions and the routes that it hears; None: to nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlan:
    """A host's NIC ports: those of the back end in rail order, then those of each other network."""

    node: str
    nics: tuple[PortPlan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRoute:
    """This is what a converged switch has in its kernel table: `next_hops` is the planned ECMP width.

    `interfaces` are the outgoing interfaces of all equally good paths, sorted. `width` is 0 where all of
    them are used, else how many of them are (`Routing.ecmp` is narrower). No interface at all: the
    blackhole route of the switch's own aggregate.
    """

    prefix: IPv4Network
    interfaces: tuple[str, ...]
    width: int = 0

    @property
    def next_hops(self) -> int:
        return self.width or len(self.interfaces)

    def matches(self, interfaces: Collection[str]) -> bool:
        """Tell whether a kernel route over `interfaces` is the planned one."""
        found = set(interfaces)
        return len(found) == self.next_hops and found.issubset(self.interfaces)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabPlan:
    """Everything decided about a lab, for one time scale and one slot on the machine.

    `slot` (0..511) keeps AS numbers and MACs of labs on one machine apart. `k` is the time scale.
    `expected_routes` maps each speaker to the BGP routes it must have when converged.
    """

    lab: str
    slot: int
    k: float
    operations: tuple[Operation, ...]
    ports: tuple[PortPlan, ...]
    switches: tuple[SwitchPlan, ...]
    hosts: tuple[HostPlan, ...]
    expected_routes: dict[str, tuple[ExpectedRoute, ...]]
    qos: QosPlan | None = None
    """Of the back end, or of the network that the plan is seen in."""
    qos_beside: dict[str, QosPlan] = field(default_factory=dict)
    """Of the networks beside the back end that have any."""
    tables: QosTables | None = None
    """Of the whole lab, whatever network the plan is seen in; None where no network has QoS."""
    overlay: OverlayPlan | None = None
    link_groups: LinkGroupPlan | None = None
    routed_hosts: tuple[SwitchPlan, ...] = ()
    """The routing of the hosts that speak BGP."""
    routers: tuple[SwitchPlan, ...] = ()
    """The routing of the routers outside of the fabric."""
    management: ManagementPlan | None = None
    """None: nodes have no management ports."""
    carriers: dict[str, str] = field(default_factory=dict)
    """The network over whose switches another one goes, by the name of the one that is carried."""
    scale_up_domains: tuple[DomainPlan, ...] = ()
    """Those whose transfers are frames through a switch."""

    @property
    def services(self) -> tuple[StartService, ...]:
        """The services of the management network, on every node that runs one."""
        return tuple(item for item in self.operations if isinstance(item, StartService))

    @property
    def speakers(self) -> tuple[SwitchPlan, ...]:
        """All that run routing daemons: the switches, then the hosts that speak BGP, then the routers outside."""
        return (*self.switches, *self.routed_hosts, *self.routers)

    @property
    def installs(self) -> tuple[InstallPort, ...]:
        """The installations of the ports that have QoS, in the network that the plan is seen in."""
        seen = {(port.node, port.name) for port in self.ports}
        return tuple(
            item for item in self.operations if isinstance(item, InstallPort) and (item.node, item.name) in seen
        )

    @property
    def guards(self) -> dict[tuple[str, str], Guards]:
        """The guards that are in force at each port of the lab that has any, by node and interface."""
        guarded = (item for item in self.operations if isinstance(item, GuardSwitch))
        return {(item.node, port.name): item.guards for item in guarded for port in item.ports}

    @property
    def port_numbers(self) -> dict[str, int]:
        """The numbers of all ports of the lab that have QoS, by "node:interface"."""
        return {f"{item.node}:{item.name}": item.port for item in self.operations if isinstance(item, InstallPort)}

    def of_network(self, *names: str) -> LabPlan:
        """The plan as it is seen in some networks: their ports and switches, and of hosts the NICs in them. Operations
        are those of the whole lab. A network that another one carries has that one's switches, with the ports between
        them."""
        carriers = [self.carriers.get(name, name) for name in names]
        switches = tuple(switch for switch in self.switches if switch.network in carriers)
        routed_hosts = tuple(host for host in self.routed_hosts if host.network in names)
        routers = tuple(router for router in self.routers if router.network in names)
        hosts = [replace(host, nics=tuple(nic for nic in host.nics if nic.network in names)) for host in self.hosts]
        if len(switches) + len(routed_hosts) + len(routers) == len(self.speakers) and hosts == list(self.hosts):
            return self
        beside = {name: self.qos_beside[name] for name in carriers if name in self.qos_beside}
        between = {
            f"{switch.node}:{neighbor.interface}"
            for switch in switches
            if switch.network not in names
            for neighbor in switch.neighbors
        }
        management = self.management if self.management is not None and self.management.network in names else None
        return replace(
            self,
            management=management,
            ports=tuple(port for port in self.ports if port.network in names or f"{port.node}:{port.name}" in between),
            switches=switches,
            routed_hosts=routed_hosts,
            routers=routers,
            hosts=tuple(host for host in hosts if host.nics),
            expected_routes={
                each.node: self.expected_routes[each.node] for each in (*switches, *routed_hosts, *routers)
            },
            qos=self.qos if BACKEND in carriers and self.qos is not None else next(iter(beside.values()), None),
            qos_beside={},
            overlay=None if self.overlay is None else self.overlay.on({switch.node for switch in switches}),
        )
