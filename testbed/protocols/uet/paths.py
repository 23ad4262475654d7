"""Path selection: which entropy value (EV, the UDP source port) the next packet gets, and what the answers teach.

Source: UE Specification 1.0, section 3.6.16. Switches choose the path by a hash over the EV; an EV is all that a
source knows of a path.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from enum import IntEnum, StrEnum
from functools import lru_cache
from random import Random
from typing import Final

from testbed.protocols.errors import UsageError
from testbed.protocols.uet.packets.codes import NackCode

REROUTE_RTTS: Final = 10
"""t_reroute: a single path that carries traffic is not changed more often than this."""
DEAD_RTTS: Final = 100
"""An EV that timed out is avoided for so long. The specification: "longer" than a congested one; the figure is ours."""
CONGESTED_RTTS: Final = 1
"""An EV that met congestion is not used again for at least this."""
MAX_DRAWS: Final = 4
"""Random draws before an EV to be avoided is taken all the same."""
MARK_SKIPS: Final = 1
NACK_SKIPS: Final = 4
MAX_SKIPS: Final = 15
"""Turns that an EV loses (`BitmapPaths`)."""
REPS_RING: Final = 8
"""EVs that REPS remembers."""
FREEZE_RTTS: Final = DEAD_RTTS
"""The time for which REPS stays with what it remembers after a timeout."""
EXPLORE_PACKETS: Final = 16
"""Random EVs that REPS tries after that."""


class PathFeedback(IntEnum):
    """The fates of a packet, in rising severity."""

    GOOD = 0
    MARKED = 1
    NACK = 2
    """Trimmed by a switch other than the last."""
    TIMEOUT = 3


class PathKind(StrEnum):
    SINGLE = "single"
    OBLIVIOUS = "oblivious"
    BITMAP = "bitmap"
    REPS = "reps"


DEFAULT_PATHS: Final = PathKind.REPS.value


def judge_nack(code: NackCode, marked: bool) -> PathFeedback:
    """Return what a NACK says of the path (section 3.6.12.3). The last hop is common to all paths and no fault of this
    one."""
    if code == NackCode.TRIMMED:
        return PathFeedback.NACK
    return PathFeedback.MARKED if marked else PathFeedback.GOOD


class Quarantine:
    """EVs to be avoided for a fixed time after their last report, of `entropies` in all. Amortised O(1)."""

    def __init__(self, period_ns: int, entropies: int) -> None:
        self._period_ns = period_ns
        self._limit = entropies // 2
        self._until: dict[int, int] = {}
        self._order: deque[tuple[int, int]] | None = None  # most selectors never need one: it has 600 bytes

    def add(self, entropy: int, now: int) -> None:
        until = now + self._period_ns
        if self._until.get(entropy) != until:
            self._until[entropy] = until
            if self._order is None:
                self._order = deque()
            self._order.append((until, entropy))
        self._expire(now)

    def __len__(self) -> int:
        return len(self._until)

    def avoids(self, entropy: int, now: int) -> bool:
        """Tell whether this EV should not be used now. With more than half of all here, none is avoided (section
        3.6.16)."""
        if not self._until:
            return False
        self._expire(now)
        return entropy in self._until and len(self._until) <= self._limit

    def _expire(self, now: int) -> None:
        order = self._order
        while order and order[0][0] <= now:
            until, entropy = order.popleft()
            # A later report has its own place in the order.
            if self._until.get(entropy) == until:
                del self._until[entropy]
        if not order:
            self._order = None


@lru_cache(maxsize=64)
def _members(entropies: tuple[int, ...]) -> frozenset[int]:
    """The EVs as a set: one for all selectors of an endpoint, since it has kilobytes."""
    return frozenset(entropies)


class PathSelector(ABC):
    """Chooses among `entropies` (at least one). Times in ns. Both methods are on the path of every packet."""

    def __init__(self, entropies: Sequence[int], random: Random, base_rtt_ns: int) -> None:
        if not entropies:
            raise UsageError("path selection needs at least one entropy value")
        self._entropies = tuple(entropies)  # the one of the configuration, not a copy
        self._known = _members(self._entropies)
        self._random = random
        self._base_rtt_ns = base_rtt_ns
        self._dead = Quarantine(DEAD_RTTS * base_rtt_ns, len(self._entropies))

    @abstractmethod
    def next_entropy(self, now: int) -> int:
        """The EV of the next packet."""

    @abstractmethod
    def feedback(self, entropy: int, verdict: PathFeedback, now: int, packets: int = 1) -> None:
        """Learn what became of a packet that had this EV, with which so many `packets` were acknowledged. EVs not of
        this selector are of no account."""

    def on_idle(self, now: int) -> None:
        """Learn that nothing is to be sent or unacknowledged: order survives a change of path (section 3.5.7). Only
        `SinglePath` cares."""
        return

    def _draw(self, now: int) -> int:
        """A random EV, live if some are found."""
        entropies = self._entropies
        uniform = self._random.random
        count = len(entropies)
        entropy = entropies[int(uniform() * count)]
        for _ in range(MAX_DRAWS):
            if not self._dead.avoids(entropy, now):
                break
            entropy = entropies[int(uniform() * count)]
        return entropy


class SinglePath(PathSelector):
    """One EV, for ROD. After a timeout another is drawn, when idle or no sooner than t_reroute after the last change.

    Congestion does not move it: the specification has no path feedback for ROD.
    """

    def __init__(self, entropies: Sequence[int], random: Random, base_rtt_ns: int) -> None:
        super().__init__(entropies, random, base_rtt_ns)
        self._entropy = self._draw(0)
        self._changed_at: int | None = None
        self._failed = False

    def next_entropy(self, now: int) -> int:
        if self._changed_at is None:
            self._changed_at = now
        elif self._failed and now - self._changed_at >= REROUTE_RTTS * self._base_rtt_ns:
            self._change(now)
        return self._entropy

    def feedback(self, entropy: int, verdict: PathFeedback, now: int, packets: int = 1) -> None:
        if verdict is PathFeedback.TIMEOUT and entropy in self._known:
            self._dead.add(entropy, now)
            self._failed = self._failed or entropy == self._entropy

    def on_idle(self, now: int) -> None:
        if self._failed:
            self._change(now)

    def _change(self, now: int) -> None:
        self._entropy = self._draw(now)
        self._changed_at = now
        self._failed = False


class ObliviousPaths(PathSelector):
    """All EVs in turn, in an order drawn anew each time round. Best with trimming (section 3.6.16)."""

    def __init__(self, entropies: Sequence[int], random: Random, base_rtt_ns: int) -> None:
        super().__init__(entropies, random, base_rtt_ns)
        self._order = list(self._entropies)
        self._index = 0

    def next_entropy(self, now: int) -> int:
        entropy = self._next_of_permutation()
        # The quarantine avoids at most half of all, so over a round as many are taken as are passed over.
        while self._dead.avoids(entropy, now):
            entropy = self._next_of_permutation()
        return entropy

    def feedback(self, entropy: int, verdict: PathFeedback, now: int, packets: int = 1) -> None:
        if verdict is PathFeedback.TIMEOUT and entropy in self._known:
            self._dead.add(entropy, now)

    def _next_of_permutation(self) -> int:
        """One step of a Fisher-Yates shuffle, so that no packet pays for a whole one."""
        entropies = self._order
        index = self._index
        count = len(entropies)
        other = index + int(self._random.random() * (count - index))
        entropy = entropies[other]
        entropies[other] = entropies[index]
        entropies[index] = entropy
        index += 1
        self._index = 0 if index == count else index
        return entropy


class BitmapPaths(ObliviousPaths):
    """STrack (arXiv 2407.15266): as oblivious, but an EV that met congestion is skipped when its turn comes.

    How many turns is the UEC simulator's: 1 for a mark, 4 for a NACK, at most 15; a timeout is the dead-path rule
    here. The specification's own rule stands beside it: not within one RTT, unless more than half of all paths look
    congested.
    """

    def __init__(self, entropies: Sequence[int], random: Random, base_rtt_ns: int) -> None:
        super().__init__(entropies, random, base_rtt_ns)
        self._skips: dict[int, int] = {}
        self._congested = Quarantine(CONGESTED_RTTS * base_rtt_ns, len(self._entropies))

    def next_entropy(self, now: int) -> int:
        entropy = self._next_of_permutation()
        skips = self._skips
        while self._dead.avoids(entropy, now) or (entropy in skips and self._skip(entropy, now)):
            entropy = self._next_of_permutation()
        return entropy

    def feedback(self, entropy: int, verdict: PathFeedback, now: int, packets: int = 1) -> None:
        if verdict is PathFeedback.GOOD or entropy not in self._known:
            return
        if verdict is PathFeedback.TIMEOUT:
            self._dead.add(entropy, now)
        else:
            penalty = MARK_SKIPS if verdict is PathFeedback.MARKED else NACK_SKIPS
            self._skips[entropy] = min(self._skips.get(entropy, 0) + penalty, MAX_SKIPS)
            self._congested.add(entropy, now)

    def _skip(self, entropy: int, now: int) -> bool:
        """The turn of an EV that met congestion has come: takes one skip off, and says whether to pass it over.

        Never where dead and congested EVs are more than half, hence the walk above ends within a round.
        """
        crowded = 2 * (len(self._skips) + len(self._dead)) > len(self._entropies)
        left = self._skips[entropy]
        if left > 0:
            self._skips[entropy] = left - 1
        elif not self._congested.avoids(entropy, now):
            del self._skips[entropy]
            return False
        return not crowded


class RepsPaths(PathSelector):
    """REPS (arXiv 2407.21625): EVs that came back without a mark are used again, oldest first; else one is drawn at
    random.

    A ring of eight entries holds them, each good for `uses` choices: one, as in the paper, unless
    `UetConfig.recycled_entropy_uses` says otherwise. After a timeout the selector freezes: rather than
    draw at random, which may hit the failed path, it goes round the ring again, used or not. After `FREEZE_RTTS` it
    draws `EXPLORE_PACKETS` EVs at random to find the paths anew, during which no timeout freezes it again. The paper
    has the length of the freeze and of the exploration as parameters (one BDP of packets for the latter, 16 in the
    simulator).

    Of values that come back, one is kept for every `packets_per_return` packets, by chance: as many as an ACK covers
    where windows are large. With a window of a few packets each of them is acknowledged by itself, and if every value
    were used again, those that were drawn first would have the flow for ever.

    To the paper's algorithm the specification's rules are added: neither a random nor a recycled EV is one that met
    congestion within the last RTT (unless more than half did), or that timed out.
    """

    def __init__(
        self, entropies: Sequence[int], random: Random, base_rtt_ns: int, uses: int = 1, packets_per_return: int = 1
    ) -> None:
        super().__init__(entropies, random, base_rtt_ns)
        if uses < 1:
            raise UsageError(f"an entropy value must be good for at least one packet, not {uses}")
        self._uses = uses
        self._packets_per_return = packets_per_return
        self._congested = Quarantine(CONGESTED_RTTS * base_rtt_ns, len(self._entropies))
        self._ring: list[int] = [0] * REPS_RING
        self._uses_left: list[int] = [0] * REPS_RING
        self._head = 0
        """The slot of the next entry: the oldest, once the ring is full."""
        self._fresh = 0
        """Entries just before the head that are still good for use."""
        self._filled = 0
        self._again = 0
        """Counts what was taken from the ring while frozen."""
        self._explore = 0
        self._frozen_until: int | None = None

    @property
    def frozen(self) -> bool:
        """Tell whether the selector reuses what it has rather than explore; it notices the end with the next packet."""
        return self._frozen_until is not None

    def next_entropy(self, now: int) -> int:
        if self._frozen_until is not None and now >= self._frozen_until:
            self._thaw()
        if self._explore > 0:
            self._explore -= 1
            return self._explore_path(now)
        while self._fresh > 0:
            slot = (self._head - self._fresh) % REPS_RING
            entropy = self._ring[slot]
            if self._avoids(entropy, now):
                self._fresh -= 1
                continue
            left = self._uses_left[slot] - 1
            self._uses_left[slot] = left
            if left == 0:
                self._fresh -= 1
            return entropy
        if self._frozen_until is not None:
            for _ in range(self._filled):
                entropy = self._ring[self._again % self._filled]
                self._again += 1
                if not self._dead.avoids(entropy, now):
                    return entropy
        return self._explore_path(now)

    def feedback(self, entropy: int, verdict: PathFeedback, now: int, packets: int = 1) -> None:
        if entropy not in self._known:
            return
        if verdict is PathFeedback.GOOD:
            most = self._packets_per_return
            if packets < most and self._random.random() * most >= packets:
                return
            head = self._head
            self._ring[head] = entropy
            self._uses_left[head] = self._uses
            self._head = (head + 1) % REPS_RING
            if self._fresh < REPS_RING:
                self._fresh += 1
            if self._filled < REPS_RING:
                self._filled += 1
        elif verdict is PathFeedback.TIMEOUT:
            self._dead.add(entropy, now)
            if self._frozen_until is None and self._explore == 0:
                self._frozen_until = now + FREEZE_RTTS * self._base_rtt_ns
        else:
            self._congested.add(entropy, now)

    def _avoids(self, entropy: int, now: int) -> bool:
        return self._congested.avoids(entropy, now) or self._dead.avoids(entropy, now)

    def _explore_path(self, now: int) -> int:
        entropy = self._draw(now)
        for _ in range(MAX_DRAWS):
            if not self._congested.avoids(entropy, now):
                break
            entropy = self._draw(now)
        return entropy

    def _thaw(self) -> None:
        self._frozen_until = None
        self._head = 0
        self._fresh = 0
        self._filled = 0
        self._explore = EXPLORE_PACKETS


def make_paths(
    kind: PathKind,
    entropies: Sequence[int],
    random: Random,
    base_rtt_ns: int,
    uses: int = 1,
    packets_per_return: int = 1,
) -> PathSelector:
    """A selector of this kind; `uses` and `packets_per_return` matter to REPS (see there)."""
    if kind is PathKind.SINGLE:
        return SinglePath(entropies, random, base_rtt_ns)
    if kind is PathKind.OBLIVIOUS:
        return ObliviousPaths(entropies, random, base_rtt_ns)
    if kind is PathKind.BITMAP:
        return BitmapPaths(entropies, random, base_rtt_ns)
    return RepsPaths(entropies, random, base_rtt_ns, uses, packets_per_return)
