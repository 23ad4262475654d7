"""The results of a measurement, for one size of message."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from testbed.endpoints.perftest.errors import PeerGoneError


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthResult:
    """Bytes are those of messages, without any header."""

    size: int
    iterations: int
    peak: float
    """bytes/s; 0 where it was not measured (`-D`)."""
    average: float
    """bytes/s."""

    @property
    def messages_per_s(self) -> float:
        return self.average / self.size

    def plus(self, other: BandwidthResult) -> BandwidthResult:
        """Both directions together."""
        peak, average = self.peak + other.peak, self.average + other.average
        return BandwidthResult(size=self.size, iterations=self.iterations, peak=peak, average=average)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyResult:
    """Times in us. `typical` is the median."""

    size: int
    iterations: int
    least: float
    most: float
    typical: float
    average: float
    stdev: float
    percentile_99: float
    percentile_99_9: float


Result = BandwidthResult | LatencyResult
_R = TypeVar("_R", BandwidthResult, LatencyResult)


def read_result(kind: type[_R], fields: object) -> _R:
    """Return a result that the other side sent. Raises `PeerGoneError`."""
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError:
        raise PeerGoneError("the other side sends no result") from None


def peak_bandwidth(size: int, begun_ns: int, finished_ns: Sequence[int], run: int) -> float:
    """The best bandwidth in bytes/s of any `run` messages in a row (perftest: of any number of messages).

    `finished_ns` ascends; several messages that one acknowledgement finished count together.
    """
    run = min(run, len(finished_ns))
    times = (begun_ns, *finished_ns)
    best = 0.0
    for end in range(run, len(times)):
        took = times[end] - times[end - run]
        if took > 0:
            best = max(best, run * size * 1e9 / took)
    return best


def bandwidth_result(
    size: int, begun_ns: int, finished_ns: Sequence[int], run: int, *, peak: bool = True
) -> BandwidthResult:
    """Return the result of one message or more, of `size` bytes, begun at `begun_ns`; `run` as in `peak_bandwidth`."""
    took = max(finished_ns[-1] - begun_ns, 1)
    average = len(finished_ns) * size * 1e9 / took
    best = max(peak_bandwidth(size, begun_ns, finished_ns, run), average) if peak else 0.0
    return BandwidthResult(size=size, iterations=len(finished_ns), peak=best, average=average)


def latency_result(size: int, times_ns: Sequence[float]) -> LatencyResult:
    """Return the result of one time for each iteration, of which there is at least one; percentiles by nearest rank."""
    ordered = sorted(times_ns)
    count = len(ordered)
    average = math.fsum(ordered) / count
    stdev = math.sqrt(math.fsum((value - average) ** 2 for value in ordered) / count)
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    return LatencyResult(
        size=size,
        iterations=count,
        least=ordered[0] / 1e3,
        most=ordered[-1] / 1e3,
        typical=middle / 1e3,
        average=average / 1e3,
        stdev=stdev / 1e3,
        percentile_99=ordered[math.ceil(count * 0.99) - 1] / 1e3,
        percentile_99_9=ordered[math.ceil(count * 0.999) - 1] / 1e3,
    )
