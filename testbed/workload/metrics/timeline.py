"""Metrics over time: convergence after a change, the blackhole of a failure from rate and from loss, recovery.

A series is `time_s`, the ascending ends of windows, and a value for each window. A window belongs to what comes after
an event if it ends after it. Sources: RFC 6412 (terms) and RFC 6413 (rate-derived and loss-derived methods).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from testbed.base.metric import Better, MetricFamily, MetricUnit
from testbed.workload.metrics.run_samples import Detection, FaultCurve, LostProbes
from testbed.workload.metrics.sources import DRAFT, FAILURE
from testbed.workload.metrics.statistics import percentile

TIMELINE = MetricFamily()

WINDOWS = 3
"""Windows in a row that must hold before something counts as reached."""
TOLERANCE = 0.1


@TIMELINE.metric(
    title="Convergence time",
    unit=MetricUnit.SECONDS,
    better=Better.LESS,
    formula="from the event to the end of the first of 3 windows in a row with every flow within 10 % of its fair"
    " share",
    source=DRAFT,
)
def convergence_time(
    time_s: Sequence[float],
    flow_bps: Sequence[Sequence[float]],
    fair_bps: Sequence[float],
    event_s: float,
    tolerance: float = TOLERANCE,
    windows: int = WINDOWS,
) -> float | None:
    """Return the time from the event to the end of the first of `windows` windows in a row with every flow near its
    fair share.

    `flow_bps[f][w]` is flow f's rate in window w; near is within `tolerance` of `fair_bps[f]`. None: never.
    """
    _check(time_s, *flow_bps)
    if len(flow_bps) != len(fair_bps):
        raise ValueError(f"{len(flow_bps)} flows with {len(fair_bps)} fair shares")
    near = [
        all(abs(rates[w] - fair) <= tolerance * fair for rates, fair in zip(flow_bps, fair_bps, strict=True))
        for w in range(len(time_s))
    ]
    return _reached(time_s, near, event_s, windows)


def rate_before(time_s: Sequence[float], rate_bps: Sequence[float], event_s: float) -> float | None:
    """The median rate of the windows that ended before the event."""
    _check(time_s, rate_bps)
    return percentile((rate for time, rate in zip(time_s, rate_bps, strict=True) if time <= event_s), 0.5)


@TIMELINE.metric(
    title="Blackhole time from rate",
    unit=MetricUnit.SECONDS,
    better=Better.LESS,
    headline=True,
    formula="time after the event in windows with less than 90 % of the median rate before it",
    source=FAILURE + " (rate-derived)",
    takes=lambda run: (run[FaultCurve].time_s, run[FaultCurve].rate_bps, run[FaultCurve].event_s),
)
def blackhole_time_rate(
    time_s: Sequence[float], rate_bps: Sequence[float], event_s: float, tolerance: float = TOLERANCE
) -> float | None:
    """Time after the event in windows with less than (1 - tolerance) of the rate before it, s (RFC 6413 style).

    It resolves no finer than a window. None without a window before the event or traffic in it.
    """
    before = rate_before(time_s, rate_bps, event_s)
    if not before:
        return None
    low = 0.0
    for (since, until), rate in zip(pairwise(time_s), rate_bps[1:], strict=True):
        if until > event_s and rate < (1 - tolerance) * before:
            low += until - max(since, event_s)
    return low


@TIMELINE.metric(
    title="Blackhole time from loss",
    unit=MetricUnit.SECONDS,
    better=Better.LESS,
    headline=True,
    formula="probes lost after the first fault / probes sent per second, of the stream that lost most",
    source=FAILURE + " (loss-derived)",
    takes=lambda run: (max(run[LostProbes].lost), run[LostProbes].rate_pps),
)
def blackhole_time_loss(lost_packets: float, offered_packets_per_s: float) -> float | None:
    """Lost packets over the offered rate, s (RFC 6412: the loss-derived method)."""
    return lost_packets / offered_packets_per_s if offered_packets_per_s > 0 else None


@TIMELINE.metric(
    title="Streams that the fault hit",
    unit=MetricUnit.SHARE,
    better=Better.LESS,
    formula="streams of probes that lost at least half as many after the first fault as the worst / all streams",
    source=FAILURE + " (loss-derived)",
    takes=lambda run: (run[LostProbes].lost,),
)
def streams_hit(lost_packets: Sequence[float]) -> float | None:
    """Share of the streams, each with its lost packets, that lost at least half of what the worst one did.

    0 where none lost any. Queues that overflow now and then hit everybody a little, a fault some streams hard.
    """
    worst = max(lost_packets, default=0)
    if not lost_packets or worst <= 0:
        return 0.0 if lost_packets else None
    return sum(2 * lost >= worst for lost in lost_packets) / len(lost_packets)


@TIMELINE.metric(
    title="Recovery time",
    unit=MetricUnit.SECONDS,
    better=Better.LESS,
    headline=True,
    formula="from the event to the end of the first of 3 windows in a row with 90 % of the median rate before it;"
    " 0 where it never fell below",
    source=FAILURE,
    takes=lambda run: (run[FaultCurve].time_s, run[FaultCurve].rate_bps, run[FaultCurve].event_s),
)
def recovery_time(
    time_s: Sequence[float],
    rate_bps: Sequence[float],
    event_s: float,
    tolerance: float = TOLERANCE,
    windows: int = WINDOWS,
) -> float | None:
    """Return the time from the event until the rate is back at (1 - tolerance) of what it was, for `windows` windows in
    a row, s.

    0 where it never fell below; None where it never came back.
    """
    before = rate_before(time_s, rate_bps, event_s)
    if not before:
        return None
    back = [rate >= (1 - tolerance) * before for rate in rate_bps]
    if all(ok for time, ok in zip(time_s, back, strict=True) if time > event_s):
        return 0.0
    first_low = next(w for w, time in enumerate(time_s) if time > event_s and not back[w])
    return _reached(time_s, [ok and w > first_low for w, ok in enumerate(back)], event_s, windows)


@TIMELINE.metric(
    title="Dip",
    unit=MetricUnit.SHARE,
    better=Better.LESS,
    formula="1 - lowest rate after the event / median rate before it",
    source=FAILURE,
    takes=lambda run: (run[FaultCurve].time_s, run[FaultCurve].rate_bps, run[FaultCurve].event_s),
)
def dip_depth(time_s: Sequence[float], rate_bps: Sequence[float], event_s: float) -> float | None:
    """1 - the lowest rate after the event over the rate before it."""
    before = rate_before(time_s, rate_bps, event_s)
    after = [rate for time, rate in zip(time_s, rate_bps, strict=True) if time > event_s]
    return max(0.0, 1 - min(after) / before) if before and after else None


@TIMELINE.metric(
    title="Rate lost to the fault",
    unit=MetricUnit.SHARE,
    better=Better.LESS,
    formula="1 - median rate while the first fault lasts / median rate before it",
    source=FAILURE,
    takes=lambda run: (
        run[FaultCurve].time_s,
        run[FaultCurve].rate_bps,
        run[FaultCurve].event_s,
        run[FaultCurve].undone_s,
    ),
)
def fault_rate_loss(
    time_s: Sequence[float], rate_bps: Sequence[float], event_s: float, undone_s: float = math.inf
) -> float | None:
    """Return the share of the rate that is missing while the fault lasts, from windows that lie in it wholly.

    It is a median, where `dip_depth` is the worst window: transports that swing by themselves move it little. None
    where no window lies within the fault, or none with traffic before it.
    """
    before = rate_before(time_s, rate_bps, event_s)
    during = [
        rate
        for (since, until), rate in zip(pairwise(time_s), rate_bps[1:], strict=True)
        if since >= event_s and until <= undone_s
    ]
    return max(0.0, 1 - median(during) / before) if before and during else None


@TIMELINE.metric(
    title="Redistribution time",
    unit=MetricUnit.SECONDS,
    better=Better.LESS,
    formula="from the event to the end of the first of 3 windows in a row with MMR <= 1.1 * its ideal after the"
    " failure",
    source=DRAFT,
)
def redistribution_time(
    time_s: Sequence[float], mmr: Sequence[float], event_s: float, ideal: float, windows: int = WINDOWS
) -> float | None:
    """Return the time from the event until the links' max / mean is at most 1.1 times the ideal one, s."""
    _check(time_s, mmr)
    return _reached(time_s, [ratio <= 1.1 * ideal for ratio in mmr], event_s, windows)


def _reached(time_s: Sequence[float], holds: Sequence[bool], event_s: float, windows: int) -> float | None:
    if windows < 1:
        raise ValueError(f"at least one window, not {windows}")
    run = 0
    for w, time in enumerate(time_s):
        run = run + 1 if time > event_s and holds[w] else 0
        if run == windows:
            return time_s[w - windows + 1] - event_s
    return None


def _check(time_s: Sequence[float], *series: Sequence[float]) -> None:
    if any(later <= earlier for earlier, later in pairwise(time_s)):
        raise ValueError("times do not rise")
    if any(len(values) != len(time_s) for values in series):
        raise ValueError("a series has not as many values as there are times")


@TIMELINE.metric(
    title="Failure detection time",
    unit=MetricUnit.SECONDS,
    better=Better.LESS,
    headline=True,
    formula="from the fault until a routing daemon or BFD says that the neighbour is lost",
    source="RFC 5880 section 6.8.4; RFC 4271 section 6.5",
    takes=lambda run: (run[Detection].event_s, run[Detection].detected_s),
)
def detection_time(event_s: float, detected_s: Sequence[float]) -> float | None:
    """Return the time from the event to the first notice of it, s; None where nobody noticed."""
    return min((at - event_s for at in detected_s if at >= event_s), default=None)
