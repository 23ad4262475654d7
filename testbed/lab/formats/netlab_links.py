"""The links of a topology of netlab: `a-b`, `[a, b]`, mappings of nodes, mappings with a list `interfaces`, groups of
links, and link aggregation groups. Ports are `eth1`, `eth2`, ... of each node in the order of links, as netlab counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Interface, IPv4Network
from typing import Any, TypeGuard

from testbed.base.units import Duration, Rate
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path as KeyPath
from testbed.lab.core.schema import foreign
from testbed.lab.formats.exported import rate_text
from testbed.lab.formats.imported import ImportedLab, ImportedLink, mapping, shown, without_removal
from testbed.lab.formats.roles import LEAF

_ALWAYS_THERE = frozenset({"type", "linkindex", "interfaces", "members", "group", "lag", "tc", "bandwidth", "mtu"})
_READ = _ALWAYS_THERE | {"prefix", "disable", "name", "bridge"}
_READ_OF_INTERFACES = frozenset({"node", "ifname", "ipv4", "type"})
_DEEPEST = 8
"""Levels of groups of links."""

Interface = tuple[str, Mapping[str, Any]]
"""A node, and what the file says of its end of a link."""


class LinkReader:
    """Reads all links of a file into `lab`, whose nodes are there."""

    def __init__(self, lab: ImportedLab, document: Document) -> None:
        self.lab = lab
        self.document = document
        self._used: dict[str, int] = {}
        """The number of the last port of each node."""
        self._lans = 0

    def read(self, made: Sequence[ImportedLink]) -> None:
        """Add the links that a plugin has made, then those of the file."""
        for link in made:
            self._join([(node, {}) for node, _ in link.ends], {}, link.path)
        for path, value in self._written(self.document.get("links"), ("links",), 0):
            self._read_link(value, path)

    def _written(self, links: object, path: KeyPath, depth: int) -> Iterator[tuple[KeyPath, object]]:
        """Every link as it is written: in a list, or in a mapping of lists."""
        if isinstance(links, Mapping) and depth < _DEEPEST:
            for key, entries in links.items():
                yield from self._written(entries, (*path, key), depth + 1)
        elif isinstance(links, list):
            yield from (((*path, number), one) for number, one in enumerate(links))

    def _read_link(self, value: object, path: KeyPath, inherited: Mapping[str, Any] | None = None) -> None:
        match value:
            case str():
                self._read_interfaces([(name, {}) for name in self._names(value)], inherited or {}, path)
            case list():
                self._read_interfaces([(str(one), {}) for one in value], inherited or {}, path)
            case Mapping():
                self._read_mapping({**(inherited or {}), **value}, path)
            case _:
                self.lab.remarks.left_out("link", shown(value), path, "write a-b, or [a, b]")

    def _read_mapping(self, value: Mapping[str, Any], path: KeyPath) -> None:
        if value.get("disable") is True:
            self.lab.remarks.left_out("links: disable", "", path, "a scenario's faults take links down")
            return
        lag = value.get("lag")
        members = value.get("members") if "group" in value else None
        if isinstance(lag, Mapping) and isinstance(lag.get("members"), list):
            members = lag["members"]
            to_do = "its links are there one by one: equal paths"
            self.lab.remarks.changed("links: lag", "", path, to_do)
        if isinstance(members, list):
            rest = {key: one for key, one in value.items() if key not in ("group", "members", "lag")}
            for number, member in enumerate(members):
                self._read_link(member, (*path, "members", number), rest)
            return
        interfaces: list[Interface] = []
        listed = value.get("interfaces")
        for one in listed if isinstance(listed, list) else ():
            settings = one if isinstance(one, Mapping) else {}
            interfaces.append((str(settings.get("node", one)), settings))
        known = self.lab.nodes.keys()
        interfaces += [(key, mapping(one)) for key, one in value.items() if key in known]
        self._read_interfaces(interfaces, {key: one for key, one in value.items() if key not in known}, path)

    def _names(self, text: str) -> list[str]:
        """Return the nodes that `a-b-c` names, whose names may have hyphens themselves."""
        parts = text.replace(" ", "").split("-")
        found: dict[int, list[str]] = {0: []}
        for end in range(1, len(parts) + 1):
            for start in range(end):
                name = "-".join(parts[start:end])
                if start in found and name in self.lab.nodes and end not in found:
                    found[end] = [*found[start], name]
        return found.get(len(parts), parts)

    def _read_interfaces(self, interfaces: list[Interface], settings: Mapping[str, Any], path: KeyPath) -> None:
        remarks = self.lab.remarks
        unknown = [name for name, _ in interfaces if name not in self.lab.nodes]
        if unknown:
            where = ", ".join(name or "an empty name" for name in unknown)
            remarks.left_out("link to an unknown node", where, path, "define it under nodes")
            return
        kind = settings.get("type")
        if kind in ("loopback", "tunnel", "vlan_member"):
            remarks.left_out(
                f"link of type {kind}", interfaces[0][0] if interfaces else "", path, "loopbacks are planned"
            )
            return
        nodes = [name for name, _ in interfaces]
        if len(nodes) < 2:
            to_do = "a link joins two nodes; what a switch announces is planned"
            remarks.left_out("link of one node", ", ".join(nodes), path, to_do)
            for name in nodes:
                self._next_port(name, {})
        elif len(nodes) == 2 and nodes[0] == nodes[1]:
            remarks.left_out("link of a node to itself", nodes[0], path, "a link joins two nodes")
        else:
            self._join(interfaces, settings, path)

    def _join(self, interfaces: list[Interface], settings: Mapping[str, Any], path: KeyPath) -> None:
        """Add the link of two nodes, or the switch that stands for the link of more."""
        ports = [(name, self._next_port(name, one)) for name, one in interfaces]
        for (name, port), (_, one) in zip(ports, interfaces, strict=True):
            if (address := _address(one)) is not None:
                self.lab.nodes[name].addresses[port] = address
            for key, value in one.items():
                if key not in _READ_OF_INTERFACES and value is not None:
                    to_do = without_removal(foreign.LINK_KEYS.get(key) or foreign.FILE_KEYS.get(key))
                    self.lab.remarks.left_out(f"links: {key} of an interface", f"{name}:{port}", path, to_do)
        if len(ports) == 2:
            link = ImportedLink(ends=(ports[0], ports[1]), path=path)
            self._read_settings(link, settings)
            self.lab.links.append(link)
            return
        self._lans += 1
        bridge = settings.get("bridge")
        name = bridge if isinstance(bridge, str) and bridge not in self.lab.nodes else f"lan{self._lans}"
        while name in self.lab.nodes:
            name += "x"
        self.lab.add_node(name, path, is_switch=True).tier = LEAF if self._is_of_hosts(ports) else None
        to_do = "a switch joins them, which routes: each of its ports has a subnet of its own"
        where = f"{', '.join(node for node, _ in ports)} on {name}"
        self.lab.remarks.changed(f"link of {len(ports)} nodes", where, path, to_do)
        for number, end in enumerate(ports, 1):
            link = ImportedLink(ends=(end, (name, f"eth{number}")), path=path)
            self._read_settings(link, {key: one for key, one in settings.items() if key not in ("prefix", "bridge")})
            self.lab.links.append(link)

    def _is_of_hosts(self, ports: Sequence[tuple[str, str]]) -> bool:
        return all(not self.lab.nodes[name].is_switch for name, _ in ports)

    def _next_port(self, node: str, interface: Mapping[str, Any]) -> str:
        self._used[node] = self._used.get(node, 0) + 1
        name = interface.get("ifname")
        return name if isinstance(name, str) and name else f"eth{self._used[node]}"

    def _read_settings(self, link: ImportedLink, settings: Mapping[str, Any]) -> None:
        remarks, where = self.lab.remarks, str(link)
        self._read_rate(link, "bandwidth", settings.get("bandwidth"))
        if _is_count(mtu := settings.get("mtu")):
            link.settings["mtu"] = mtu
        elif mtu is not None:
            self._left_out(link, "mtu", mtu, "write a number of bytes")
        if isinstance(name := settings.get("name"), str):
            link.settings["labels"] = {"name": name}
        self._read_impairments(link, mapping(settings.get("tc")))
        self._read_prefix(link, settings.get("prefix"))
        for key, value in settings.items():
            if key in _READ or value is None:
                continue
            to_do = without_removal(foreign.LINK_KEYS.get(key) or foreign.FILE_KEYS.get(key))
            remarks.left_out(f"links: {key}", where, link.path, to_do)

    def _read_impairments(self, link: ImportedLink, settings: Mapping[str, Any]) -> None:
        """Take over delay, loss and rate; netlab counts in milliseconds, percent and kbit/s."""
        delay, jitter = _milliseconds(settings.get("delay")), _milliseconds(settings.get("jitter"))
        if delay:
            link.settings["delay"] = {"value": delay, "jitter": jitter} if jitter else delay
        for key, read in (("delay", delay), ("jitter", jitter)):
            if settings.get(key) and not read:
                self._left_out(link, f"tc.{key}", settings[key], "write a number of ms, or 10us")
        loss = settings.get("loss")
        if isinstance(loss, int | float) and not isinstance(loss, bool) and 0 <= loss <= 100:
            link.settings |= {"loss": f"{loss:g}%"} if loss else {}
        elif loss is not None:
            self._left_out(link, "tc.loss", loss, "write a number of percent")
        self._read_rate(link, "tc.rate", settings.get("rate"))
        for key in settings.keys() - {"delay", "jitter", "loss", "rate"}:
            self.lab.remarks.left_out(f"links: tc.{key}", str(link), link.path, "a scenario's faults can do it")

    def _read_rate(self, link: ImportedLink, key: str, written: object) -> None:
        if _is_count(written):
            link.settings["rate"] = rate_text(Rate(written * 1000))
        elif written is not None:
            self._left_out(link, key, written, "write a number of kbit/s")

    def _left_out(self, link: ImportedLink, key: str, value: object, to_do: str) -> None:
        self.lab.remarks.left_out(f"links: {key}", f"{link}: {shown(value)}", link.path, to_do)

    def _read_prefix(self, link: ImportedLink, written: object) -> None:
        """Take the prefix of a link with a host for the address of the host's port: it is kept where it may be."""
        text = written.get("ipv4") if isinstance(written, Mapping) else written
        if not isinstance(text, str) or "/" not in text:
            return
        try:
            network = IPv4Network(text, strict=False)
        except ValueError:
            return
        for node, port in link.ends:
            if not self.lab.nodes[node].is_switch and network.prefixlen <= 31:
                self.lab.nodes[node].addresses.setdefault(port, IPv4Interface((network[1], network.prefixlen)))
                return


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _milliseconds(value: object) -> str:
    """Return a time of netlab, which is a number of milliseconds or has a unit, as our files write it; "" for none."""
    text = f"{value:g}ms" if isinstance(value, int | float) and not isinstance(value, bool) else str(value or "")
    try:
        return text if text and Duration.parse(text) else ""
    except ValueError:
        return ""


def _address(interface: Mapping[str, Any]) -> IPv4Interface | None:
    """Return the IPv4 address that a file gives one end of a link, with its prefix length."""
    text = interface.get("ipv4")
    try:
        return IPv4Interface(text) if isinstance(text, str) and "/" in text else None
    except ValueError:
        return None
