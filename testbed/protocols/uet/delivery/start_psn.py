"""Start_PSN: how an initiator chooses it, how a target demands one that proves something, and how that is obeyed.

Source: UE Specification 1.0, sections 3.5.8.2 (Start_PSN is random, and far from the PSN that was used last) and 3.5.8
with table 3-58 (a secure PDC starts with the PSN that its target expects, which NEW_START_PSN tells: one round trip).

A SYN can be forged, and under TSS it can be the replay of one that was genuine. So a target that has reason to doubt
takes a SYN of a PDC that it does not know only if its Start_PSN is the one demanded, a keyed hash of who the initiator
says it is and of the time. To answer anything else by NEW_START_PSN keeps no state. A SYN with the Start_PSN demanded
comes from somebody who has heard the answer, in this life of the endpoint (the key of the hash is drawn at its start),
and not long ago. Hence what was recorded before opens nothing.

A demand is for good: a Start_PSN that was refused once is never accepted later, else packets which the initiator has
renumbered meanwhile would be executed under both numbers. For the same reason an initiator obeys only as long as a PDC
of its present Start_PSN, if there had been one, would be remembered by the target.
"""

from __future__ import annotations

from hashlib import blake2b
from random import Random
from struct import Struct
from typing import Final, NamedTuple

from testbed.protocols.uet.packets.codes import Mode
from testbed.protocols.uet.packets.psn import psn_add, psn_distance

SECRET_BYTES: Final = 32
_PSN_BYTES: Final = 4
_WHO: Final = Struct("!HBqq")
_DISTANCE: Final = 1 << 16
"""Section 3.5.8.2: a Start_PSN is no closer to the last PSN that was used with the same PDCID."""

Identity = tuple[str, int]
"""Address and PDCID of an initiator."""


class EarlierPdc(NamedTuple):
    """The PDC that an initiator's PDCID was used for before, as its target remembers it."""

    start_psn: int
    last_psn: int
    """The highest PSN received on it."""


def choose_start_psn(random: Random, last_psn: int | None) -> int:
    """A random Start_PSN. `last_psn` is the PSN that was used last with the same PDCID, if one was."""
    start_psn = random.getrandbits(32)
    while last_psn is not None and abs(psn_distance(start_psn, last_psn)) < _DISTANCE:
        start_psn = random.getrandbits(32)
    return start_psn


class StartPsnDemands:
    """The target's side: which Start_PSN an unknown initiator has to come with, and since when it has to.

    What is demanded changes every half of `memory_ns`, the time for which a closed PDC is remembered, and holds for as
    long again: it is no longer valid when the PDC that was opened with it is forgotten.
    """

    def __init__(self, secret: bytes, memory_ns: int) -> None:
        self._secret = secret
        self._keyed = blake2b(key=secret, digest_size=_PSN_BYTES)
        self._period_ns = max(memory_ns // 2, 1)
        self._until = 0

    def demand(self, start_psn: int, identity: Identity, mode: Mode, earlier: EarlierPdc | None, now: int) -> int:
        """Return the Start_PSN that this initiator has to come with: `start_psn`, if that was demanded not long ago."""
        address, spdcid = identity
        # With the Start_PSN of before in it, what is demanded next is another one.
        salt = -1 if earlier is None else earlier.start_psn
        latest_period = now // self._period_ns
        source = address.encode()
        latest, before = (
            _far_from(earlier, self._hash(_WHO.pack(spdcid, mode, salt, period) + source))
            for period in (latest_period, latest_period - 1)
        )
        return start_psn if start_psn == before else latest

    def _hash(self, content: bytes) -> int:
        keyed = self._keyed.copy()
        keyed.update(content)
        return int.from_bytes(keyed.digest(), "big")

    def revoke(self) -> None:
        """Admit nothing that was demanded so far: a PDC opened by it may have been forgotten too early."""
        self._secret = blake2b(self._secret, digest_size=SECRET_BYTES).digest()
        self._keyed = blake2b(key=self._secret, digest_size=_PSN_BYTES)

    def hold_on(self, now: int) -> None:
        """Demand for as long again as a refused SYN may be on its way: it must not be accepted after all."""
        self._until = now + 2 * self._period_ns

    def are_made(self, now: int) -> bool:
        """Tell whether `hold_on` was called not long ago."""
        return now < self._until


def _far_from(earlier: EarlierPdc | None, start_psn: int) -> int:
    """Move a Start_PSN away from the last PSN of the PDC before."""
    if earlier is not None and abs(psn_distance(start_psn, earlier.last_psn)) < _DISTANCE:
        return psn_add(start_psn, 2 * _DISTANCE)
    return start_psn


class StartPsnObedience:
    """The initiator's side, until the first ACK: how often it was renumbered, and since when these PSNs go out."""

    def __init__(self, memory_ns: int, most: int) -> None:
        self._memory_ns = memory_ns
        self._most = most
        self._demands = 0
        self.since = -1
        """When a packet with the present Start_PSN was sent first; -1: none was."""

    def problem(self, now: int) -> str:
        """Why another demand is not to be obeyed; "" if it is."""
        self._demands += 1
        if self._demands > self._most:
            return f"the peer has demanded {self._demands} other Start_PSNs"
        if now - self.since >= self._memory_ns:
            return "the peer demands another Start_PSN so late that it may have executed what it was sent before"
        self.since = -1
        return ""
