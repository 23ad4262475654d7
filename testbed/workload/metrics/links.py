"""Metrics of links and queues: how evenly links are loaded, marks, pauses, depths, paths in use."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from functools import partial

from testbed.workload.metrics.marking import LEAST_PACKETS
from testbed.workload.metrics.metric import Better, Metric, MetricFamily, MetricUnit
from testbed.workload.metrics.run_samples import (
    FabricBytes,
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

LINKS = MetricFamily()

Interval = tuple[float, float]
"""From and until, s."""


def mmr_uplinks(load_bytes: Sequence[float]) -> float | None:
    """max / mean of the bytes sent by the uplinks of one tier."""
    return max_mean_ratio(load_bytes)


LINKS.add(
    Metric(
        compute=mmr_uplinks,
        title="Uplink max / mean",
        unit=MetricUnit.RATIO,
        better=Better.LESS,
        headline=True,
        formula="MMR: bytes sent by the busiest uplink of a tier / mean of all of them; whole flows cannot do better"
        " than ceil(n/m) / (n/m)",
        source=MMR,
        proves_scale=True,
        measure=lambda run: mmr_uplinks(run[UplinkLoads].load_bytes),
    )
)


def mmr_worst_switch(load_bytes_by_switch: Mapping[str, Sequence[float]]) -> float | None:
    """The largest max / mean among the uplinks of a single switch."""
    ratios = (max_mean_ratio(loads) for loads in load_bytes_by_switch.values())
    return max((ratio for ratio in ratios if ratio is not None), default=None)


LINKS.add(
    Metric(
        compute=mmr_worst_switch,
        title="Uplink max / mean, worst switch",
        unit=MetricUnit.RATIO,
        better=Better.LESS,
        headline=True,
        formula="the largest MMR among the uplinks of a single switch",
        source=MMR,
        measure=lambda run: mmr_worst_switch(run[UplinkLoads].bytes_by_switch),
    )
)


def jain_links(load_bytes: Sequence[float]) -> float | None:
    return jain_index(load_bytes)


LINKS.add(
    Metric(
        compute=jain_links,
        title="Jain's index over uplinks",
        unit=MetricUnit.RATIO,
        better=Better.MORE,
        headline=True,
        formula="(sum x)^2 / (n * sum x^2), x: bytes sent by each uplink of a tier",
        source=JAIN + "; " + DRAFT,
        proves_scale=True,
        measure=lambda run: jain_links(run[UplinkLoads].load_bytes),
    )
)


def link_utilisation(sent_bytes: float, time_s: float, rate_bps: float) -> float | None:
    """Bits sent over what the line carries in that time. Both count the same headers."""
    return 8 * sent_bytes / (time_s * rate_bps) if time_s > 0 and rate_bps > 0 else None


LINKS.add(
    Metric(
        compute=link_utilisation,
        title="Link utilisation",
        unit=MetricUnit.SHARE,
        better=Better.NEITHER,
        formula="8 * bytes sent / (t * line rate)",
        source=DRAFT,
        measure=lambda run: max(run[UplinkLoads].utilisation),
    )
)


def link_imbalance(utilisation: Sequence[float]) -> float | None:
    """(max - min) / mean of the utilisations of links that should be equal."""
    total = math.fsum(utilisation)
    return (max(utilisation) - min(utilisation)) * len(utilisation) / total if total > 0 else None


LINKS.add(
    Metric(
        compute=link_imbalance,
        title="Link utilisation imbalance",
        unit=MetricUnit.RATIO,
        better=Better.LESS,
        formula="(max - min) / mean of the utilisations of a tier's links",
        source="Alizadeh et al., CONGA, SIGCOMM 2014, figure 12",
        measure=lambda run: link_imbalance(run[UplinkLoads].utilisation),
    )
)


def uplink_share(load_bytes: Sequence[float], fabric_bytes: float) -> float | None:
    """The bytes of all uplinks of a tier over the payload that entered the fabric; None where none did."""
    return math.fsum(load_bytes) / fabric_bytes if fabric_bytes > 0 else None


LINKS.add(
    Metric(
        compute=uplink_share,
        title="Bytes on uplinks, share of the fabric's",
        unit=MetricUnit.SHARE,
        better=Better.NEITHER,
        formula="bytes sent by all uplinks of a tier / payload bytes that entered the fabric; headers and what is sent"
        " again are in the former alone; traffic that stays on its rail switch has 0",
        source="Wang et al., Rail-only, arXiv 2307.12169",
        measure=lambda run: uplink_share(run[UplinkLoads].load_bytes, float(run[FabricBytes].payload_bytes)),
    )
)


def link_deviation(utilisation: Sequence[float]) -> float | None:
    """Standard deviation over mean: of these very links, so the population's."""
    total = math.fsum(utilisation)
    return statistics.pstdev(utilisation) * len(utilisation) / total if total > 0 else None


LINKS.add(
    Metric(
        compute=link_deviation,
        title="Link utilisation deviation",
        unit=MetricUnit.RATIO,
        better=Better.LESS,
        formula="standard deviation (of the population) / mean of the utilisations of a tier's links",
        source=DRAFT,
        measure=lambda run: link_deviation(run[UplinkLoads].utilisation),
    )
)


def ecn_mark_ratio(marked_packets: float, ect_packets: float) -> float | None:
    """CE-marked over ECN-capable packets (the marked ones among them)."""
    if marked_packets > ect_packets:
        raise ValueError(f"{marked_packets:g} packets are marked of {ect_packets:g}")
    return marked_packets / ect_packets if ect_packets > 0 else None


LINKS.add(
    Metric(
        compute=ecn_mark_ratio,
        title="ECN marking ratio",
        unit=MetricUnit.SHARE,
        better=Better.LESS,
        headline=True,
        formula="CE-marked packets / ECN-capable packets, of a queue or end to end",
        source="RFC 3168; " + DRAFT,
        measure=lambda run: _measure_ecn_mark_ratio(run[QueueCounts]),
    )
)


def marking_error(packets: Sequence[int], marked: Sequence[int], ideal: Sequence[float | None]) -> float | None:
    """The largest distance of a bin's share of marked packets from the ideal; bins of few packets say nothing."""
    distances = []
    for count, hit, expected in zip(packets, marked, ideal, strict=True):
        if hit > count:
            raise ValueError(f"{hit} of {count} packets marked")
        if count >= LEAST_PACKETS and expected is not None:
            distances.append(abs(hit / count - expected))
    return max(distances, default=None)


LINKS.add(
    Metric(
        compute=marking_error,
        title="Marks off their curve",
        unit=MetricUnit.SHARE,
        better=Better.LESS,
        emulation=True,
        formula="max over queue depths of |share of ECT packets marked - WRED's curve|; bins of Kmax / 16 with at least"
        f" {LEAST_PACKETS} packets, those at a step left out",
        source="DCQCN (SIGCOMM 2015) figure 5; Floyd and Jacobson 1993",
        measure=lambda run: _measure_marking_error(run[MarkingCurves]),
    )
)


def pause_frames(frames: Sequence[tuple[float, int]]) -> float | None:
    """Pause events: frames with non-zero quanta; X-ON frames are not counted."""
    return float(sum(quanta > 0 for _, quanta in frames))


LINKS.add(
    Metric(
        compute=pause_frames,
        title="Pause events",
        unit=MetricUnit.COUNT,
        better=Better.LESS,
        formula="pause frames with non-zero quanta; X-ON frames are not counted",
        source=PAUSE,
        measure=lambda run: run[PauseCounts].frames,
    )
)


def pause_time(pauses: Sequence[Interval]) -> float | None:
    """Time paused, s; intervals that overlap count once."""
    total, reached = 0.0, -math.inf
    for since, until in sorted(pauses):
        if until < since:
            raise ValueError(f"a pause from {since} until {until}")
        total += max(0.0, until - max(since, reached))
        reached = max(reached, until)
    return total


LINKS.add(
    Metric(
        compute=pause_time,
        title="Pause time",
        unit=MetricUnit.SECONDS,
        better=Better.LESS,
        formula="sum of (resume - pause) of a port and priority; what overlaps counts once",
        source=PAUSE,
        measure=lambda run: run[PauseCounts].paused_s,
    )
)


def pause_fraction(pauses: Sequence[Interval], elapsed_s: float) -> float | None:
    """Time paused over time elapsed."""
    paused = pause_time(pauses)
    return None if paused is None or elapsed_s <= 0 else paused / elapsed_s


LINKS.add(
    Metric(
        compute=pause_fraction,
        title="Pause fraction",
        unit=MetricUnit.SHARE,
        better=Better.LESS,
        headline=True,
        formula="pause time / time elapsed",
        source="HPCC, SIGCOMM 2019; " + DRAFT,
        measure=lambda run: _measure_pause_fraction(run[PauseCounts]),
    )
)


def queue_depth(depth_bytes: Sequence[float], share: float, weights: Sequence[float] | None = None) -> float | None:
    """A percentile of the depth of a port's queue over samples, or weighted by the time each depth was had."""
    if weights is None:
        return percentile(depth_bytes, share)
    return weighted_percentile(depth_bytes, weights, share)


LINKS.add(
    Metric(
        compute=partial(queue_depth, share=0.50),
        name="queue_p50",
        title="Queue depth P50",
        unit=MetricUnit.BYTES,
        better=Better.LESS,
        formula=f"0.50 {PERCENTILE}, over samples of a port's queue (weighted by time where weights are given)",
        source=PERCENTILE_RULE,
        measure=lambda run: queue_depth(run[QueueDepths].depth_bytes, share=0.50),
    )
)


LINKS.add(
    Metric(
        compute=partial(queue_depth, share=0.99),
        name="queue_p99",
        title="Queue depth P99",
        unit=MetricUnit.BYTES,
        better=Better.LESS,
        headline=True,
        formula=f"0.99 {PERCENTILE}",
        source=PERCENTILE_RULE,
        measure=lambda run: queue_depth(run[QueueDepths].depth_bytes, share=0.99),
    )
)


def queue_max(depth_bytes: Sequence[float]) -> float | None:
    return max(depth_bytes, default=None)


LINKS.add(
    Metric(
        compute=queue_max,
        title="Queue depth maximum",
        unit=MetricUnit.BYTES,
        better=Better.LESS,
        formula="the deepest sample",
        source=DRAFT,
        measure=lambda run: run[QueueCounts].deepest_bytes,
    )
)


def effective_paths(path_bytes: Sequence[float]) -> float | None:
    """exp(H), H = -sum p ln p over the shares p of bytes by path: n where n paths carry the same, 1 where one has all.

    The Hill number of order 1 (Hill 1973).
    """
    total = math.fsum(path_bytes)
    if total <= 0:
        return None
    shares = (carried / total for carried in path_bytes)
    return math.exp(-math.fsum(share * math.log(share) for share in shares if share > 0))


LINKS.add(
    Metric(
        compute=effective_paths,
        title="Effective paths",
        unit=MetricUnit.COUNT,
        better=Better.MORE,
        formula="exp(H), H = -sum p ln p over the share p of bytes of each path",
        source="Hill 1973, Ecology 54(2), order 1",
        measure=lambda run: mean_of_known(map(effective_paths, run[UplinkLoads].active_switches)),
    )
)


def paths_used(path_bytes: Sequence[float]) -> float | None:
    """The share of the available paths that carried anything."""
    return sum(carried > 0 for carried in path_bytes) / len(path_bytes) if path_bytes else None


LINKS.add(
    Metric(
        compute=paths_used,
        title="Paths used",
        unit=MetricUnit.SHARE,
        better=Better.MORE,
        formula="paths that carried anything / paths available",
        source=DRAFT,
        measure=lambda run: mean_of_known(map(paths_used, run[UplinkLoads].active_switches)),
    )
)


def drops(packets_by_queue: Sequence[float]) -> float | None:
    """Over all queues."""
    return math.fsum(packets_by_queue) if packets_by_queue else None


LINKS.add(
    Metric(
        compute=drops,
        title="Dropped packets",
        unit=MetricUnit.COUNT,
        better=Better.LESS,
        headline=True,
        formula="packets dropped by queues of the fabric, for whatever cause, and lost on its wires",
        source="RFC 2544 section 26.3 for the term",
        ideal=0.0,
        measure=lambda run: run[QueueCounts].dropped_packets,
    )
)


LINKS.add(
    Metric(
        compute=drops,
        name="trims",
        title="Trimmed packets",
        unit=MetricUnit.COUNT,
        better=Better.LESS,
        formula="packets whose payload a full queue cut off",
        source="UE Specification 1.0 section 4.1; NDP, SIGCOMM 2017",
        measure=lambda run: run[QueueCounts].trimmed_packets,
    )
)


def _measure_ecn_mark_ratio(seen: QueueCounts) -> float | None:
    """The counters are read some milliseconds apart, so that marks may be ahead of packets: no reason to fail."""
    return seen.marked_packets / seen.ect_packets if seen.ect_packets else None


def _measure_marking_error(curves: MarkingCurves) -> float | None:
    """The largest error of any class."""
    errors = [marking_error(one.packets, one.marked, one.ideal) for one in curves.classes]
    return max((error for error in errors if error is not None), default=None)


def _measure_pause_fraction(pauses: PauseCounts) -> float | None:
    """Return the share of time of the queue that was paused longest."""
    return pauses.longest_s / pauses.elapsed_s if pauses.elapsed_s > 0 else None
