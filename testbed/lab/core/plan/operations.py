"""The operations a plan is made of. Data, not calls: drivers apply them, `--dry-run` prints them, tests compare them.

As text, each is a line, such as `create veth p1-s1-h1:rail1 <-> p1-s1-rail1:down1 mtu 4500`.

Order matters only between stages; `lab_plan.LabPlan.operations` is already in the order in which it is applied.
Names are those of nodes, never of namespaces: a driver maps a node to its runtime. Interface indexes are decided by
the plan (`ifindex` is unique inside a node), so that no operation needs to look one up.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network

from testbed.base.units import ByteCount, Duration, Rate
from testbed.daemons.lag.groups import CreateBond
from testbed.lab.core.model import Guards, NodeKind
from testbed.lab.core.model.containers import Container
from testbed.lab.core.plan.management_plan import FormCommunity, GuardManagement, StartService
from testbed.lab.core.plan.overlay_operations import (
    CreateVrf,
    CreateVrfDevice,
    CreateVxlan,
    PreferVrfs,
    SetBorder,
    SetPolicy,
)


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
    """Say whether a port of a bridge learns MACs, and whether the bridge answers ARP and ND that would leave by it.

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
    """The interface has IPv6 (link-local, for unnumbered BGP)."""

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


STEERING_TABLE = 300
STEERING_PRIORITIES = (500, 501, 502, 503)
"""Priorities of the rules that lead TCP to a carrier: they are none of a plan's, and last as long as carrying does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SteerTcp:
    """Deliver TCP of a node to these prefixes to the node itself, but for BGP's, by a route in a table of its own.

    It is in no lab's plan: `testbed.run.carrier` has it carried out while something is carried, and taken back.
    """

    node: str
    prefixes: tuple[IPv4Network | IPv6Network, ...]
    table: int = STEERING_TABLE

    @property
    def first_priority(self) -> int:
        return STEERING_PRIORITIES[0]

    @property
    def last_priority(self) -> int:
        """The priority of the rule behind them, which those of BGP's port lead to."""
        return STEERING_PRIORITIES[-1]

    def __str__(self) -> str:
        return f"steer TCP of {self.node} to {', '.join(map(str, self.prefixes))} by table {self.table}"


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
    | SteerTcp
)
"""The operations that concern one node alone."""


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


def place_of(operation: LocalOperation | GuardSwitch) -> str:
    """Return the node in whose namespace an operation is carried out: that of its VRF, where its port is in one."""
    match operation:
        case ShapePort() | InstallPort() | DelayPort() | SetUp() | GuardSwitch():
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
    | SteerTcp
    | CreateRdma
    | StartRouting
    | StartService
)
