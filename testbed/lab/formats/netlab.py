"""Reads a topology of netlab (netlab.tools/topology-reference): nodes by device and role, links in all their forms.

Keys with dots are what they are short for (`defaults.device`). Routing is planned here as BGP, whatever modules the
file names; AS numbers are kept where every two neighbours have different ones. A link of three nodes or more becomes a
switch that they are joined to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.base.yaml.document import Document, Tree
from testbed.base.yaml.paths import Path as KeyPath
from testbed.lab.core.schema import foreign
from testbed.lab.core.schema.other_tools import OtherTool
from testbed.lab.formats.imported import (
    ImportedLab,
    ImportedLink,
    ImportedNode,
    Remarks,
    mapping,
    shown,
    without_removal,
)
from testbed.lab.formats.netlab_links import LinkReader
from testbed.lab.formats.node_keys import NodeKeys, has_frr
from testbed.lab.formats.roles import LEAF, SPINE, tier_of_name

_DOTTED = re.compile(r"[A-Za-z_][\w-]*(?:\.[A-Za-z_0-9][\w-]*)+")
_MOST_OF_A_TIER = 128
"""Leaves or spines that the plugin "fabric" is taken at its word for."""
_HOSTS = frozenset({"linux", "dnsmasq", "haproxy", "none", "unknown", "ubuntu"})
_GROUP_KEYS = frozenset({"members", "type", "_auto_create", "node_data"})
_CONTAINER_KEYS = frozenset({"image", "box", "cpu", "memory"})
"""Keys of a node that are read with those of a container."""
_PLANNED = "addresses are planned: `testbed inspect` shows them"
_NO_REFLECTORS = "nothing reflects routes: neighbours here are in different AS numbers, and speak eBGP (RFC 7938)"
_TO_DO: Mapping[str, str] = {
    "bgp.rr": _NO_REFLECTORS,
    "id": _PLANNED,
    "loopback": "loopbacks are planned",
    "mgmt": without_removal(foreign.NODE_KEYS["mgmt"]),
    "config": "routing is planned; exec lists commands that run after that",
    "config_templates": "routing is planned; exec lists commands that run after that",
    "vars": "they are for configuration of netlab's own; env gives a node's programs variables",
}
_ROUTING = frozenset({"ospf", "isis", "eigrp", "ripv2", "routing"})
_READ = frozenset(
    {"name", "nodes", "links", "defaults", "groups", "plugin", "fabric", "bgp", "module", "mtu", "provider"}
)


def read_netlab(document: Document, *, directory: Path, runtime: str, environment: Mapping[str, str]) -> ImportedLab:
    """Gather what a file says, as `read_containerlab` does."""
    document = Document(file=document.file, root=_expanded(document.root))
    stem = Path(document.file).stem
    name = str(document.data.get("name") or (directory.resolve().name if stem == "topology" else stem))
    lab = ImportedLab(tool=OtherTool.NETLAB, name=name, remarks=Remarks(document))
    _Reader(lab, document, directory, runtime, environment).read()
    return lab


class _Reader:
    """A file while it is read."""

    def __init__(
        self, lab: ImportedLab, document: Document, directory: Path, runtime: str, environment: Mapping[str, str]
    ) -> None:
        self.lab = lab
        self.document = document
        self.data: Mapping[str, Any] = document.data
        self.keys = NodeKeys(
            remarks=lab.remarks,
            directory=directory,
            runtime=runtime,
            environment=environment,
            node_directory=lambda node: directory / "clab_files" / node,
        )

    def read(self) -> None:
        fabric = self._fabric()
        nodes = {**{name: {} for name in fabric}, **self._nodes()}
        for name, own, places in self._with_groups(nodes):
            self._read_node(name, own, places, fabric.get(name))
        self._number()
        LinkReader(self.lab, self.document).read(self._fabric_links(fabric))
        self._read_rest()

    # ------------------------------------------------------------------ nodes

    def _nodes(self) -> dict[str, Mapping[str, Any]]:
        """The nodes as they are written: a mapping, or a list of names and mappings with a name."""
        written = self.data.get("nodes")
        if isinstance(written, Mapping):
            return {name: mapping(value) for name, value in written.items()}
        found: dict[str, Mapping[str, Any]] = {}
        for number, one in enumerate(written if isinstance(written, list) else ()):
            name = one if isinstance(one, str) else mapping(one).get("name")
            if isinstance(name, str):
                found[name] = mapping(one)
            else:
                self.lab.remarks.left_out("node", shown(one), ("nodes", number), "give it a name")
        return found

    def _with_groups(
        self, nodes: Mapping[str, Mapping[str, Any]]
    ) -> Iterator[tuple[str, dict[str, Any], dict[str, KeyPath]]]:
        """Every node with what its groups say of it, the node's own word last, and where each key of that stands;
        members that groups create, too."""
        groups = {name: group for name, group in mapping(self.data.get("groups")).items() if name != "_auto_create"}
        create_all = mapping(self.data.get("groups")).get("_auto_create")
        members = {name: self._members(name, groups, ()) for name in groups}
        created = [
            one
            for name, group in groups.items()
            if create_all or mapping(group).get("_auto_create")
            for one in members[name]
            if one not in nodes
        ]
        for name in dict.fromkeys([*nodes, *created]):
            own = dict(nodes.get(name, {}))
            named = own.get("group")
            mine = [group for group in groups if name in members[group]]
            mine += [one for one in (named if isinstance(named, list) else [named]) if isinstance(one, str)]
            mine.sort(key=lambda group: -len(members.get(group, ())))  # the innermost group has the last word
            merged: dict[str, Any] = {}
            places: dict[str, KeyPath] = {}
            for group in mine:
                settings = mapping(groups.get(group))
                data = mapping(settings.get("node_data"))
                inner = {key: value for key, value in settings.items() if key not in _GROUP_KEYS}
                merged = _merged(merged, {**data, **inner})
                places |= {key: ("groups", group, "node_data", key) for key in data}
                places |= {key: ("groups", group, key) for key in inner}
            merged = _merged(merged, own)
            places |= {key: (*self._place(name, mine), key) for key in own}
            if mine:
                merged["group"] = mine[-1]
            yield name, merged, {"": self._place(name, mine), **places}

    def _place(self, name: str, groups: Sequence[str]) -> KeyPath:
        """Return where a node stands: among the nodes, or else in the group or the plugin that makes it."""
        written = self.data.get("nodes")
        if isinstance(written, Mapping) and name in written:
            return ("nodes", name)
        for number, one in enumerate(written if isinstance(written, list) else ()):
            if name == (one if isinstance(one, str) else mapping(one).get("name")):
                return ("nodes", number)
        return ("groups", groups[-1]) if groups else ("fabric",)

    def _members(self, name: str, groups: Mapping[str, Any], above: tuple[str, ...]) -> list[str]:
        """The nodes of a group, those of groups in it among them."""
        group = groups.get(name)
        listed = group if isinstance(group, list) else mapping(group).get("members")
        found: list[str] = []
        for one in listed if isinstance(listed, list) else []:
            if str(one) in groups and str(one) not in (*above, name):
                found += self._members(str(one), groups, (*above, name))
            else:
                found.append(str(one))
        return found

    def _read_node(self, name: str, own: Mapping[str, Any], places: Mapping[str, KeyPath], tier: int | None) -> None:
        path = places[""]
        device = str(own.get("device") or mapping(self.data.get("defaults")).get("device") or "frr")
        role = own.get("role")
        is_switch = role in ("router", "bridge", "gateway") or (role != "host" and device not in _HOSTS)
        node = self.lab.add_node(name, path, is_switch=is_switch)
        if is_switch:
            node.tier = tier or tier_of_name(name, own.get("group"))
            node.asn = _as_number(mapping(own.get("bgp")).get("as"))
        if isinstance(group := own.get("group"), str):
            if group in mapping(self.data.get("groups")):
                node.group = group
            else:
                node.settings["labels"] = {"group": group}
        keys = self._container_keys(own)
        usable = not is_switch or device == "frr" or has_frr(keys.get("image"))
        self._remark_device(node, device, role, path, usable=usable)
        self.keys.read(node, keys, usable=usable, paths=dict.fromkeys(keys, path))
        self._remark_keys(node, own, places)

    def _container_keys(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """The keys that containerlab is given: those below `clab`, and the image by its other names."""
        keys = dict(mapping(own.get("clab")))
        image = keys.pop("image", None) or own.get("image") or own.get("box")
        if isinstance(binds := keys.get("binds"), Mapping):
            keys["binds"] = [f"{source}:{target}" for source, target in binds.items()]
        if isinstance(own.get("cpu"), int | float):
            keys["cpu"] = own["cpu"]
        if isinstance(own.get("memory"), int):
            keys["memory"] = f"{own['memory']}MB"
        return ({"image": image} if image else {}) | keys

    def _remark_device(self, node: ImportedNode, device: str, role: object, path: KeyPath, *, usable: bool) -> None:
        remarks = self.lab.remarks
        if role == "bridge":
            to_do = "it routes here: each of its ports has a subnet of its own, and no frame crosses it"
            remarks.changed("role: bridge", node.there, path, to_do)
        elif node.is_switch and not usable:
            remarks.changed(f"device: {device}", node.there, path, "it runs FRR, with BGP as it is planned")

    def _remark_keys(self, node: ImportedNode, own: Mapping[str, Any], places: Mapping[str, KeyPath]) -> None:
        """Say which keys of a node nothing here has."""
        done = {"name", "device", "role", "group", "clab", "module", "bgp", "provider", *_CONTAINER_KEYS}
        of_bgp = {f"bgp.{key}": value for key, value in mapping(own.get("bgp")).items() if key != "as"}
        for key, value in [*own.items(), *of_bgp.items()]:
            if key in done or value is None:
                continue
            to_do = without_removal(_TO_DO.get(key) or foreign.NODE_KEYS.get(key) or foreign.FILE_KEYS.get(key))
            self.lab.remarks.left_out(f"nodes: {key}", node.there, places.get(key.partition(".")[0], places[""]), to_do)

    def _number(self) -> None:
        """AS numbers that the file gives all nodes, or lists by number."""
        bgp = mapping(self.data.get("bgp"))
        for number, settings in mapping(bgp.get("as_list")).items():
            members = mapping(settings).get("members")
            for key in mapping(settings):
                if key != "members":
                    to_do = _TO_DO.get(f"bgp.{key}", "nothing here says the same")
                    self.lab.remarks.left_out(
                        f"bgp.as_list: {key}", str(number), ("bgp", "as_list", number, key), to_do
                    )
            for name in members if isinstance(members, list) else ():
                if (node := self.lab.nodes.get(str(name))) is not None and node.is_switch:
                    node.asn = node.asn or _as_number(number)
        common = _as_number(bgp.get("as"))
        for node in self.lab.nodes.values():
            if node.is_switch and node.asn is None:
                node.asn = common

    # ------------------------------------------------------------------ the plugin "fabric"

    def _fabric(self) -> dict[str, int]:
        """The leaves and spines that the plugin of this name makes, with their tiers."""
        plugins = self.data.get("plugin")
        fabric = mapping(self.data.get("fabric"))
        if "fabric" not in (plugins if isinstance(plugins, list) else [plugins]):
            return {}
        made: dict[str, int] = {}
        for key, short, tier in (("spines", "S", SPINE), ("leafs", "L", LEAF)):
            count = fabric.get(key)
            if not isinstance(count, int) or not 0 <= count <= _MOST_OF_A_TIER:
                to_do = f"write a number up to {_MOST_OF_A_TIER}"
                self.lab.remarks.left_out(f"fabric.{key}", shown(count), ("fabric", key), to_do)
                continue
            pattern = str(mapping(fabric.get(key.removesuffix("s"))).get("name") or f"{short}{{count}}")
            for number in range(1, count + 1):
                made[re.sub(r"\{\s*count\s*\}", str(number), pattern)] = tier
        return made

    def _fabric_links(self, fabric: Mapping[str, int]) -> list[ImportedLink]:
        """A link from every leaf to every spine."""
        leaves = [name for name, tier in fabric.items() if tier == LEAF]
        spines = [name for name, tier in fabric.items() if tier == SPINE]
        return [ImportedLink(ends=((leaf, ""), (spine, "")), path=("fabric",)) for leaf in leaves for spine in spines]

    # ------------------------------------------------------------------ the rest

    def _read_rest(self) -> None:
        remarks = self.lab.remarks
        for key, value in self.data.items():
            if key in _READ or value is None:
                continue
            to_do = without_removal(foreign.FILE_KEYS.get(key))
            remarks.left_out(key, shown(value), (key,), to_do)
        self._read_modules()
        interfaces = mapping(mapping(self.data.get("defaults")).get("interfaces"))
        if isinstance(mtu := interfaces.get("mtu", self.data.get("mtu")), int):
            self.lab.fabric["mtu"] = mtu
        plugins = self.data.get("plugin")
        for plugin in plugins if isinstance(plugins, list) else [plugins]:
            if plugin not in (None, "fabric"):
                remarks.left_out(f"plugin {plugin}", "", ("plugin",), "nothing here says the same")
        for key in mapping(self.data.get("defaults")):
            if key not in ("device", "provider", "const", "interfaces"):
                remarks.left_out(f"defaults.{key}", "", ("defaults", key), "nothing here says the same")
        for key in mapping(self.data.get("bgp")):
            if key not in ("as", "as_list"):
                remarks.left_out(f"bgp.{key}", "", ("bgp", key), without_removal(foreign.FILE_KEYS["bgp"]))

    def _read_modules(self) -> None:
        """Say what becomes of the modules of the file and of its nodes."""
        written = [self.data.get("module"), *(mapping(node).get("module") for node in self._nodes().values())]
        written += [mapping(group).get("module") for group in mapping(self.data.get("groups")).values()]
        modules = dict.fromkeys(
            str(one) for modules in written for one in (modules if isinstance(modules, list) else [modules]) if one
        )
        for module in modules:
            if module in _ROUTING:
                to_do = "routing is eBGP between all switches (RFC 7938)"
                self.lab.remarks.changed(f"module {module}", "", ("module",), to_do)
            elif module != "bgp":
                to_do = without_removal(foreign.FILE_KEYS.get(module))
                self.lab.remarks.left_out(f"module {module}", "", ("module",), to_do)


def _as_number(value: object) -> int | None:
    text = str(value)
    return int(text) if text.isdecimal() and 0 < int(text) <= 4294967294 else None


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return both together, mappings in them, too; `other` has the last word."""
    both = dict(one)
    for key, value in other.items():
        inner = both.get(key)
        both[key] = _merged(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return both


def _expanded(tree: Tree) -> Tree:
    """Return a tree in which keys with dots are the mappings that they are short for."""
    match tree.content:
        case list() as entries:
            return Tree([_expanded(one) for one in entries], tree.position, tree.key_position)
        case dict() as entries:
            whole = Tree({}, tree.position, tree.key_position)
            for key, child in entries.items():
                parts: Sequence[str] = key.split(".") if _DOTTED.fullmatch(key) else (key,)
                _put(whole, parts, _expanded(child))
            return whole
    return tree


def _put(tree: Tree, parts: Sequence[str], leaf: Tree) -> None:
    """Put a value at a place; where mappings meet, they are joined."""
    first, *rest = parts
    there = tree.content.get(first)
    if rest:
        if there is None or not isinstance(there.content, dict):
            there = tree.content[first] = Tree({}, leaf.position, leaf.key_position)
        _put(there, rest, leaf)
    elif there is not None and isinstance(there.content, dict) and isinstance(leaf.content, dict):
        for key, child in leaf.content.items():
            _put(there, (key,), child)
    else:
        tree.content[first] = leaf
