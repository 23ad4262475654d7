"""A kernel in memory that takes the same operations as the real one and refuses the same ones.

It passes the contract tests of kernels next to the real driver, so what is tested against it holds.
Namespaces that somebody else made are given to the `FakeMachine`, which labs of a test share.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_interface
from typing import TypeVar

from observed import ObservedInterface, ObservedNode

from testbed.base.errors import DriverError, NameInUse
from testbed.base.names import namespace_name
from testbed.daemons.lag.groups import CreateBond
from testbed.lab.core.drivers.nodes.changing import KernelChanges, undo_place
from testbed.lab.core.drivers.nodes.netns import Removal
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
    SetSysctl,
    SetUp,
    ShapePort,
    StartContainer,
    StartRouting,
    VethEnd,
    place_of,
)
from testbed.lab.core.plan.overlay_operations import CreateVrf, CreateVrfDevice, CreateVxlan, PreferVrfs

LOOPBACK = 1
_T = TypeVar("_T")
_FIRST_IDENTITY = 4_026_532_000


@dataclass(slots=True, kw_only=True)
class _Node:
    """The contents of a namespace. Interfaces are by index; routes and rules by what must be unique, and of routes the
    interface."""

    identity: int
    interfaces: dict[int, ObservedInterface] = field(default_factory=dict)
    routes: dict[tuple[int, str], int] = field(default_factory=dict)
    rules: set[tuple[str, int, int]] = field(default_factory=set)
    sysctls: dict[str, str] = field(default_factory=dict)
    guards: set[str] = field(default_factory=set)

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


@dataclass(slots=True)
class FakeMachine:
    """The namespaces of a machine by name, and the sysctls that its kernel has (None: all)."""

    published: dict[str, _Node] = field(default_factory=dict)
    sysctls: frozenset[str] | None = None
    rdma: dict[str, str] = field(default_factory=dict)
    """RDMA devices by name, which is the machine's own, and the namespaces that they are in."""
    _identities: int = _FIRST_IDENTITY

    def new_node(self) -> _Node:
        self._identities += 1
        return _Node(identity=self._identities)

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
        self._nodes: dict[str, _Node] = {}

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

    def apply(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            refusal = self._apply(operation)
            if refusal and not (self._again and refusal == errno.EEXIST):
                what = str(operation)
                raise DriverError(f"{what}: {os.strerror(refusal)}", operation=what, errno=refusal)

    def undo(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            if self._again and undo_place(operation) not in self._open():
                continue
            refusal = self._undo(operation)
            if refusal and not (self._again and refusal in (errno.ENODEV, errno.ESRCH)):
                what = f"undo: {operation}"
                raise DriverError(f"{what}: {os.strerror(refusal)}", operation=what, errno=refusal)

    def _undo(self, operation: Operation) -> int:
        """Take one operation back; the errno of a refusal, 0 for none."""
        nodes = self._open()
        match operation:
            case CreateVeth():
                return self._delete(operation.a) or self._delete(operation.b)
            case CreateBridge() | CreateBond() | CreateVrfDevice():
                return self._delete(operation)
            case SetUp():
                return self._change(place_of(operation), operation.ifindex, up=False)
            case ShapePort() | InstallPort():
                return self._change(place_of(operation), operation.ifindex, rate_bps=0)
            case DelayPort():
                return (
                    errno.ENODEV
                    if nodes[place_of(operation)].interfaces.pop(operation.ifb_ifindex, None) is None
                    else 0
                )
            case AddAddress():
                interface = nodes[operation.node].interfaces.get(operation.ifindex)
                left = {*interface.addresses} - {str(operation.address)} if interface else set[str]()
                return self._change(operation.node, operation.ifindex, addresses=tuple(sorted(left)))
            case AddRoute():
                route = nodes[operation.node].routes.pop((operation.table, str(operation.destination)), None)
                return errno.ESRCH if route is None else 0
            case AddRule():
                rule = (str(operation.source), operation.table, operation.priority)
                return _remove(nodes[operation.node].rules, rule)
        return 0

    def _delete(self, item: VethEnd | CreateBridge | CreateBond | CreateVrfDevice) -> int:
        """Remove an interface, and the routes by it; a bridge lets its ports go."""
        node = self._open()[item.node]
        interfaces = node.interfaces
        if interfaces.pop(item.ifindex, None) is None:
            return errno.ENODEV
        node.routes = {route: ifindex for route, ifindex in node.routes.items() if ifindex != item.ifindex}
        for port in [port for port in interfaces.values() if port.master == item.ifindex]:
            interfaces[port.ifindex] = replace(port, master=0)
        return 0

    def change(self, changes: KernelChanges) -> None:
        for old, new in changes.changed:
            self._change_operation(old, new)

    def _change_operation(self, old: Operation, new: Operation) -> None:
        match old, new:
            case SetSysctl(), SetSysctl():
                self._set_sysctl(new)
            case CreateVeth(), CreateVeth():
                for end in (new.a, new.b):
                    self._change(end.node, end.ifindex, mtu_bytes=new.mtu_bytes)
            case CreateBridge(), CreateBridge():
                self._change(new.node, new.ifindex, mtu_bytes=new.mtu_bytes)
            case ((ShapePort() | InstallPort()), (ShapePort() | InstallPort())):
                self._change(place_of(new), new.ifindex, rate_bps=new.rate_bps // 8 * 8)
            case DelayPort(), DelayPort():
                self._change(place_of(new), new.ifb_ifindex, mtu_bytes=new.mtu_bytes)
            case _:
                raise ValueError(f"not in place: {old} -> {new}")

    def _open(self) -> dict[str, _Node]:
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
                port = self._open()[operation.node].interfaces.get(operation.ifindex)
                return errno.ENODEV if port is None else 0 if port.master else errno.EINVAL
            case SetSysctl():
                return self._set_sysctl(operation)
            case CreateRdma():
                return self._create_rdma(operation)
            case GuardSwitch():
                return _add_new(self._open()[operation.node].guards, operation.node)
            case GuardManagement():
                return _add_new(self._open()[operation.node].guards, f"{operation.node}:{operation.name}")
            case FormCommunity():
                return _add_new(self._open()[operation.node].guards, f"{operation.node} community")
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
                return refused or self._change(place_of(operation), operation.ifb_ifindex, up=True)
            case AddAddress():
                return self._add_address(operation)
            case AddRoute():
                return self._add_route(operation)
            case AddRule():
                rule = (str(operation.source), operation.table, operation.priority)
                return _add_new(self._open()[operation.node].rules, rule)

    def _add(self, node: _Node, interface: ObservedInterface, *, index_taken: int) -> int:
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
                    del nodes[made.node].interfaces[made.ifindex]
                return refusal
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

    def _change(self, node: str, ifindex: int, **changes: bool | int | tuple[str, ...]) -> int:
        interfaces = self._open()[node].interfaces
        if ifindex not in interfaces:
            return errno.ENODEV
        interfaces[ifindex] = replace(interfaces[ifindex], **changes)  # type: ignore[arg-type]
        return 0

    def _shape(self, operation: ShapePort | InstallPort) -> int:
        interface = self._open()[place_of(operation)].interfaces.get(operation.ifindex)
        if interface is not None and interface.rate_bps:
            return errno.EEXIST
        return self._change(place_of(operation), operation.ifindex, rate_bps=operation.rate_bps // 8 * 8)

    def _add_address(self, operation: AddAddress) -> int:
        interface = self._open()[operation.node].interfaces.get(operation.ifindex)
        address = str(operation.address)
        if interface is not None and address in interface.addresses:
            return errno.EEXIST
        addresses = tuple(sorted((*interface.addresses, address))) if interface else ()
        return self._change(operation.node, operation.ifindex, addresses=addresses)

    def _add_route(self, operation: AddRoute) -> int:
        node = self._open()[operation.node]
        interface = node.interfaces.get(operation.ifindex)
        if operation.gateway is not None:
            addresses = interface.addresses if interface is not None and interface.up else ()
            if not any(operation.gateway in ip_interface(address).network for address in addresses):
                return errno.ENETUNREACH
        elif interface is None:
            return errno.ENODEV
        elif not interface.up:
            return errno.ENETDOWN
        route = (operation.table, str(operation.destination))
        if route in node.routes:
            return errno.EEXIST
        node.routes[route] = operation.ifindex
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
        for node, identity in identities.items():
            name = namespace_name(self._lab, node)
            found = self._machine.published.get(name)
            if found is not None and found.identity == identity:
                del self._machine.published[name]
                self._machine.rdma = {device: place for device, place in self._machine.rdma.items() if place != name}
                removed += 1
        return Removal(nodes=removed)

    def close(self) -> None:
        self._nodes = {}


def _interface(name: str, ifindex: int, mac: str, mtu_bytes: int, master: int = 0) -> ObservedInterface:
    return ObservedInterface(
        name=name, ifindex=ifindex, mac=mac, mtu_bytes=mtu_bytes, up=False, master=master, addresses=(), rate_bps=0
    )


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
