"""The contents of a file of another tool in our words: nodes, links, and remarks about what is not as it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Interface
from itertools import count
from typing import Any

from testbed.base.names import MAX_INTERFACE_NAME, check_interface_name, check_node_name, first_few, fitting_name
from testbed.base.rows import column
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path, quote
from testbed.lab.core.schema.links import is_reserved_interface
from testbed.lab.core.schema.other_tools import OtherTool

MAX_NODE_NAME = 48
_MOST_PLACES = 4
"""Places that a remark names one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Something of a file that is not in the topology as it was there."""

    line: int | None
    """The first line that it is about."""
    what: str
    """The key, kind, link or command."""
    where: str
    """The nodes or links that have it."""
    became: str
    """It is "left out", or "changed"."""
    to_do: str = column("what to do")


@dataclass(slots=True)
class Remarks:
    """Gathers remarks. What is the same of many nodes or links is one row."""

    document: Document
    _places: dict[tuple[str, str, str], list[tuple[int | None, str]]] = field(default_factory=dict)

    def left_out(self, what: str, where: str, path: Path, to_do: str) -> None:
        """Note what is not there any more."""
        self._add(what, where, path, "left out", to_do)

    def changed(self, what: str, where: str, path: Path, to_do: str) -> None:
        """Note what is there otherwise."""
        self._add(what, where, path, "changed", to_do)

    def rows(self) -> list[Remark]:
        """Return the remarks in the order of the file."""
        rows = [
            Remark(
                line=min((line for line, _ in places if line is not None), default=None),
                what=what,
                where=_listed([where for _, where in places]),
                became=became,
                to_do=to_do,
            )
            for (what, became, to_do), places in self._places.items()
        ]
        return sorted(rows, key=lambda row: row.line or 0)

    def _add(self, what: str, where: str, path: Path, became: str, to_do: str) -> None:
        position = self.document.key_position(path)
        self._places.setdefault((what, became, to_do), []).append((position.line if position else None, where))


def _listed(places: list[str]) -> str:
    """Return the places once each, those beyond a few counted."""
    return first_few([*dict.fromkeys(filter(None, places))], _MOST_PLACES)


@dataclass(slots=True, kw_only=True)
class ImportedNode:
    """A node. `settings` are keys of ours with their values; `tier` is that which its name or label speaks of."""

    name: str
    there: str
    """Its name in the file."""
    path: Path
    is_switch: bool
    tier: int | None = None
    role: str = ""
    """The role that its file names in our words; "" for none."""
    asn: int | None = None
    group: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    addresses: dict[str, IPv4Interface] = field(default_factory=dict)
    """The addresses that its file gives its ports, by their names in the file."""
    ports: dict[str, str] = field(default_factory=dict)
    """Its ports by their names in the file: what they are called here."""

    def port(self, there: str) -> str:
        """Return what a port is called here: as there, where that may name an interface."""
        if there not in self.ports:
            self.ports[there] = self._fitting(there)
        return self.ports[there]

    def _fitting(self, there: str) -> str:
        taken = set(self.ports.values())
        names = _names(there, MAX_INTERFACE_NAME)
        return next(name for name in names if name not in taken and _is_interface_name(name))


def _names(there: str, longest: int) -> Iterator[str]:
    """Return names for what a file calls `there`: as there, then as near to that as may be."""
    yield there
    yield fitting_name(there, longest)
    yield from (f"{fitting_name(there, longest - 6)}-{number}" for number in count(2))


def _is_interface_name(name: str) -> bool:
    try:
        check_interface_name(name)
    except ValueError:
        return False
    return not is_reserved_interface(name)


@dataclass(slots=True, kw_only=True)
class ImportedLink:
    """A link between two ports, by the names that nodes have in the file. `settings` are keys of ours."""

    ends: tuple[tuple[str, str], tuple[str, str]]
    path: Path
    settings: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return " - ".join(f"{node}:{port}" for node, port in self.ends)


@dataclass(slots=True, kw_only=True)
class ImportedLab:
    """All of a file. Nodes are by their names there, in its order."""

    tool: OtherTool
    name: str
    remarks: Remarks
    nodes: dict[str, ImportedNode] = field(default_factory=dict)
    links: list[ImportedLink] = field(default_factory=list)
    fabric: dict[str, Any] = field(default_factory=dict)
    networks: dict[str, Any] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)
    """The names of nodes that are in use."""

    def add_node(self, there: str, path: Path, *, is_switch: bool) -> ImportedNode:
        """Add a node by its name in the file; it is renamed where a node here cannot be called so."""
        node = ImportedNode(name=self._node_name(there), there=there, path=path, is_switch=is_switch)
        if node.name != there:
            to_do = "names here are small letters, digits and -, a letter first"
            self.remarks.changed("names of nodes", f"{there} is {node.name}", path, to_do)
        self.nodes[there] = node
        return node

    def _node_name(self, there: str) -> str:
        names = _names(there, MAX_NODE_NAME)
        name = next(name for name in names if name not in self._names and _is_node_name(name))
        self._names.add(name)
        return name


def _is_node_name(name: str) -> bool:
    try:
        check_node_name(name)
    except ValueError:
        return False
    return True


def without_removal(hint: object) -> str:
    """Return what a hint for a word of another tool says to do, where the word is gone already; it may be no text."""
    if not isinstance(hint, str):
        return "nothing here says the same"
    return hint.removeprefix("remove it: ").removeprefix("remove it").lstrip(",; ") or "nothing"


def mapping(value: object) -> Mapping[str, Any]:
    """Return a value as a mapping, which is empty for what is none."""
    return value if isinstance(value, Mapping) else {}


def shown(value: object) -> str:
    """Return a value as a remark shows it: nothing of a section."""
    if isinstance(value, dict | list):
        return ""
    return value if isinstance(value, str) and len(value) <= 40 else quote(value, 40)
