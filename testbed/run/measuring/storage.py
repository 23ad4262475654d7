"""Workers' reports of storage: when computing began and ended, accelerators' batches, and bytes that are not safe.

Pure arithmetic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from testbed.run.placed.placed_workload import PlacedWorkload
from testbed.workload.metrics.run_samples import BatchTimes, RequestCounts, RequestTimes
from testbed.workload.steps import Compute

_NS = 1e9
RANGES_TOLD = 4
"""So many ranges of bytes that are not safe are told; of more, their sum."""


def computed_s(placement: PlacedWorkload, started: Mapping[int, int]) -> tuple[float, float] | None:
    """Return when the first computing began and the last ended, in s of lab time; None where nothing has computed.

    `started` tells when each step began, in ns of lab time from the begin of the workload.
    """
    spans = [span for step, *span in _computed(placement, started) if step.is_work]
    return (min(at_s for at_s, _ in spans), max(end_s for _, end_s in spans)) if spans else None


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
    yield from _first_tokens(placement, started)


def _first_tokens(placement: PlacedWorkload, started: Mapping[int, int]) -> Iterator[object]:
    """Yield the times to the first token of prompts that are steps: requests of a single token."""
    prompts, k = placement.workload.first_tokens, placement.k
    if not prompts:
        return
    ended_s = {step.number: end_s for step, _, end_s in _computed(placement, started)}
    due_s = [one.due_ns * k / _NS for one in prompts]
    ttft_s = [max(0.0, ended_s[one.step] - due) for one, due in zip(prompts, due_s, strict=True)]
    service_s = [one.service_ns * k / _NS for one in prompts]
    limits_s = [one.limit_ns * k / _NS for one in prompts]
    yield RequestTimes(
        ttft_s=ttft_s,
        service_ttft_s=service_s,
        tpot_s=(),
        service_tpot_s=(),
        itl_s=(),
        service_itl_s=(),
        e2el_s=ttft_s,
        service_e2el_s=service_s,
    )
    yield RequestCounts(
        answered=len(prompts),
        within_limits=sum(took <= limit for took, limit in zip(ttft_s, limits_s, strict=True)),
        failed=0,
        output_tokens=len(prompts),
        elapsed_s=max(ended_s[one.step] for one in prompts) - min(due_s),
    )


def not_safe_text(placement: PlacedWorkload, reports: Mapping[str, Mapping[str, Any]]) -> str:
    """Tell which bytes that hosts were writing their targets have not confirmed; "" where there are none.

    A write is safe when its completion has reached the host, and not before (NVM Express Base Specification 2.0, 3.3).
    """
    steps = {step.number: step for step in placement.workload.transfers}
    found = sorted(
        (number, first, length)
        for report in reports.values()
        for end in report["channels"]
        for number, first, length in end["not_safe"]
    )
    if not found:
        return ""
    texts = []
    for number, first, length in found[:RANGES_TOLD]:
        step = steps[number]
        a, b = placement.ranks[step.source], placement.ranks[step.destination]
        texts.append(f"{first} to {first + length - 1} of the {step.size_bytes} of step {number}, {a.node} to {b.node}")
    if len(found) > RANGES_TOLD:
        texts.append(f"and {len(found) - RANGES_TOLD} more")
    return f"not safe are {sum(length for _, _, length in found)} bytes that were being written: {'; '.join(texts)}"
