"""A log-linear histogram of times: 32 steps for each power of two, so that a quantile is within 3.2 %."""

from __future__ import annotations

from dataclasses import dataclass

_BITS = 5
_STEPS = 1 << _BITS


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """What a histogram says; all 0 where nothing was recorded."""

    count: int = 0
    p50_ns: int = 0
    p99_ns: int = 0
    max_ns: int = 0


class Histogram:
    """Records cost a dictionary update. Memory grows with the number of different steps alone."""

    __slots__ = ("_steps", "count", "max_ns")

    def __init__(self) -> None:
        self._steps: dict[int, int] = {}
        self.count = 0
        self.max_ns = 0

    def record(self, value_ns: int) -> None:
        """A negative time (clocks that disagree) counts as 0."""
        value_ns = max(0, value_ns)
        shift = max(0, value_ns.bit_length() - _BITS - 1)
        step = (shift << _BITS) + (value_ns >> shift)
        self._steps[step] = self._steps.get(step, 0) + 1
        self.count += 1
        self.max_ns = max(self.max_ns, value_ns)

    def merge(self, other: Histogram) -> None:
        for step, count in other._steps.items():
            self._steps[step] = self._steps.get(step, 0) + count
        self.count += other.count
        self.max_ns = max(self.max_ns, other.max_ns)

    def quantile(self, share: float) -> int:
        """The smallest step's upper end (ns) that at least `share` of the records do not exceed; 0 for none."""
        wanted = share * self.count
        seen = 0
        for step in sorted(self._steps):
            seen += self._steps[step]
            if seen >= wanted:
                return min(_upper_end(step), self.max_ns)
        return 0

    def summary(self) -> Latency:
        return Latency(count=self.count, p50_ns=self.quantile(0.5), p99_ns=self.quantile(0.99), max_ns=self.max_ns)


def _upper_end(step: int) -> int:
    if step < 2 * _STEPS:
        return step
    shift = (step >> _BITS) - 1
    return (((step & (_STEPS - 1)) + _STEPS + 1) << shift) - 1
