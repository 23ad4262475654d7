"""The changes of the kernel for a lab that is up: operations taken back, and changed where they are.

What goes with its interface or its node needs nothing of its own. A change that nothing here knows is made by taking
the old operation back and applying the new one, which `Changed.remade` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from testbed.base.linux import rtnetlink
from testbed.base.linux import traffic_control as traffic
from testbed.base.linux.neighbours import NUD_PERMANENT, forget_neighbour, set_neighbour
from testbed.daemons.lag.groups import CreateBond
from testbed.lab.core.drivers.netlink import netem as wire
from testbed.lab.core.drivers.netlink import overlay_devices as overlay
from testbed.lab.core.drivers.netlink.port_programs import change_port, same_queues
from testbed.lab.core.plan.changes import changes_between
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import (
    AddAddress,
    AddRoute,
    AddRule,
    CreateBridge,
    CreateNode,
    CreateVeth,
    DelayPort,
    GuardSwitch,
    InstallPort,
    LocalOperation,
    Operation,
    SetBridgePort,
    SetNeighbour,
    SetSysctl,
    SetUp,
    ShapePort,
    StartRouting,
    place_of,
)
from testbed.lab.core.plan.overlay_operations import CreateVrfDevice
from testbed.lab.core.plan.qos.qos_plan import QosTables

Encode = Callable[[LocalOperation], tuple[bytes, ...]]
"""The messages that apply an operation: `NetnsKernel`'s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """Netlink messages for the namespace of a node. `what` says in an error what they are for."""

    place: str
    batch: tuple[bytes, ...]
    what: str


Tables = tuple[QosTables | None, QosTables | None]
"""The tables of the old plan and of the new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelChanges:
    """All that is done to the kernel so that a lab of one plan is one of another, in this order.

    Nodes are `created`, what is `remade` is taken back (`first`), things are `made` and `changed` where they are, and
    when no route leads there any more, things are `removed`, and nodes `gone`.
    """

    created: tuple[CreateNode, ...]
    first: tuple[Operation, ...]
    made: tuple[Operation, ...]
    changed: tuple[tuple[Operation, Operation], ...]
    removed: tuple[Operation, ...]
    gone: tuple[str, ...]
    remade: tuple[Operation, ...]
    """The operations of `made` that replace an older one: what waits in a queue or is on a wire is lost."""
    tables: Tables

    def __bool__(self) -> bool:
        return bool(self.created or self.made or self.changed or self.removed or self.gone)

    @property
    def places(self) -> list[str]:
        """The nodes that are there already and are touched."""
        touched = [*self.first, *self.made, *(new for _, new in self.changed), *self.removed]
        created = {item.node for item in self.created}
        return sorted({node for item in touched for node in places_of(item)} - created)

    @property
    def installs(self) -> list[InstallPort]:
        """The ports whose numbers in the data path are new."""
        return [item for item in (*self.made, *(new for _, new in self.changed)) if isinstance(item, InstallPort)]


def places_of(operation: Operation) -> tuple[str, ...]:
    """Return the nodes in whose namespaces something is done: both ends of a link."""
    match operation:
        case CreateVeth():
            return operation.a.node, operation.b.node
        case ShapePort() | InstallPort() | DelayPort() | SetUp() | GuardSwitch():
            return (operation.vrf or operation.node,)
    return (operation.node,)


def kernel_changes(old: LabPlan, new: LabPlan) -> KernelChanges:
    """Return what is done to the kernel so that a lab of the plan `old` is one of `new`."""
    changes = changes_between(old, new)
    tables = (old.tables, new.tables)
    pairs = [(each.old, each.new) for each in changes.changed if each.old is not None and each.new is not None]
    remade = [pair for pair in pairs if not _in_place(*pair, tables)]
    first = {id(item): item for was, _ in remade for item in _with_interfaces(old, was)}
    wanted = {id(item) for _, item in remade for item in _with_interfaces(new, item)}
    wanted |= {id(each.new) for each in changes.made}
    removed = [each.old for each in changes.removed if each.old is not None and id(each.old) not in first]
    gone = {item.node for item in removed if isinstance(item, CreateNode)}
    links = [item for item in removed if isinstance(item, CreateVeth)]
    ends = {(end.node, end.ifindex) for link in links for end in (link.a, link.b)}
    there = [item for item in new.operations if id(item) in wanted]
    return KernelChanges(
        created=tuple(item for item in there if isinstance(item, CreateNode)),
        first=tuple(reversed(first.values())),
        made=tuple(item for item in there if not isinstance(item, CreateNode | StartRouting)),
        changed=tuple(pair for pair in pairs if pair not in remade),
        removed=tuple(item for item in removed if isinstance(item, CreateVeth) or not goes_with(item, gone, ends)),
        gone=tuple(sorted(gone)),
        remade=tuple(item for _, item in remade),
        tables=tables,
    )


def _in_place(old: Operation, new: Operation, tables: Tables) -> bool:
    return isinstance(new, SetSysctl) or change(old, new, tables) is not None


def _with_interfaces(plan: LabPlan, remade: Operation) -> Iterator[Operation]:
    """Yield an operation, and those that are about the interfaces that it makes."""
    ends = {(end.node, end.ifindex) for end in (remade.a, remade.b)} if isinstance(remade, CreateVeth) else set()
    return (item for item in plan.operations if item is remade or (ends and goes_with(item, (), ends)))


def undo(operation: Operation, encode: Encode) -> list[Messages]:
    """Return the messages that take an operation back; none where there is nothing to take back of its own.

    Removing a queue drops what waits in it, removing a link what is under way.
    """
    match operation:
        case CreateVeth():
            what = f"remove link {operation.a} <-> {operation.b}"
            return [Messages(place=operation.a.node, batch=(rtnetlink.delete_link(operation.a.ifindex),), what=what)]
        case CreateBridge() | CreateBond() | CreateVrfDevice():
            batch: tuple[bytes, ...] = (rtnetlink.delete_link(operation.ifindex),)
        case AddAddress() | AddRoute() | AddRule():
            batch = tuple(map(rtnetlink.undone, encode(operation)))
        case SetNeighbour():
            batch = (forget_neighbour(operation.ifindex, operation.address),)
        case ShapePort():
            batch = (traffic.delete_root_qdisc(operation.ifindex),)
        case InstallPort():
            batch = (traffic.delete_root_qdisc(operation.ifindex), traffic.delete_clsact(operation.ifindex))
        case DelayPort():
            batch = wire.undelay_port(operation)
        case SetUp():
            batch = (rtnetlink.set_link_state(operation.ifindex, False),)
        case _:
            return []
    return [Messages(place=place_of(operation), batch=batch, what=f"undo: {operation}")]


def change(old: Operation, new: Operation, tables: Tables) -> list[Messages] | None:
    """Return the messages that change a thing where it is, without a packet lost; None where it has to be made anew."""
    match old, new:
        case ShapePort(), ShapePort():
            batch: tuple[bytes, ...] = (
                traffic.new_htb_line_class(new.ifindex, new.rate_bps, new.burst_bytes, 1500, change=True),
            )
        case InstallPort(), InstallPort():
            before, after = tables
            if before is None or after is None:
                return None
            profile = after.profiles[new.profile]
            if not same_queues((old, before.profiles[old.profile]), (new, profile)):
                return None
            batch = change_port(new, profile)
        case DelayPort(), DelayPort() if (old.ifb_ifindex, old.clsact) == (new.ifb_ifindex, new.clsact):
            batch = (
                wire.set_netem(new.ifb_ifindex, new.delay_ns, new.jitter_ns, new.limit_packets, change=True),
                rtnetlink.set_mtu(new.ifb_ifindex, new.mtu_bytes),
            )
        case CreateBridge(), CreateBridge() if replace(old, mtu_bytes=new.mtu_bytes) == new:
            batch = (rtnetlink.set_mtu(new.ifindex, new.mtu_bytes),)
        case SetBridgePort(), SetBridgePort():
            batch = (overlay.set_bridge_port(new),)
        case SetNeighbour(), SetNeighbour():
            batch = (set_neighbour(new.ifindex, new.address, new.mac, state=NUD_PERMANENT),)
        case CreateVeth(), CreateVeth():
            return _change_veth(old, new)
        case _:
            return None
    return [Messages(place=place_of(new), batch=batch, what=str(new))]


def _change_veth(old: CreateVeth, new: CreateVeth) -> list[Messages] | None:
    """Another MTU, at both ends, or other queues to be made; everything else of a link is what it is."""
    if replace(old, mtu_bytes=new.mtu_bytes, queue_packets=new.queue_packets) != new:
        return None
    return [
        Messages(
            place=end.node,
            batch=(
                rtnetlink.set_mtu(end.ifindex, new.mtu_bytes),
                rtnetlink.set_queue_length(end.ifindex, new.queue_packets),
            ),
            what=str(new),
        )
        for end in (new.a, new.b)
    ]


def goes_with(operation: Operation, nodes: Iterable[str], interfaces: Iterable[tuple[str, int]]) -> bool:
    """Tell whether an operation is undone by the end of the nodes and interfaces that go."""
    match operation:
        case CreateVeth():
            return operation.a.node in nodes or operation.b.node in nodes
        case ShapePort() | InstallPort() | SetUp() | AddAddress() | AddRoute() | SetNeighbour() | SetBridgePort():
            place = place_of(operation)
            return place in nodes or (place, operation.ifindex) in interfaces
    return getattr(operation, "node", "") in nodes
