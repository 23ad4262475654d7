"""Reading values of untrusted JSON: each function returns the value in its type, or names the place that is wrong.

All of them raise `ProgramError`, with the path given, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from testbed.base.program_errors import ProgramError

Json = Any
_T = TypeVar("_T")
_LONGEST_TEXT = 256


LONGEST_DELAY_NS = 1 << 62


def read_whole(value: Json, path: str, limit: int) -> int:
    """Return a whole number from 0 to `limit` - 1."""
    if type(value) is not int or not 0 <= value < limit:
        raise ProgramError(path, f"{value!r} is no whole number from 0 to {limit - 1}")
    return value


def read_text(value: Json, path: str) -> str:
    """Return a text of at most 256 characters."""
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        raise ProgramError(path, f"{str(value)[:40]!r} is no text of at most {_LONGEST_TEXT} characters")
    return value


def read_object(value: Json, path: str) -> dict[str, Json]:
    """Return a copy of an object."""
    if not isinstance(value, dict):
        raise ProgramError(path, "is no object")
    return dict(value)


def read_list(value: Json, path: str) -> list[Json]:
    """Return a list of anything."""
    if not isinstance(value, list):
        raise ProgramError(path, "is no list")
    return value


def read_row(value: Json, path: str, length: int) -> list[Json]:
    """Return a list of exactly `length` entries."""
    row = read_list(value, path)
    if len(row) != length:
        raise ProgramError(path, f"has {len(row)} entries, not {length}")
    return row


def read_member(names: Callable[[str], _T], value: Json, path: str) -> _T:
    """Return the member of an enumeration that has this value."""
    try:
        return names(read_text(value, path))
    except ValueError:
        raise ProgramError(path, f"{value!r} is not known") from None


def check_keys(values: dict[str, Json], path: str, expected: Sequence[str]) -> None:
    """Accept an object that has the expected keys and no others."""
    odd = set(values).symmetric_difference(expected)
    if odd:
        name = min(odd)
        raise ProgramError(f"{path}.{name}", "is unknown" if name in values else "is missing")


def read_delays(value: Json, path: str) -> dict[str, dict[str, int]]:
    """Read times of paths (ns), by own address and the peer's. Raises `ProgramError`."""
    found: dict[str, dict[str, int]] = {}
    for own, peers in read_object(value, path).items():
        below = f"{path}.{own}"
        found[own] = {peer: read_whole(ns, below, LONGEST_DELAY_NS) for peer, ns in read_object(peers, below).items()}
    return found
