"""Rules that the keys of a transport follow beside their types: forms of names, and values that exclude each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

ATOMIC_BYTES = 8
"""The size of an atomic operation (InfiniBand volume 1, section 9.4.5)."""
ATOMIC_VERBS = ("fetch-and-add", "compare-and-swap")
ROCE_MTUS = (4096, 2048, 1024, 512, 256)
"""The payloads of a full RoCE packet (InfiniBand volume 1, section 9.4.3), largest first."""

ROCE_HEADER_BYTES = 20 + 8 + 12 + 16 + 4
"""Beside the payload of a RoCEv2 packet, inside an MTU: IPv4, UDP, BTH, RETH, ICRC (InfiniBand volume 1, annex A17)."""


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


TRAFFIC_CLASS_RULE = NameRule(
    pattern=re.compile(r"[a-z][a-z0-9_-]{0,15}"),
    noun="traffic class",
    example="lower-case letters, digits, '_' and '-'",
)
