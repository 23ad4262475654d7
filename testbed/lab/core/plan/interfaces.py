"""The identity of an interface: its MAC, its index in the node, and the names of a switch's bridges.

All three follow from names, not from the order of links, so that adding a link changes no other.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence

from testbed.base.errors import PlanError
from testbed.base.names import PLANE_LETTERS
from testbed.lab.core.plan.stable import probe_numbers, stable_hash

LOOPBACK_IFINDEX = 1
FIRST_BRIDGE = 2
"""Bridges come first: 2 + the rail's slot on its switch."""
MAX_SLOTS = 62

_FAMILIES = {"rail": (64, 704, 8), "nic": (704, 1024, 8), "uplink": (1024, 4096, 1), "down": (4096, 16384, 1)}
"""Generated names: where the indexes of a family start and end, and how many (planes) share a number."""
_FAMILY_NAME = re.compile(r"^(rail|nic|uplink|down)([1-9]\d{0,4})([a-g]?)$")
"""An eighth port has no place in its family's block, and is hashed."""
WRITTEN_START = 16384
WRITTEN_SIZE = 16384
"""Names of other forms are hashed into this many indexes; all stay below 32,768."""
SCALE_UP_START = 1 << 16
"""Indexes of the wires of scale-up domains: for 1,024 GPUs of 64 planes they stay below 2^18."""


def interface_indexes(names: Iterable[str], node: str, apart: Container[str] = ()) -> dict[str, int]:
    """The index of every port of a node, from the name alone (`uplink3` is 1027 in every switch).

    Names that a generator does not give are hashed and probed in sorted order, those of `apart` with the name of the
    node (`same_names`). Indexes are sparse: the kernel does not mind, and a port keeps its index when others come and
    go.
    """
    indexes: dict[str, int] = {}
    written: dict[str, str] = {}
    for name in names:
        index = None if name in apart else _family_index(name)
        if index is None:
            written[f"{node} {name}" if name in apart else name] = name
        else:
            indexes[name] = index
    if written:
        for key, number in probe_numbers(written, size=WRITTEN_SIZE, what=f"interface index in {node}").items():
            indexes[written[key]] = WRITTEN_START + number
    return indexes


def same_names(ends: Iterable[tuple[tuple[str, str], tuple[str, str]]]) -> dict[str, set[str]]:
    """The ports, by node, that are to have another index than the other end of their link, which is called the same.

    Where both ends of a veth have the same index, the kernel may wait for a second before it tells that it has a
    carrier, or has lost it (net/core/link_watch.c, linkwatch_urgent_event). `ends` are node and interface of both.
    """
    found: dict[str, set[str]] = {}
    for one, other in ends:
        if one[1] == other[1]:
            node, name = max(one, other)
            found.setdefault(node, set()).add(name)
    return found


def _family_index(name: str) -> int | None:
    match = _FAMILY_NAME.match(name)
    if match is None:
        return None
    family, number, plane = match.groups()
    start, end, planes = _FAMILIES[family]
    if plane and planes == 1:
        return None
    index = start + int(number) * planes + (PLANE_LETTERS.index(plane) + 1 if plane else 0)
    return index if index < end else None


def natural_key(name: str) -> tuple[str, int, str]:
    """Sorts `uplink2` before `uplink10`."""
    stem = name[:-1] if name[-1:] in PLANE_LETTERS and name[-2:-1].isdigit() else name
    digits = len(stem) - len(stem.rstrip("0123456789"))
    if not digits:
        return name, 0, ""
    return stem[:-digits], int(stem[-digits:]), name[len(stem) :]


def check_unique_names(node: str, names: Sequence[str]) -> None:
    """Raise `PlanError` where two links, or a link and a bridge, want the same interface of a node."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise PlanError(f"{node}: two things want the interface {name}", field="links", code="duplicate-interface")
        seen.add(name)


def mac_addresses(interfaces: Sequence[tuple[str, str]], slot: int) -> dict[tuple[str, str], str]:
    """A MAC for every (node, interface): 02 (locally administered), 9 bits of slot, 31 bits of hash.

    Labs in different slots never share one. A clash inside a lab is settled in sorted order by hashing again.
    """
    owners: dict[int, tuple[str, str]] = {}
    clashes: list[tuple[str, str]] = []
    high = (2 << 40) | (slot << 31)
    for key in interfaces:
        number = high | stable_hash(f"mac {key[0]} {key[1]}", 31)
        other = owners.setdefault(number, key)
        if other is not key:
            clashes.append(max(key, other))
            owners[number] = min(key, other)
    for key in sorted(clashes):
        attempt = 1
        while (number := high | stable_hash(f"mac {key[0]} {key[1]} {attempt}", 31)) in owners:
            attempt += 1
        owners[number] = key
    return {key: _mac(number) for number, key in owners.items()}


def _mac(number: int) -> str:
    digits = f"{number:012x}"
    return f"{digits[:2]}:{digits[2:4]}:{digits[4:6]}:{digits[6:8]}:{digits[8:10]}:{digits[10:]}"
