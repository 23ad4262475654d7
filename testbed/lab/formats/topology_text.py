"""Writes what was imported as a topology file of ours: a line for each node and link, groups where the file has them.

What a group's members have in common is written at the group. A value that our files refuse (a name of an image that is
none, a prefix that is kept for something else) is left out with a remark that says why, and the rest stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from ipaddress import IPv4Network
from typing import Any

from testbed.base.errors import PlanError, Problem, SpecError
from testbed.base.names import LAB_NAME, fitting_name
from testbed.base.yaml.paths import Path, parse_path
from testbed.base.yaml.reader import load_document
from testbed.lab.assembly.hand_written import RESERVED
from testbed.lab.assembly.resolve import resolve_lab
from testbed.lab.assembly.write import flow_yaml
from testbed.lab.core.model import NodeKind, Role
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.other_tools import OtherTool
from testbed.lab.formats.imported import ImportedLab, ImportedLink, ImportedNode
from testbed.lab.formats.roles import ROLES, decide_roles

_LONGEST_NAME = 28
_DEFAULT_MTUS = {OtherTool.CONTAINERLAB: 9216, OtherTool.NETLAB: 1500}
"""The MTU of links whose file says none, in bytes; containerlab's is 9500, and 9216 the most here."""
_NOUNS = {"nodes": "node", "links": "link", "groups": "group"}


def write_imported(lab: ImportedLab, source: str) -> str:
    """Return the topology file of what was imported from `source`; remarks about it are in `lab.remarks`.

    Raises `SpecError` where no lab is left: without nodes, or with what no value could be taken out of.
    """
    data = _data(lab)
    while True:
        text = _render(data, f"# Imported from {source} of {lab.tool}.")
        try:
            plan_lab(resolve_lab(load_document(text, source)), k=1)
        except SpecError as error:
            problems = error.problems
        except PlanError as error:
            problem = Problem(code=error.code, file=source, message=error.message, path=error.field, hint=error.hint)
            problems = (problem,)
        else:
            return text
        taken_out = [_take_out(lab, data, problem) for problem in reversed(problems)]
        if not any(taken_out):  # places are those of our text, which nobody sees
            raise SpecError([replace(problem, position=None) for problem in problems])


def _data(lab: ImportedLab) -> dict[str, Any]:
    """Return the file as mappings and lists."""
    roles = decide_roles(lab)
    for link in roles.misfits:
        (a, _), (b, _) = link.ends
        to_do = f"{a} and {b} are both {ROLES[roles.tiers[a]]} switches: join both to a switch of another tier"
        lab.remarks.left_out("link between switches of one tier", str(link), link.path, to_do)
    misfits = set(map(id, roles.misfits))
    links = [link for link in lab.links if id(link) not in misfits]
    _choose_prefixes(lab, links)
    _even_mtus(lab, links)
    nodes: dict[str, dict[str, Any]] = {}
    linked = {node for link in links for node, _ in link.ends}
    for there, node in lab.nodes.items():
        if there not in linked:
            lab.remarks.left_out("node without links", there, node.path, "give it a link")
            continue
        nodes[node.name] = _node(node, roles.tiers.get(there), roles.pods.get(there), roles.asns.get(there))
    if not nodes:
        message = f"no two nodes of this topology of {lab.tool} have a link between them, so no lab is left of it"
        raise SpecError([lab.remarks.document.problem("not-to-import", (), message, hint="give it links")])
    groups = _groups(lab, nodes)
    topology: dict[str, Any] = {"groups": groups} if groups else {}
    topology |= {"nodes": nodes, "links": [_link(lab, link) for link in links]}
    _remark_ports(lab)
    return {
        "name": lab.name if LAB_NAME.match(lab.name) else fitting_name(lab.name)[:_LONGEST_NAME].rstrip("-"),
        **({"fabric": lab.fabric} if lab.fabric else {}),
        "topology": topology,
        **({"networks": lab.networks} if lab.networks else {}),
    }


def _node(node: ImportedNode, tier: int | None, pod: int | None, asn: int | None) -> dict[str, Any]:
    settings: dict[str, Any] = {"kind": str(NodeKind.HOST)}
    if tier is not None:
        named = node.role if node.role in tuple(Role) and Role(node.role).tier == tier else str(ROLES[tier])
        settings = {"kind": str(NodeKind.SWITCH), "role": named}
        settings |= {} if pod is None else {"pod": pod}
        settings |= {} if asn is None else {"asn": asn}
    return settings | node.settings


def _link(lab: ImportedLab, link: ImportedLink) -> dict[str, Any]:
    ends = [f"{lab.nodes[node].name}:{lab.nodes[node].port(port)}" for node, port in link.ends]
    return {"endpoints": ends, **link.settings}


def _groups(lab: ImportedLab, nodes: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Take what all members of a group have in common out of them, and return it by group."""
    groups: dict[str, dict[str, Any]] = {}
    for group in dict.fromkeys(node.group for node in lab.nodes.values() if node.group):
        members = [nodes[node.name] for node in lab.nodes.values() if node.group == group and node.name in nodes]
        if not members:
            continue
        name = fitting_name(group) if fitting_name(group) not in groups else f"{fitting_name(group, 40)}-{len(groups)}"
        common = {key: value for key, value in members[0].items() if all(one.get(key) == value for one in members)}
        for number, member in enumerate(members):
            rest = {key: value for key, value in member.items() if key not in common}
            members[number].clear()
            members[number] |= {"group": name, **rest}
        groups[name] = common
    return groups


def _choose_prefixes(lab: ImportedLab, links: list[ImportedLink]) -> None:
    """Give links of hosts the prefixes that their ports' addresses are in, where such a link may have one."""
    taken = _Prefixes()
    for link in links:
        if _is_prefix(written := link.settings.get("prefix")):
            taken.add(IPv4Network(written))
    for link in links:
        found = [address for node, port in link.ends if (address := lab.nodes[node].addresses.get(port)) is not None]
        switches = [lab.nodes[node].is_switch for node, _ in link.ends]
        if not found or all(switches) or "prefix" in link.settings:
            continue
        network = found[0].network
        kept_for = next((owner for owner, reserved in RESERVED.items() if network.overlaps(reserved)), None)
        if kept_for is not None:
            to_do = f"it is planned: {network} is kept for {kept_for}"
        elif network.prefixlen > 31 or any(one.network != network for one in found):
            to_do = "it is planned: the two ends of a link are in one prefix"
        elif network in taken:
            to_do = "it is planned: each link of a host has a prefix of its own, and another one has this"
        else:
            taken.add(network)
            link.settings["prefix"] = str(network)
            to_do = "it is planned within the same prefix, which the link keeps"
        lab.remarks.changed("address of a port", f"{found[0]} on {link}", link.path, to_do)


def _even_mtus(lab: ImportedLab, links: list[ImportedLink]) -> None:
    """If a link has an MTU, give those without one what their tool gives them; most links' is the fabric's."""
    if not any("mtu" in link.settings for link in links):
        return
    default = lab.fabric.get("mtu", _DEFAULT_MTUS[lab.tool])
    found = [link.settings.get("mtu", default) for link in links]
    common = max(dict.fromkeys(found), key=found.count)
    for link, mtu in zip(links, found, strict=True):
        link.settings.pop("mtu", None)
        if mtu != common:
            link.settings["mtu"] = mtu
    lab.fabric["mtu"] = common


class _Prefixes:
    """Prefixes that are in use. Another one is among them if it overlaps any."""

    def __init__(self) -> None:
        self._used: set[tuple[int, int]] = set()
        self._around: set[tuple[int, int]] = set()
        """All that hold one of those, themselves among them."""

    def add(self, network: IPv4Network) -> None:
        self._used.add(_key(network, network.prefixlen))
        self._around.update(_key(network, length) for length in range(network.prefixlen + 1))

    def __contains__(self, network: IPv4Network) -> bool:
        above = (_key(network, length) for length in range(network.prefixlen + 1))
        return _key(network, network.prefixlen) in self._around or any(key in self._used for key in above)


def _key(network: IPv4Network, length: int) -> tuple[int, int]:
    """Return the prefix of that length which holds a network."""
    return int(network.network_address) >> (32 - length), length


def _is_prefix(value: object) -> bool:
    try:
        IPv4Network(str(value))
    except ValueError:
        return False
    return value is not None


def _remark_ports(lab: ImportedLab) -> None:
    """Say which ports are called otherwise here."""
    for node in lab.nodes.values():
        for there, here in node.ports.items():
            if there != here:
                where = f"{node.there}:{there} is {here}"
                to_do = "names of interfaces are small letters, digits, _, . and -, at most 15"
                lab.remarks.changed("names of ports", where, node.path, to_do)


# ------------------------------------------------------------------ what our files refuse


def _take_out(lab: ImportedLab, data: dict[str, Any], problem: Problem) -> bool:
    """Take the value that a problem is about out, with a remark; False where it is one that a lab cannot be without."""
    try:
        path = parse_path(problem.path)
    except ValueError:
        return False
    if path[:2] == ("topology", "links") and path[3:4] == ("endpoints",):
        path = path[:3]  # a port that is used twice, for example: the link goes
    holders: list[Any] = [data]
    for part in path:
        here = holders[-1]
        there = part in here if isinstance(here, dict) else isinstance(here, list) and part in range(len(here))
        if not there:
            break
        holders.append(here[part])
    path = path[: len(holders) - 1]  # of a key that is missing, the section that it is missing in
    if not path or not _may_go(path, problem.code):
        return False
    link = holders[3] if path[1] == "links" else None
    where, place = _place(lab, path, link["endpoints"] if isinstance(link, dict) else None)
    del holders[-2][path[-1]]
    what = ".".join(part for part in path[3:] if isinstance(part, str)) or _NOUNS.get(str(path[1]), str(path[1]))
    lab.remarks.left_out(what, where, place, f"{problem.message}{f' ({problem.hint})' if problem.hint else ''}")
    return True


def _may_go(path: Path, code: str) -> bool:
    match path:
        case ("topology", "nodes", str()):
            return code == "no-links"
        case ("topology", "nodes" | "groups", str(), key, *_):
            return key not in ("kind", "role", "group")
        case ("topology", "links", int(), *_):
            return True
        case ("networks", str(), *rest):
            return rest != ["design"]
        case ("fabric", str(), *_):
            return True
    return False


def _place(lab: ImportedLab, path: Path, endpoints: object) -> tuple[str, Path]:
    """Return whose the value is, and where that stands in the file that was imported."""
    if path[1] == "nodes":
        for node in lab.nodes.values():
            if node.name == path[2]:
                return node.there, node.path
    if path[1] == "links":
        for link in lab.links:
            if _link(lab, link)["endpoints"] == endpoints:
                return str(link), link.path
    return ".".join(str(part) for part in path[:3]), ()


# ------------------------------------------------------------------ text


def _render(data: Mapping[str, Any], head: str) -> str:
    return "\n".join([head, *_lines(data, 0), ""])


def _lines(section: Mapping[str, Any], depth: int) -> Iterator[str]:
    """Write sections as blocks, and what stands in them on a line each."""
    indent = "  " * depth
    for key, value in section.items():
        if key in ("groups", "networks", "fabric") and not value and depth < 2:
            continue
        if key in ("topology", "nodes", "groups", "networks", "fabric") and isinstance(value, Mapping) and depth < 2:
            yield f"{indent}{key}:"
            yield from _lines(value, depth + 1)
        elif isinstance(value, list) and key == "links":
            yield f"{indent}{key}:"
            yield from (f"{indent}  - {flow_yaml(entry)}" for entry in value)
        else:
            yield f"{indent}{flow_yaml(key)}: {flow_yaml(value)}"
