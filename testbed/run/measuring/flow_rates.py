"""Goodput of each channel while all of them had something to send: shares, Jain's index and ECMP's oracle need it."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from testbed.record.samples import Channel, Transfers


def common_span(channels: Sequence[Channel], transfers: Transfers) -> tuple[float, float] | None:
    """The span from when the last channel began until the first one ended, in s; None where they do not overlap."""
    begin: dict[int, float] = {}
    end: dict[int, float] = {}
    for channel, start_s, end_s in zip(transfers.channel, transfers.start_s, transfers.end_s, strict=True):
        if start_s is not None:
            begin[channel] = min(start_s, begin.get(channel, start_s))
        if end_s is not None:
            end[channel] = max(end_s, end.get(channel, end_s))
    if len(begin) < len(channels) or not begin:
        return None
    last_begin, first_end = max(begin.values()), min(end.values(), default=0.0)
    return (last_begin, first_end) if first_end > last_begin else None


def rates_together(channels: Sequence[Channel], transfers: Transfers) -> list[float]:
    """Each channel's goodput in the common span, bit/s, from its samples; where it has none, or there is no such span,
    over all the time it had something to send.

    What was sent first arrives half a round trip after the begin, and what has arrived until the end is acknowledged
    half a round trip after it: a short flow has no more than a few of them.
    """
    span = common_span(channels, transfers)
    if span is None:
        return [channel.goodput_bps for channel in channels]
    begin, end = span
    found = []
    for channel in channels:
        way_s = (channel.min_rtt_us or 0.0) / 2e6
        arriving_s = end - begin - way_s
        measured = bool(channel.samples.acked_bytes) and arriving_s > 0
        got = _acked(channel, end + way_s) if measured else None
        before = _acked(channel, begin + 2 * way_s) if got is not None else None
        together = got is not None and before is not None
        found.append(8 * (got - before) / arriving_s if together else channel.goodput_bps)  # type: ignore[operator]
    return found


def _acked(channel: Channel, at_s: float) -> float | None:
    """Return how many bytes were acknowledged until a time; between two samples in proportion."""
    times, acked = channel.samples.at_s, channel.samples.acked_bytes
    index = bisect_left(times, at_s)
    if index == len(times):
        return float(acked[-1]) if times and at_s - times[-1] < 0.25 * max(at_s, 1e-9) else None
    if index == 0:
        return acked[0] * at_s / times[0] if times[0] > 0 else float(acked[0])
    share = (at_s - times[index - 1]) / (times[index] - times[index - 1])
    return acked[index - 1] + share * (acked[index] - acked[index - 1])


def first_done_after(channels: Sequence[Channel], transfers: Transfers, event_s: float) -> float | None:
    """Return when the first channel after the event had nothing left to send, in s; None where none came so far.

    A channel without transfers sent for a given time, and ends with its last sample.
    """
    ends: dict[int, float] = {}
    for index, end_s in zip(transfers.channel, transfers.end_s, strict=True):
        ends[index] = max(ends.get(index, 0.0), math.inf if end_s is None else end_s)
    for index, channel in enumerate(channels):
        if index not in ends and channel.samples.at_s:
            ends[index] = channel.samples.at_s[-1]
    return min((end_s for end_s in ends.values() if event_s < end_s < math.inf), default=None)


def goodput_curve(
    channels: Sequence[Channel], window_s: float, until_s: float | None = None
) -> tuple[list[float], list[float]]:
    """The goodput of all channels together, in bit/s, in windows whose ends are given in s; it begins when all of them
    are measured."""
    sampled = [channel for channel in channels if channel.samples.at_s]
    last = max((channel.samples.at_s[-1] for channel in sampled), default=0.0)
    if until_s is not None:
        last = min(last, until_s)
    first = max((channel.samples.at_s[0] for channel in sampled if not channel.samples.acked_bytes[0]), default=0.0)
    begin = -int(-first // window_s)
    ends = range(begin + 1, int(last / window_s + 1e-6) + 1)
    carried = [0.0] * len(ends)
    for channel in sampled:
        before = _acked(channel, begin * window_s) or 0.0
        for place, window in enumerate(ends):
            now = _acked(channel, window * window_s)
            if now is None:
                now = float(channel.samples.acked_bytes[-1])
            carried[place] += now - before
            before = now
    return [round(window * window_s, 9) for window in ends], [8 * size / window_s for size in carried]


def union_s(spans: Iterable[tuple[float, float]]) -> float:
    """Return how long at least one of the spans lasts, in s."""
    total = 0.0
    until = float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total
