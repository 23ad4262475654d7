"""Metrics of links and queues: how evenly links are loaded, marks, pauses, depths, paths in use.

How well queues keep to their ECN curve is told by marks by the depth that decided, against the straight lines of WRED.
The curve is that of switches and of DCQCN (SIGCOMM 2015, figure 5): 0 up to Kmin, linear to Pmax at Kmax, 1 above.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from functools import partial

from testbed.base.metric import Better, MetricFamily, MetricUnit, as_measured
from testbed.workload.metrics.run_samples import (
    FabricBytes,
    MarkedPackets,
    MarkingCurves,
    PauseCounts,
    QueueCounts,
    QueueDepths,
    UplinkLoads,
)
from testbed.workload.metrics.sources import DRAFT, JAIN, MMR, PAUSE, PERCENTILE, PERCENTILE_RULE
from testbed.workload.metrics.statistics import (
    jain_index,
    max_mean_ratio,
    mean_of_known,
    percentile,
    weighted_percentile,
)

LEAST_PACKETS = 300
"""A bin with fewer packets is not judged: three standard deviations of a share of 10 % are 5 percentage points then."""


def marking_probability(depth_bytes: float, kmin_bytes: float, kmax_bytes: float, pmax: float) -> float:
    """Return the probability at one depth. Kmin itself does not mark, Kmax marks everything."""
    if depth_bytes >= kmax_bytes and depth_bytes > kmin_bytes:
        return 1.0
    if depth_bytes <= kmin_bytes:
        return 0.0
    return pmax * (depth_bytes - kmin_bytes) / (kmax_bytes - kmin_bytes)


def ideal_share(
    low_bytes: float, high_bytes: float, *, kmin_bytes: float, kmax_bytes: float, pmax: float, slack_bytes: float
) -> float | None:
    """The curve's mean between two depths that are met equally often.

    None within `slack_bytes` of a step: there the packets that are just being sent decide on which side one is.
    """
    step = kmax_bytes if pmax < 1 or kmin_bytes >= kmax_bytes else None
    if step is not None and low_bytes - slack_bytes < step < high_bytes + slack_bytes:
        return None
    corners = sorted({low_bytes, high_bytes, *(k for k in (kmin_bytes, kmax_bytes) if low_bytes < k < high_bytes)})
    area = 0.0
    for left, right in itertools.pairwise(corners):
        # straight between corners, so its middle is its mean
        area += (right - left) * marking_probability((left + right) / 2, kmin_bytes, kmax_bytes, pmax)
    return area / (high_bytes - low_bytes)


LINKS = MetricFamily()


@LINKS.metric(
    title="Uplink max / mean",
    unit=MetricUnit.RATIO,
    better=Better.LESS,
    headline=True,
    formula="MMR: bytes sent by the busiest uplink of a tier / mean of all of them; whole flows cannot do better"
    " than ceil(n/m) / (n/m)",
    source=MMR,
    proves_scale=True,
    takes=lambda run: (run[UplinkLoads].load_bytes,),
)
def mmr_uplinks(load_bytes: Sequence[float]) -> float | None:
    """max / mean of the bytes sent by the uplinks of one tier."""
    return max_mean_ratio(load_bytes)


@LINKS.metric(
    title="Uplink max / mean, worst switch",
    unit=MetricUnit.RATIO,
    better=Better.LESS,
    headline=True,
    formula="the largest MMR among the uplinks of a single switch, be it a rail switch or a spine; the ideal is that of"
    " rail switches",
    source=MMR,
    takes=lambda run: ({**run[UplinkLoads].bytes_by_switch, **run[UplinkLoads].bytes_by_spine},),
)
def mmr_worst_switch(load_bytes_by_switch: Mapping[str, Sequence[float]]) -> float | None:
    """The largest max / mean among the uplinks of a single switch."""
    ratios = (max_mean_ratio(loads) for loads in load_bytes_by_switch.values())
    return max((ratio for ratio in ratios if ratio is not None), default=None)


@LINKS.metric(
    title="Jain's index over uplinks",
    unit=MetricUnit.RATIO,
    better=Better.MORE,
    headline=True,
    formula="(sum x)^2 / (n * sum x^2), x: bytes sent by each uplink of a tier",
    source=JAIN + "; " + DRAFT,
    proves_scale=True,
    takes=lambda run: (run[UplinkLoads].load_bytes,),
)
def jain_links(load_bytes: Sequence[float]) -> float | None:
    return jain_index(load_bytes)


@LINKS.metric(
    title="Link utilisation",
    unit=MetricUnit.SHARE,
    better=Better.NEITHER,
    formula="8 * bytes sent / (t * line rate)",
    source=DRAFT,
    takes=lambda run: (run[UplinkLoads].utilisation,),
)
def link_utilisation(utilisation: Sequence[float]) -> float | None:
    """The utilisation of the busiest uplink; bytes and rates count the same headers."""
    return max(utilisation, default=None)


@LINKS.metric(
    title="Link utilisation imbalance",
    unit=MetricUnit.RATIO,
    better=Better.LESS,
    formula="(max - min) / mean of the utilisations of a tier's links",
    source="Alizadeh et al., CONGA, SIGCOMM 2014, figure 12",
    takes=lambda run: (run[UplinkLoads].utilisation,),
)
def link_imbalance(utilisation: Sequence[float]) -> float | None:
    """(max - min) / mean of the utilisations of links that should be equal."""
    total = math.fsum(utilisation)
    return (max(utilisation) - min(utilisation)) * len(utilisation) / total if total > 0 else None


@LINKS.metric(
    title="Bytes on uplinks, share of the fabric's",
    unit=MetricUnit.SHARE,
    better=Better.NEITHER,
    formula="bytes sent by all uplinks of a tier / payload bytes that entered the fabric; headers and what is sent"
    " again are in the former alone; traffic that stays on its rail switch has 0",
    source="Wang et al., Rail-only, arXiv 2307.12169",
    takes=lambda run: (run[UplinkLoads].load_bytes, float(run[FabricBytes].payload_bytes)),
)
def uplink_share(load_bytes: Sequence[float], fabric_bytes: float) -> float | None:
    """The bytes of all uplinks of a tier over the payload that entered the fabric; None where none did."""
    return math.fsum(load_bytes) / fabric_bytes if fabric_bytes > 0 else None


@LINKS.metric(
    title="Link utilisation deviation",
    unit=MetricUnit.RATIO,
    better=Better.LESS,
    formula="standard deviation (of the population) / mean of the utilisations of a tier's links",
    source=DRAFT,
    takes=lambda run: (run[UplinkLoads].utilisation,),
)
def link_deviation(utilisation: Sequence[float]) -> float | None:
    """Standard deviation over mean: of these very links, so the population's."""
    total = math.fsum(utilisation)
    return statistics.pstdev(utilisation) * len(utilisation) / total if total > 0 else None


@LINKS.metric(
    title="ECN marking ratio",
    unit=MetricUnit.SHARE,
    better=Better.LESS,
    headline=True,
    formula="CE-marked packets / ECN-capable packets, of a queue or end to end",
    source="RFC 3168; " + DRAFT,
    takes=lambda run: (run[QueueCounts].marked_packets, run[QueueCounts].ect_packets),
)
def ecn_mark_ratio(marked_packets: float, ect_packets: float) -> float | None:
    """CE-marked over ECN-capable packets (the marked ones among them).

    The counters are read some milliseconds apart, so that marks may be ahead of packets: no reason to fail.
    """
    return marked_packets / ect_packets if ect_packets > 0 else None


@LINKS.metric(
    title="Marks off their curve",
    unit=MetricUnit.SHARE,
    better=Better.LESS,
    emulation=True,
    formula="max over queue depths of |share of ECT packets marked - WRED's curve|; bins of Kmax / 16 with at least"
    f" {LEAST_PACKETS} packets, those at a step left out",
    source="DCQCN (SIGCOMM 2015) figure 5; Floyd and Jacobson 1993",
    takes=lambda run: (run[MarkingCurves].classes,),
)
def marking_error(curves: Sequence[MarkedPackets]) -> float | None:
    """The largest distance of a bin's share of marked packets from the ideal, of any class; bins of few packets say
    nothing."""
    distances = []
    for curve in curves:
        for count, hit, expected in zip(curve.packets, curve.marked, curve.ideal, strict=True):
            if hit > count:
                raise ValueError(f"{hit} of {count} packets marked")
            if count >= LEAST_PACKETS and expected is not None:
                distances.append(abs(hit / count - expected))
    return max(distances, default=None)


LINKS.metric(
    name="pause_frames",
    title="Pause events",
    unit=MetricUnit.COUNT,
    better=Better.LESS,
    formula="pause frames with non-zero quanta; X-ON frames are not counted",
    source=PAUSE,
    takes=lambda run: (run[PauseCounts].frames,),
)(as_measured)


LINKS.metric(
    name="pause_time",
    title="Pause time",
    unit=MetricUnit.SECONDS,
    better=Better.LESS,
    formula="sum of (resume - pause) of a port and priority; what overlaps counts once",
    source=PAUSE,
    takes=lambda run: (run[PauseCounts].paused_s,),
)(as_measured)


@LINKS.metric(
    title="Pause fraction",
    unit=MetricUnit.SHARE,
    better=Better.LESS,
    headline=True,
    formula="pause time / time elapsed",
    source="HPCC, SIGCOMM 2019; " + DRAFT,
    takes=lambda run: (run[PauseCounts].longest_s, run[PauseCounts].elapsed_s),
)
def pause_fraction(paused_s: float, elapsed_s: float) -> float | None:
    """Time that the queue was paused which was paused longest, over time elapsed."""
    return paused_s / elapsed_s if elapsed_s > 0 else None


def queue_depth(depth_bytes: Sequence[float], share: float, weights: Sequence[float] | None = None) -> float | None:
    """A percentile of the depth of a port's queue over samples, or weighted by the time each depth was had."""
    if weights is None:
        return percentile(depth_bytes, share)
    return weighted_percentile(depth_bytes, weights, share)


LINKS.metric(
    name="queue_p50",
    title="Queue depth P50",
    unit=MetricUnit.BYTES,
    better=Better.LESS,
    formula=f"0.50 {PERCENTILE}, over samples of a port's queue (weighted by time where weights are given)",
    source=PERCENTILE_RULE,
    takes=lambda run: (run[QueueDepths].depth_bytes,),
)(partial(queue_depth, share=0.50))


LINKS.metric(
    name="queue_p99",
    title="Queue depth P99",
    unit=MetricUnit.BYTES,
    better=Better.LESS,
    headline=True,
    formula=f"0.99 {PERCENTILE}",
    source=PERCENTILE_RULE,
    takes=lambda run: (run[QueueDepths].depth_bytes,),
)(partial(queue_depth, share=0.99))


LINKS.metric(
    name="queue_max",
    title="Queue depth maximum",
    unit=MetricUnit.BYTES,
    better=Better.LESS,
    formula="the deepest sample",
    source=DRAFT,
    takes=lambda run: (run[QueueCounts].deepest_bytes,),
)(as_measured)


@LINKS.metric(
    title="Effective paths",
    unit=MetricUnit.COUNT,
    better=Better.MORE,
    formula="exp(H), H = -sum p ln p over the share p of bytes of each path",
    source="Hill 1973, Ecology 54(2), order 1",
    takes=lambda run: (run[UplinkLoads].active_switches,),
)
def effective_paths(path_bytes_by_switch: Sequence[Sequence[float]]) -> float | None:
    """The mean over switches of how many paths they make use of (`hill_number`)."""
    return mean_of_known(map(hill_number, path_bytes_by_switch))


def hill_number(path_bytes: Sequence[float]) -> float | None:
    """exp(H), H = -sum p ln p over the shares p of bytes by path: n where n paths carry the same, 1 where one has all.

    The Hill number of order 1 (Hill 1973).
    """
    total = math.fsum(path_bytes)
    if total <= 0:
        return None
    shares = (carried / total for carried in path_bytes)
    return math.exp(-math.fsum(share * math.log(share) for share in shares if share > 0))


@LINKS.metric(
    title="Paths used",
    unit=MetricUnit.SHARE,
    better=Better.MORE,
    formula="paths that carried anything / paths available",
    source=DRAFT,
    takes=lambda run: (run[UplinkLoads].active_switches,),
)
def paths_used(path_bytes_by_switch: Sequence[Sequence[float]]) -> float | None:
    """The mean over switches of the share of the available paths that carried anything."""
    return mean_of_known(
        sum(carried > 0 for carried in loads) / len(loads) if loads else None for loads in path_bytes_by_switch
    )


LINKS.metric(
    name="drops",
    title="Dropped packets",
    unit=MetricUnit.COUNT,
    better=Better.LESS,
    headline=True,
    formula="packets dropped by queues of the fabric, for whatever cause, and lost on its wires",
    source="RFC 2544 section 26.3 for the term",
    ideal=0.0,
    takes=lambda run: (run[QueueCounts].dropped_packets,),
)(as_measured)


LINKS.metric(
    name="trims",
    title="Trimmed packets",
    unit=MetricUnit.COUNT,
    better=Better.LESS,
    formula="packets whose payload a full queue cut off",
    source="UE Specification 1.0 section 4.1; NDP, SIGCOMM 2017",
    takes=lambda run: (run[QueueCounts].trimmed_packets,),
)(as_measured)
