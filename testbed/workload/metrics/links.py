"""Metrics of links and queues: how evenly links are loaded, marks, pauses, depths, paths in use."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from testbed.workload.metrics.statistics import jain_index, max_mean_ratio, percentile, weighted_percentile

Interval = tuple[float, float]
"""From and until, s."""


def mmr_uplinks(load_bytes: Sequence[float]) -> float | None:
    """max / mean of the bytes sent by the uplinks of one tier."""
    return max_mean_ratio(load_bytes)


def mmr_worst_switch(load_bytes_by_switch: Mapping[str, Sequence[float]]) -> float | None:
    """The largest max / mean among the uplinks of a single switch."""
    ratios = (max_mean_ratio(loads) for loads in load_bytes_by_switch.values())
    return max((ratio for ratio in ratios if ratio is not None), default=None)


def jain_links(load_bytes: Sequence[float]) -> float | None:
    return jain_index(load_bytes)


def link_imbalance(utilisation: Sequence[float]) -> float | None:
    """(max - min) / mean of the utilisations of links that should be equal."""
    total = math.fsum(utilisation)
    return (max(utilisation) - min(utilisation)) * len(utilisation) / total if total > 0 else None


def link_deviation(utilisation: Sequence[float]) -> float | None:
    """Standard deviation over mean: of these very links, so the population's."""
    total = math.fsum(utilisation)
    return statistics.pstdev(utilisation) * len(utilisation) / total if total > 0 else None


def link_utilisation(sent_bytes: float, time_s: float, rate_bps: float) -> float | None:
    """Bits sent over what the line carries in that time. Both count the same headers."""
    return 8 * sent_bytes / (time_s * rate_bps) if time_s > 0 and rate_bps > 0 else None


def ecn_mark_ratio(marked_packets: float, ect_packets: float) -> float | None:
    """CE-marked over ECN-capable packets (the marked ones among them)."""
    if marked_packets > ect_packets:
        raise ValueError(f"{marked_packets:g} packets are marked of {ect_packets:g}")
    return marked_packets / ect_packets if ect_packets > 0 else None


def pause_intervals(
    frames: Sequence[tuple[float, int]], *, end_s: float, quantum_s: float | None = None
) -> list[Interval]:
    """When a priority was paused, from its pause frames: (time, quanta), in order of time.

    A frame with quanta pauses or extends, one with none resumes (X-ON). `quantum_s` is 512 bit times of the port
    (IEEE 802.1Q clause 36): a pause ends by itself after its quanta; None leaves it until a resume or `end_s`.
    """
    found: list[Interval] = []
    since, until, last = None, end_s, -math.inf
    for time_s, quanta in frames:
        if time_s < last:
            raise ValueError("pause frames are not in order of time")
        last = time_s
        if since is not None and until < time_s:
            found.append((since, until))
            since = None
        if quanta <= 0:
            if since is not None:
                found.append((since, time_s))
            since = None
            continue
        since = time_s if since is None else since
        until = end_s if quantum_s is None else min(end_s, time_s + quanta * quantum_s)
    if since is not None and until > since:
        found.append((since, until))
    return found


def pause_frames(frames: Sequence[tuple[float, int]]) -> float | None:
    """Pause events: frames with non-zero quanta; X-ON frames are not counted."""
    return float(sum(quanta > 0 for _, quanta in frames))


def pause_time(pauses: Sequence[Interval]) -> float | None:
    """Time paused, s; intervals that overlap count once."""
    total, reached = 0.0, -math.inf
    for since, until in sorted(pauses):
        if until < since:
            raise ValueError(f"a pause from {since} until {until}")
        total += max(0.0, until - max(since, reached))
        reached = max(reached, until)
    return total


def pause_fraction(pauses: Sequence[Interval], elapsed_s: float) -> float | None:
    """Time paused over time elapsed."""
    paused = pause_time(pauses)
    return None if paused is None or elapsed_s <= 0 else paused / elapsed_s


def queue_depth(depth_bytes: Sequence[float], share: float, weights: Sequence[float] | None = None) -> float | None:
    """A percentile of the depth of a port's queue over samples, or weighted by the time each depth was had."""
    if weights is None:
        return percentile(depth_bytes, share)
    return weighted_percentile(depth_bytes, weights, share)


def queue_max(depth_bytes: Sequence[float]) -> float | None:
    return max(depth_bytes, default=None)


def effective_paths(path_bytes: Sequence[float]) -> float | None:
    """exp(H), H = -sum p ln p over the shares p of bytes by path: n where n paths carry the same, 1 where one has all.

    The Hill number of order 1 (Hill 1973).
    """
    total = math.fsum(path_bytes)
    if total <= 0:
        return None
    shares = (carried / total for carried in path_bytes)
    return math.exp(-math.fsum(share * math.log(share) for share in shares if share > 0))


def paths_used(path_bytes: Sequence[float]) -> float | None:
    """The share of the available paths that carried anything."""
    return sum(carried > 0 for carried in path_bytes) / len(path_bytes) if path_bytes else None


def drops(packets_by_queue: Sequence[float]) -> float | None:
    """Over all queues."""
    return math.fsum(packets_by_queue) if packets_by_queue else None
