"""From pause frames to the intervals in which a priority was paused."""

from __future__ import annotations

import math
from collections.abc import Sequence

from testbed.workload.metrics.links import Interval


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
