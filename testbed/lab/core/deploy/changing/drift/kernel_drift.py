"""The drift of a lab's namespaces: what a person changed in them by hand, told from the plan and from what is there.

What a plan has and the kernel lacks is made again; what the kernel has otherwise is set again; addresses, routes and
rules that somebody added at planned interfaces go. Interfaces that somebody added stay, with all that is theirs, and so
does what routing daemons and the kernel made themselves. Links that `link set` and faults have changed are recorded,
and are as they are meant to be.
"""

from __future__ import annotations

import socket
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv6Interface
from typing import Any

from testbed.base.datapath.abi import LINE_CLASS
from testbed.base.datapath.load import Filters
from testbed.base.linux import rtnetlink
from testbed.base.linux import traffic_control as traffic
from testbed.base.linux.neighbours import NUD_PERMANENT, set_neighbour
from testbed.daemons.lag.groups import CreateBond
from testbed.lab.core.deploy.changing.telling.rows import NOUNS
from testbed.lab.core.deploy.links.recorded import WireChange
from testbed.lab.core.drivers.netlink import netem as wire
from testbed.lab.core.drivers.netlink import overlay_devices as overlay
from testbed.lab.core.drivers.netlink.netem import HtbClass
from testbed.lab.core.drivers.netlink.port_programs import PortInstaller, set_classes
from testbed.lab.core.drivers.netlink.rdma import DEVICES
from testbed.lab.core.drivers.nodes.changing import NodeMessages, settings_around
from testbed.lab.core.drivers.nodes.places import places_of
from testbed.lab.core.drivers.nodes.seen import (
    DEFAULT_METRIC6,
    PlaceQuestions,
    SeenLink,
    SeenPlace,
    SeenQueues,
    SeenRoute,
    SeenRule,
    filter_tables,
)
from testbed.lab.core.feature import filters
from testbed.lab.core.plan.changes import ChangeRow, Effect
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import (
    STEERING_PRIORITIES,
    AddAddress,
    AddRoute,
    AddRule,
    CreateBridge,
    CreateRdma,
    CreateVeth,
    DelayPort,
    InstallPort,
    Operation,
    SetBridgePort,
    SetNeighbour,
    SetSysctl,
    SetUp,
    ShapePort,
    place_of,
)
from testbed.lab.core.plan.overlay_operations import CreateVrfDevice, CreateVxlan, PreferVrfs
from testbed.lab.core.plan.sysctls import HASH_SEED

BY_HAND = "changed by hand"
QUEUED = "what waits in its queue"
KERNELS_RULES = (
    (socket.AF_INET, rtnetlink.RT_TABLE_MAIN, 32766),
    (socket.AF_INET, 253, 32767),
    (socket.AF_INET6, rtnetlink.RT_TABLE_MAIN, 32766),
)
"""Family, table and priority of the rules that each namespace begins with, but for that of the local table, which stays
or is moved (`PreferVrfs`). `ip rule flush` takes them, and without them no route is found by way of a gateway."""
_LOOPBACK = 1
_LINK_LOCAL_BITS = 64
NO_PROGRAMS = Filters(ingress=0, enqueue=0, egress=0)
_MAKES_INTERFACES = CreateVeth | CreateBridge | CreateBond | CreateVrfDevice | CreateVxlan
PlacedInterface = tuple[str, int]
"""A place, which is a node or a VRF's namespace, and an interface index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelDrift:
    """All that brings the namespaces of a lab back to its plan, in this order.

    Messages go `first`: they remove what nobody planned, and what is left of things that are made anew, together with
    `tables` of nftables, by place, family and name. Interfaces and settings that are lacking are `made`, values are
    `set`, and the `rest` of what is lacking follows.
    """

    rows: tuple[ChangeRow, ...] = ()
    first: tuple[NodeMessages, ...] = ()
    tables: tuple[tuple[str, int, str], ...] = ()
    made: tuple[Operation, ...] = ()
    set: tuple[NodeMessages, ...] = ()
    rest: tuple[Operation, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rows)

    @property
    def missing(self) -> tuple[Operation, ...]:
        """The operations that are carried out again."""
        return (*self.made, *self.rest)

    @property
    def places(self) -> list[str]:
        """The namespaces that are touched."""
        found = {item.place for item in (*self.first, *self.set)} | {place for place, _, _ in self.tables}
        return sorted(found | {place for item in self.missing for place in places_of(item)})


def worth_asking(plan: LabPlan) -> dict[str, PlaceQuestions]:
    """Return what is to be read of each namespace of a lab for `kernel_drift`."""
    ports: defaultdict[str, set[int]] = defaultdict(set)
    settings: defaultdict[str, set[str]] = defaultdict(set)
    bridged: set[str] = set()
    filtered: set[str] = set()
    places: dict[str, None] = {}
    for item in plan.operations:
        places |= dict.fromkeys(places_of(item))
        match item:
            case ShapePort() | InstallPort():
                ports[place_of(item)].add(item.ifindex)
            case DelayPort():
                ports[place_of(item)] |= {item.ifb_ifindex, item.ifindex}
            case SetSysctl() if item.key != HASH_SEED:  # which each run has its own of
                settings[item.node].add(item.key)
            case SetBridgePort():
                bridged.add(item.node)
            case _ if type(item) in filters():
                filtered.add(_filtered_place(item))
    return {
        place: PlaceQuestions(
            ports=ports[place], settings=settings[place], bridge_ports=place in bridged, filters=place in filtered
        )
        for place in places
    }


def kernel_drift(
    plan: LabPlan,
    seen: Mapping[str, SeenPlace],
    changes: Mapping[str, WireChange],
    renewed: Collection[PlacedInterface] = (),
    open_to_others: Collection[str] = (),
    steered: Collection[str] = (),
) -> KernelDrift:
    """Return how namespaces differ from a plan. Those that are not in `seen` are gone, and not looked at.

    `changes` are those of links that are in force, by port. `renewed` are interfaces that were made anew since filters
    were told of them: a hook of nftables goes with its interface. Whatever is beside the plan in places that are
    `open_to_others` was made by commands that the lab has itself, and is left. So are rules of a carrier (`SteerTcp`)
    in places that are `steered`.
    """
    comparison = _Comparison(plan, seen, changes, frozenset(renewed), frozenset(open_to_others), frozenset(steered))
    comparison.compare()
    return comparison.result()


@dataclass(slots=True)
class _Comparison:
    """A comparison of a plan with namespaces, while it goes on."""

    plan: LabPlan
    seen: Mapping[str, SeenPlace]
    changes: Mapping[str, WireChange]
    renewed: frozenset[PlacedInterface] = frozenset()
    open_to_others: frozenset[str] = frozenset()
    steered: frozenset[str] = frozenset()
    rows: list[ChangeRow] = field(default_factory=list)
    first: list[NodeMessages] = field(default_factory=list)
    tables: list[tuple[str, int, str]] = field(default_factory=list)
    missing: list[Operation] = field(default_factory=list)
    values: list[NodeMessages] = field(default_factory=list)
    lost: set[PlacedInterface] = field(default_factory=set)
    down: set[PlacedInterface] = field(default_factory=set)
    peers: dict[tuple[str, str], str] = field(default_factory=dict)
    taken: defaultdict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    """The values of optional settings: of several a kernel takes the last that it has, and a machine may allow none."""

    def compare(self) -> None:
        """Look at each operation of the plan, and then for what no operation has made."""
        ports = {f"{port.node}:{port.name}": port for port in self.plan.ports}
        self.peers |= {(port.node, port.name): port.peer for port in self.plan.ports}
        ended = (ports[key] for key, change in self.changes.items() if change.up is False and key in ports)
        self.down |= {(port.place, port.ifindex) for port in ended}
        settings: dict[tuple[str, str], SetSysctl] = {}
        operations = [item for item in self.plan.operations if all(place in self.seen for place in places_of(item))]
        for item in operations:
            if isinstance(item, _MAKES_INTERFACES):
                self._look_for_interfaces(item)
            elif isinstance(item, SetSysctl):
                settings[item.node, item.key] = item
                if item.optional:
                    self.taken[item.node, item.key].add(" ".join(item.value.split()))
        for item in operations:
            if not isinstance(item, SetSysctl) or settings[item.node, item.key] is item:  # the last one counts
                self._compare(item)
        self._look_for_strays(operations)

    def result(self) -> KernelDrift:
        wanted = {id(item) for item in self.missing}
        around = settings_around(self.plan, {place for place, _ in self.lost})
        made = [
            item
            for item in self.plan.operations
            if isinstance(item, _MAKES_INTERFACES | SetSysctl) and id(item) in wanted | around
        ]
        rest = [item for item in self.missing if not isinstance(item, _MAKES_INTERFACES | SetSysctl)]
        return KernelDrift(
            rows=tuple(self.rows),
            first=tuple(self.first),
            tables=tuple(self.tables),
            made=tuple(made),
            set=tuple(self.values),
            rest=tuple(rest),
        )

    # ------------------------------------------------------------------ findings

    def _lacks(self, item: Operation, effect: Effect = Effect.MADE, at_stake: str = "") -> None:
        """Note that an operation is to be carried out again. What went with its interface is told by that alone."""
        self.missing.append(item)
        interface = places_of(item)[0], getattr(item, "ifindex", 0)
        if isinstance(item, _MAKES_INTERFACES) or interface not in self.lost:
            self._tell(effect, " ".join(places_of(item)), str(item), NOUNS.get(type(item), ""), at_stake)

    def _differs(self, place: str, what: str, *batch: bytes) -> None:
        self.values.append(NodeMessages(place=place, batch=batch, what=what))
        self._tell(Effect.CHANGED, place, what, what.partition(" ")[0])

    def _is_stray(self, place: str, what: str, data: bytes) -> None:
        self.first.append(NodeMessages(place=place, batch=(data,), what=f"remove {what}"))
        self._tell(Effect.REMOVED, place, what, what.partition(" ")[0])

    def _tell(self, effect: Effect, place: str, what: str, kind: str, at_stake: str = "") -> None:
        self.rows.append(ChangeRow(effect=effect, node=place, what=what, kind=kind, reason=BY_HAND, at_stake=at_stake))

    def _clear(self, place: str, what: str, *batch: bytes) -> None:
        self.first.append(NodeMessages(place=place, batch=batch, what=what))

    # ------------------------------------------------------------------ interfaces

    def _look_for_interfaces(self, item: Any) -> None:
        """Find out whether an interface is lost, or both ends of a link are where one is."""
        ends = [(end.node, end.ifindex) for end in (item.a, item.b)] if isinstance(item, CreateVeth) else []
        ends = ends or [(item.node, item.ifindex)]
        kind = _kind(item)
        there = [end for end in ends if (link := self._link(end)) is not None and link.kind == kind]
        if len(there) == len(ends):
            return
        for place, ifindex in ends:
            if self._link((place, ifindex)) is not None:
                self._clear(place, f"remove what is left of {item}", rtnetlink.delete_link(ifindex))
        self.lost |= set(ends)

    def _link(self, interface: PlacedInterface) -> SeenLink | None:
        place, ifindex = interface
        return self.seen[place].links.get(ifindex)

    def _compare_interface(self, interface: PlacedInterface, wanted: SeenLink) -> None:
        found, (place, ifindex) = self._link(interface), interface
        assert found is not None
        what = f"interface {place}:{wanted.name}"
        if found.name != wanted.name:
            self._differs(place, f"{what} is called {found.name}", rtnetlink.set_name(ifindex, wanted.name))
        master = self.seen[place].links.get(found.master)
        is_member = master is not None and master.kind == "bond"  # a bond gives its members its own MAC
        if wanted.mac and found.mac != wanted.mac and not is_member:
            self._differs(place, f"{what} has {found.mac}", rtnetlink.set_mac(ifindex, wanted.mac))
        if wanted.mtu_bytes and found.mtu_bytes != wanted.mtu_bytes:
            self._differs(place, f"{what} has mtu {found.mtu_bytes}", rtnetlink.set_mtu(ifindex, wanted.mtu_bytes))
        if found.master != wanted.master or (place, wanted.master) in self.lost:
            self._differs(place, f"{what} has the master {found.master}", rtnetlink.set_master(ifindex, wanted.master))

    # ------------------------------------------------------------------ operations

    def _compare(self, item: Operation) -> None:
        match item:
            case CreateVeth() | CreateBridge() | CreateBond() | CreateVrfDevice() | CreateVxlan():
                self._compare_made(item)
            case SetSysctl():
                self._compare_setting(item)
            case ShapePort() | InstallPort():
                self._compare_queues(item)
            case DelayPort():
                self._compare_delay(item)
            case SetUp():
                self._compare_state(item)
            case AddAddress():
                self._compare_address(item)
            case AddRoute():
                interface = item.node, item.ifindex
                is_there = interface not in self.lost and _route(item) in self.seen[item.node].routes
                if interface not in self.down and not is_there:
                    self._lacks(item)
            case AddRule():
                if _rule(item) not in self.seen[item.node].rules:
                    self._lacks(item)
            case SetNeighbour():
                self._compare_neighbour(item)
            case SetBridgePort():
                wanted = item.learning, item.neighbour_suppression, item.isolated
                if (
                    self.seen[item.node].bridge_ports.get(item.ifindex) != wanted
                    or (item.node, item.ifindex) in self.lost
                ):
                    self._lacks(item, Effect.CHANGED)
            case PreferVrfs():
                self._compare_preference(item)
            case CreateRdma():
                if not (DEVICES / item.device).exists():
                    self._lacks(item)
            case _ if type(item) in filters():
                self._compare_filter(item)

    def _compare_made(self, item: CreateVeth | CreateBridge | CreateBond | CreateVrfDevice | CreateVxlan) -> None:
        ends: list[tuple[str, Any, int]] = []
        if isinstance(item, CreateVeth):
            ends = [(end.node, end, item.mtu_bytes) for end in (item.a, item.b)]
        else:
            ends = [(item.node, item, getattr(item, "mtu_bytes", 0))]
        if any((place, end.ifindex) in self.lost for place, end, _ in ends):
            self._lacks(item, at_stake="what is under way on it" if isinstance(item, CreateVeth) else "")
            return
        for place, end, mtu_bytes in ends:
            wanted = SeenLink(
                name=end.name,
                mac=getattr(end, "mac", ""),
                mtu_bytes=mtu_bytes,
                master=getattr(end, "master", 0),
                is_up=True,
                kind="",
            )
            self._compare_interface((place, end.ifindex), wanted)
            if getattr(end, "ipv6", False):
                self._compare_link_local(place, end)

    def _compare_link_local(self, place: str, end: Any) -> None:
        """Look for the address that BGP on an unnumbered link is spoken from, which the kernel made with the link."""
        link, packed = self._link((place, end.ifindex)), rtnetlink.link_local_address(end.mac)
        address = IPv6Interface((packed, _LINK_LOCAL_BITS))
        if (place, end.ifindex) in self.down or link is None or not link.is_up:
            return
        if (end.ifindex, address) not in self.seen[place].addresses:
            message = rtnetlink.new_address(end.ifindex, packed, _LINK_LOCAL_BITS)
            self._differs(place, f"address {place}:{end.name} {address} is missing", message)

    def _compare_setting(self, item: SetSysctl) -> None:
        found = self.seen[item.node].settings.get(item.key)
        if item.optional and (found is None or len(self.taken[item.node, item.key]) > 1):
            return
        if found is None:  # of an interface that is made anew, or this kernel has none
            names = {name for place, name in self._lost_names() if place == item.node}
            if names.intersection(item.key.split("/")):
                self._lacks(item)
        elif found != " ".join(item.value.split()):
            self._lacks(item, Effect.CHANGED)

    def _lost_names(self) -> Iterator[tuple[str, str]]:
        for item in self.plan.operations:
            if isinstance(item, CreateVeth):
                yield from ((end.node, end.name) for end in (item.a, item.b) if (end.node, end.ifindex) in self.lost)

    def _compare_state(self, item: SetUp) -> None:
        interface = place, ifindex = place_of(item), item.ifindex
        link = self._link(interface)
        if interface in self.lost or link is None:
            self._lacks(item)
        elif interface not in self.down and not link.is_up:
            what = f"interface {place}:{item.name} is down"
            self._differs(place, what, rtnetlink.set_link_state(ifindex, True))

    def _compare_address(self, item: AddAddress) -> None:
        interface = item.node, item.ifindex
        if item.address.version == 6 and interface in self.down:  # the kernel drops those with the link
            return
        if interface in self.lost or (item.ifindex, item.address) not in self.seen[item.node].addresses:
            self._lacks(item)

    def _compare_neighbour(self, item: SetNeighbour) -> None:
        found = self.seen[item.node].neighbours.get((item.ifindex, item.address))
        if (item.node, item.ifindex) in self.lost:
            self._lacks(item)
        elif found != item.mac:
            message = set_neighbour(item.ifindex, item.address, item.mac, state=NUD_PERMANENT)
            self._differs(item.node, f"{item}, which was {found or 'unknown'}", message)

    def _compare_preference(self, item: PreferVrfs) -> None:
        """The rule of the local table stands behind those of VRFs, and not where the kernel put it."""
        there, messages = self.seen[item.node].priorities, overlay.prefer_vrfs(ipv6=item.ipv6)
        families = (socket.AF_INET, socket.AF_INET6)[: len(messages) // 2]
        wrong = []
        for number, family in enumerate(families):
            if (family, overlay.LOCAL_PRIORITY) not in there:
                wrong.append(messages[2 * number])
            if (family, 0) in there:
                wrong.append(messages[2 * number + 1])
        if wrong:
            self._differs(item.node, str(item), *wrong)

    # ------------------------------------------------------------------ queues

    def _compare_queues(self, item: ShapePort | InstallPort) -> None:
        place, key = place_of(item), f"{item.node}:{item.name}"
        if (place, item.ifindex) in self.lost:
            self._lacks(item)
            return
        found = self.seen[place].queues.get(item.ifindex, SeenQueues())
        wanted = self._wanted_queues(item)
        own = {qdisc for qdisc in found.qdiscs if qdisc[2] != traffic.TC_H_CLSACT}
        if not wanted.qdiscs <= found.qdiscs or own - wanted.qdiscs or not wanted.filters <= found.filters:
            batch = [traffic.delete_root_qdisc(item.ifindex)]
            if isinstance(item, InstallPort):
                batch.append(traffic.delete_clsact(item.ifindex))
            self._clear(place, f"remove the queues of {place}:{item.name}", *batch)
            self._lacks(item, Effect.REMADE, QUEUED)
        elif not _is_rate_changed(self.changes.get(key)) and _rates(found.classes) != _rates(wanted.classes):
            self._differs(place, f"{item}: its rates or weights were others", *self._classes_of(item))

    def _wanted_queues(self, item: ShapePort | InstallPort) -> SeenQueues:
        """The queues that the messages of an operation make."""
        if isinstance(item, InstallPort):
            assert self.plan.tables is not None
            batch: Sequence[bytes] = PortInstaller(self.plan.tables, NO_PROGRAMS).messages(item)
        else:
            batch = traffic.new_htb_qdisc(item.ifindex), *self._classes_of(item)
        return queues_of(batch)

    def _classes_of(self, item: ShapePort | InstallPort) -> tuple[bytes, ...]:
        if isinstance(item, InstallPort):
            assert self.plan.tables is not None
            return set_classes(item, self.plan.tables.profiles[item.profile])
        return (traffic.new_htb_line_class(item.ifindex, item.rate_bps, item.burst_bytes, 1500, change=True),)

    def _compare_delay(self, item: DelayPort) -> None:
        place = place_of(item)
        change = self.changes.get(self.peers[item.node, item.name])
        if change is not None and (change.delay_ns is not None or change.jitter_ns is not None):
            return
        link = self._link((place, item.ifb_ifindex))
        found = self.seen[place].queues.get(item.ifb_ifindex, SeenQueues())
        hook = self.seen[place].queues.get(item.ifindex, SeenQueues()).qdiscs
        is_hooked = not item.clsact or any(parent == traffic.TC_H_CLSACT for _, _, parent in hook)
        if link is None or found.delay_ns is None or not is_hooked or (place, item.ifindex) in self.lost:
            if link is not None:
                self._clear(place, f"remove what is left of {item}", *wire.undelay_port(item))
            self._lacks(item, Effect.MADE if link is None else Effect.REMADE, "what is under way on it")
        elif found.delay_ns != (item.delay_ns, item.jitter_ns):
            message = wire.set_netem(item.ifb_ifindex, item.delay_ns, item.jitter_ns, item.limit_packets, change=True)
            self._differs(place, str(item), message)

    # ------------------------------------------------------------------ filters

    def _compare_filter(self, item: Any) -> None:
        place = _filtered_place(item)
        wanted = filter_tables(filters()[type(item)](item))
        found = self.seen[place].filters
        touched = {(place, ifindex) for ifindex in _guarded(item)} & (self.lost | self.renewed)
        if not touched and all(found.get(table) == content for table, content in wanted.items()):
            return
        self.tables += [(place, family, name) for family, name in wanted if (family, name) in found]
        self._lacks(item, Effect.REMADE, "counts of what it dropped")

    # ------------------------------------------------------------------ strays

    def _look_for_strays(self, operations: Sequence[Operation]) -> None:
        """Find addresses and routes at planned interfaces, and rules, that no operation has made; and the kernel's own
        rules, where they are gone."""
        interfaces: defaultdict[str, set[int]] = defaultdict(lambda: {_LOOPBACK})
        addresses: defaultdict[str, set[Any]] = defaultdict(set)
        routes: defaultdict[str, set[SeenRoute]] = defaultdict(set)
        rules: defaultdict[str, set[SeenRule]] = defaultdict(set)
        for item in operations:
            match item:
                case CreateVeth():
                    for end in (item.a, item.b):
                        interfaces[end.node].add(end.ifindex)
                case CreateBridge() | CreateBond() | CreateVrfDevice() | CreateVxlan():
                    interfaces[item.node].add(item.ifindex)
                case AddAddress():
                    addresses[item.node].add((item.ifindex, item.address))
                case AddRoute():
                    routes[item.node].add(_route(item))
                case AddRule():
                    rules[item.node].add(_rule(item))
        for place, found in self.seen.items():
            for family, table, priority in KERNELS_RULES:
                if (family, priority) not in found.priorities:
                    what = f"rule {place} for table {table} is missing"
                    self._differs(place, what, rtnetlink.new_table_rule(family, table, priority))
            if place in self.open_to_others:
                continue
            for (ifindex, address), body in found.addresses.items():
                own = address.ip.is_loopback or (address.version == 6 and address.is_link_local)
                planned = (ifindex, address) in addresses[place]
                if ifindex in interfaces[place] and (place, ifindex) not in self.lost and not own and not planned:
                    name = found.links[ifindex].name
                    self._is_stray(place, f"address {place}:{name} {address}", _deletion(rtnetlink.RTM_DELADDR, body))
            for route in found.routes:
                ours = not route.ifindex or route.ifindex in interfaces[place]
                if ours and (place, route.ifindex) not in self.lost and route not in routes[place]:
                    what = f"route {place} {route.destination} in table {route.table}"
                    self._is_stray(place, what, _deletion(rtnetlink.RTM_DELROUTE, route.body))
            for rule in found.rules:
                of_carrier = place in self.steered and rule.priority in STEERING_PRIORITIES
                if rule not in rules[place] and not of_carrier:
                    what = f"rule {place} from {rule.source or 'all'} priority {rule.priority}"
                    self._is_stray(place, what, _deletion(rtnetlink.RTM_DELRULE, rule.body))


def queues_of(batch: Sequence[bytes]) -> SeenQueues:
    """The queues that messages of traffic control make, as they are seen later."""
    qdiscs: set[tuple[int, str, int]] = set()
    classes: list[HtbClass] = []
    programs: set[tuple[int, str, int]] = set()
    for data in batch:
        for kind, _, _, body in rtnetlink.messages(data):
            _, _, handle, parent, _ = rtnetlink.TCMSG.unpack_from(body)
            found = rtnetlink.fields(body, rtnetlink.TCMSG.size)
            if kind == rtnetlink.RTM_NEWQDISC:
                qdiscs.add((handle, found[rtnetlink.TCA_KIND].rstrip(b"\0").decode(), parent))
            elif kind == rtnetlink.RTM_NEWTCLASS and (item := wire.parse_class(bytes(body))) is not None:
                classes.append(item)
            elif kind == rtnetlink.RTM_NEWTFILTER:
                programs.add((parent, *traffic.program_of(found[rtnetlink.TCA_OPTIONS])))
    return SeenQueues(
        qdiscs=frozenset(qdiscs),
        classes=tuple(sorted(classes, key=lambda item: item.handle)),
        filters=frozenset(programs),
    )


def _rates(classes: Sequence[HtbClass]) -> list[tuple[int, ...]]:
    """Return the fields of classes that are compared: quantum and rank of the line's class do nothing, since it is no
    leaf."""
    return [
        (
            *(item.handle, item.rate, item.ceil, item.buffer, item.cbuffer),
            *((item.quantum, item.rank) if item.handle != LINE_CLASS else ()),
        )
        for item in classes
    ]


def _is_rate_changed(change: WireChange | None) -> bool:
    return change is not None and change.rate_bps is not None


def _kind(item: Any) -> str:
    """The kind of interface that an operation makes, as the kernel calls it."""
    kinds = {CreateVeth: "veth", CreateBridge: "bridge", CreateBond: "bond", CreateVrfDevice: "vrf"}
    return kinds.get(type(item), "vxlan")


def _route(item: AddRoute) -> SeenRoute:
    metric = 0 if item.destination.version == 6 and item.metric == DEFAULT_METRIC6 else item.metric
    return SeenRoute(
        table=item.table,
        destination=item.destination,
        metric=metric,
        ifindex=item.ifindex,
        gateway=item.gateway,
        source=item.source,
    )


def _rule(item: AddRule) -> SeenRule:
    return SeenRule(source=item.source, table=item.table, priority=item.priority, destination=item.destination)


def _deletion(kind: int, body: bytes) -> bytes:
    """The request that deletes what a dump has told of: it has the same words."""
    return rtnetlink.message(kind, 0, body)


def _filtered_place(item: Any) -> str:
    return getattr(item, "vrf", "") or str(item.node)


def _guarded(item: Any) -> Iterator[int]:
    """The interfaces that a filter is about."""
    if (own := getattr(item, "ifindex", 0)) != 0:
        yield own
    yield from (port.ifindex for port in getattr(item, "ports", ()))
    yield from getattr(item, "nodes", ())
