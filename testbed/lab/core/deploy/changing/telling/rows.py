"""The rows that tell what a change does to the kernel and to routing daemons, one for each thing.

What comes with a new node or link, its addresses, queues and routes, is told of it by `part_of`: programs see each,
people the node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from testbed.base.linux.vty import without_secrets
from testbed.daemons.lag.groups import CreateBond
from testbed.lab.core.deploy.changing.telling.difference_text import difference_text, differences, told
from testbed.lab.core.deploy.changing.telling.grouping import counted
from testbed.lab.core.drivers.nodes.changing import KernelChanges, Tables
from testbed.lab.core.drivers.nodes.places import places_of
from testbed.lab.core.model import Lab, NodeKind
from testbed.lab.core.plan.changes import ChangeRow, Effect
from testbed.lab.core.plan.lab_plan import LabPlan, SwitchPlan
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

NOUNS: Mapping[type, str] = {
    CreateNode: "node",
    StartContainer: "container",
    CreateVrf: "VRF",
    CreateVrfDevice: "VRF",
    PreferVrfs: "order of tables",
    SetSysctl: "setting",
    CreateBond: "link group",
    CreateBridge: "bridge",
    CreateVxlan: "VXLAN device",
    SetBridgePort: "bridge port",
    CreateVeth: "link",
    ShapePort: "port",
    InstallPort: "port",
    DelayPort: "delay",
    GuardSwitch: "set of guards",
    SetPolicy: "policy",
    SetBorder: "border",
    GuardManagement: "guard of management",
    FormCommunity: "community",
    SetNeighbour: "neighbour",
    SetUp: "interface",
    AddAddress: "address",
    AddRoute: "route",
    AddRule: "rule",
    SteerTcp: "steering of TCP",
    CreateRdma: "RDMA device",
    StartRouting: "set of routing daemons",
    StartService: "service",
}
"""The noun of the thing that an operation makes."""
_NUMBERS = ("ifindex", "port", "peer", "profile", "buffer", "burst_bytes", "master")
"""The fields of operations that only number things, or follow from others."""
_OF_PROFILES = ("profile", "rate_bps", "mtu_bytes", "bdp_bytes", "quantum_bytes")
"""The fields of profiles: rate and MTU are told of the port."""
_CONTEXT = re.compile(r"(router|interface|vrf|address-family|exit|bfd|profile|peer|route-map|segment-routing)\b")
"""The lines for a daemon that only lead to others."""
_QUEUED = "what waits in its queues"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThingNames:
    """The words for nodes: `kinds` has that of each node of both labs, such as "rail switch".

    `vrfs` are the namespaces of VRFs, which are nodes for operations, each with its switch and its tenant.
    """

    kinds: Mapping[str, str] = field(default_factory=dict)
    vrfs: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, *labs: Lab, plans: Iterable[LabPlan] = ()) -> ThingNames:
        """Return the words for the nodes of labs, and for the VRFs of plans."""
        kinds = {}
        for lab in labs:
            for node in lab.nodes:
                match node.kind:
                    case NodeKind.SWITCH if node.role is not None:
                        kinds[node.name] = (
                            node.role.value if node.role.value.endswith("spine") else f"{node.role} switch"
                        )
                    case NodeKind.BRIDGE:
                        kinds[node.name] = "management switch"
                    case NodeKind.STORAGE:
                        kinds[node.name] = "storage target"
                    case _:
                        kinds[node.name] = node.kind.value
        overlays = (plan for plan in plans if plan.overlay is not None)
        every = (item for plan in overlays for item in plan.operations if isinstance(item, CreateVrf))
        return cls(kinds=kinds, vrfs={item.node: (item.switch, item.tenant) for item in every})

    def node(self, node: str) -> str:
        """Return the name of a node, or of the VRF whose namespace it is, with its noun."""
        if node in self.vrfs:
            switch, tenant = self.vrfs[node]
            return f"{NOUNS[CreateVrf]} {tenant} on {switch}"
        return f"{self.kinds.get(node, NOUNS[CreateNode])} {node}"

    def kind(self, operation: Operation) -> str:
        """Return the noun of a thing."""
        if isinstance(operation, CreateNode | StartContainer):
            return self.kinds.get(operation.node, NOUNS[type(operation)])
        return NOUNS[type(operation)]

    def thing(self, operation: Operation) -> str:
        """Return the name of a thing, with its noun."""
        return f"{self.kind(operation)} {_name(operation)}"


def _name(operation: Operation) -> str:
    match operation:
        case CreateNode() | StartContainer() | StartRouting() | PreferVrfs() | SteerTcp():
            return operation.node
        case CreateVeth():
            return f"{operation.a} <-> {operation.b}"
        case CreateVrf():
            return f"{operation.tenant} on {operation.switch}"
        case SetSysctl():
            return f"{operation.node} {operation.key.replace('/', '.')}"
        case AddAddress() | SetNeighbour():
            return f"{operation.address} at {operation.node}:{operation.name}"
        case AddRoute():
            return f"to {operation.destination} on {operation.node}, table {operation.table}"
        case AddRule():
            return f"from {operation.source} on {operation.node}"
        case GuardSwitch():
            return f"of {operation.vrf or operation.node}{f', {operation.tenant}' if operation.tenant else ''}"
        case SetPolicy():
            return f"of {operation.tenant} on {operation.node}"
        case StartService():
            return f"{operation.service} on {operation.node}"
        case FormCommunity():
            return f"on {operation.node}"
    return f"{operation.node}:{operation.name}"


def kernel_rows(kernel: KernelChanges, names: ThingNames) -> Iterator[ChangeRow]:
    """Yield what a change does to the kernel."""
    remade = {id(item) for item in kernel.remade}
    renewed = {id(item) for item, _ in kernel.renewed}
    made = [*kernel.created, *kernel.made]
    owners = _Owners((item for item in made if id(item) not in remade), names)
    again = _Owners(kernel.remade, names)
    before = {names.thing(item): item for item in kernel.first}
    differing = _Differences(kernel.tables)
    for item in made:
        if id(item) in renewed:
            yield _row(Effect.CHANGED, item, names, part_of=owners.of(item) or again.of(item))
        elif id(item) not in remade and not again.of(item):
            yield _row(Effect.MADE, item, names, part_of=owners.of(item))
        else:
            was = before.get(names.thing(item))
            yield _row(
                Effect.REMADE,
                item,
                names,
                detail=told(differing.of(was, item)) if was is not None else "",
                at_stake="" if (whole := again.of(item)) else _stake_of_making_anew(item),
                part_of=whole,
            )
    yield from _changed_rows(kernel, names)
    yield from _removed_rows(kernel, names)


def _removed_rows(kernel: KernelChanges, names: ThingNames) -> Iterator[ChangeRow]:
    leaving = _Owners((item for item in kernel.removed if isinstance(item, CreateVeth)), names, gone=kernel.gone)
    for node in kernel.gone:
        switch, tenant = names.vrfs.get(node, (node, ""))
        yield ChangeRow(
            effect=Effect.REMOVED,
            node=switch,
            kind=NOUNS[CreateVrf] if tenant else names.kinds.get(node, NOUNS[CreateNode]),
            what=names.node(node),
            at_stake=f"what {tenant or node} sends and is sent" + (" there" if tenant else ""),
            part_of=names.node(switch) if tenant and switch in kernel.gone else "",
        )
    for old in kernel.outdated:
        yield _row(Effect.REMOVED, old, names, at_stake=_stake_of_outdated(old), part_of=leaving.of(old))
    settings = [item for item in kernel.first if isinstance(item, SetSysctl)]
    for item in (*settings, *kernel.removed):
        yield _row(Effect.REMOVED, item, names, at_stake=_stake_of_removal(item, kernel.gone), part_of=leaving.of(item))


def _changed_rows(kernel: KernelChanges, names: ThingNames) -> Iterator[ChangeRow]:
    before, after = kernel.tables
    differing = _Differences(kernel.tables)
    for was, now in kernel.changed:
        found = differing.of(was, now)
        yield _row(
            Effect.CHANGED,
            now,
            names,
            detail=told(found),
            at_stake=_stake_of_change(was, now),
            part_of="" if found else f"buffer of {now.node}" if isinstance(now, InstallPort) else "",
        )
    if before is not None and after is not None:
        yield from _buffer_rows(before, after)


def _bridge(end: VethEnd) -> str:
    return "another bridge or VRF" if end.master else "no bridge or VRF"


class _Differences:
    """The differences of operations that are about the same thing; of ports, of what they are set to as well."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._of_profiles: dict[tuple[int, int], list[str]] = {}
        """The differences of two profiles, by their numbers: a thousand ports may have them."""

    def of(self, was: Operation, now: Operation) -> list[str]:
        """Tell them; none of a port that is told of another buffer of its switch alone."""
        match was, now:
            case ShapePort(), InstallPort():
                return ["queues of QoS in place of one"]
            case InstallPort(), ShapePort():
                return ["one queue in place of those of QoS"]
        if type(was) is not type(now) or was is now:
            return []
        found = differences(was, now, without=_NUMBERS)
        if isinstance(was, CreateVeth) and isinstance(now, CreateVeth):
            ends = ((was.a, now.a), (was.b, now.b))
            found += [
                f"{after} is a port of {_bridge(after)}" for before, after in ends if before.master != after.master
            ]
        if isinstance(was, InstallPort) and isinstance(now, InstallPort):
            found += self._profiles(was.profile, now.profile)
        return found

    def _profiles(self, was: int, now: int) -> list[str]:
        before, after = self._tables
        if before is None or after is None:
            return []
        if (was, now) not in self._of_profiles:
            profiles = before.profiles[was], after.profiles[now]
            found = differences(*profiles, without=_OF_PROFILES) or differences(*profiles, without=("profile",))
            self._of_profiles[was, now] = found
        return self._of_profiles[was, now]


def _buffer_rows(before: QosTables, after: QosTables) -> Iterator[ChangeRow]:
    """The switches whose shared buffer, balancing of load or watchdog is another one."""
    known = {buffer.node: buffer for buffer in before.buffers if buffer.node}
    for buffer in after.buffers:
        was = known.get(buffer.node)
        if was is not None and (found := difference_text(was, buffer)):
            what = f"buffer of {buffer.node}"
            yield ChangeRow(effect=Effect.CHANGED, node=buffer.node, kind="buffer", what=what, detail=found)


def _row(
    effect: Effect, item: Operation, names: ThingNames, *, detail: str = "", at_stake: str = "", part_of: str = ""
) -> ChangeRow:
    switches = (names.vrfs.get(place, (place, ""))[0] for place in places_of(item))
    return ChangeRow(
        effect=effect,
        node=" ".join(dict.fromkeys(switches)),
        kind=names.kind(item),
        what=names.thing(item),
        detail=detail,
        at_stake=at_stake,
        part_of=part_of,
    )


class _Owners:
    """The nodes and links that come or go together with all that is in them and on them."""

    def __init__(self, operations: Iterable[Operation], names: ThingNames, gone: Sequence[str] = ()) -> None:
        self._nodes = {node: names.node(node) for node in gone}
        self._ends: dict[tuple[str, int], str] = {}
        self._linked: dict[str, str] = {}
        for item in operations:
            match item:
                case CreateNode() | StartContainer():
                    self._nodes[item.node] = names.thing(item)
                case CreateVrf():
                    self._nodes[item.node] = self._nodes.get(item.switch) or names.thing(item)
                case CreateVeth():
                    self._ends |= {(end.node, end.ifindex): names.thing(item) for end in (item.a, item.b)}
                    for end in (item.a, item.b):
                        self._linked.setdefault(end.node, names.thing(item))

    def of(self, item: Operation) -> str:
        """Return the name of what a thing comes or goes with; "" for what stands by itself."""
        if isinstance(item, CreateNode | StartContainer | CreateVeth):
            return ""
        if isinstance(item, CreateVrf):
            return self._nodes.get(item.switch, "")
        place, *_ = places_of(item)
        if isinstance(item, SetSysctl):  # of an interface, or of what interfaces come up with
            return self._nodes.get(place, "") or self._linked.get(place, "")
        return self._ends.get((place, getattr(item, "ifindex", 0)), "") or self._nodes.get(place, "")


def _stake_of_making_anew(item: Operation) -> str:
    match item:
        case CreateVeth():
            return f"what is on the link and in its queues{_session(item)}"
        case InstallPort() | ShapePort():
            return _QUEUED
        case DelayPort():
            return "what is on the wire"
        case AddRoute() | AddAddress() | AddRule() | SetNeighbour():
            return "packets that need it meanwhile"
    return ""


def _stake_of_removal(item: Operation, gone: Sequence[str]) -> str:
    """Routes lead elsewhere before a link goes, unless it was the only way."""
    if isinstance(item, CreateVeth) and item.a.node not in gone and item.b.node not in gone:
        return f"what has no other way{_session(item)}"
    return ""


def _stake_of_outdated(item: Operation) -> str:
    """An address of a subnet, and a route, go before routing brings its own way there."""
    return "" if isinstance(item, AddRule) else "packets that need it until routing has brought a route"


def _session(link: CreateVeth) -> str:
    """Name the session that is spoken over a link: by addresses of IPv6 that both ends have of themselves."""
    return ", and its BGP session" if link.a.ipv6 and link.b.ipv6 else ""


def _stake_of_change(was: Operation, now: Operation) -> str:
    match was, now:
        case CreateVeth(), CreateVeth() if now.mtu_bytes < was.mtu_bytes:
            return f"packets above {now.mtu_bytes} B"
        case CreateVeth(), CreateVeth() if any(_joins(*ends) for ends in ((was.a, now.a), (was.b, now.b))):
            return "a packet or two that arrive when the port joins the bridge"
        case StartService(), StartService():
            return "what is asked of it meanwhile"
    return ""


def _joins(was: VethEnd, now: VethEnd) -> bool:
    """Tell whether an interface becomes a port of a bridge: the kernel drops what arrives there until it is one."""
    return bool(now.master) and not was.master


def routing_rows(routing: Mapping[str, Mapping[str, Sequence[str]]], old: LabPlan, new: LabPlan) -> Iterator[ChangeRow]:
    """Yield what routing daemons are told: a row for each daemon, with its lines."""
    before = {speaker.node: speaker for speaker in old.speakers}
    after = {speaker.node: speaker for speaker in new.speakers}
    for node, daemons in routing.items():
        for daemon, lines in daemons.items():
            said = lines_that_say(lines)
            stake = sessions_at_stake(before[node], after[node]) if daemon == "bgpd" and node in before else ""
            yield ChangeRow(
                effect=Effect.CHANGED,
                node=node,
                kind=daemon,
                what=f"{daemon} of {node}",
                detail="; ".join(map(without_secrets, said)),
                reason=_files_that_differ(before.get(node), after[node]),
                at_stake=stake,
            )


def lines_that_say(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines for a daemon that say something, without those that only lead to them; all where none does."""
    return [line for line in lines if not _CONTEXT.match(line)] or lines


def _files_that_differ(was: SwitchPlan | None, now: SwitchPlan) -> str:
    """Name the files of a node's own configuration that say something else now; "" where no key says why itself."""
    if was is None or was.startup is None or now.startup is None or replace(was, startup=now.startup) != now:
        return ""
    before = {(one.place, one.file): one.text for one in was.startup.texts}
    texts = [one for one in now.startup.texts if one.file]
    return ", ".join(
        dict.fromkeys(one.file for one in texts if before.get((one.place, one.file), one.text) != one.text)
    )


def sessions_at_stake(was: SwitchPlan, now: SwitchPlan) -> str:
    """Tell which BGP sessions of a speaker end and begin again, or end.

    FRR resets a session when its ends are called otherwise (AS number, router ID) or when its TCP segments are signed
    otherwise; filters, timers and BFD are taken over by a session that is up.
    """
    before = {neighbor.interface: neighbor for neighbor in was.neighbors}
    after = {neighbor.interface: neighbor for neighbor in now.neighbors}
    kept = before.keys() & after.keys()
    all_reset = any(
        getattr(was, name) != getattr(now, name)
        for name in ("asn", "router_id", "protocol", "password", "ttl_security")
    )
    reset = sorted(name for name in kept if all_reset or before[name].remote_asn != after[name].remote_asn)
    ended = sorted(before.keys() - after.keys())
    session = "BGP session"
    parts = [f"{counted(len(reset), session)} begin{'' if len(reset) != 1 else 's'} again"] if reset else []
    parts += [f"{counted(len(ended), session)} end{'' if len(ended) != 1 else 's'}"] if ended else []
    return ", ".join(parts)
