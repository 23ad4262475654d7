"""The tiers of switches that come from another tool, and AS numbers by which every graph of them routes.

Two switches of one tier have no link here (RFC 7938 section 3), so tiers are a colouring of the graph with three
colours: as names and labels say where that works, else by the distance from hosts, else whatever fits. Links that no
tiers fit are left out.

The plan gives all spines of a pod one AS number, which keeps paths from passing a tier twice. In a ring or a chain of
routers that very path may be the only one: there each switch gets a number of its own.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network

from testbed.lab.core.model import Role
from testbed.lab.core.plan.routes import PlannedSession, Speaker, expect_routes
from testbed.lab.formats.imported import ImportedLab, ImportedLink

LEAF, SPINE, SUPER_SPINE = (Role.LEAF.tier, Role.SPINE.tier, Role.SUPER_SPINE.tier)
ROLES: Mapping[int, Role] = {LEAF: Role.LEAF, SPINE: Role.SPINE, SUPER_SPINE: Role.SUPER_SPINE}
_WORDS = (
    (SUPER_SPINE, re.compile(r"super[-_ ]?spine|sspine", re.I)),
    (SPINE, re.compile(r"spine", re.I)),
    (LEAF, re.compile(r"leaf|leaves|(?:^|[^a-z])tor(?:[^a-z]|$)", re.I)),
)
"""Words that only switches are called by."""
_SERVER = re.compile(r"client|server|host|srv|gpu|(?:^|[^a-z])(?:pc|vm)(?:[^a-z]|$)", re.I)
_NAMES = (
    *_WORDS,
    (SUPER_SPINE, re.compile(r"^ss[-_]?\d+$|(?:^|[^a-z])core", re.I)),
    (SPINE, re.compile(r"aggregation|(?:^|[^a-z])agg(?:[^a-z]|$)|^s[-_]?\d+$", re.I)),
    (LEAF, re.compile(r"rail|^l[-_]?\d+$", re.I)),
)
FIRST_OWN_ASN = 64512
"""AS numbers for private use (RFC 6996) that no lab's plan has: its numbers are of four bytes."""
_OWN_ASNS = 1023
_MOST_STEPS = 50_000
_MOST_ORIGINS = 32
"""Switches from which it is tried whether all others hear of them."""


def tier_of_name(name: str, group: object = None) -> int | None:
    """Return the tier that a switch's name, or else the name of its group, speaks of."""
    texts = (name, group if isinstance(group, str) else "")
    return next((tier for text in texts for tier, pattern in _NAMES if text and pattern.search(text)), None)


def is_name_of_switch(name: str, group: object = None) -> bool:
    """Tell whether a node is called as switches alone are, or its group is: leaf1, and not leaf1-client."""
    return _speaks_of_tier(name, group) and not _speaks_of_server(name, group)


def is_name_of_server(name: str, group: object = None) -> bool:
    """Tell whether a node is called a server and no switch, or its group is: gpu-01 is a host even if it routes."""
    return _speaks_of_server(name, group) and not _speaks_of_tier(name, group)


def _speaks_of_server(name: str, group: object) -> bool:
    return any(_SERVER.search(text) for text in (name, group if isinstance(group, str) else ""))


def _speaks_of_tier(name: str, group: object) -> bool:
    texts = (name, group if isinstance(group, str) else "")
    return any(pattern.search(text) for text in texts for _, pattern in _WORDS)


@dataclass(slots=True)
class Roles:
    """The tier of each switch by its name in the file, its pod, and its AS number where it needs one of its own."""

    tiers: dict[str, int]
    pods: dict[str, int] = field(default_factory=dict)
    asns: dict[str, int] = field(default_factory=dict)
    misfits: list[ImportedLink] = field(default_factory=list)
    """Links between two switches of one tier, which the lab cannot have."""


def decide_roles(lab: ImportedLab) -> Roles:
    """Give every switch a tier, a pod and, where its graph needs it, an AS number."""
    switches = [name for name, node in lab.nodes.items() if node.is_switch]
    among: dict[str, set[str]] = {name: set() for name in switches}
    with_hosts: set[str] = set()
    for link in lab.links:
        (a, _), (b, _) = link.ends
        if a in among and b in among:
            among[a].add(b)
            among[b].add(a)
        else:
            with_hosts |= {a, b} & among.keys()
    tiers = _tiers(lab, among, with_hosts)
    roles = Roles(tiers=tiers)
    roles.misfits = [link for link in lab.links if _same_tier(link, tiers)]
    for link in roles.misfits:
        (a, _), (b, _) = link.ends
        among[a].discard(b)
        among[b].discard(a)
    roles.pods = _pods(among, tiers)
    leaves = {name for name, tier in tiers.items() if tier == LEAF}
    _number(lab, roles, among, with_hosts or leaves)
    return roles


def _same_tier(link: ImportedLink, tiers: Mapping[str, int]) -> bool:
    (a, _), (b, _) = link.ends
    return a in tiers and b in tiers and tiers[a] == tiers[b]


# ------------------------------------------------------------------ tiers


def _tiers(lab: ImportedLab, among: Mapping[str, set[str]], with_hosts: set[str]) -> dict[str, int]:
    """Colour the graph: first as names say, then as the distance from hosts does, then as it can be."""
    distances = _distances(among, with_hosts)
    by_distance = {name: min(distances.get(name, 0) + 1, SUPER_SPINE) for name in among}
    named = {name: lab.nodes[name].tier for name in among}
    wanted = {name: named[name] or by_distance[name] for name in among}
    if all(wanted[a] != wanted[b] for a in among for b in among[a]):
        return wanted
    order = sorted(among, key=lambda name: (distances.get(name, 0), -len(among[name])))
    return _coloured(order, among, wanted) or _coloured(order, among, by_distance) or _greedy(order, among, wanted)


def _distances(among: Mapping[str, set[str]], starts: Iterable[str]) -> dict[str, int]:
    """Return the distance of each switch from the nearest of `starts`."""
    distances = dict.fromkeys(starts, 0)
    queue = deque(distances)
    while queue:
        here = queue.popleft()
        for other in among[here]:
            if other not in distances:
                distances[other] = distances[here] + 1
                queue.append(other)
    return distances


def _choices(wanted: int) -> tuple[int, ...]:
    """Return the tiers in the order in which a switch would have them."""
    return (wanted, *(tier for tier in ROLES if tier != wanted))


def _coloured(order: Sequence[str], among: Mapping[str, set[str]], wanted: Mapping[str, int]) -> dict[str, int] | None:
    """Colour by trying and going back; None where that has no end, or takes too long."""
    tiers: dict[str, int] = {}
    left: list[list[int]] = []
    steps = 0
    while len(tiers) < len(order):
        steps += 1
        if steps > _MOST_STEPS:
            return None
        if len(left) == len(tiers):
            name = order[len(tiers)]
            taken = {tiers[other] for other in among[name] if other in tiers}
            left.append([tier for tier in reversed(_choices(wanted[name])) if tier not in taken])
        if left[-1]:
            tiers[order[len(left) - 1]] = left[-1].pop()
            continue
        left.pop()
        if not left:
            return None
        del tiers[order[len(left) - 1]]
    return tiers


def _greedy(order: Sequence[str], among: Mapping[str, set[str]], wanted: Mapping[str, int]) -> dict[str, int]:
    """Colour so that few neighbours have one tier: some links will be left out."""
    tiers: dict[str, int] = {}
    for name in order:
        near = [tiers[other] for other in among[name] if other in tiers]
        tiers[name] = min(_choices(wanted[name]), key=near.count)
    return tiers


# ------------------------------------------------------------------ pods and AS numbers


def _pods(among: Mapping[str, set[str]], tiers: Mapping[str, int]) -> dict[str, int]:
    """Number what super-spines alone join; empty where there is one pod."""
    if SUPER_SPINE not in tiers.values():
        return {}
    pods: dict[str, int] = {}
    count = 0
    for name in among:
        if tiers[name] == SUPER_SPINE or name in pods:
            continue
        count += 1
        frontier = [name]
        pods[name] = count
        while frontier:
            for other in among[frontier.pop()]:
                if tiers[other] != SUPER_SPINE and other not in pods:
                    pods[other] = count
                    frontier.append(other)
    return pods if 1 < count <= 1023 else {}


def _number(lab: ImportedLab, roles: Roles, among: Mapping[str, set[str]], speaking: set[str]) -> None:
    """Keep the AS numbers of the file where they work, else give own ones where those of the plan do not."""
    given = {name: asn for name in among if (asn := lab.nodes[name].asn) is not None}
    planned = {name: _planned(name, roles) for name in among}
    if given:
        numbers: dict[str, object] = {**planned, **given}
        differ = all(numbers[a] != numbers[b] for a in among for b in among[a])
        if differ and _reaches(among, numbers, speaking):
            roles.asns = given
            return
        why = "a path through a switch's own number is refused" if differ else "neighbours here are in different ones"
        for place in given:
            to_do = f"AS numbers are planned: {why} (RFC 7938)"
            lab.remarks.left_out("bgp.as", place, lab.nodes[place].path, to_do)
    if _reaches(among, planned, speaking):
        return
    if len(among) > _OWN_ASNS:
        to_do = "give switches an asn each: paths that pass a tier twice are refused by the planned ones"
        lab.remarks.changed("AS numbers", "", ("nodes",), to_do)
        return
    roles.asns = {name: FIRST_OWN_ASN + number for number, name in enumerate(among)}


def _planned(name: str, roles: Roles) -> object:
    """Return what stands for the AS number that the plan gives a switch (`testbed.lab.core.plan.asn`)."""
    match roles.tiers[name]:
        case 1:
            return name
        case 2:
            return ("pod", roles.pods.get(name, 1))
    return "super-spines"


def _reaches(among: Mapping[str, set[str]], numbers: Mapping[str, object], speaking: set[str]) -> bool:
    """Tell whether with these AS numbers each of `speaking` hears of every other that a path leads to."""
    groups = {number: index for index, number in enumerate(dict.fromkeys(numbers.values()))}
    names = sorted(among)
    origins = sorted(speaking)
    origins = origins[:: max(1, len(origins) // _MOST_ORIGINS)]
    prefixes = {name: IPv4Network((index << 8, 24)) for index, name in enumerate(origins, 1)}
    speakers = [
        Speaker(
            name=name,
            router_id=index,
            group=groups[numbers[name]],
            announces=(prefixes[name],) if name in prefixes else (),
        )
        for index, name in enumerate(names, 1)
    ]
    sessions = [
        PlannedSession(sender=a, receiver=b, interface=a, sender_mac="") for a in names for b in sorted(among[a])
    ]
    routes, _ = expect_routes(speakers, sessions, ecmp=64, reflection=False)
    parts = _parts(among)
    for name in speaking:
        known = {route.prefix for route in routes[name]}
        if any(parts[name] == parts[one] and one != name and prefixes[one] not in known for one in origins):
            return False
    return True


def _parts(among: Mapping[str, set[str]]) -> dict[str, int]:
    """Number the connected parts of the graph."""
    parts: dict[str, int] = {}
    for number, start in enumerate(among):
        if start in parts:
            continue
        for name in _distances(among, [start]):
            parts[name] = number
    return parts
