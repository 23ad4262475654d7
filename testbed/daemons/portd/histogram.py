"""A log-linear histogram of times: 32 steps for each power of two, so that a quantile is within 3.2 %."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from testbed.daemons.portd import native


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """The summary of a histogram; all 0 where nothing was recorded."""

    count: int = 0
    p50_ns: int = 0
    p99_ns: int = 0
    max_ns: int = 0


class Histogram:
    """Times up to 137 s by their step, longer ones together; the maximum is exact."""

    __slots__ = ("_native", "_steps")

    def __init__(self) -> None:
        self._native = native.library()
        self._steps = native.Steps()

    @classmethod
    def copy_of(cls, steps: native.Steps) -> Histogram:
        """One that stays as it is."""
        histogram = cls()
        ctypes.memmove(ctypes.byref(histogram._steps), ctypes.byref(steps), ctypes.sizeof(steps))
        return histogram

    @property
    def count(self) -> int:
        return int(self._steps.count)

    @property
    def max_ns(self) -> int:
        return int(self._steps.max_ns)

    def merge(self, other: Histogram) -> None:
        self._native.histogram_merge(self._steps, other._steps)

    def quantile(self, share: float) -> int:
        """The smallest step's upper end (ns) that at least `share` of the records do not exceed; 0 for none."""
        return int(self._native.histogram_quantile(self._steps, share))

    def summary(self) -> Latency:
        return Latency(count=self.count, p50_ns=self.quantile(0.5), p99_ns=self.quantile(0.99), max_ns=self.max_ns)
