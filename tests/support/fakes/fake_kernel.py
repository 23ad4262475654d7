"""A kernel in memory that takes the same operations as the real one and refuses the same ones.

It passes the contract tests of kernels next to the real driver, so what is tested against it holds.
Namespaces that somebody else made are given to the `FakeMachine`, which labs of a test share.
"""

import errno
import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Interface, IPv6Interface, ip_interface
from typing import TypeVar

from observed import ObservedInterface, ObservedNode

from testbed.base.errors import DriverError, NameInUse
from testbed.base.names import namespace_name
from testbed.daemons.lag.groups import CreateBond
from testbed.lab.core.drivers.nodes.changing import Filter, KernelChanges, undo_place
from testbed.lab.core.drivers.nodes.netns import GONE, Removal
from testbed.lab.core.plan.changes import identity as thing_of
from testbed.lab.core.plan.management_plan import FormCommunity, GuardManagement, StartService
from testbed.lab.core.plan.operations import (
    AddAddress,
    AddRoute,
    AddRule,
    CreateBridge,
    CreateNode,
    CreateRdma,
    CreateVeth,
    DelayPort,
    GuardSwitch,
    InstallPort,
    Operation,
    SetBridgePort,
    SetNeighbour,
    SetSysctl,
    SetUp,
    ShapePort,
    StartContainer,
    StartRouting,
    SteerTcp,
    VethEnd,
    place_of,
)
from testbed.lab.core.plan.overlay_operations import (
    CreateVrf,
    CreateVrfDevice,
    CreateVxlan,
    PreferVrfs,
    SetBorder,
    SetPolicy,
)

LOOPBACK = 1
_T = TypeVar("_T")
_FIRST_IDENTITY = 4_026_532_000


@dataclass(slots=True, kw_only=True)
class NodeContent:
    """The contents of a namespace. Interfaces are by index; routes and rules by what must be unique.

    Of an interface there are besides: its addresses in the order in which they came, how it queues, what delays it, how
    it is a port of a bridge, and who is its neighbour without being asked.
    """

    identity: int = field(compare=False)
    interfaces: dict[int, ObservedInterface] = field(default_factory=dict)
    routes: dict[tuple[int, str, int], AddRoute] = field(default_factory=dict)
    rules: set[AddRule] = field(default_factory=set)
    steered: set[SteerTcp] = field(default_factory=set)
    sysctls: dict[str, str] = field(default_factory=dict)
    filters: dict[Hashable, Operation] = field(default_factory=dict)
    hooked: dict[Hashable, set[str]] = field(default_factory=dict)
    """The interfaces at which each filter is: one that goes takes its hook along, and one that comes has none."""
    addresses: dict[int, list[IPv4Interface | IPv6Interface]] = field(default_factory=dict, compare=False)
    queues: dict[int, ShapePort | InstallPort] = field(default_factory=dict)
    lengths: dict[int, int] = field(default_factory=dict)
    delays: dict[int, DelayPort] = field(default_factory=dict)
    bridge_ports: dict[int, SetBridgePort] = field(default_factory=dict)
    neighbours: dict[tuple[int, str], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.interfaces[LOOPBACK] = ObservedInterface(
            name="lo",
            ifindex=LOOPBACK,
            mac="00:00:00:00:00:00",
            mtu_bytes=65536,
            up=False,
            master=0,
            addresses=(),
            rate_bps=0,
        )

    def drop_routes(self, ifindex: int, source: object = None) -> None:
        """Forget the routes by an interface, or of it those whose source is an address that is gone."""
        self.routes = {
            key: route
            for key, route in self.routes.items()
            if route.ifindex != ifindex or (source is not None and route.source != source)
        }

    def drop_interface(self, ifindex: int) -> None:
        """Forget an interface and all that is about it; a bridge lets its ports go."""
        name = self.interfaces.pop(ifindex).name
        for hooked in self.hooked.values():
            hooked.discard(name)
        self.drop_routes(ifindex)
        self.sysctls = {key: value for key, value in self.sysctls.items() if f"/conf/{name}/" not in key}
        for about in (self.addresses, self.queues, self.lengths, self.delays, self.bridge_ports):
            about.pop(ifindex, None)  # type: ignore[attr-defined]
        self.neighbours = {key: mac for key, mac in self.neighbours.items() if key[0] != ifindex}
        for port in [port for port in self.interfaces.values() if port.master == ifindex]:
            self.interfaces[port.ifindex] = replace(port, master=0)

    def drop_address(self, ifindex: int, address: IPv4Interface | IPv6Interface) -> None:
        """Take an address away, and those that came after it in its subnet: they are secondary to it (IPv4).

        Routes go with their source, unless it is there in a subnet of another size, too (net/ipv4/fib_frontend.c,
        fib_del_ifaddr).
        """
        there = self.addresses[ifindex]
        place = there.index(address)
        first = not any(one.network == address.network for one in there[:place])
        secondary = [one for one in there[place + 1 :] if one.version == 4 and one.network == address.network]
        for gone in (address, *(secondary if first else ())):
            there.remove(gone)
            if gone.ip not in {one.ip for one in there}:
                self.drop_routes(ifindex, gone.ip)
        self.show_addresses(ifindex)

    def show_addresses(self, ifindex: int) -> None:
        """Have the interface show the addresses that it has."""
        texts = tuple(sorted(map(str, self.addresses.get(ifindex, ()))))
        self.interfaces[ifindex] = replace(self.interfaces[ifindex], addresses=texts)


@dataclass(slots=True)
class FakeMachine:
    """The namespaces of a machine by name, and the sysctls that its kernel has (None: all)."""

    published: dict[str, NodeContent] = field(default_factory=dict)
    sysctls: frozenset[str] | None = None
    rdma: dict[str, str] = field(default_factory=dict)
    """RDMA devices by name, which is the machine's own, and the namespaces that they are in."""
    _identities: int = _FIRST_IDENTITY

    def new_node(self) -> NodeContent:
        self._identities += 1
        return NodeContent(identity=self._identities)

    def add_foreign(self, name: str) -> int:
        """A namespace that is not ours; its identity comes back."""
        self.published[name] = self.new_node()
        return self.published[name].identity


class FakeKernel:
    """`NodeKernel` over a `FakeMachine`."""

    def __init__(self, lab: str, nodes: Iterable[str] = (), *, machine: FakeMachine, again: bool = False) -> None:
        """`nodes` are those that exist already. `again`: what was done before stays done."""
        self._lab = lab
        self._again = again
        self._machine = machine
        self._existing = tuple(nodes)
        self._nodes: dict[str, NodeContent] = {}

    def create_nodes(self, operations: Sequence[CreateNode | CreateVrf]) -> Mapping[str, int]:
        made = {operation.node: self._machine.new_node() for operation in operations}
        self._nodes |= made
        return {node: item.identity for node, item in made.items()}

    def publish(self, nodes: Iterable[str] | None = None) -> None:
        for node in self._nodes if nodes is None else nodes:
            item = self._nodes[node]
            name = namespace_name(self._lab, node)
            if name in self._machine.published:
                raise NameInUse(f"a network namespace {name} exists and is not ours")
            self._machine.published[name] = item

    def apply(self, operations: Sequence[Operation], *, replacing: bool = False) -> None:
        for operation in operations:
            refusal = (
                self._filter(operation, replacing=replacing)
                if isinstance(operation, Filter)
                else self._apply(operation)
            )
            if refusal and not (self._again and refusal == errno.EEXIST):
                what = str(operation)
                raise DriverError(f"{what}: {os.strerror(refusal)}", operation=what, errno=refusal)

    def undo(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            if self._again and undo_place(operation) not in self._open():
                continue
            refusal = self._undo(operation)
            if refusal and not (self._again and refusal in GONE):
                what = f"undo: {operation}"
                raise DriverError(f"{what}: {os.strerror(refusal)}", operation=what, errno=refusal)

    def _undo(self, operation: Operation) -> int:
        """Take one operation back; the errno of a refusal, 0 for none."""
        nodes = self._open()
        match operation:
            case CreateVeth():
                return self._delete(operation.a) or self._delete(operation.b)
            case CreateBridge() | CreateBond() | CreateVrfDevice() | CreateVxlan():
                return self._delete(operation)
            case SetUp():
                nodes[place_of(operation)].drop_routes(operation.ifindex)
                return self._change(place_of(operation), operation.ifindex, up=False)
            case ShapePort() | InstallPort():
                if nodes[place_of(operation)].queues.pop(operation.ifindex, None) is None:
                    return errno.ENOENT
                return self._change(place_of(operation), operation.ifindex, rate_bps=0)
            case DelayPort():
                node = nodes[place_of(operation)]
                node.delays.pop(operation.ifindex, None)
                return self._delete_interface(node, operation.ifb_ifindex)
            case AddAddress():
                node = nodes[operation.node]
                if operation.address not in node.addresses.get(operation.ifindex, ()):
                    return errno.EADDRNOTAVAIL
                node.drop_address(operation.ifindex, operation.address)
                return 0
            case SetBridgePort():
                port = nodes[operation.node].bridge_ports.pop(operation.ifindex, None)
                return errno.ENODEV if port is None else 0
            case AddRoute():
                route = nodes[operation.node].routes.pop(_route_key(operation), None)
                return errno.ESRCH if route is None else 0
            case AddRule():
                return _remove(nodes[operation.node].rules, operation)
            case SteerTcp():
                return _remove(nodes[operation.node].steered, operation)
            case SetNeighbour():
                key = (operation.ifindex, str(operation.address))
                return errno.ENOENT if nodes[operation.node].neighbours.pop(key, None) is None else 0
            case SetSysctl():
                nodes[operation.node].sysctls.pop(operation.key, None)
            case GuardSwitch() | SetPolicy() | SetBorder() | GuardManagement() | FormCommunity():
                node = nodes[place_of(operation)]
                node.filters.pop(thing_of(operation), None)
                node.hooked.pop(thing_of(operation), None)
        return 0

    def _delete(self, item: VethEnd | CreateBridge | CreateBond | CreateVrfDevice | CreateVxlan) -> int:
        """Remove an interface, and all that is about it."""
        return self._delete_interface(self._open()[item.node], item.ifindex)

    @staticmethod
    def _delete_interface(node: NodeContent, ifindex: int) -> int:
        if ifindex not in node.interfaces:
            return errno.ENODEV
        node.drop_interface(ifindex)
        return 0

    def change(self, changes: KernelChanges) -> None:
        self.undo(changes.outdated)
        for old, new in changes.changed:
            refusal = self._change_operation(old, new)
            if refusal:
                raise DriverError(f"{new}: {os.strerror(refusal)}", operation=str(new), errno=refusal)

    def _change_operation(self, old: Operation, new: Operation) -> int:
        nodes = self._open()
        match old, new:
            case SetSysctl(), SetSysctl():
                return self._set_sysctl(new)
            case CreateVeth(), CreateVeth():
                for end in (new.a, new.b):
                    nodes[end.node].lengths[end.ifindex] = new.queue_packets
                    self._change(end.node, end.ifindex, mtu_bytes=new.mtu_bytes, master=end.master)
            case CreateBridge(), CreateBridge():
                return self._change(new.node, new.ifindex, mtu_bytes=new.mtu_bytes, mac=new.mac, master=new.master)
            case CreateVxlan(), CreateVxlan():
                return self._change(new.node, new.ifindex, mtu_bytes=new.mtu_bytes, master=new.master)
            case CreateBond(), CreateBond():
                return self._change(new.node, new.ifindex, mtu_bytes=new.mtu_bytes)
            case ((CreateVrfDevice() | PreferVrfs()), _):
                pass  # none of what is observed
            case AddRule(), AddRule():
                nodes[new.node].rules.add(new)
                nodes[new.node].rules.discard(old)
            case ((ShapePort() | InstallPort()), (ShapePort() | InstallPort())):
                place = nodes[place_of(new)]
                if new.ifindex not in place.queues:
                    return errno.ENOENT
                place.queues[new.ifindex] = _without_numbers(new)
                return self._change(place_of(new), new.ifindex, rate_bps=new.rate_bps // 8 * 8)
            case DelayPort(), DelayPort():
                nodes[place_of(new)].delays[new.ifindex] = replace(new, port=0)
                return self._change(place_of(new), new.ifb_ifindex, mtu_bytes=new.mtu_bytes)
            case AddRoute(), AddRoute():
                nodes[new.node].routes.pop(_route_key(new), None)
                return self._add_route(new)
            case SetNeighbour(), SetNeighbour():
                nodes[new.node].neighbours[new.ifindex, str(new.address)] = new.mac
            case SetBridgePort(), SetBridgePort():
                nodes[new.node].bridge_ports[new.ifindex] = new
            case _:
                raise ValueError(f"not in place: {old} -> {new}")
        return 0

    def _open(self) -> dict[str, NodeContent]:
        for node in self._existing:
            name = namespace_name(self._lab, node)
            if name not in self._machine.published:
                raise DriverError(f"the network namespace {name} is gone", operation="enter")
            self._nodes[node] = self._machine.published[name]
        self._existing = ()
        return self._nodes

    def _apply(self, operation: Operation) -> int:
        """Carry out one operation; the errno of a refusal, 0 for none."""
        match operation:
            case CreateNode() | CreateVrf() | StartContainer() | StartRouting() | StartService():
                kind = type(operation).__name__
                raise DriverError(f"the namespace driver does not apply {kind}", operation=kind)
            case CreateVeth():
                return self._create_veth(operation)
            case CreateBridge():
                interface = _interface(
                    operation.name, operation.ifindex, operation.mac, operation.mtu_bytes, operation.master
                )
                return self._add(self._open()[operation.node], interface, index_taken=errno.EEXIST)
            case CreateBond():
                interface = _interface(operation.name, operation.ifindex, operation.mac, operation.mtu_bytes)
                return self._add(self._open()[operation.node], interface, index_taken=errno.EEXIST)
            case CreateVrfDevice():
                interface = _interface(operation.name, operation.ifindex, "", 65575)
                return self._add(self._open()[operation.node], interface, index_taken=errno.EEXIST)
            case PreferVrfs():
                return 0
            case CreateVxlan():
                node = self._open()[operation.node]
                if operation.master not in node.interfaces:
                    return errno.EINVAL
                interface = _interface(
                    operation.name, operation.ifindex, operation.mac, operation.mtu_bytes, operation.master
                )
                return self._add(node, interface, index_taken=errno.EBUSY)
            case SetBridgePort():
                node = self._open()[operation.node]
                port = node.interfaces.get(operation.ifindex)
                if port is None or not port.master:
                    return errno.ENODEV if port is None else errno.EINVAL
                node.bridge_ports[operation.ifindex] = operation
                return 0
            case SetNeighbour():
                node = self._open()[operation.node]
                if operation.ifindex not in node.interfaces:
                    return errno.ENODEV
                key = (operation.ifindex, str(operation.address))
                if key in node.neighbours:
                    return errno.EEXIST
                node.neighbours[key] = operation.mac
                return 0
            case SetSysctl():
                return self._set_sysctl(operation)
            case CreateRdma():
                return self._create_rdma(operation)
            case SetUp():
                return self._change(place_of(operation), operation.ifindex, up=True)
            case ShapePort() | InstallPort():
                return self._shape(operation)
            case DelayPort():
                interface = _interface(
                    operation.ifb_name, operation.ifb_ifindex, "00:00:00:00:00:00", operation.mtu_bytes
                )
                node = self._open()[place_of(operation)]
                refused = self._add(node, interface, index_taken=errno.EEXIST)
                if not refused:
                    node.delays[operation.ifindex] = replace(operation, port=0)
                return refused or self._change(place_of(operation), operation.ifb_ifindex, up=True)
            case AddAddress():
                return self._add_address(operation)
            case AddRoute():
                return self._add_route(operation)
            case AddRule():
                return _add_new(self._open()[operation.node].rules, operation)
            case SteerTcp():
                return _add_new(self._open()[operation.node].steered, operation)

    def _filter(self, operation: Filter, *, replacing: bool) -> int:
        """Put a filter in force at interfaces that there are."""
        node = self._open()[place_of(operation)]
        hooked = set(hooks_of(operation))
        if not hooked <= {item.name for item in node.interfaces.values()}:
            return errno.ENOENT
        if thing_of(operation) in node.filters and not replacing:
            return errno.EEXIST
        node.filters[thing_of(operation)] = operation
        node.hooked[thing_of(operation)] = hooked
        return 0

    def _add(self, node: NodeContent, interface: ObservedInterface, *, index_taken: int) -> int:
        if any(item.name == interface.name for item in node.interfaces.values()):
            return errno.EEXIST
        if interface.ifindex in node.interfaces:
            return index_taken
        node.interfaces[interface.ifindex] = interface
        return 0

    def _create_veth(self, operation: CreateVeth) -> int:
        nodes = self._open()
        done: list[VethEnd] = []
        for end in (operation.a, operation.b):
            node = nodes[end.node]
            interface = _interface(end.name, end.ifindex, end.mac, operation.mtu_bytes, end.master)
            if end.master and end.master not in node.interfaces:
                refusal = errno.EINVAL
            else:
                refusal = self._add(node, interface, index_taken=errno.EBUSY)
            if refusal:
                for made in done:
                    nodes[made.node].drop_interface(made.ifindex)
                return refusal
            node.lengths[end.ifindex] = operation.queue_packets
            done.append(end)
        return 0

    def _create_rdma(self, operation: CreateRdma) -> int:
        names = {item.name for item in self._open()[operation.node].interfaces.values()}
        if operation.name not in names:
            return errno.ENODEV
        if operation.device in self._machine.rdma:
            return errno.EEXIST
        self._machine.rdma[operation.device] = namespace_name(self._lab, operation.node)
        return 0

    def _change(self, node: str, ifindex: int, **changes: bool | int | str | tuple[str, ...]) -> int:
        interfaces = self._open()[node].interfaces
        if ifindex not in interfaces:
            return errno.ENODEV
        interfaces[ifindex] = replace(interfaces[ifindex], **changes)  # type: ignore[arg-type]
        return 0

    def _shape(self, operation: ShapePort | InstallPort) -> int:
        node = self._open()[place_of(operation)]
        if operation.ifindex not in node.interfaces:
            return errno.ENODEV
        if operation.ifindex in node.queues:
            return errno.EEXIST
        node.queues[operation.ifindex] = _without_numbers(operation)
        return self._change(place_of(operation), operation.ifindex, rate_bps=operation.rate_bps // 8 * 8)

    def _add_address(self, operation: AddAddress) -> int:
        node = self._open()[operation.node]
        if operation.ifindex not in node.interfaces:
            return errno.ENODEV
        there = node.addresses.setdefault(operation.ifindex, [])
        if operation.address in there:
            return errno.EEXIST
        there.append(operation.address)
        node.show_addresses(operation.ifindex)
        return 0

    def _add_route(self, operation: AddRoute) -> int:
        node = self._open()[operation.node]
        interface = node.interfaces.get(operation.ifindex)
        if operation.onlink:
            if interface is None or not interface.up:
                return errno.ENODEV if interface is None else errno.ENETDOWN
        elif operation.gateway is not None:
            addresses = interface.addresses if interface is not None and interface.up else ()
            if not any(operation.gateway in ip_interface(address).network for address in addresses):
                return errno.ENETUNREACH
        elif interface is None:
            return errno.ENODEV
        elif not interface.up:
            return errno.ENETDOWN
        if _route_key(operation) in node.routes:
            return errno.EEXIST
        node.routes[_route_key(operation)] = operation
        return 0

    def _set_sysctl(self, operation: SetSysctl) -> int:
        known = self._machine.sysctls
        if known is None or operation.key in known:
            self._open()[operation.node].sysctls[operation.key] = operation.value
            return 0
        if operation.optional:
            return 0
        raise DriverError(
            f"{operation.node}: this kernel has no sysctl {operation.key}", operation="sysctl", errno=errno.ENOENT
        )

    def observe(self) -> Mapping[str, ObservedNode]:
        return {
            node: ObservedNode(
                interfaces={
                    item.name: item
                    for item in sorted(content.interfaces.values(), key=lambda item: item.ifindex)
                    if item.ifindex != LOOPBACK or item.addresses
                },
                rules=len(content.rules),
            )
            for node, content in self._open().items()
        }

    def remove(self, identities: Mapping[str, int]) -> Removal:
        self.close()
        removed = 0
        for node, wanted in identities.items():
            name = namespace_name(self._lab, node)
            found = self._machine.published.get(name)
            if found is not None and found.identity == wanted:
                del self._machine.published[name]
                self._machine.rdma = {device: place for device, place in self._machine.rdma.items() if place != name}
                removed += 1
        return Removal(nodes=removed)

    def close(self) -> None:
        self._nodes = {}


def hooks_of(operation: Filter) -> list[str]:
    """The interfaces that a filter is at, in its place; those of an address of the namespace are none."""
    match operation:
        case GuardSwitch() | SetPolicy():
            return [port.name for port in operation.ports]
        case SetBorder():
            return [operation.name]
    return []


def _interface(name: str, ifindex: int, mac: str, mtu_bytes: int, master: int = 0) -> ObservedInterface:
    return ObservedInterface(
        name=name, ifindex=ifindex, mac=mac, mtu_bytes=mtu_bytes, up=False, master=master, addresses=(), rate_bps=0
    )


def _route_key(operation: AddRoute) -> tuple[int, str, int]:
    return operation.table, str(operation.destination), operation.metric


def _without_numbers(operation: ShapePort | InstallPort) -> ShapePort | InstallPort:
    """The operation without the numbers of the data path, which labs alike may have otherwise."""
    if isinstance(operation, ShapePort):
        return operation
    return replace(operation, port=0, peer=0, profile=0, buffer=0)


def _remove(items: set[_T], item: _T) -> int:
    if item not in items:
        return errno.ESRCH
    items.remove(item)
    return 0


def _add_new(items: set[_T], item: _T) -> int:
    if item in items:
        return errno.EEXIST
    items.add(item)
    return 0
