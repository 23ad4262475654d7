"""Deciding what a subscriber of a stream gets, and when (gNMI section 3.5.1.5.2): leaves in, updates out, no I/O.

A subscription samples, or tells of changes. What a target is to choose, it chooses so: counters are sampled, all else
is told when it changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from testbed.daemons.gnmi.paths import TreePath, covers
from testbed.daemons.gnmi.tree import Leaves, Scalar

SHORTEST_SAMPLE_NS = 100_000_000
DEFAULT_SAMPLE_NS = 10_000_000_000
"""The interval where the subscriber leaves it to the target (0)."""
CHANGES_NS = 200_000_000
"""The interval at which leaves are looked at for those who want changes."""
_COUNTERS = ("counters", "messages", "prefixes")
_QUEUES = "queue"


class When(Enum):
    SAMPLE = auto()
    ON_CHANGE = auto()
    TARGET_DEFINED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedPath:
    """A subscription of a list. Intervals are in ns; a heartbeat of 0 is none."""

    pattern: TreePath
    when: When = When.TARGET_DEFINED
    interval_ns: int = 0
    heartbeat_ns: int = 0
    suppress_redundant: bool = False

    @property
    def sampled_every_ns(self) -> int:
        return max(SHORTEST_SAMPLE_NS, self.interval_ns) if self.interval_ns else DEFAULT_SAMPLE_NS


@dataclass(slots=True, kw_only=True)
class _State:
    """A subscription under way."""

    wanted: WantedPath
    due_sample_ns: int
    due_heartbeat_ns: int | None
    sent: dict[TreePath, Scalar] = field(default_factory=dict)
    """The leaves that the subscriber knows."""


def is_counter(path: TreePath) -> bool:
    """Tell whether a leaf counts, so that it is sampled where a target chooses."""
    names = [name for name, _ in path]
    counts = any(name in names for name in _COUNTERS) or (_QUEUES in names and names[-1] not in ("name", "queue"))
    return counts or names[-1].endswith("-transitions")


class Stream:
    """The subscriptions of one subscriber. `begin` comes first, then `step` whenever `due_ns` has come."""

    def __init__(self, wanted: Sequence[WantedPath], now_ns: int) -> None:
        self._states = [
            _State(
                wanted=one,
                due_sample_ns=now_ns + one.sampled_every_ns,
                due_heartbeat_ns=now_ns + one.heartbeat_ns if one.heartbeat_ns else None,
            )
            for one in wanted
        ]
        self._due_changes_ns = now_ns + CHANGES_NS

    @property
    def patterns(self) -> tuple[TreePath, ...]:
        return tuple(state.wanted.pattern for state in self._states)

    @property
    def due_ns(self) -> int:
        """When the next step is."""
        times = [state.due_sample_ns for state in self._states if state.wanted.when is not When.ON_CHANGE]
        times += [state.due_heartbeat_ns for state in self._states if state.due_heartbeat_ns is not None]
        if any(state.wanted.when is not When.SAMPLE for state in self._states):
            times.append(self._due_changes_ns)
        return min(times, default=self._due_changes_ns)

    def begin(self, leaves: Mapping[TreePath, Scalar]) -> Leaves:
        """Return all leaves that are subscribed to, as the first thing that a subscriber gets."""
        found: Leaves = {}
        for state in self._states:
            state.sent = _covered(leaves, state.wanted.pattern)
            found.update(state.sent)
        return found

    def step(self, leaves: Mapping[TreePath, Scalar], now_ns: int) -> tuple[Leaves, list[TreePath]]:
        """Return the leaves to be sent at `now_ns`, and those that are gone."""
        updates: Leaves = {}
        gone: dict[TreePath, None] = {}
        look = now_ns >= self._due_changes_ns
        for state in self._states:
            self._step(state, _covered(leaves, state.wanted.pattern), now_ns, look=look, updates=updates, gone=gone)
        if look:
            self._due_changes_ns = _next(self._due_changes_ns, CHANGES_NS, now_ns)
        return updates, [path for path in gone if path not in updates]

    @staticmethod
    def _step(
        state: _State, now: Leaves, now_ns: int, *, look: bool, updates: Leaves, gone: dict[TreePath, None]
    ) -> None:
        wanted = state.wanted
        sampling = wanted.when is not When.ON_CHANGE and now_ns >= state.due_sample_ns
        beating = state.due_heartbeat_ns is not None and now_ns >= state.due_heartbeat_ns
        for path, value in now.items():
            by_change = wanted.when is When.ON_CHANGE or (wanted.when is When.TARGET_DEFINED and not is_counter(path))
            changed = path not in state.sent or state.sent[path] != value
            due = (look and changed) if by_change else sampling and (changed or not wanted.suppress_redundant)
            if due or beating:
                updates[path] = value
                state.sent[path] = value
        if look or sampling:
            for path in [path for path in state.sent if path not in now]:
                gone[path] = None
                del state.sent[path]
        if sampling:
            state.due_sample_ns = _next(state.due_sample_ns, wanted.sampled_every_ns, now_ns)
        if beating and state.due_heartbeat_ns is not None:
            state.due_heartbeat_ns = _next(state.due_heartbeat_ns, wanted.heartbeat_ns, now_ns)


def _covered(leaves: Mapping[TreePath, Scalar], pattern: TreePath) -> Leaves:
    return {path: value for path, value in leaves.items() if covers(pattern, path) is not None}


def _next(due_ns: int, interval_ns: int, now_ns: int) -> int:
    """Return the next time of a regular one; those that have passed are left out."""
    return due_ns + (max(0, now_ns - due_ns) // interval_ns + 1) * interval_ns
