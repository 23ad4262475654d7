"""Rules that the keys of a transport follow beside their types: forms of names, and values that exclude each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """A value of `transport.KEY` that cannot stand: a stable code, a message, and perhaps a way out."""

    key: str
    message: str
    code: str = "contradiction"
    hint: str | None = None
    of_key: bool = False
    """The key should not be there at all, rather than have another value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRule:
    """The form of a text that names a `noun`."""

    pattern: re.Pattern[str]
    noun: str
    example: str


Values = Mapping[str, Any]
"""The values that are written in `transport:`, by key."""


def no_conflict(values: Values) -> Iterator[Conflict]:
    """Find nothing wrong, whatever the values are."""
    yield from ()
