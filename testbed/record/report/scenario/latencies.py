"""Latencies of messages as reports show them: each pair's, from its samples, beside what an idle fabric would take."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.record.record import RunResult
from testbed.record.report.scenario.senders import end_name
from testbed.record.samples import Channel, Distribution
from testbed.workload.metrics import percentile


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyRow:
    """One pair. Times are in lab seconds; percentiles are of its own samples (RFC 2330)."""

    source: str
    destination: str
    rail: int
    test: str
    size_bytes: int
    messages: int
    minimum_s: float
    p50_s: float
    p99_s: float
    p99_9_s: float
    maximum_s: float
    ideal_s: float | None
    retransmits: int

    @property
    def name(self) -> str:
        return f"{self.source} → {self.destination}"

    @property
    def ratio(self) -> float | None:
        """P50 over ideal."""
        return self.p50_s / self.ideal_s if self.ideal_s else None


def latency_row(channel: Channel) -> LatencyRow | None:
    """Return the row of a channel; None where nobody measured its latency."""
    measured = channel.latency
    if measured is None or not measured.samples_us:
        return None
    least, p50, p99, p99_9, most = (_percentile_s(measured.samples_us, share) for share in (0.0, 0.5, 0.99, 0.999, 1.0))
    return LatencyRow(
        source=end_name(channel.source, channel.source_rank),
        destination=end_name(channel.destination, channel.destination_rank),
        rail=channel.rail,
        test=measured.test,
        size_bytes=measured.size_bytes,
        messages=len(measured.samples_us),
        minimum_s=least,
        p50_s=p50,
        p99_s=p99,
        p99_9_s=p99_9,
        maximum_s=most,
        ideal_s=None if measured.ideal_us is None else measured.ideal_us / 1e6,
        retransmits=channel.retransmits,
    )


def latency_rows(run: RunResult) -> list[LatencyRow]:
    """Return the rows of all pairs, in their order."""
    return [row for channel in run.channels if (row := latency_row(channel)) is not None]


def latency_distribution(run: RunResult) -> Distribution | None:
    """A histogram of all pairs' samples; None where there are none, or all are the same."""
    samples = [us / 1e6 for one in run.channels if one.latency for us in one.latency.samples_us]
    return Distribution.of("rdma_latency", "Latency of messages", "s", samples)


def _percentile_s(samples_us: list[float], share: float) -> float:
    found = percentile(samples_us, share)
    assert found is not None  # there are samples
    return found / 1e6
