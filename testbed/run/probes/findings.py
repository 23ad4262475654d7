"""The record of a run's probes: counters, lost ones over time, and time lost by stream. Pure.

Whether the probes themselves can be believed is judged by `run.trust.traffic`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from testbed.record.samples import Distribution, RunEvent, Series
from testbed.run.measuring.measures import first_fault_s
from testbed.run.probes.ledger import ProbeReport

MOST_SERIES = 4
"""The number of streams that get a curve of their own: those that lost most."""
LEAST_WINDOW_S = 0.1
BINS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFindings:
    """Curves, distributions and counters of a run's probes; all are empty where no probes ran."""

    series: list[Series] = field(default_factory=list)
    distributions: list[Distribution] = field(default_factory=list)
    counters: dict[str, float] = field(default_factory=dict)


def probe_findings(report: ProbeReport | None, events: Sequence[RunEvent], elapsed_s: float) -> ProbeFindings:
    """Sums up the probes of a run that lasted `elapsed_s`. Time lost counts from the first fault among `events`."""
    if report is None:
        return ProbeFindings()
    fault_s = first_fault_s(events)
    return ProbeFindings(
        series=probe_series(report, elapsed_s),
        distributions=[] if fault_s is None else probe_distribution(report, fault_s),
        counters=probe_counters(report),
    )


def probe_counters(report: ProbeReport) -> dict[str, float]:
    """The counters of all streams together, by the names that records have."""
    return {
        "probe_streams": float(len(report.streams)),
        "probe_rate_pps": round(report.rate_pps, 3),
        "probes_sent": float(report.sent),
        "probes_lost": float(report.lost),
        "probes_late": float(sum(item.late for item in report.streams)),
        "probes_skipped": float(report.skipped),
        "probes_duplicated": float(sum(item.duplicates for item in report.streams)),
        "probes_inverted": float(sum(item.inversions for item in report.streams)),
        "probes_foreign": float(report.foreign),
        "probe_bytes": float(report.sent_bytes),
        "probe_latest_ms": round(report.latest_s * 1e3, 3),
    }


def probe_series(report: ProbeReport, until_s: float) -> list[Series]:
    """Curves over the time at which probes were sent: how many streams were dark, and what the worst ones lost."""
    window_s = max(LEAST_WINDOW_S, 2 / report.rate_pps)
    count = math.ceil(until_s / window_s)
    losers = sorted((item for item in report.streams if item.lost_s), key=lambda item: -len(item.lost_s))
    if count < 2 or not losers:
        return []
    at_s = [round((place + 1) * window_s, 6) for place in range(count)]
    lost = [_by_window(item.lost_s, window_s, count) for item in losers]
    half = report.rate_pps * window_s / 2
    dark: list[float | None] = [sum(one[place] >= half for one in lost) / len(report.streams) for place in range(count)]
    found = [Series(name="dark:streams", title="Streams in the dark", unit="share", at_s=at_s, values=dark)]
    for item, values in zip(losers[:MOST_SERIES], lost, strict=False):
        found.append(
            Series(
                name=f"probes:{item.stream}",
                title=f"Probes lost, {item.stream}",
                unit="packet",
                at_s=at_s,
                values=[float(value) for value in values],
            )
        )
    return found


def _by_window(times_s: Sequence[float], window_s: float, count: int) -> list[int]:
    found = [0] * count
    for time_s in times_s:
        found[min(count - 1, max(0, int(time_s / window_s)))] += 1
    return found


def probe_distribution(report: ProbeReport, since_s: float) -> list[Distribution]:
    """The distribution of the time lost over the streams; nothing where no stream lost any."""
    lost_s = report.lost_time_s(since_s)
    longest = max(lost_s, default=0.0)
    if not longest:
        return []
    width = longest / BINS
    counts = [0] * BINS
    for value in lost_s:
        counts[min(BINS - 1, int(value / width))] += 1
    return [
        Distribution(
            name="blackhole_time_loss",
            title="Time lost, by stream of probes",
            unit="s",
            edges=[round(place * width, 6) for place in range(BINS + 1)],
            counts=counts,
        )
    ]
