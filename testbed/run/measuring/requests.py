"""Puts together what became of a run's requests: the table of the record, and the samples of metrics."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.record.samples import Distribution, InferenceRequests, Series
from testbed.run.placed.placed_workload import PlacedWorkload
from testbed.workload.metrics import percentile
from testbed.workload.metrics.run_samples import RequestCounts, RequestTimes
from testbed.workload.steps import Request

STRETCHES = 60
"""The most points of a curve over time."""
_NS = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestsMeasured:
    """The requests of one run, of all hosts, as they were answered; times in lab seconds."""

    table: InferenceRequests
    times: RequestTimes
    counts: RequestCounts
    counters: Mapping[str, float] = field(default_factory=dict)
    """The lateness with which clients were to begin."""
    retransmits: float | None = 0.0
    """The segments that connections of requests sent again, both ways; None: it is not known of these alone."""
    courses: Sequence[_Course] = ()

    def of_clients(self, ranks: Collection[int]) -> RequestsMeasured | None:
        """Return what became of the requests of these clients; None where none of theirs began."""
        mine = [one for one in self.courses if one.request.client in ranks]
        return _measured(mine, retransmits=None) if mine else None

    def samples(self) -> Iterator[object]:
        """Yield what metrics are computed from."""
        yield self.times
        yield self.counts

    def distributions(self) -> list[Distribution]:
        """Return histograms of TTFT and ITL, those that have different samples."""
        found = (
            Distribution.of("ttft", "Time to first token (TTFT)", "s", self.times.ttft_s),
            Distribution.of("itl", "Time between tokens (ITL)", "s", self.times.itl_s),
        )
        return [one for one in found if one is not None]

    def series(self) -> list[Series]:
        """Return TTFT over the time at which requests were due: the median and the longest of each stretch."""
        taken = [
            (start, first - start)
            for start, first in zip(self.table.start_s, self.table.first_s, strict=True)
            if first is not None
        ]
        if len(taken) < 2 or taken[-1][0] <= taken[0][0]:
            return []
        begin, end = taken[0][0], taken[-1][0]
        bins = min(STRETCHES, len(taken) // 4 or 1)
        found: list[list[float]] = [[] for _ in range(bins)]
        for start, took in taken:
            found[min(bins - 1, int((start - begin) / (end - begin) * bins))].append(took)
        at_s = [round(begin + (place + 0.5) * (end - begin) / bins, 6) for place in range(bins)]
        columns = (
            ("median", [percentile(some, 0.5) for some in found]),
            ("longest", [max(some, default=None) for some in found]),
        )
        return [
            Series(name=f"ttft:{word}", title=f"TTFT, {word}", unit="s", at_s=at_s, values=values)
            for word, values in columns
        ]


def measure_requests(placement: PlacedWorkload, reports: Mapping[str, Mapping[str, Any]]) -> RequestsMeasured | None:
    """Put the reports of all hosts together; None for a workload without requests."""
    if not placement.workload.requests:
        return None
    found: dict[int, _Course] = {}
    for report in reports.values():
        columns = report.get("requests")
        if columns is None:
            continue
        for number, lateness_ns, first_ns, gaps_ns, failure in zip(
            columns["number"],
            columns["lateness_ns"],
            columns["first_ns"],
            columns["gaps_ns"],
            columns["failure"],
            strict=True,
        ):
            request = placement.workload.requests[number]
            found[number] = _Course(request, placement.k, lateness_ns, first_ns, gaps_ns, failure)
    courses = [found[number] for number in sorted(found)]
    again = sum(report.get("counters", {}).get("http_retransmits", 0.0) for report in reports.values())
    return _measured(courses, retransmits=again)


def _measured(courses: list[_Course], *, retransmits: float | None) -> RequestsMeasured:
    lateness_us = [course.lateness_ns / 1e3 for course in courses]
    return RequestsMeasured(
        table=_table(courses),
        times=_times([course for course in courses if course.answered]),
        counts=_counts(courses),
        counters={
            "requests_begun": float(len(courses)),
            "request_lateness_p99_us": percentile(lateness_us, 0.99) or 0.0,
            "request_lateness_max_us": max(lateness_us, default=0.0),
        },
        retransmits=retransmits,
        courses=courses,
    )


@dataclass(frozen=True, slots=True)
class _Course:
    """The course of one request. `first_ns` counts from the run's begin, -1 where no token has arrived."""

    request: Request
    k: float
    lateness_ns: int
    first_ns: int
    gaps_ns: list[int]
    failure: str

    @property
    def answered(self) -> bool:
        return not self.failure and self.first_ns >= 0 and len(self.gaps_ns) == self.request.output_tokens - 1

    @property
    def start_s(self) -> float:
        return round(self.request.start_ns * self.k) / _NS

    @property
    def first_s(self) -> float | None:
        return None if self.first_ns < 0 else self.first_ns / _NS

    @property
    def ttft_s(self) -> float:
        return self.first_ns / _NS - self.start_s

    @property
    def streaming_s(self) -> float:
        """From the first token to the last."""
        return sum(self.gaps_ns) / _NS

    @property
    def tpot_s(self) -> float:
        return self.streaming_s / max(1, len(self.gaps_ns))

    @property
    def service_first_s(self) -> float:
        return self.request.prefill_ns * self.k / _NS

    @property
    def service_token_s(self) -> float:
        return self.request.tpot_ns * self.k / _NS

    @property
    def within_limits(self) -> bool:
        limits = self.request.ttft_limit_ns * self.k / _NS, self.request.tpot_limit_ns * self.k / _NS
        return self.answered and self.ttft_s <= limits[0] and self.tpot_s <= limits[1]


def _table(courses: list[_Course]) -> InferenceRequests:
    return InferenceRequests(
        number=[one.request.number for one in courses],
        client=[one.request.client for one in courses],
        server=[one.request.server for one in courses],
        prompt_tokens=[one.request.prompt_tokens for one in courses],
        output_tokens=[one.request.output_tokens for one in courses],
        start_s=[one.start_s for one in courses],
        lateness_s=[one.lateness_ns / _NS for one in courses],
        first_s=[one.first_s for one in courses],
        end_s=[one.first_ns / _NS + one.streaming_s if one.answered else None for one in courses],
        service_first_s=[one.service_first_s for one in courses],
        service_token_s=[one.service_token_s for one in courses],
        failure=[one.failure for one in courses],
    )


def _times(answered: list[_Course]) -> RequestTimes:
    longer = [one for one in answered if one.gaps_ns]
    return RequestTimes(
        ttft_s=[one.ttft_s for one in answered],
        service_ttft_s=[one.service_first_s for one in answered],
        tpot_s=[one.tpot_s for one in longer],
        service_tpot_s=[one.service_token_s for one in longer],
        itl_s=[gap / _NS for one in longer for gap in one.gaps_ns],
        service_itl_s=[one.service_token_s for one in longer for _ in one.gaps_ns],
        e2el_s=[one.ttft_s + one.streaming_s for one in answered],
        service_e2el_s=[one.service_first_s + len(one.gaps_ns) * one.service_token_s for one in answered],
    )


def _counts(courses: list[_Course]) -> RequestCounts:
    answered = [one for one in courses if one.answered]
    ends = [one.first_ns / _NS + one.streaming_s for one in answered]
    return RequestCounts(
        answered=len(answered),
        within_limits=sum(one.within_limits for one in answered),
        failed=sum(bool(one.failure) for one in courses),
        output_tokens=sum(one.request.output_tokens for one in answered),
        elapsed_s=max(ends) - min(one.start_s for one in courses) if ends else 0.0,
    )
