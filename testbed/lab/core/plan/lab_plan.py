"""The plan of a lab: its ports, switches, hosts and routes as they are decided, and the operations that make them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface

from testbed.daemons.lag.groups import LinkGroupPlan
from testbed.lab.core.model import BACKEND, Bfd, DelayBy, Guards, Protocol, Role, StartupConfig
from testbed.lab.core.plan.domain_plan import DomainPlan
from testbed.lab.core.plan.management_plan import ManagementPlan, MonitoringStation, StartService
from testbed.lab.core.plan.operations import GuardSwitch, InstallPort, Operation
from testbed.lab.core.plan.overlay_plan import EvpnPlan, OverlayPlan
from testbed.lab.core.plan.qos.qos_plan import QosPlan, QosTables


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
    """The first member of an aggregate, whose wire stands for all of them."""
    out_of_band: bool = False
    """Its link is one of management: no data goes over it, and its rates and times are not scaled."""

    @property
    def wire(self) -> str:
        """The port ("node:interface") at whose link a NIC's packets enter the fabric."""
        return f"{self.node}:{self.member or self.name}"

    @property
    def addresses(self) -> list[IPv4Address | IPv6Address]:
        """Its addresses, that of IPv4 first."""
        return [item.ip for item in (self.address, self.address6) if item is not None]

    @property
    def nic_bps(self) -> int:
        """The rate of all ports of the NIC together, in the lab; one flow goes by one of them."""
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
    """The session has BFD where its switch has."""
    tells_bandwidth: int = 0
    """The link bandwidth that all that is announced to it has, in units of the network; 0: what it has anyhow."""
    takes_bandwidth: int = 0
    """The link bandwidth that all that is heard from it has, whatever it says; 0: what it says."""


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
    """Its choice between equally long paths matters to others, and must not depend on which came first."""
    password: bool = False
    """Sessions have the lab's password, which no plan knows."""
    ttl_security: bool = False
    asks_kernel: bool = False
    """The data path reads the next hops of its routes, which are to be the routes' own: zebra installs no groups."""
    monitoring: MonitoringStation | None = None
    """To whom it reports its sessions and the routes that it hears; None: to nobody."""
    startup: StartupConfig | None = None
    """The lines that a user wrote beside all this, or in place of it; None: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlan:
    """A host's NIC ports: those of the back end in rail order, then those of each other network."""

    node: str
    nics: tuple[PortPlan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRoute:
    """A route in the kernel table of a converged switch: `next_hops` is the planned ECMP width.

    `interfaces` are the outgoing interfaces of all equally good paths, sorted. `width` is 0 where all of
    them are used, else how many of them are (`Routing.ecmp` is narrower). No interface at all: the
    blackhole route of the switch's own aggregate.
    """

    prefix: IPv4Network
    interfaces: tuple[str, ...]
    width: int = 0
    weights: tuple[int, ...] = ()
    """The weight of each interface, as the kernel has it; (): all have the same."""

    @property
    def next_hops(self) -> int:
        return self.width or len(self.interfaces)

    def matches(self, interfaces: Collection[str]) -> bool:
        """Tell whether a kernel route over `interfaces` is the planned one."""
        found = set(interfaces)
        return len(found) == self.next_hops and found.issubset(self.interfaces)


@dataclass(frozen=True, slots=True, kw_only=True)
class InfinibandPlan:
    """A subnet beside a lab's nodes. `node` names the namespace of its management plane in operations.

    `hcas` has for each host its HCAs, by interface, and what ibsim calls them.
    """

    node: str
    hcas: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]

    def has(self, host: str) -> bool:
        """Tell whether a node is a host with an HCA."""
        return any(name == host for name, _ in self.hcas)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabPlan:
    """Everything decided about a lab, for one time scale and one slot on the machine.

    `slot` (0..511) keeps MACs of labs on one machine apart. `k` is the time scale.
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
    """The QoS of the back end, or of the network that the plan is seen in."""
    qos_beside: dict[str, QosPlan] = field(default_factory=dict)
    """The QoS of the networks beside the back end that have any."""
    tables: QosTables | None = None
    """The tables of the whole lab, whatever network the plan is seen in; None where no network has QoS."""
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
    """The domains whose transfers are frames through a switch."""
    infiniband: InfinibandPlan | None = None
    """The back end, where it is InfiniBand: nothing else here is of it."""

    @property
    def services(self) -> tuple[StartService, ...]:
        """The services of the management network, on every node that runs one."""
        return tuple(item for item in self.operations if isinstance(item, StartService))

    @property
    def speakers(self) -> tuple[SwitchPlan, ...]:
        """All that run routing daemons: the switches, then the hosts that speak BGP, then the routers outside."""
        return (*self.switches, *self.routed_hosts, *self.routers)

    @property
    def most_loss(self) -> float:
        """The share of packets that the worst of the links is declared to lose."""
        return max((port.loss for port in self.ports), default=0.0)

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

    @property
    def installed(self) -> set[tuple[str, int]]:
        """All ports of the lab that have QoS, each by its node and its number."""
        return {(item.node, item.port) for item in self.operations if isinstance(item, InstallPort)}

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
