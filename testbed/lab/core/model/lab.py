"""The resolved lab: nodes, interfaces, links and routing intent, in the units of the real fabric.

Everything here is frozen and says *what* the lab is; numbers that only a plan decides (addresses,
AS numbers, MACs, scaled rates) are not here. Collections are tuples in a canonical order: the order
of a generator, then of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from ipaddress import IPv4Network

from testbed.base.units import Duration, Rate
from testbed.lab.core.model.containers import Container
from testbed.lab.core.model.end import End
from testbed.lab.core.model.guards import NO_GUARDS, Guards
from testbed.lab.core.model.infiniband import InfinibandSettings
from testbed.lab.core.model.machines import LabMachine
from testbed.lab.core.model.management import ManagementService
from testbed.lab.core.model.overlay import Overlay
from testbed.lab.core.model.qos import QosPolicy
from testbed.lab.core.model.scale_up import UNSTATED_SCALE_UP, ScaleUp
from testbed.lab.core.model.startup import StartupConfig
from testbed.lab.core.model.storage import StorageTarget
from testbed.lab.core.model.written import WrittenLab

NETNS = "netns"
"""The runtime of a node that is a network namespace and nothing more."""
BACKEND = "backend"
"""The network that `fabric:` describes: the scale-out back end, which joins GPUs of different hosts."""

OUT_OF_BAND = "out-of-band"
"""The design of a network that joins the management ports of all nodes, and carries no data."""


class NodeKind(StrEnum):
    HOST = "host"
    SWITCH = "switch"
    ROUTER = "router"
    """It stands outside of the fabric, and is made for a tenant (`Tenant.external`): no file has nodes of this kind."""
    BRIDGE = "bridge"
    """The switch of the out-of-band network: it forwards by MAC addresses alone, and speaks no BGP."""
    STORAGE = "storage"
    """It serves its medium to the hosts of one network (`Node.target`), where its NIC is as one of theirs."""
    SERVER = "server"
    """It manages other nodes over the management network, and is in no other network."""


class Role(StrEnum):
    """A switch's tier in the Clos (RFC 7938 section 3)."""

    RAIL = "rail"
    LEAF = "leaf"
    """As a rail switch, in a network whose hosts have NICs for no rail."""
    SPINE = "spine"
    SUPER_SPINE = "super-spine"

    @property
    def tier(self) -> int:
        """The height of such a switch in the Clos; a host stands at 0."""
        return {Role.RAIL: 1, Role.LEAF: 1, Role.SPINE: 2, Role.SUPER_SPINE: 3}[self]


class DelayBy(StrEnum):
    """The mechanism of a link's delay."""

    AUTO = "auto"
    KERNEL = "kernel"
    ENDPOINT = "endpoint"
    IGNORE = "ignore"


class LagBy(StrEnum):
    """The mechanism of the link groups of hosts (`homing: mlag`)."""

    AUTO = "auto"
    """The kernel's bonding where it has that, else eBPF."""
    BOND = "bond"
    """A bond of the kernel, which speaks LACP itself."""
    EBPF = "ebpf"
    """An eBPF program, and a process of ours that speaks LACP."""


class Rdma(StrEnum):
    """The way in which a host's NICs speak RDMA."""

    RXE = "rxe"
    """The kernel's soft RoCEv2 device (rdma_rxe), with real verbs."""


class Protocol(StrEnum):
    EBGP = "ebgp"
    IBGP = "ibgp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """One-way propagation delay of a link and how much it varies either way, in real-fabric time."""

    value: Duration
    by: DelayBy = DelayBy.AUTO
    jitter: Duration = field(default_factory=lambda: Duration(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of a generated node in its fabric. All numbers start at 1; 0 means "not at this level".

    A place alone decides the node's addresses and AS number, so that adding nodes renumbers nobody.
    `plane` is 1..8 for a switch of one plane of several (names: a..h), else 0. `index` counts spines and super-spines
    within their plane.
    """

    pod: int = 0
    segment: int = 0
    index: int
    plane: int = 0
    block: int = 0
    """The number of a rail switch among all (`testbed.lab.core.plan.addressing.rail_block`), in a fabric that has more
    of them in a pod or segment than are usually numbered; 0: its number follows from the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A host, a switch or a router outside. `place` is None for a hand-written node."""

    name: str
    kind: NodeKind
    role: Role | None = None
    place: Place | None = None
    asn: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    exec: tuple[tuple[str, ...], ...] = ()
    """Commands (argument lists) run in the node once routing has converged."""
    rdma: Rdma | None = None
    """The RDMA devices of a host's GPU NICs: rxe, or none."""
    container: Container | None = None
    """None: a network namespace."""
    network: str = BACKEND
    """The network that a switch, a target or a server is of, or that a router is on. Hosts are of all."""
    target: StorageTarget | None = None
    """The storage that a node of kind storage serves."""
    startup: StartupConfig | None = None
    """The lines that FRR of a node that routes is told beside its plan, or in place of it; None: nothing."""

    @property
    def runtime(self) -> str:
        """Return how the node is realised: "netns", or the runtime of its container."""
        return NETNS if self.container is None else self.container.runtime


class LinkKind(StrEnum):
    ACCESS = "access"
    """A host NIC port on a rail of a rail switch: a bridge port of that rail."""
    FABRIC = "fabric"
    """Switch to switch: unnumbered, routed by BGP."""
    ROUTED = "routed"
    """A hand-written link with a host at an end: its own subnet."""
    TENANT = "tenant"
    """A host NIC port in a tenant's subnet: a bridge port in the tenant's VRF on the switch."""
    EXTERNAL = "external"
    """A router outside of the fabric (`a`) on its border leaf: unnumbered, and in the tenant's VRF there."""
    HOMED = "homed"
    """A NIC port of a host that speaks BGP itself (`homing: routed`): unnumbered and routed, as a fabric link is."""
    MEMBER = "member"
    """A port of a host's link group (`homing: mlag`), on a leaf of a pair: a port of the pair's bridge there."""
    PEER = "peer"
    """Between the two leaves of a pair that is one LACP partner: a port of the pair's bridge on each. Not routed."""
    MANAGEMENT = "management"
    """The management port of a node (`a`) on the switch of the out-of-band network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A point-to-point link. `a` is the lower end: the host of an access link, the lower tier of a fabric link.

    `rail` (1-based) and `nic` (1-based number of the NIC port's owner GPU) are set on access links.
    `rate` is per direction, in real-fabric bit/s.
    """

    a: End
    b: End
    kind: LinkKind
    rate: Rate
    mtu_bytes: int
    delay: Delay | None = None
    loss: float = 0.0
    """The share of packets (0 to 1) that the wire loses, each way."""
    rail: int = 0
    network: str = BACKEND
    host_number: int = 0
    """On an access link of another network than the back end, or of a storage target: which host of its leaf or rail
    this is, from 1."""
    prefix: IPv4Network | None = None
    """The subnet of a routed link where the file names one; None: the plan chooses."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    numbered: bool = False
    """Its ports have the numbers of a generator, and in a lab that is up those that they got first
    (`testbed.lab.core.fabric.kept_ports`)."""

    @property
    def delay_ns(self) -> int:
        """The delay that the link has, in ns of the real fabric: 0 where what the file says is ignored."""
        return 0 if self.delay is None or self.delay.by is DelayBy.IGNORE else self.delay.value.ns

    @property
    def nic(self) -> End:
        """The NIC at the lower end: the port itself, or the aggregate that it is a member of: fe0 of fe1 and fe2, and
        in the back end rail1 of rail1a and rail1b."""
        if self.kind is not LinkKind.MEMBER:
            return self.a
        if self.network == BACKEND:
            return End(node=self.a.node, interface=self.a.interface[:-1])
        return End(node=self.a.node, interface=f"{self.a.interface.rstrip('0123456789')}0")


@dataclass(frozen=True, slots=True, kw_only=True)
class RailSubnet:
    """One rail on one rail switch: an IPv4 subnet whose gateway is the switch.

    `slot` is the rail's position on its switch (0-based) out of `slots`; the switch's aggregate is
    split evenly, or in subnets of `prefix_length` where the design fixes it.
    """

    switch: str
    rail: int
    slot: int
    prefix_length: int
    aggregate_length: int
    bridged: bool = False
    """It is a bridge though one port is on it: in this lab it has had several (`testbed.lab.core.fabric.kept_bridges`).
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Bfd:
    """BFD on fabric links (RFC 5880), in lab time (not scaled)."""

    interval: Duration
    multiplier: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """Routing intent. `bfd` is the resolved choice (None: off), `bfd_auto` whether "auto" made it."""

    protocol: Protocol = Protocol.EBGP
    unnumbered: bool = True
    ecmp: int = 64
    bfd: Bfd | None = None
    bfd_auto: bool = True
    aggregate: bool = False
    """Rail switches announce one aggregate instead of their rails' subnets."""
    password: bool = False
    """BGP segments are signed with the lab's password (RFC 2385), which is no part of any model."""
    ttl_security: bool = False
    """BGP takes packets from its link alone (RFC 5082)."""
    weighted: bool = False
    """Paths have shares by the bandwidth behind them (BGP link bandwidth, RFC 10005)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network beside the back end: it has switches, links and routing of its own, and shares hosts alone.

    `number` (from 1) tells networks apart in AS numbers, `prefix` holds all their addresses. One that another network
    carries (`carrier`) has hosts' links and addresses alone: it is a tenant of that one's overlay, with the same name.
    """

    name: str
    number: int
    prefix: IPv4Network
    design: str
    routing: Routing = field(default_factory=Routing)
    switch_radix: int | None = None
    guards: Guards = NO_GUARDS
    qos: QosPolicy | None = None
    """None: plain ports, one queue each."""
    carrier: str = ""
    """The network over whose switches this one goes; "": over its own."""
    lag_by: LagBy = LagBy.AUTO
    services: tuple[ManagementService, ...] = ()
    """The services of a management network."""

    @property
    def is_out_of_band(self) -> bool:
        return self.design == OUT_OF_BAND


@dataclass(frozen=True, slots=True, kw_only=True)
class InfinibandFabric:
    """A back end of InfiniBand (`testbed.lab.core.model.infiniband`): its settings, and the switches, links and rails
    that are the lab's own where it is Ethernet."""

    settings: InfinibandSettings
    switches: tuple[Node, ...]
    links: tuple[Link, ...]
    rail_subnets: tuple[RailSubnet, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The time scale. `time` None means "auto": resolved against the machine at deploy time."""

    time: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """A whole lab, resolved and validated, independent of any machine.

    `isolated_rails`: rails are meant not to reach each other (design rail-only).
    `design` is the generator's name or "" for a hand-written graph.
    """

    name: str
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    rail_subnets: tuple[RailSubnet, ...] = ()
    routing: Routing = field(default_factory=Routing)
    scale: Scale = field(default_factory=Scale)
    design: str = ""
    isolated_rails: bool = False
    gpus_per_nic: int = 1
    planes: int = 1
    """The fabrics without a common switch that the back end consists of."""
    switch_radix: int | None = None
    tier_radix: Mapping[str, int] = field(default_factory=dict)
    """The ports of a switch by its role, where `switch_radix` does not say it for all."""
    qos: QosPolicy | None = None
    """The QoS of the back end. None: plain ports, one queue each, and the kernel's ECMP hash."""
    overlay: Overlay | None = None
    """None: the fabric is routed, and nothing else."""
    source: str = ""
    """Path of the file this came from, for messages only."""
    networks: tuple[Network, ...] = ()
    """The networks beside the back end, whose `routing`, `design`, `switch_radix` and `qos` are the lab's."""
    guards: Guards = NO_GUARDS
    """The guards of the back end's access ports."""
    scale_up: ScaleUp = UNSTATED_SCALE_UP
    """The domains that join the GPUs of a host, or of a segment, beside all networks."""
    infiniband: InfinibandFabric | None = None
    """The back end, where it is InfiniBand: then no link, switch or rail of it is among the lab's own."""
    machines: tuple[LabMachine, ...] = field(default=(), compare=False)
    """The machines that it is to be spread over, in a file that says so: where a lab is changes nothing of it."""
    written: WrittenLab | None = field(default=None, compare=False)
    """The keys of the file that this came from; two labs are the same whichever file says it. None: from no file."""

    def node(self, name: str) -> Node:
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    def radix_of(self, role: Role) -> int | None:
        """The ports of a switch of a role; None where the file does not say it."""
        return self.tier_radix.get(role, self.switch_radix)

    @property
    def hosts(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.kind is NodeKind.HOST)

    @property
    def targets(self) -> tuple[Node, ...]:
        """The storage targets of all networks."""
        return tuple(node for node in self.nodes if node.kind is NodeKind.STORAGE)

    @property
    def endpoints(self) -> tuple[Node, ...]:
        """The nodes that traffic comes from or goes to: the hosts, and the storage targets."""
        return tuple(node for node in self.nodes if node.kind in (NodeKind.HOST, NodeKind.STORAGE))

    @property
    def host_domains(self) -> dict[str, str]:
        """Every host -> the name of the scale-up domain that its GPUs are in."""
        return {host.name: self.scale_up.domain_of(host) for host in self.hosts}

    @property
    def switches(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.kind is NodeKind.SWITCH)

    @property
    def routed_hosts(self) -> tuple[Node, ...]:
        """The hosts that speak BGP with the leaves of a network."""
        homed = {link.a.node for link in self.links if link.kind is LinkKind.HOMED}
        return tuple(node for node in self.nodes if node.name in homed)

    @property
    def speakers(self) -> tuple[Node, ...]:
        """The nodes that run routing daemons: the switches, then the hosts that speak BGP, then the routers outside."""
        routers = (node for node in self.nodes if node.kind is NodeKind.ROUTER)
        return (*self.switches, *self.routed_hosts, *routers)

    @property
    def tenant_links(self) -> tuple[Link, ...]:
        """The links of NICs in tenants, the host's end first. A NIC that is a link group has several."""
        tenants = () if self.overlay is None else self.overlay.tenants
        nics = {end for tenant in tenants for subnet in tenant.subnets for end in subnet.nics}
        return tuple(link for link in self.links if link.nic in nics)

    @property
    def leaf_pairs(self) -> tuple[tuple[str, str], ...]:
        """The leaves that are one LACP partner of their hosts, the primary first."""
        return tuple((link.a.node, link.b.node) for link in self.links if link.kind is LinkKind.PEER)

    @property
    def network_names(self) -> tuple[str, ...]:
        """Every network that has a link, the back end first."""
        found = {link.network for link in self.links}
        return tuple(name for name in (BACKEND, *(network.name for network in self.networks)) if name in found)

    @property
    def policies(self) -> tuple[QosPolicy, ...]:
        """The QoS of every network that has any, the back end's first: without one the lab needs no data path."""
        every = (self.qos, *(network.qos for network in self.networks))
        return tuple(policy for policy in every if policy is not None)

    def policy_of(self, port: str) -> QosPolicy | None:
        """The QoS of the network that a port ("node:interface") is in; None where its ports are plain."""
        if not self.networks:
            return self.qos
        found = (link.network for link in self.links if port in (str(link.a), str(link.b)))
        return self.qos_of(next(found, BACKEND))

    def qos_of(self, name: str) -> QosPolicy | None:
        """The QoS of a network; None where its ports are plain."""
        carrier = self.carrier_of(name)
        return next((network.qos for network in self.networks if network.name == carrier), self.qos)

    def carrier_of(self, name: str) -> str:
        """The network whose switches the links of a network are on: itself, unless another one carries it."""
        return next((network.carrier for network in self.networks if network.name == name), "") or name

    def carried_by(self, name: str) -> tuple[str, ...]:
        """The networks that a network carries over its switches."""
        return tuple(network.name for network in self.networks if network.carrier == name)

    @property
    def out_of_band(self) -> Network | None:
        """The network that joins the management ports of all nodes; None where they have none."""
        return next((network for network in self.networks if network.is_out_of_band), None)

    @property
    def management(self) -> Network | None:
        """The network by which a server manages nodes: that out of band, or one in band that has services."""
        in_band = (network for network in self.networks if network.carrier and network.services)
        return self.out_of_band or next(in_band, None)

    @property
    def data_networks(self) -> tuple[str, ...]:
        """Every network that has a link, but for the one of management ports."""
        management = self.out_of_band
        return tuple(name for name in self.network_names if management is None or name != management.name)

    @property
    def switched_networks(self) -> tuple[str, ...]:
        """Every network that has routing switches of its own, the back end first, whether or not it has a link."""
        beside = (network.name for network in self.networks if not network.carrier and not network.is_out_of_band)
        return (BACKEND, *beside)

    def without_carrier(self, name: str) -> Lab:
        """The lab as it is seen in one network, without the switches of the one that carries it where one does."""
        seen = self.of_network(name)
        if self.carrier_of(name) == name:
            return seen
        links = tuple(link for link in seen.links if link.network == name)
        hosts = tuple(node for node in seen.nodes if node.kind is not NodeKind.SWITCH)
        design = next(network.design for network in self.networks if network.name == name)
        return replace(seen, nodes=hosts, links=links, rail_subnets=(), design=design)

    def on_switches_of(self, name: str) -> Lab:
        """The lab as it is seen by the switches of a network: with the links of those that it carries."""
        return self.of_network(name, *self.carried_by(name))

    def of_network(self, *names: str) -> Lab:
        """The lab as it is seen in one network: its switches and links, and the hosts that they reach. Raises
        `KeyError` for a network that is not there.

        A network that another one carries is seen with that one's switches and the links between them, the one of
        management ports with every node that has one.
        In several, what is one for the whole view (routing, design, QoS) is the first one's. InfiniBand is in those of
        the back end alone.
        """
        known = {BACKEND, *(network.name for network in self.networks)}
        for name in names:
            if name not in known:
                raise KeyError(name)
        if not self.networks:
            return self
        carriers = [self.carrier_of(name) for name in names]
        links = tuple(
            link
            for link in self.links
            if link.network in names or (link.network in carriers and link.kind is LinkKind.FABRIC)
        )
        reached = {end.node for link in links for end in (link.a, link.b)}
        managed = any(link.kind is LinkKind.MANAGEMENT for link in links)
        nodes = tuple(
            node
            for node in self.nodes
            if (node.network in carriers if node.kind is NodeKind.SWITCH and not managed else node.name in reached)
        )
        switches = {node.name for node in nodes if node.kind is NodeKind.SWITCH and node.network in names}
        subnets = tuple(subnet for subnet in self.rail_subnets if subnet.switch in switches)
        name = carriers[0]
        others = {*names[1:], *carriers} - {name}
        beside = tuple(one for one in self.networks if one.name in others or (one.is_out_of_band and one.name == name))
        infiniband = self.infiniband if BACKEND in names else None
        seen = replace(self, nodes=nodes, links=links, rail_subnets=subnets, networks=beside, infiniband=infiniband)
        if name == BACKEND:
            return seen
        network = next(network for network in self.networks if network.name == name)
        return replace(
            seen,
            routing=network.routing,
            design=network.design,
            switch_radix=network.switch_radix,
            isolated_rails=False,
            gpus_per_nic=1,
            planes=1,
            tier_radix={},
            qos=network.qos,
            guards=network.guards,
        )
