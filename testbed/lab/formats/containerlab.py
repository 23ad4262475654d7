"""Reads a topology of containerlab (containerlab.dev/manual/topo-def-file): nodes with what they inherit, and links.

A node of a network operating system becomes a switch, which runs FRR here; a Linux container is a host, or a switch
where its image routes. A bridge becomes a switch, too. Links in the brief and in the extended form join two ports;
those that leave the lab have no place here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Any

from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path as KeyPath
from testbed.lab.core.model import NETNS, OUT_OF_BAND, NodeKind, Role
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
from testbed.lab.formats.node_keys import NodeKeys, has_frr, is_router, texts
from testbed.lab.formats.roles import is_name_of_server, is_name_of_switch, tier_of_name

_LINUX = frozenset({"linux", "ext-container"})
_FRR = frozenset({"frr", "frrouting"})
_BRIDGES = frozenset({"bridge", "ovs-bridge"})
_NOT_THERE = frozenset({"host", "k8s-kind", "mysocketio", "border0"})
"""Kinds of nodes that are no nodes of a lab here."""
_SOURCES_OF_TRAFFIC = frozenset({"keysight_ixia-c-one", "spirent_stc", "ostinato"})
_JOINED = frozenset({"binds", "exec", "cap-add", "ports", "env-files", "devices", "aliases", "wait-for"})
"""Lists that a node has together with those that it inherits."""
_MERGED = frozenset({"env", "labels", "sysctls"})
_OUT_OF_BAND_NAME = "oob"
_OUR_LABELS = ("role", "runtime", "graph-level")
"""Labels that `export` writes."""
_ROLE_LABELS = (NodeKind.HOST, *Role)
"""Values of the label `role` that `export` writes."""
_ADDRESS = re.compile(r"[0-9.]+/[0-9]{1,2}")
_MEANING = frozenset({"rate", "delay", "loss", "prefix"})
"""Variables of links that `export` writes and `import` knows again."""


def read_containerlab(
    document: Document, *, directory: Path, runtime: str, environment: Mapping[str, str]
) -> ImportedLab:
    """Gather what a file says. Variables in it are those of `environment`; relative paths begin at `directory`."""
    data = document.data
    lab = ImportedLab(
        tool=OtherTool.CONTAINERLAB, name=str(data.get("name") or Path(document.file).stem), remarks=Remarks(document)
    )
    reader = _Reader(lab, document, directory, runtime, environment)
    reader.read_nodes()
    reader.read_links()
    reader.read_rest()
    return lab


class _Reader:
    """A file while it is read."""

    def __init__(
        self, lab: ImportedLab, document: Document, directory: Path, runtime: str, environment: Mapping[str, str]
    ) -> None:
        self.lab = lab
        self.document = document
        self.topology: Mapping[str, Any] = mapping(document.get("topology"))
        self.keys = NodeKeys(
            remarks=lab.remarks,
            directory=directory,
            runtime=runtime,
            environment=environment,
            node_directory=lambda node: directory / f"clab-{lab.name}" / node,
        )
        self.outside: dict[str, str] = {}
        """Nodes of the file that are none here, with why."""

    # ------------------------------------------------------------------ nodes

    def read_nodes(self) -> None:
        for name in mapping(self.topology.get("nodes")):
            path: KeyPath = ("topology", "nodes", name)
            values, paths = self._inherited(name)
            kind = str(values.get("kind") or "")
            if kind in _NOT_THERE:
                self.outside[name] = kind
                hint = "this machine is no node of a lab" if kind == "host" else foreign.KINDS[kind]
                to_do = f"{hint.removeprefix('remove the node: ')}; its links are left out, too"
                self.lab.remarks.left_out(f"kind: {kind}", name, path, to_do)
                continue
            self._read_node(name, path, kind, values, paths)

    def _inherited(self, name: str) -> tuple[dict[str, Any], dict[str, KeyPath]]:
        """The settings of a node with those of the defaults, its kind and its group, and the place of each."""
        own = mapping(self.topology["nodes"].get(name))
        defaults = mapping(self.topology.get("defaults"))
        groups, kinds = mapping(self.topology.get("groups")), mapping(self.topology.get("kinds"))
        group = own.get("group") or defaults.get("group")
        of_group = mapping(groups.get(str(group)))
        kind = own.get("kind") or of_group.get("kind") or defaults.get("kind")
        of_kind = mapping(kinds.get(str(kind)))
        layers: list[tuple[KeyPath, Mapping[str, Any]]] = [
            (("topology", "defaults"), defaults),
            (("topology", "kinds", str(kind)), of_kind),
            (("topology", "groups", str(group)), of_group),
            (("topology", "nodes", name), own),
        ]
        values: dict[str, Any] = {}
        paths: dict[str, KeyPath] = {}
        for path, layer in layers:
            for key, value in layer.items():
                if value is None:
                    continue
                values[key] = _together(key, values.get(key), value)
                paths[key] = (*path, key)
        if group is not None:
            values["group"] = str(group)
        return values, paths

    def _read_node(
        self, name: str, path: KeyPath, kind: str, values: dict[str, Any], paths: Mapping[str, KeyPath]
    ) -> None:
        is_switch = self._is_switch(name, kind, values)
        labels = mapping(values.get("labels"))
        is_ours = labels.get("role") in _ROLE_LABELS
        usable = kind in _FRR or (kind in _LINUX and (not is_switch or is_ours or has_frr(values.get("image"))))
        node = self.lab.add_node(name, path, is_switch=is_switch)
        if is_switch:
            node.tier = _tier_of_labels(labels) or tier_of_name(name, values.get("group"))
        if is_ours:
            node.role = str(labels["role"])
            values["labels"] = {key: value for key, value in labels.items() if key not in _OUR_LABELS}
            if labels.get("runtime") == NETNS:
                values.pop("image", None)  # `export` gave it to a node that is no container
        self._group(node, values, path)
        self._remark_kind(node, kind, paths.get("kind", path), usable=usable)
        self.keys.read(node, values, usable=usable, paths=paths)

    def _is_switch(self, name: str, kind: str, values: Mapping[str, Any]) -> bool:
        if kind in _BRIDGES or kind in _FRR:
            return True
        if kind in _SOURCES_OF_TRAFFIC or foreign.KINDS.get(kind) == foreign.KINDS["generic_vm"]:
            return False
        role = mapping(values.get("labels")).get("role")
        if kind not in _LINUX:
            return True
        if role in _ROLE_LABELS:
            return role != NodeKind.HOST
        if is_router(values.get("image"), texts(values.get("binds")), texts(values.get("exec"))):
            return not is_name_of_server(name, values.get("group"))
        return is_name_of_switch(name, values.get("group"))

    def _group(self, node: ImportedNode, values: Mapping[str, Any], path: KeyPath) -> None:
        """Keep the name of the group: as the group, where the file says something of it, else as a label."""
        group = values.get("group")
        if group is None:
            return
        if group in mapping(self.topology.get("groups")):
            node.group = group
        else:
            node.settings["labels"] = {"group": group}

    def _remark_kind(self, node: ImportedNode, kind: str, path: KeyPath, *, usable: bool) -> None:
        remarks = self.lab.remarks
        if kind in _BRIDGES:
            to_do = "it routes here: each of its ports has a subnet of its own, and no frame crosses it"
            remarks.changed(f"kind: {kind}", node.there, path, to_do)
        elif node.is_switch and not usable:
            remarks.changed(f"kind: {kind}", node.there, path, "it runs FRR, with BGP as it is planned")
        elif not node.is_switch and kind != "linux":
            remarks.changed(f"kind: {kind}", node.there, path, without_removal(foreign.KINDS.get(kind, "it is a host")))

    # ------------------------------------------------------------------ links

    def read_links(self) -> None:
        links = self.topology.get("links")
        for number, value in enumerate(links if isinstance(links, list) else ()):
            path: KeyPath = ("topology", "links", number)
            if not isinstance(value, Mapping):
                self.lab.remarks.left_out("link", shown(value), path, 'write {endpoints: ["h1:eth1", "leaf1:eth1"]}')
                continue
            single = value.get("endpoint")
            kind = str(value.get("type") or "veth")
            if kind != "veth" or single is not None:
                self._read_single(kind, single, value, path)
            else:
                self._read_pair(value, path)
        self._remark_routing_hosts()

    def _read_pair(self, value: Mapping[str, Any], path: KeyPath) -> None:
        """Read a link in the brief form, or of type veth."""
        written: list[Any] = found if isinstance(found := value.get("endpoints"), list) else []
        ends = [_end(one) for one in written]
        if len(ends) != 2 or None in ends:
            self.lab.remarks.left_out("link", shown(written), path, 'write endpoints: ["leaf1:eth1", "h1:eth1"]')
            return
        (a, b) = [end for end in ends if end is not None]
        for inner, outer in ((a, b), (b, a)):
            if outer[0] in foreign.ENDS and outer[0] not in self.lab.nodes:
                self._read_single(outer[0], {"node": inner[0], "interface": inner[1]}, value, path)
                return
        if a[0] == b[0]:
            self.lab.remarks.left_out("link of a node to itself", a[0], path, "a link joins two nodes")
            return
        if not self._are_there((a, b), path):
            return
        link = ImportedLink(ends=(a, b), path=path)
        self._read_link_keys(link, value, written)
        self.lab.links.append(link)

    def _are_there(self, ends: tuple[tuple[str, str], ...], path: KeyPath) -> bool:
        for node, port in ends:
            if node in self.lab.nodes:
                continue
            if node not in self.outside:
                to_do = "define it under topology.nodes"
                self.lab.remarks.left_out("link to an unknown node", f"{node}:{port}", path, to_do)
            return False
        return True

    def _read_link_keys(self, link: ImportedLink, value: Mapping[str, Any], ends: list[Any]) -> None:
        remarks = self.lab.remarks
        if isinstance(mtu := value.get("mtu"), int) and mtu:
            link.settings["mtu"] = min(mtu, 9216)
            if mtu > 9216:
                remarks.changed(f"mtu: {mtu}", str(link), link.path, "9216 bytes are the most here")
        labels = {str(key): str(one) for key, one in mapping(value.get("labels")).items()}
        for key, one in mapping(value.get("vars")).items():
            if key in _MEANING and isinstance(one, str):
                link.settings[key] = one
            elif key == "jitter" and isinstance(one, str) and "delay" in link.settings:
                link.settings["delay"] = {"value": link.settings["delay"], "jitter": one}
            elif isinstance(one, str | int | float):
                labels[str(key)] = str(one)
            else:
                remarks.left_out(f"vars.{key}", str(link), link.path, "write labels: {NAME: value}")
        if labels:
            link.settings["labels"] = labels
        for key in value.keys() - {"endpoints", "endpoint", "type", "mtu", "labels", "vars", "ipv4"}:
            to_do = without_removal(foreign.LINK_KEYS.get(key))
            remarks.left_out(f"links: {key}", str(link), (*link.path, key), to_do)
        self._note_addresses(link, value.get("ipv4"), ends)
        for one in ends:
            if isinstance(one, Mapping) and one.get("mac"):
                remarks.left_out("mac of a port", str(link), link.path, "MAC addresses are planned")

    def _note_addresses(self, link: ImportedLink, listed: object, ends: list[Any]) -> None:
        """Keep the addresses of both ends, which the link, or each end of it, has."""
        of_link = listed if isinstance(listed, list) else []
        for number, ((node, port), end) in enumerate(zip(link.ends, ends, strict=True)):
            written = end.get("ipv4") if isinstance(end, Mapping) else None
            text = written or (of_link[number] if number < len(of_link) else None)
            if isinstance(text, str) and _ADDRESS.fullmatch(text):
                try:
                    self.lab.nodes[node].addresses.setdefault(port, IPv4Interface(text))
                except ValueError:
                    continue

    def _read_single(self, kind: str, end: object, value: Mapping[str, Any], path: KeyPath) -> None:
        """Read a link with one end in the lab: to the management network, out of the lab, or nowhere."""
        found = _end(end)
        where = f"{found[0]}:{found[1]}" if found else ""
        if found is not None and not self._are_there((found,), path):
            return
        if kind == "dummy" and found is not None:
            self._read_dummy(found, value)
            return
        by_type = foreign.LINK_KEYS["type"]
        hint = foreign.ENDS.get(kind) or (by_type.get(kind, by_type[""]) if not isinstance(by_type, str) else by_type)
        to_do = hint.removeprefix("remove the link: ")
        if kind == "mgmt-net":
            self._manage()
            self.lab.remarks.changed("link to mgmt-net", where, path, "networks.oob gives every node a management port")
        else:
            self.lab.remarks.left_out(f"link of type {kind}", where, path, to_do)

    def _read_dummy(self, end: tuple[str, str], value: Mapping[str, Any]) -> None:
        """Make a port that leads nowhere by commands: a pair of its own, since a kernel may have no dummies."""
        node = self.lab.nodes[end[0]]
        port = node.port(end[1])
        size = f" mtu {mtu}" if isinstance(mtu := value.get("mtu"), int) and mtu else ""
        other = node.port(f"{port[:13]}-x")
        made = [f"ip link add {port}{size} type veth peer name {other}"]
        made += [f"ip link set {one} up" for one in (port, other)]
        node.settings["exec"] = [*made, *node.settings.get("exec", [])]

    def _remark_routing_hosts(self) -> None:
        """Say of Linux nodes with several links that they were taken for hosts."""
        counted = Counter(node for link in self.lab.links for node, _ in link.ends)
        for node in self.lab.nodes.values():
            if not node.is_switch and counted[node.there] > 1:
                to_do = "it is a host and forwards nothing; if it routes, write kind: switch, role: leaf"
                self.lab.remarks.changed("kind: linux with several links", node.there, node.path, to_do)

    # ------------------------------------------------------------------ the rest

    def read_rest(self) -> None:
        for key, value in self.document.data.items():
            if key in ("name", "topology") or value is None:
                continue
            if key == "mgmt":
                self._manage(mapping(value))
            elif not (key == "prefix" and value in ("", "clab", "__lab-name")):
                to_do = without_removal(foreign.FILE_KEYS.get(key))
                self.lab.remarks.left_out(key, shown(value), (key,), to_do)

    def _manage(self, settings: Mapping[str, Any] | None = None) -> None:
        """Give the lab a network of management ports, with the prefix that the file names."""
        network = self.lab.networks.setdefault(_OUT_OF_BAND_NAME, {"design": OUT_OF_BAND})
        for key, value in (settings or {}).items():
            if key in ("ipv4-subnet", "ipv4_subnet") and value != "auto":
                network["prefix"] = str(value)
            elif key == "mtu" and isinstance(value, int):
                network["mtu"] = value
            else:
                to_do = "nothing: the network of management ports is the lab's own, without a way out"
                self.lab.remarks.left_out(f"mgmt.{key}", shown(value), ("mgmt", key), to_do)


def _together(key: str, inherited: Any, own: Any) -> Any:
    """Return a value of a node with what it inherits."""
    if key in _JOINED and isinstance(own, list):
        before = inherited if isinstance(inherited, list) else []
        if key == "binds":
            targets = {_target(one) for one in own}
            before = [one for one in before if _target(one) not in targets]
        return [*before, *(one for one in own if key == "exec" or one not in before)]
    if key in _MERGED and isinstance(own, Mapping):
        return {**mapping(inherited), **own}
    return own


def _target(bind: object) -> str:
    return str(bind).partition(":")[2].partition(":")[0] or str(bind)


def _end(value: object) -> tuple[str, str] | None:
    """Return node and port of an end, which is text or a mapping; None for anything else."""
    match value:
        case str():
            node, _, port = value.partition(":")
            return (node, port) if node and (port or node in foreign.ENDS) else None
        case {"node": str(node), "interface": str(port)}:
            return node, port
        case {"node": str(node), "interface": int(port)}:
            return node, str(port)
    return None


def _tier_of_labels(labels: Mapping[str, Any]) -> int | None:
    """Return the tier that the label `role` names, which `export` writes."""
    role = labels.get("role")
    return Role(role).tier if role in tuple(Role) else None
