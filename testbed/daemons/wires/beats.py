"""The messages between the machines of a lab, and what follows from them for its cut links. No I/O.

A message says which machine it is from, since when its process runs and its number in that life, and the links whose
port is down there. It ends with a keyed hash of all that (BLAKE2b, RFC 7693), so that nobody else on the underlay can
take links down; a message that is older than one that came is passed over, so that nobody can repeat one.

    never heard --a message--> heard --silent for LOST_S--> lost --a message--> heard

A stub is up while its machine is heard and does not list its link. A process that starts again begins a new life, whose
start is later; its numbers begin anew.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from hmac import compare_digest

BEAT_S = 0.05
LOST_S = 0.5
"""A machine is lost after ten messages that did not come."""
HASH_BYTES = 16
LARGEST_BYTES = 60_000
_MOST_NUMBER = 1 << 63


class Hearing(StrEnum):
    """The news of a machine: heard for the first time or again, or lost."""

    HEARD = "machine-heard"
    LOST = "machine-lost"


@dataclass(slots=True)
class _FarMachine:
    life: int = 0
    number: int = 0
    heard_at: float = float("-inf")
    heard: bool = False
    down: frozenset[int] = field(default_factory=frozenset)


class Beats:
    """The messages of one machine, and what it has heard. `life` is when its process began, in ns since 1970."""

    def __init__(self, machine: str, key: bytes, others: Iterable[str], life: int) -> None:
        self._machine = machine
        self._key = key
        self._life = life
        self._number = 0
        self._others = {name: _FarMachine() for name in others}

    def beat(self, down: Collection[int]) -> bytes:
        """Return the next message, in which these links are down here."""
        self._number += 1
        content = json.dumps([self._machine, self._life, self._number, sorted(down)], separators=(",", ":")).encode()
        return content + self._hash(content)

    def hear(self, message: bytes, now: float) -> bool:
        """Take a message; whether it says anything new of links or of its machine. What is not one of ours is passed
        over."""
        found = self._read(message)
        if found is None:
            return False
        name, life, number, down = found
        other = self._others[name]
        if (life, number) <= (other.life, other.number):
            return False
        news = not other.heard or down != other.down
        other.life, other.number, other.heard_at, other.down = life, number, now, down
        return news

    def look(self, now: float) -> list[tuple[str, Hearing]]:
        """Return the machines that are heard now and were not, and those that are lost."""
        news = []
        for name, other in self._others.items():
            heard = now - other.heard_at < LOST_S
            if heard != other.heard:
                other.heard = heard
                news.append((name, Hearing.HEARD if heard else Hearing.LOST))
        return news

    def carries(self, machine: str, number: int) -> bool:
        """Tell whether a link to a machine has carrier from there."""
        other = self._others[machine]
        return other.heard and number not in other.down

    @property
    def heard(self) -> list[str]:
        """Return the machines that are heard."""
        return [name for name, other in self._others.items() if other.heard]

    def _hash(self, content: bytes) -> bytes:
        return blake2b(content, key=self._key, digest_size=HASH_BYTES).digest()

    def _read(self, message: bytes) -> tuple[str, int, int, frozenset[int]] | None:
        content, said = message[:-HASH_BYTES], message[-HASH_BYTES:]
        if len(message) > LARGEST_BYTES or not compare_digest(self._hash(content), said):
            return None
        try:
            name, life, number, down = json.loads(content)
        except (TypeError, ValueError, RecursionError):
            return None
        if not isinstance(down, list) or not isinstance(name, str) or name not in self._others:
            return None
        numbers = (life, number, *down)
        if not all(type(one) is int and 0 <= one < _MOST_NUMBER for one in numbers):
            return None
        return name, life, number, frozenset(down)
