"""Who sent, as reports show it: the channels of a run, with their rates over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.record.record import RunResult
from testbed.record.samples import Channel, FlowEnd

Point = tuple[float, float]

MOST_RATES = 200
"""Rates of a channel over its time, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedSender:
    """`rate` is its payload over time: (middle of an interval in s, bit/s)."""

    source: str
    destination: str
    rail: int
    ideal_bps: float
    goodput_bps: float
    received_bytes: int
    retransmits: int
    counters: Mapping[str, int]
    """The transport's own (`packet_fates`)."""
    rate: Sequence[Point]
    cwnd: Sequence[Point]
    """(s, bytes)."""
    rtt: Sequence[Point]
    """(s, s)."""

    @property
    def share(self) -> float:
        return self.goodput_bps / self.ideal_bps if self.ideal_bps > 0 else 0.0

    @property
    def name(self) -> str:
        return f"{self.source} → {self.destination}"


def senders_of(run: RunResult) -> list[ReportedSender]:
    return [_sender(channel) for channel in run.channels]


def total_rate(senders: Sequence[ReportedSender], bins: int = 120) -> list[Point]:
    """Payload of all senders together over time, bit/s. What a sender sent in an interval is spread evenly over it."""
    spans = [list(_intervals(sender.rate)) for sender in senders if len(sender.rate) > 1]
    end = max((until for span in spans for _, until, _ in span), default=0.0)
    if end <= 0:
        return []
    bins = min(bins, max(2, *(len(span) for span in spans)))
    width = end / bins
    bits = [0.0] * bins
    for span in spans:
        for begin, until, rate in span:
            for index in range(int(begin / width), min(bins, int(until / width) + 1)):
                overlap = min(until, (index + 1) * width) - max(begin, index * width)
                bits[index] += rate * max(0.0, overlap)
    return [((index + 0.5) * width, amount / width) for index, amount in enumerate(bits)]


def _intervals(rate: Sequence[Point]) -> list[tuple[float, float, float]]:
    """(from, until, bit/s) of points in the middle of intervals that follow each other."""
    found, begin = [], 0.0
    for middle, value in rate:
        until = max(begin, 2 * middle - begin)
        found.append((begin, until, value))
        begin = until
    return found


def _sender(channel: Channel) -> ReportedSender:
    samples = channel.samples
    rate, before_s, before = [], 0.0, 0
    shortest = max(samples.at_s, default=0.0) / MOST_RATES  # what a burst does in less is no rate
    for at, acked in zip(samples.at_s, samples.acked_bytes, strict=False):
        if at - before_s >= shortest and at > before_s:
            rate.append(((before_s + at) / 2, (acked - before) * 8 / (at - before_s)))
            before_s, before = at, acked
    return ReportedSender(
        source=end_name(channel.source, channel.source_rank),
        destination=end_name(channel.destination, channel.destination_rank),
        rail=channel.rail,
        ideal_bps=channel.ideal_bps,
        goodput_bps=channel.goodput_bps,
        received_bytes=channel.received_bytes,
        retransmits=channel.retransmits,
        counters=channel.counters,
        rate=rate,
        cwnd=[(at, float(value)) for at, value in zip(samples.at_s, samples.cwnd_bytes, strict=False)],
        rtt=[(at, value / 1e6) for at, value in zip(samples.at_s, samples.rtt_us, strict=False) if value > 0],
    )


def end_name(end: FlowEnd, rank: int | None) -> str:
    """An end of a channel, by its rank where it has one."""
    return str(end) if rank is None else f"{rank} ({end})"
