"""Stable numbers from names: a keyed hash, and linear probing where two names meet.

Python's `hash` differs between processes; these do not, so the same lab always gets the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from testbed.base.errors import PlanError

SLOTS = 512
"""Labs that one machine can hold apart (MACs)."""
DEFAULT_REACTION_NS = 2_000_000
"""From XOFF to a closed gate, in lab time, where it has not been measured: p99 of the pause agent on two busy cores."""

_SEED_STEP = 0x9E37_79B1
"""Between the hash seeds of runs: odd, so that no two of them have the same, and far from small multiples."""


def stable_hash(text: str, bits: int = 64) -> int:
    """A number of `bits` bits (at most 64) that depends on `text` alone (BLAKE2b, RFC 7693)."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> (64 - bits)


def slot_for(name: str) -> int:
    """The slot (0..511) a lab of this name tries first."""
    return stable_hash(f"slot {name}") % SLOTS


def probe_numbers(keys: Iterable[str], *, size: int, taken: Iterable[int] = (), what: str) -> Mapping[str, int]:
    """Give every key its own number in `range(size)`: its hash, or the next free one after it.

    Keys are served in sorted order, so the outcome does not depend on theirs. Raises `PlanError`
    when there are more keys than numbers.
    """
    used = set(taken)
    numbers: dict[str, int] = {}
    for key in sorted(set(keys)):
        if len(used) >= size:
            raise PlanError(f"no {what} left for {key}: all {size} are in use", code="exhausted")
        number = stable_hash(key) % size
        while number in used:
            number = (number + 1) % size
        used.add(number)
        numbers[key] = number
    return numbers


def seed_of_run(planned: int, run: int) -> int:
    """Return what a switch's hash begins with in the run of a seed (`repeat.seed` and its number), by the planned one.

    Each run has another one, so that runs spread as the placements of flows do; that of the seed 1 has the planned one.
    """
    return (planned + (run - 1) * _SEED_STEP) % (1 << 32) or 1
