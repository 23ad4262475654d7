"""Trust check of figures against their ideals: what is faster than the ports allow is no figure of this fabric.

An ideal is what ports that send at their rates, and nothing else, would allow. A figure beyond it means that ports did
not keep to their rates, or that the ideal is not that of this traffic: either way the run says nothing. What is allowed
is what the emulation is known to be ahead by:

* `SHAPING_ERROR` of the ideal: the clocks and counters of a port's shaper;
* for each transfer, what a port may be ahead of its rate: the shaper's window and a frame
(`lab.core.plan.qos.shaping`). A chain
  of transfers, each of which meets idle ports, gains that much each time, so it is taken of a transfer's mean size;
* of rates while all flows send, which are told by samples, the bytes of one interval between samples.

What ports are ahead by may be `MOST_AHEAD` of what a whole run took, or a collective: with transfers of a frame or two
it is half of all, and a run tells how a port passes on a frame, and nothing of the fabric.

The simulator's ports are exact in the fabric's time. In the lab's, which TCP and faults have, they pass on frames as
those of a lab do, and what is allowed is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from testbed.base.metric import Better
from testbed.lab.core.fabric.queue_depths import frame_bytes
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.qos.shaping import burst_bytes
from testbed.record.catalogue import definition_of, selected_words
from testbed.record.record import Check, RunResult

SHAPING_ERROR = 0.005
"""The share by which a port may be faster than its rate in the long run: a tenth of what the check `rate` allows over
windows of 0.1 s, whose ends are not those of packets."""
MOST_AHEAD = 0.05
"""The most that ports may save of the time of a run or a collective."""
_BY_DEFINITION = frozenset({"jain_flows", "fct_slowdown_p50", "fct_slowdown_p95", "fct_slowdown_p99"})
"""Metrics whose formula cannot be better than 1, whatever was measured."""
_PASSED_ON_AT_ONCE = frozenset({"rdma_latency_ratio"})
"""Metrics whose ideal is that of ports which store and forward, over ports that pass an idle link's first frame on at
once, as the transport's approximations say."""
_OF_SAMPLES = frozenset({"aggregate_share", "slowest_share"})
"""Metrics whose rates are told by samples of what was acknowledged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figure:
    """A measured figure and its ideal, in words; `beyond` is the share of the ideal's time that it did not take, below
    0 for more time. What a port is ahead saves time: all of it for a transfer of a frame."""

    text: str
    beyond: float
    allowed: float


def ahead_bytes(plan: LabPlan) -> float:
    """Return what a port of a lab may be ahead of its rate by at most: the shaper's window, and a frame."""
    ports = [nic for host in plan.hosts for nic in host.nics]
    return max((burst_bytes(nic.rate_bps) + frame_bytes(nic.mtu_bytes) for nic in ports), default=0)


def check_ideals(run: RunResult, ahead: float = 0.0) -> Iterator[Check]:
    """Judge the figure that is beyond its ideal by most of what is allowed; nothing where no figure has an ideal.

    `ahead` is what a port may be ahead of its rate by, in bytes.
    """
    mean_bytes = _mean_sizes(run)
    figures = [*_metrics(run, ahead, mean_bytes), *_channels(run, ahead, mean_bytes), *_collectives(run, ahead)]
    if not figures:
        return
    worst = max(figures, key=lambda one: one.beyond - one.allowed)
    how = f"{worst.beyond:.1%} less time than its ideal takes" if worst.beyond > 0 else "and not beyond its ideal"
    yield Check.at_most(
        name="ideal",
        title="No figure is beyond its ideal",
        value=worst.beyond,
        limit=worst.allowed,
        message=f"{worst.text}, {how} (limit {worst.allowed:.1%}: {SHAPING_ERROR:.1%} of shaping error, and"
        f" {ahead / 1e3:.3g} kB of each transfer that a port may be ahead of its rate, up to {MOST_AHEAD:.0%} in all)",
    )


def _metrics(run: RunResult, ahead: float, mean_bytes: list[float]) -> Iterator[_Figure]:
    """Yield the metrics whose best value is 1, whatever the fabric: shares, and ratios to a least time."""
    typical = fmean(run.transfers.size_bytes or mean_bytes or [0])
    least = min(mean_bytes, default=0)
    for name, value in run.metrics.items():
        metric = definition_of(name)
        if metric is None or metric.ideal != 1 or not value or metric.name in _BY_DEFINITION | _PASSED_ON_AT_ONCE:
            continue
        gain = _share(ahead, least if selected_words(name) else typical)
        allowed = SHAPING_ERROR + (gain if metric.name in _OF_SAMPLES else min(gain, MOST_AHEAD))
        if metric.name in _OF_SAMPLES:
            allowed += max((1 / len(one.samples.at_s) for one in run.channels if one.samples.at_s), default=0.0)
        took = value if metric.better is Better.LESS else 1 / value
        yield _Figure(text=f"{name} is {value:.4g} where 1 is ideal", beyond=1 - took, allowed=allowed)


def _channels(run: RunResult, ahead: float, mean_bytes: list[float]) -> Iterator[_Figure]:
    for one, size_bytes in zip(run.channels, mean_bytes, strict=True):
        if one.ideal_bps > 0 and one.goodput_bps > 0 and one.latency is None:
            yield _Figure(
                text=f"the goodput of {one.source} to {one.destination} is {one.goodput_bps / 1e9:.4g} Gbit/s of"
                f" {one.ideal_bps / 1e9:.4g}",
                beyond=1 - one.ideal_bps / one.goodput_bps,
                allowed=SHAPING_ERROR + _share(ahead, size_bytes),
            )


def _collectives(run: RunResult, ahead: float) -> Iterator[_Figure]:
    typical = fmean(run.transfers.size_bytes or [0])
    for one in run.collectives:
        if one.ideal_busbw_bps and one.busbw_bps > 0:
            yield _Figure(
                text=f"busbw of {one.label or one.kind} is {one.busbw_bps / 1e9:.4g} Gbit/s of"
                f" {one.ideal_busbw_bps / 1e9:.4g}",
                beyond=1 - one.ideal_busbw_bps / one.busbw_bps,
                allowed=SHAPING_ERROR + min(_share(ahead, typical), MOST_AHEAD),
            )


def _mean_sizes(run: RunResult) -> list[float]:
    """The mean size of each channel's transfers; all that it carried, where it has none and sent for a time."""
    sizes: list[list[int]] = [[] for _ in run.channels]
    for size, channel in zip(run.transfers.size_bytes, run.transfers.channel, strict=True):
        sizes[channel].append(size)
    return [fmean(some or [one.received_bytes]) for some, one in zip(sizes, run.channels, strict=True)]


def _share(ahead: float, size_bytes: float) -> float:
    return ahead / size_bytes if size_bytes > 0 else 0.0
