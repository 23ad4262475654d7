"""The changes of the kernel for a lab that is up: operations taken back, and changed where they are.

What goes with its interface or its node needs nothing of its own. A change that nothing here knows is made by taking
the old operation back and applying the new one, which `KernelChanges.remade` tells. So is what needs a name or a number
that something has which goes: the end of a link, a VNI.

Filters are never taken away first. One that changes is put in the place of the old one where a deploy would put it,
before new ports come up, and stays at the ports that go until they are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Set
from dataclasses import dataclass, replace
from ipaddress import IPv4Network
from typing import TypeVar

from testbed.base.linux import rtnetlink
from testbed.base.linux import traffic_control as traffic
from testbed.base.linux.neighbours import NUD_PERMANENT, forget_neighbour, set_neighbour
from testbed.daemons.lag.groups import CreateBond
from testbed.lab.core.drivers.netlink import netem as wire
from testbed.lab.core.drivers.netlink import overlay_devices as overlay
from testbed.lab.core.drivers.netlink.port_programs import change_port, stays
from testbed.lab.core.drivers.nodes.places import SPACES, Creator, ends_of, is_on, places_of, spaces_among, spaces_of
from testbed.lab.core.plan.changes import changes_between, identity
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.management_plan import FormCommunity, GuardManagement, StartService
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
    StartContainer,
    StartRouting,
    SteerTcp,
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
from testbed.lab.core.plan.qos.qos_plan import QosTables

Filter = GuardSwitch | GuardManagement | FormCommunity | SetPolicy | SetBorder
"""The operations that are transactions of nftables, which one of their own replaces at a moment."""
_BESIDE = StartContainer | StartRouting | StartService
"""The operations that are none of the kernel's: runtimes, routing and features carry them out."""
_CONF_OF_IPV4 = "net/ipv4/conf/"
_F = TypeVar("_F")

Encode = Callable[[LocalOperation], tuple[bytes, ...]]
"""The messages that apply an operation: `NetnsKernel`'s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMessages:
    """Netlink messages for the namespace of a node. `what` says in an error what they are for."""

    place: str
    batch: tuple[bytes, ...]
    what: str


Tables = tuple[QosTables | None, QosTables | None]
"""The tables of the old plan and of the new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelChanges:
    """All that is done to the kernel so that a lab of one plan is one of another, in this order.

    Nodes are `created`, what is `remade` is taken back (`first`), things are `made`, rules are taken back whose tables
    are another interface's from now on, and addresses and routes to subnets that routing brings (`outdated`), things
    are `changed` where they are, and when no route leads there any more, things are `removed`, filters `settled`, and
    nodes `gone`.
    """

    created: tuple[CreateNode | CreateVrf, ...]
    first: tuple[Operation, ...]
    made: tuple[Operation, ...]
    outdated: tuple[AddRule | AddAddress | AddRoute, ...]
    changed: tuple[tuple[Operation, Operation], ...]
    removed: tuple[Operation, ...]
    gone: tuple[str, ...]
    remade: tuple[Operation, ...]
    """The operations of `made` that replace an older one: what waits in a queue or is on a wire is lost."""
    renewed: tuple[tuple[Operation, Operation], ...]
    """The filters of `made` that take the place of older ones, each with what it is when all that goes is gone."""
    following: tuple[SetSysctl, ...]
    """The settings of interfaces that stay which become what their nodes have for new ones."""
    tables: Tables

    def __bool__(self) -> bool:
        return bool(self.created or self.made or self.outdated or self.changed or self.removed or self.gone)

    @property
    def places(self) -> list[str]:
        """The nodes that are there already and are touched."""
        touched = [*self.first, *self.made, *self.outdated, *(new for _, new in self.changed), *self.removed]
        created = {item.node for item in self.created}
        return sorted({node for item in touched for node in places_of(item)} - created)

    @property
    def settled(self) -> list[Operation]:
        """The filters that are put in force again once all that goes is gone."""
        return [last for now, last in self.renewed if last is not now]

    @property
    def installs(self) -> list[InstallPort]:
        """The ports whose numbers in the data path are new."""
        return [item for item in (*self.made, *(new for _, new in self.changed)) if isinstance(item, InstallPort)]


def undo_place(operation: Operation) -> str:
    """Return the node in whose namespace an operation is taken back: of a link the first of both, with which the other
    end goes."""
    return places_of(operation)[0]


def kernel_changes(old: LabPlan, new: LabPlan) -> KernelChanges:
    """Return what is done to the kernel so that a lab of the plan `old` is one of `new`."""
    changes = changes_between(old, new)
    tables = (old.tables, new.tables)
    both = [(each.old, each.new) for each in changes.changed if each.old is not None and each.new is not None]
    # A node that is there stays on the CPU that it was given; what realises it is its runtime's.
    pairs = [pair for pair in both if not isinstance(pair[1], SPACES)]
    pairs += _of_other_buffers(old, new)
    before = [each.old for each in changes.removed if each.old is not None]
    after = [each.new for each in changes.made if each.new is not None]
    differing = [*before, *after, *(item for _, item in both)]
    remade = [pair for pair in pairs if not _in_place(*pair, tables)]
    meeting = _meeting(before, (*after, *(item for _, item in remade)))
    moved = [(was, item) for was, item in meeting if isinstance(item, AddRoute)]
    remade += [pair for pair in meeting if not isinstance(pair[1], AddRoute)]
    anew = {id(item) for _, item in remade}
    taken = ends_of(was for was, _ in remade)
    first: dict[int, Operation] = {id(was): was for was, _ in remade if not _goes_with_ends(was, taken)}
    delayed = (item for item in (old.operations if taken else ()) if isinstance(item, DelayPort))
    first |= {id(item): item for item in delayed if is_on(item, taken)}
    readdressed = list(_readdressed(before, after))
    addressed: list[Operation] = [*readdressed, *_from_addresses(before, readdressed)]
    first |= {id(item): item for item in addressed}
    lost, ends = taken | ends_of(before), ends_of((*after, *(item for _, item in remade)))
    wanted = {id(item) for item in after} | anew
    wanted |= _on_new_interfaces(new, ends, lost, [pair for pair in pairs if id(pair[1]) not in anew])
    wanted |= settings_around(new, {node for node, _ in ends})
    written_once = _written_once_less(before, new)
    wanted |= {id(item) for item in written_once.values()}
    wanted -= {id(item) for _, item in moved}
    there = [item for item in new.operations if id(item) in wanted]
    gone, came = spaces_among(before) - spaces_among(after), spaces_among(after) - spaces_among(before)
    defaults = [item for item in _defaults(before) if item.node not in gone]
    first |= {id(item): item for item in defaults if id(item) not in written_once}
    elsewhere = first.keys() | written_once.keys() | {id(was) for was, _ in (*moved, *remade)}
    removed = [item for item in before if id(item) not in elsewhere and not _vanishes(item, gone, lost)]
    rerouted = {item.node for _, item in moved}
    outdated: dict[int, AddRule | AddAddress | AddRoute] = {
        id(item): item
        for item in _led_elsewhere(before, new)
        if id(item) not in first and item.node not in gone and not is_on(item, taken)
    }
    outdated |= {id(item): item for item in removed if isinstance(item, AddRule) and item.node in rerouted}
    pairs += _in_other_masters(old, new, taken)
    renewed = _renewed(old, (*there, *(item for _, item in pairs)), taken)
    made = [item for item in new.operations if id(item) in wanted or id(item) in renewed]
    return KernelChanges(
        created=tuple(item for item in there if isinstance(item, CreateNode | CreateVrf) and item.node in came),
        first=tuple(reversed(first.values())),
        made=tuple(
            renewed[id(item)][0] if id(item) in renewed else item
            for item in made
            if not isinstance(item, CreateNode | CreateVrf | _BESIDE)
        ),
        outdated=tuple(outdated.values()),
        changed=(*(pair for pair in pairs if id(pair[1]) not in wanted and not isinstance(pair[1], Filter)), *moved),
        removed=(
            *(item for item in removed if not isinstance(item, Filter) and id(item) not in outdated),
            *(item for item in removed if isinstance(item, Filter)),
        ),
        gone=tuple(sorted(gone)),
        remade=tuple(item for _, item in remade),
        renewed=tuple(renewed.values()),
        following=tuple(_following(old, new)) if any(map(_is_default_of_ipv4, differing)) else (),
        tables=tables,
    )


def _led_elsewhere(before: Iterable[Operation], new: LabPlan) -> Iterator[AddAddress | AddRoute]:
    """Yield the addresses and routes that go of nodes that stay, to whose subnets routing leads from now on.

    A route of the kernel's own or a static one comes before that of a protocol, which would be waited for in vain.
    """
    brought: dict[str, set[IPv4Network]] = {}
    for item in before:
        match item:
            case AddAddress():
                subnet = item.address.network
            case AddRoute(table=rtnetlink.RT_TABLE_MAIN):
                subnet = item.destination
            case _:
                continue
        if item.node not in brought:
            brought[item.node] = {route.prefix for route in new.expected_routes.get(item.node, ())}
        if subnet in brought[item.node]:
            yield item


def _claims(operation: Operation) -> Iterator[Hashable]:
    """Yield the names and numbers that an operation takes, of which the kernel has each once."""
    match operation:
        case CreateVeth():
            for end in (operation.a, operation.b):
                yield from ((end.node, end.ifindex), (end.node, end.name))
        case CreateVxlan() | CreateBridge() | CreateBond() | CreateVrfDevice():
            yield from ((operation.node, operation.ifindex), (operation.node, operation.name))
            if isinstance(operation, CreateVxlan):
                yield operation.switch, "VNI", operation.vni
        case AddRoute():
            yield operation.node, operation.table, operation.destination, operation.metric
        case ShapePort() | InstallPort():
            yield place_of(operation), operation.ifindex, "queue"


def _meeting(before: Iterable[Operation], after: Iterable[Operation]) -> list[tuple[Operation, Operation]]:
    """The things that go and those that come of which each takes what one of the others has, in pairs."""
    owners = {claim: item for item in before for claim in _claims(item)}
    found: dict[tuple[int, int], tuple[Operation, Operation]] = {}
    for item in after:
        for claim in _claims(item):
            if (owner := owners.get(claim)) is not None:
                found[id(owner), id(item)] = owner, item
    return list(found.values())


def _goes_with_ends(operation: Operation, ends: Collection[tuple[str, int | str]]) -> bool:
    """Tell whether nothing is left of an operation once interfaces are gone: filters and an ifb stay."""
    return not isinstance(operation, Creator | DelayPort | Filter) and is_on(operation, ends)


def _vanishes(operation: Operation, gone: Collection[str], ends: Collection[tuple[str, int | str]]) -> bool:
    """Tell whether an operation is taken back by what takes nodes and interfaces away.

    What reaches out of a node that goes is taken back by itself: a link's other end, the socket of a VXLAN device.
    """
    if isinstance(operation, CreateVeth | CreateVxlan):
        return False
    place = places_of(operation)[0]
    return place in gone or _goes_with_ends(operation, ends) or isinstance(operation, SPACES | _BESIDE)


def _on_new_interfaces(
    plan: LabPlan,
    ends: Set[tuple[str, int | str]],
    lost: Set[tuple[str, int | str]],
    pairs: Iterable[tuple[Operation, Operation]],
) -> set[int]:
    """The operations of a plan about the interfaces that are made (`ends`), and about ports that are put into other
    bridges: those that the plan before had, too. Of an interface that is not in the place of one that is `lost` it had
    none."""
    ports = {
        (end.node, end.ifindex)
        for was, item in pairs
        if isinstance(was, CreateVeth) and isinstance(item, CreateVeth)
        for end, before in ((item.a, was.a), (item.b, was.b))
        if end.master != before.master
    }
    if not ports and ends.isdisjoint(lost):
        return set()
    return {
        id(item)
        for item in plan.operations
        if is_on(item, ends) or (isinstance(item, SetBridgePort) and is_on(item, ports))
    }


def settings_around(plan: LabPlan, nodes: Collection[str]) -> set[int]:
    """Return the settings of nodes that their new interfaces come up with: they have one value while some are made, and
    another later, and end up as they are."""
    return {
        id(item)
        for item in (plan.operations if nodes else ())
        if isinstance(item, SetSysctl) and item.node in nodes and "/conf/default/" in item.key
    }


def _defaults(before: Iterable[Operation]) -> Iterator[SetSysctl]:
    """Yield the settings that go of those that interfaces come up with: new ones are to come up without."""
    for item in before:
        if isinstance(item, SetSysctl) and "/conf/default/" in item.key:
            yield item


def _following(old: LabPlan, new: LabPlan) -> Iterator[SetSysctl]:
    """Yield the settings of IPv4 of interfaces that stay, and that are to be what their nodes' defaults are from now
    on: the kernel has them follow until an interface has an address (ipv4_devconf_setall, net/ipv4/devinet.c)."""
    before, after = _ipv4_settings(old), _ipv4_settings(new)
    staying = spaces_of(old) & spaces_of(new)
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    other = sorted((node, key) for node, key in changed if node in staying and "/default/" in key)
    names = ends_of(old.operations) & ends_of(new.operations) if other else set()
    for node, key in other:
        for name in ("lo", *(name for place, name in names if place == node and isinstance(name, str))):
            own = key.replace("/default/", f"/{name}/")
            if (node, own) not in after:
                yield SetSysctl(node=node, key=own, value="", optional=True)


def _ipv4_settings(plan: LabPlan) -> dict[tuple[str, str], str]:
    items = (item for item in plan.operations if isinstance(item, SetSysctl))
    return {(item.node, item.key): item.value for item in items if item.key.startswith(_CONF_OF_IPV4)}


def _is_default_of_ipv4(operation: Operation) -> bool:
    """Tell whether an operation sets what interfaces of its node follow in IPv4."""
    return isinstance(operation, SetSysctl) and operation.key.startswith(_CONF_OF_IPV4) and "/default/" in operation.key


def _written_once_less(before: Iterable[Operation], plan: LabPlan) -> dict[int, SetSysctl]:
    """The settings that a plan writes as well, but without the last value: by what goes, what they end up as."""
    keys = {id(item): (item.node, item.key) for item in before if isinstance(item, SetSysctl)}
    if not keys:
        return {}
    last = {(item.node, item.key): item for item in plan.operations if isinstance(item, SetSysctl)}
    return {number: last[key] for number, key in keys.items() if key in last}


def _readdressed(before: Iterable[Operation], after: Iterable[Operation]) -> Iterator[AddAddress]:
    """Yield the addresses that give way to others of their subnets: an address that comes while one is there is
    secondary to it, and goes with it."""
    subnets = {(item.node, item.ifindex, item.address.network) for item in after if isinstance(item, AddAddress)}
    for item in before:
        if isinstance(item, AddAddress) and (item.node, item.ifindex, item.address.network) in subnets:
            yield item


def _of_other_buffers(old: LabPlan, new: LabPlan) -> list[tuple[Operation, Operation]]:
    """The ports that stay as they are on switches whose buffer, balancing of load or watchdog does not."""
    if old.tables is None or new.tables is None:
        return []
    before = {buffer.node: buffer for buffer in old.tables.buffers}
    other = {buffer.node for buffer in new.tables.buffers if before.get(buffer.node, buffer) != buffer}
    if not other:
        return []
    found = [item for item in new.operations if isinstance(item, InstallPort) and item.node in other]
    there = {(item.node, item.name): item for item in old.operations if isinstance(item, InstallPort)}
    return [(was, item) for item in found if (was := there.get((item.node, item.name))) == item]


def _renewed(
    old: LabPlan, operations: Iterable[Operation], taken: Collection[tuple[str, int | str]]
) -> dict[int, tuple[Operation, Operation]]:
    """The filters among operations that take the place of older ones, each as it is now and in the end."""
    wanted = {identity(item): item for item in operations if isinstance(item, Filter)}
    filters = {identity(item): item for item in old.operations if isinstance(item, Filter)} if wanted else {}
    return {id(item): (_meanwhile(filters[key], item, taken), item) for key, item in wanted.items() if key in filters}


def _from_addresses(before: Iterable[Operation], addresses: Iterable[AddAddress]) -> Iterator[AddRoute]:
    """Yield the routes that go and have one of these addresses as their source: IPv4 forgets them with it."""
    sources = {(item.node, item.address.ip) for item in addresses}
    for item in before:
        if isinstance(item, AddRoute) and (item.node, item.source) in sources:
            yield item


def _in_other_masters(
    old: LabPlan, new: LabPlan, taken: Collection[tuple[str, int | str]]
) -> list[tuple[Operation, Operation]]:
    """The interfaces that stay as they are below ones that are taken away and made again with the same index."""
    below = [item for item in new.operations if any(master in taken for master in _masters(item))] if taken else []
    there = {identity(item): item for item in old.operations if isinstance(item, Creator)} if below else {}
    return [(was, item) for item in below if (was := there.get(identity(item))) == item]


def _masters(operation: Operation) -> Iterator[tuple[str, int]]:
    match operation:
        case CreateVeth():
            yield from ((end.node, end.master) for end in (operation.a, operation.b))
        case CreateBridge() | CreateVxlan():
            yield operation.node, operation.master


def _meanwhile(old: Operation, new: Operation, taken: Collection[tuple[str, int | str]]) -> Operation:
    """Return a filter as it is from new ports on until old ones are gone: at all of them. Those that are `taken` are
    gone before."""
    match old, new:
        case GuardSwitch(), GuardSwitch():
            staying = {port.name for port in new.ports}
            place = place_of(old)
            left = [port for port in old.ports if port.name not in staying and (place, port.ifindex) not in taken]
            if left:
                return replace(
                    new,
                    ports=(*new.ports, *left),
                    switches=_both(new.switches, old.switches),
                    stations=_both(new.stations, old.stations),
                    routers=_both(new.routers, old.routers),
                )
        case SetPolicy(), SetPolicy():
            there = {wire.name for wire in new.ports}
            wires = [wire for wire in old.ports if wire.name not in there and (old.node, wire.ifindex) not in taken]
            if wires:
                return replace(new, ports=(*new.ports, *wires))
    return new


def _both(first: Iterable[_F], second: Iterable[_F]) -> tuple[_F, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def _in_place(old: Operation, new: Operation, tables: Tables) -> bool:
    before, after = tables
    if isinstance(old, InstallPort) and isinstance(new, InstallPort) and before is not None and after is not None:
        return stays((old, before.profiles[old.profile]), (new, after.profiles[new.profile]))
    return isinstance(new, SetSysctl | AddRoute | AddRule | Filter) or change(old, new, tables) is not None


def undo(operation: Operation, encode: Encode) -> list[NodeMessages]:
    """Return the messages that take an operation back; none where there is nothing to take back of its own.

    Removing a queue drops what waits in it, removing a link what is under way.
    """
    match operation:
        case CreateVeth():
            what = f"remove link {operation.a} <-> {operation.b}"
            return [
                NodeMessages(place=operation.a.node, batch=(rtnetlink.delete_link(operation.a.ifindex),), what=what)
            ]
        case CreateBridge() | CreateBond() | CreateVxlan():
            batch: tuple[bytes, ...] = (rtnetlink.delete_link(operation.ifindex),)
        case CreateVrfDevice():
            batch = overlay.remove_vrf(operation)
        case PreferVrfs():
            batch = overlay.prefer_vrfs_no_more(ipv6=operation.ipv6)
        case AddAddress() | AddRoute() | AddRule():
            batch = tuple(map(rtnetlink.undone, encode(operation)))
        case SteerTcp():  # the rules before the route: what they lead to nothing finds its way as ever
            batch = tuple(map(rtnetlink.undone, reversed(encode(operation))))
        case SetBridgePort(node=node, name=name, ifindex=ifindex):
            batch = (overlay.set_bridge_port(SetBridgePort(node=node, name=name, ifindex=ifindex)),)
        case SetNeighbour():
            batch = (forget_neighbour(operation.ifindex, operation.address),)
        case ShapePort():
            batch = (traffic.delete_root_qdisc(operation.ifindex),)
        case InstallPort():
            batch = (traffic.delete_clsact(operation.ifindex),)
        case DelayPort():
            batch = wire.undelay_port(operation)
        case SetUp():
            batch = (rtnetlink.set_link_state(operation.ifindex, False),)
        case _:
            return []
    return [NodeMessages(place=places_of(operation)[0], batch=batch, what=f"undo: {operation}")]


def undo_queue(port: InstallPort) -> list[NodeMessages]:
    """Return the messages that take the queue of a port away, before `undo` takes the rest of it and of its peer.

    A packet that was counted there leaves the account when the other end has it, or when it is dropped with the queue.
    """
    batch = (traffic.delete_root_qdisc(port.ifindex),)
    return [NodeMessages(place=place_of(port), batch=batch, what=f"undo: the queue of {port.node}:{port.name}")]


def change(old: Operation, new: Operation, tables: Tables) -> list[NodeMessages] | None:
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
            messages = change_port((old, before.profiles[old.profile]), (new, after.profiles[new.profile]))
            if messages is None:
                return None
            batch = tuple(messages)
        case DelayPort(), DelayPort() if (old.ifb_ifindex, old.clsact) == (new.ifb_ifindex, new.clsact):
            batch = (
                wire.set_netem(new.ifb_ifindex, new.delay_ns, new.jitter_ns, new.limit_packets, change=True),
                rtnetlink.set_mtu(new.ifb_ifindex, new.mtu_bytes),
            )
        case CreateBridge(), CreateBridge() if _is_like(old, new, "mtu_bytes", "mac", "master"):
            batch = (
                rtnetlink.set_mtu(new.ifindex, new.mtu_bytes),
                rtnetlink.set_mac(new.ifindex, new.mac),
                rtnetlink.set_master(new.ifindex, new.master),
            )
        case CreateBond(), CreateBond() if _is_like(old, new, "mtu_bytes"):
            batch = (rtnetlink.set_mtu(new.ifindex, new.mtu_bytes),)
        case CreateVxlan(), CreateVxlan() if _is_like(old, new, "local", "dscp", "mtu_bytes", "master"):
            batch = overlay.change_vxlan(new)
        case CreateVrfDevice(), CreateVrfDevice() if _is_like(old, new, "ipv6"):
            batch = overlay.change_vrf(old, new)
        case PreferVrfs(), PreferVrfs():
            batch = overlay.change_preference(ipv6=new.ipv6)
        case SetBridgePort(), SetBridgePort():
            batch = (overlay.set_bridge_port(new),)
        case SetNeighbour(), SetNeighbour():
            batch = (set_neighbour(new.ifindex, new.address, new.mac, state=NUD_PERMANENT),)
        case CreateVeth(), CreateVeth():
            return _change_veth(old, new)
        case _:
            return None
    return [NodeMessages(place=places_of(new)[0], batch=batch, what=str(new))] if batch else []


_O = TypeVar("_O", CreateBridge, CreateBond, CreateVxlan, CreateVrfDevice)


def _is_like(old: _O, new: _O, *but: str) -> bool:
    """Tell whether two operations say the same but for some fields."""
    return replace(old, **{name: getattr(new, name) for name in but}) == new


def _change_veth(old: CreateVeth, new: CreateVeth) -> list[NodeMessages] | None:
    """Another MTU, at both ends, other queues, or ends that are ports of other bridges; all else of a link is what it
    is."""
    ends = [(old.a, new.a), (old.b, new.b)]
    if any(replace(was, master=end.master) != end for was, end in ends):
        return None
    return set_queue_lengths(new) + [
        NodeMessages(
            place=end.node,
            batch=(
                rtnetlink.set_mtu(end.ifindex, new.mtu_bytes),
                *([rtnetlink.set_master(end.ifindex, end.master)] if end.master or was.master else []),
            ),
            what=str(new),
        )
        for was, end in ends
    ]


def set_queue_lengths(link: CreateVeth) -> list[NodeMessages]:
    """Return the messages that give both ends of a link the length that new queues on them have."""
    return [
        NodeMessages(
            place=end.node, batch=(rtnetlink.set_queue_length(end.ifindex, link.queue_packets),), what=str(link)
        )
        for end in (link.a, link.b)
    ]
