"""From when computing began to when it ended, and to the batches that accelerators had. Pure arithmetic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from testbed.scenario.run.placed_workload import PlacedWorkload
from testbed.workload.metrics.run_samples import BatchTimes
from testbed.workload.steps import Compute

_NS = 1e9


def computed_until_s(placement: PlacedWorkload, started: Mapping[int, int]) -> float | None:
    """Return when the last computing ended, in s of lab time; None where nothing has computed.

    `started` tells when each step began, in ns of lab time from the begin of the workload.
    """
    return max((end_s for _, _, end_s in _computed(placement, started)), default=None)


def _computed(placement: PlacedWorkload, started: Mapping[int, int]) -> Iterator[tuple[Compute, float, float]]:
    """Yield each time in which a rank computed, with its begin and its end."""
    for step in placement.workload.steps:
        if isinstance(step, Compute) and (at_ns := started.get(step.number)) is not None:
            yield step, at_ns / _NS, (at_ns + round(step.duration_ns * placement.k)) / _NS


def storage_samples(placement: PlacedWorkload, started: Mapping[int, int]) -> Iterator[object]:
    """Yield the samples that the workload's steps give, of a run whose steps have all ended."""
    start_s: defaultdict[int, list[float]] = defaultdict(list)
    end_s: defaultdict[int, list[float]] = defaultdict(list)
    for step, at_s, until_s in _computed(placement, started):
        if step.is_batch:
            start_s[step.rank].append(at_s)
            end_s[step.rank].append(until_s)
    if start_s:
        yield BatchTimes(start_s=list(start_s.values()), end_s=list(end_s.values()))
