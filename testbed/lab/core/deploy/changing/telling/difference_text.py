"""The difference of two values of a plan in words: `lab rate 80 Mbit/s -> 40 Mbit/s, rdma.kmin 4.8 kB -> 2.4 kB`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any

from testbed.base.datapath.traffic_class import UNLIMITED
from testbed.base.names import first_few
from testbed.base.units import ByteCount, Duration, Rate

_UNITS = {"_bps": Rate, "_bytes": ByteCount, "_ns": Duration}
"""The kinds of numbers by the end of a field's name."""
_SHOWN = 3
"""Differences that are told of one thing; all others are counted."""
_LONGEST = 40
_MISSING = "none"


def difference_text(old: object, new: object, *, without: Sequence[str] = ()) -> str:
    """Tell what differs of two values of one type and of their parts, but for the fields `without`; "" for nothing."""
    return told(differences(old, new, without=without))


def differences(old: object, new: object, *, without: Sequence[str] = ()) -> list[str]:
    """The fields that differ, each with both values. Rates and times are those of the lab."""
    return list(_differences(old, new, "", frozenset(without)))


def told(found: Sequence[str]) -> str:
    """Join differences to one text, the first few of them."""
    return first_few([*dict.fromkeys(found)], _SHOWN)


def _differences(old: Any, new: Any, path: str, without: frozenset[str]) -> Iterator[str]:
    for field in _names(new.__class__):
        was, now = getattr(old, field), getattr(new, field)
        if was == now or field in without:
            continue
        name = _join(path, _title(field))
        if is_dataclass(was) and is_dataclass(now) and type(was) is type(now) and not hasattr(type(now), "MEASURE"):
            yield from _differences(was, now, name, without)
        elif _are_parts(was) and _are_parts(now):
            yield from _parts(was, now, path, without)
        elif _is_table(was) and _is_table(now) and len(was) == len(now):
            places = [place for place, (one, other) in enumerate(zip(was, now, strict=True)) if one != other]
            yield from (f"{name} {place} {was[place]} -> {now[place]}" for place in places)
        else:
            yield f"{name} {_shown(field, was)} -> {_shown(field, now)}"


@cache
def _names(kind: type) -> tuple[str, ...]:
    """The names of the fields of a class: a thousand ports may be looked at."""
    return tuple(item.name for item in fields(kind))


def _are_parts(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and all(is_dataclass(part) for part in value)


def _is_table(value: Any) -> bool:
    """Tell whether it is too long to be shown, and has a value for each place, such as the priority of each DSCP."""
    return isinstance(value, tuple) and len(value) > _SHOWN and all(isinstance(one, int | str) for one in value)


def _parts(old: Sequence[Any], new: Sequence[Any], path: str, without: frozenset[str]) -> Iterator[str]:
    """The differences of things that have names, such as the classes of a port."""
    before, after = ({_name(part, place): part for place, part in enumerate(parts)} for parts in (old, new))
    for name, part in after.items():
        if name in before:
            yield from _differences(before[name], part, _join(path, name), without)
        else:
            yield f"{_join(path, name)} is new"
    yield from (f"{_join(path, name)} is gone" for name in before if name not in after)


def _name(part: Any, place: int) -> str:
    return str(getattr(part, "name", "") or getattr(part, "node", "") or place)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _title(name: str) -> str:
    """The name of a field in words: `rate_bps` is a rate of the lab."""
    for ending in _UNITS:
        if name.endswith(ending):
            name = name.removesuffix(ending)
            break
    return "lab rate" if name == "rate" else name.replace("_", " ")


def _shown(name: str, value: Any) -> str:
    if value is None:
        return _MISSING
    if name == "mtu_bytes":  # nobody writes an MTU in kB
        return f"{value} B"
    for ending, unit in _UNITS.items():
        if name.endswith(ending) and isinstance(value, int) and value >= 0:
            return "no limit" if value == UNLIMITED else str(unit(value))
    match value:
        case bool():
            return "on" if value else "off"
        case Enum():
            return str(value.value)
        case float():
            return f"{value:g}"
        case tuple() if value and len(value) <= _SHOWN and not any(is_dataclass(part) for part in value):
            return " ".join(map(str, value))
        case tuple():
            return f"{len(value)}"
    text = str(value) or _MISSING
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
