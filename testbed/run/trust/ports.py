"""Trust checks of switch ports: those with a backlog sent at their rate, and their counters add up.

A port in which packets wait sends at its rate, neither less (the machine was late) nor more: samples of queues tell.
Source: the network invariants of Handigol et al., "Reproducible Network Experiments Using Container-Based Emulation",
CoNEXT 2012.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from testbed.record.record import Check
from testbed.run.measuring.observation import Observation

if TYPE_CHECKING:
    from testbed.lab.observe.reconcile import Reconciliation

WINDOW_S = 0.1
MAX_DEVIATION = 0.05
"""The share of its rate by which a port may miss it, over all windows in which it has a backlog."""
LEAST_WINDOWS = 3
LEAST_BACKLOG_PACKETS = 2


def check_rates(seen: Observation, mtu_of: Mapping[int, int], disturbed: Collection[str] = ()) -> list[Check]:
    """Judges the port whose rate deviated most while packets waited in it; nothing where none ever had a backlog.

    `mtu_of` is each port's MTU, by number. Ports that were paused meanwhile are not judged, nor are those that faults
    befell (`disturbed`, as "node:interface").
    """
    if seen.samples is None or seen.table is None or seen.growth is None or len(seen.samples) < 2:
        return []
    table = seen.table
    times = seen.samples.times_ns / 1e9
    depth: dict[int, NDArray[np.float64]] = {}
    sent: dict[int, NDArray[np.float64]] = {}
    for index, (port, _) in enumerate(seen.samples.queues):
        column = seen.samples.columns["queues.bytes"][:, index].astype(np.float64)
        out = seen.samples.columns["queues.out_bytes"][:, index].astype(np.float64)
        depth[port] = depth[port] + column if port in depth else column
        sent[port] = sent[port] + out if port in sent else out
    paused = seen.growth.pauses["paused_ns"].sum(axis=1)
    worst, place, judged = 0.0, "", 0
    for port, backlog in depth.items():
        if paused[port] or table.place(port) in disturbed:
            continue
        deviation = _deviation(times, backlog, sent[port], table.rate_bps[port], LEAST_BACKLOG_PACKETS * mtu_of[port])
        if deviation is None:
            continue
        judged += 1
        if abs(deviation) >= abs(worst):
            worst, place = deviation, table.place(port)
    if not judged:
        return []
    return [
        Check.at_most(
            name="rate",
            title="Ports with a backlog sent at their rate",
            value=abs(worst),
            limit=MAX_DEVIATION,
            message=f"of {judged} ports with a backlog {place} deviated most from its rate: {worst:+.1%}"
            f" (limit {MAX_DEVIATION:.0%})",
        )
    ]


def check_balance(result: Reconciliation) -> list[Check]:
    """Tell whether the packets at every queue, link and switch are accounted for."""
    from testbed.lab.observe.reconcile import Balance

    return [
        Check.at_most(
            name="reconcile",
            title="Counters of the ports add up",
            value=sum(item.state is Balance.BROKEN for item in result.imbalances),
            limit=0,
            message=str(result),
        )
    ]


def _deviation(
    times: NDArray[np.float64],
    backlog: NDArray[np.float64],
    sent: NDArray[np.float64],
    rate_bps: float,
    least_bytes: float,
) -> float | None:
    """The share by which a port missed its rate, over all windows in which something always waited; None for few.

    Between two samples something waited if the first one saw at least what the port sends until the second.
    """
    carried = lasted = 0.0
    windows = begin = 0
    for index in range(1, len(times)):
        if backlog[index - 1] < max(least_bytes, rate_bps / 8 * (times[index] - times[index - 1])):
            begin = index
            continue
        if times[index] - times[begin] >= WINDOW_S:
            carried += sent[index] - sent[begin]
            lasted += times[index] - times[begin]
            windows += 1
            begin = index
    if windows < LEAST_WINDOWS:
        return None
    return 8 * carried / lasted / float(rate_bps) - 1
