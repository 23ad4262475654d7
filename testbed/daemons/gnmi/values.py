"""Parts of a tree as JSON: RFC 7951 (JSON_IETF), or without the names of modules (JSON)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.daemons.gnmi.paths import TreePath, covers
from testbed.daemons.gnmi.tree import MODULES, Leaves, Scalar

_SMALL = frozenset({"mtu", "ifindex", "peer-as", "local-as", "as"})
"""Leaves of at most 32 bits. All other numbers are counters of 64, which RFC 7951 writes as text."""


def scalar_json(path: TreePath, value: Scalar, *, ietf: bool) -> Scalar:
    """Return a leaf as JSON has it: with `ietf` a number of 64 bits is text."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if ietf and is_number and path[-1][0] not in _SMALL else value


def subtrees(leaves: Mapping[TreePath, Scalar], pattern: TreePath, *, ietf: bool) -> dict[TreePath, Any]:
    """Return what a pattern means: each place in the tree that it stands for, with its leaf or object as JSON."""
    places: dict[TreePath, Leaves] = {}
    for path, value in leaves.items():
        if (count := covers(pattern, path)) is not None:
            places.setdefault(path[:count], {})[path] = value
    return {place: _value(place, below, ietf=ietf) for place, below in places.items()}


def _value(place: TreePath, leaves: Leaves, *, ietf: bool) -> Any:
    if place in leaves:
        return scalar_json(place, leaves[place], ietf=ietf)
    found: dict[str, Any] = {}
    for path, value in leaves.items():
        _put(found, place, path, scalar_json(path, value, ietf=ietf), ietf=ietf)
    return found


def _put(top: dict[str, Any], place: TreePath, path: TreePath, value: Scalar, *, ietf: bool) -> None:
    """Put a leaf where it belongs below the object of a place."""
    current = top
    for depth in range(len(place), len(path)):
        name, keys = path[depth]
        if ietf and depth == len(place):
            name = f"{MODULES[path[0][0]]}:{name}"
        if depth == len(path) - 1:
            current[name] = value
        elif keys:
            current = _entry(current.setdefault(name, []), dict(keys))
        else:
            current = current.setdefault(name, {})


def _entry(entries: list[dict[str, Any]], keys: Mapping[str, str]) -> dict[str, Any]:
    """Return the entry of a list with these keys, which it has as leaves, too."""
    for entry in entries:
        if all(_bare(entry.get(key)) == _bare(value) for key, value in keys.items()):
            return entry
    entries.append(dict(keys))
    return entries[-1]


def _bare(value: object) -> str:
    """Return an identity without its module: `BGP` of `openconfig-policy-types:BGP`."""
    return str(value).rpartition("types:")[2]
