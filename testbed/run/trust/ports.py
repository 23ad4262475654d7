"""Trust checks of ports: queues, pauses and counters of those with QoS, and links of scale-up domains.

A port in which packets wait sends at its rate, neither less (the machine was late) nor more: samples of queues tell.
Source: the network invariants of Handigol et al., "Reproducible Network Experiments Using Container-Based Emulation",
CoNEXT 2012. In a lab with `qos:` no lossless packet is dropped, and every pause is obeyed in time."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.record.record import Check
from testbed.record.samples import ScaleUpLoad
from testbed.run.measuring.observation import Observation
from testbed.run.placed.lab import LiveLab

if TYPE_CHECKING:
    from testbed.daemons.portd.client import LabStatus
    from testbed.lab.observe.port_table import PortTable
    from testbed.lab.observe.reconcile import Reconciliation
    from testbed.lab.observe.telemetry import Snapshot


WINDOW_S = 0.1
MAX_DEVIATION = 0.05
"""The share of its rate by which a port may miss it, over all windows in which it has a backlog."""
LEAST_WINDOWS = 3
LEAST_BACKLOG_PACKETS = 2


def check_rates(seen: Observation, mtu_of: Mapping[int, int], disturbed: Collection[str] = ()) -> Iterator[Check]:
    """Judges the port whose rate deviated most while packets waited in it; nothing where none ever had a backlog.

    `mtu_of` is each port's MTU, by number. Ports that were paused meanwhile are not judged, nor are those that faults
    befell (`disturbed`, as "node:interface").
    """
    if seen.samples is None or seen.table is None or seen.growth is None or len(seen.samples) < 2:
        return
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
        deviation = _deviation(times, backlog, sent[port], table.rate_bps[port], mtu_of[port])
        if deviation is None:
            continue
        judged += 1
        if abs(deviation) >= abs(worst):
            worst, place = deviation, table.place(port)
    if not judged:
        return
    yield Check.at_most(
        name="rate",
        title="Ports with a backlog sent at their rate",
        value=abs(worst),
        limit=MAX_DEVIATION,
        message=f"of {judged} ports with a backlog {place} deviated most from its rate: {worst:+.1%}"
        f" (limit {MAX_DEVIATION:.0%})",
    )


def check_balance(result: Reconciliation) -> Iterator[Check]:
    """Tell whether the packets at every queue, link and switch are accounted for."""
    from testbed.lab.observe.reconcile import Balance

    yield Check.at_most(
        name="reconcile",
        title="Counters of the ports add up",
        value=sum(item.state is Balance.BROKEN for item in result.imbalances),
        limit=0,
        message=str(result),
    )


def _deviation(
    times: NDArray[np.float64],
    backlog: NDArray[np.float64],
    sent: NDArray[np.float64],
    rate_bps: float,
    mtu: float,
) -> float | None:
    """The share by which a port missed its rate, over all windows in which something always waited; None for few.

    Between two samples something waited if the first one saw at least what the port sends until the second. A packet
    counts as sent all at once, so a stretch of windows may lack one of up to `mtu` bytes, or have one too many: that
    much of a difference is none of the port's.
    """
    carried = lasted = 0.0
    windows = stretches = begin = 0
    follows = False
    for index in range(1, len(times)):
        waiting = max(LEAST_BACKLOG_PACKETS * mtu, rate_bps / 8 * (times[index] - times[index - 1]))
        if backlog[index - 1] < waiting:
            begin, follows = index, False
            continue
        if times[index] - times[begin] >= WINDOW_S:
            carried += sent[index] - sent[begin]
            lasted += times[index] - times[begin]
            windows += 1
            stretches += not follows
            begin, follows = index, True
    if windows < LEAST_WINDOWS:
        return None
    due = lasted * rate_bps / 8
    missed = carried - due
    return math.copysign(max(0.0, abs(missed) - stretches * mtu), missed) / due


def reset_reactions(lab: LiveLab) -> None:
    """Have the pause agent forget what it measured, so that the pauses of one run alone are judged."""
    if lossless_priorities(lab.plan):
        lab.pause_agent.reset()


def lossless_priorities(plan: LabPlan) -> list[int]:
    """The priorities of the lab's lossless classes; none without `qos:`."""
    if plan.qos is None:
        return []
    return sorted({item.priority for profile in plan.qos.profiles for item in profile.classes if item.lossless})


def check_lossless(plan: LabPlan, seen: Observation, disturbed: Collection[str] = ()) -> Iterator[Check]:
    """Tell whether a packet of a lossless class was dropped at a queue; nothing where there is no such class.

    Where a PFC watchdog has freed a queue, what that sends against the will of its peer finds no headroom there, as is
    meant: such drops do not count, at the peer's switch and of that priority. Nor does what a link took along that went
    down, at ports that a fault befell (`disturbed`, as "node:interface").
    """
    from testbed.lab.observe.telemetry import QUEUE_DROPS

    if not lossless_priorities(plan) or seen.growth is None or seen.table is None:
        return
    queues, lossless = seen.growth.queues, seen.table.lossless
    packets = sum(int(queues[f"{name}_packets"][lossless].sum()) for name in QUEUE_DROPS.values())
    behind = _behind_freed(seen.table, seen.growth) & lossless
    befallen = [number for number in range(len(lossless)) if seen.table.place(number) in disturbed]
    meant = {
        "behind queues that PFC watchdogs freed": int(queues["headroom_packets"][behind].sum()),
        "with links that went down by a fault": int(queues["purged_packets"][befallen][lossless[befallen]].sum()),
    }
    packets -= sum(meant.values())
    more = "".join(f", and {count} more {where}" for where, count in meant.items() if count)
    yield Check(
        name="lossless",
        title="No packet of a lossless class dropped",
        value=packets,
        limit=0,
        ok=not packets,
        message=f"{packets} packets of lossless classes were dropped{more}",
    )


def _behind_freed(table: PortTable, growth: Snapshot) -> NDArray[np.bool_]:
    """Return the queues of the switches that a freed queue sends to, of its priority."""
    freed = (growth.pauses["watchdog_events"] != 0) | (growth.pauses["ignored"] != 0)
    found = np.zeros(freed.shape, bool)
    for port, priority in np.argwhere(freed).tolist():
        if peer := int(table.peer[port]):
            node = table.nodes[peer]
            found[[number for number, name in enumerate(table.nodes) if name == node], priority] = True
    return found


def check_reaction(pausing: LabStatus | None, plan: LabPlan) -> Iterator[Check]:
    """Tell whether pauses were obeyed within the time that the headroom is planned for; nothing without lossless
    classes."""
    if pausing is None or plan.qos is None:
        return
    reaction, planned_ns = pausing.reaction, plan.qos.reaction_ns
    yield Check.at_most(
        name="pause-reaction",
        title="Pauses obeyed within the planned time",
        value=reaction.max_ns / 1e6,
        limit=planned_ns / 1e6,
        message=f"{reaction.count} pauses were obeyed within p50 {reaction.p50_ns / 1e6:.2f}, p99"
        f" {reaction.p99_ns / 1e6:.2f}, at most {reaction.max_ns / 1e6:.2f} ms; headroom is planned for"
        f" {planned_ns / 1e6:.2f} ms",
    )


MAX_FLOOR = 0.10
"""The share of a domain's modelled round trip that the machine may add to it, idle."""
MAX_LATENESS = 0.10
"""The share of a credit loop by which frames may leave late, as the 0.999 percentile."""


def check_domains(loads: Sequence[ScaleUpLoad]) -> Iterator[Check]:
    """Judge the idle round trip and the lateness of the switch of the worst domain; nothing without any."""
    floors = [(load.rtt_floor_s / load.rtt_s, load) for load in loads if load.rtt_floor_s is not None]
    if floors:
        share, load = max(floors, key=lambda item: item[0])
        yield Check.at_most(
            name="scale-up-floor",
            title="Idle round trips of scale-up domains",
            value=share,
            limit=MAX_FLOOR,
            message=f"an idle round trip of {load.domain} took {share:.1%} longer than the modelled one of"
            f" {load.rtt_s * 1e3:.3g} ms of lab time (limit {MAX_FLOOR:.0%}); a higher scale.time makes it less",
        )
    asked = [(load.lateness_p999_s / load.credit_loop_s, load) for load in loads if not load.problem]
    if asked:
        share, load = max(asked, key=lambda item: item[0])
        yield Check.at_most(
            name="scale-up-lateness",
            title="Scale-up switches sent frames on time",
            value=share,
            limit=MAX_LATENESS,
            message=f"frames left the switch of {load.domain} p99.9 {load.lateness_p999_s * 1e3:.2g} ms late,"
            f" {share:.1%} of a credit loop (limit {MAX_LATENESS:.0%})",
        )
