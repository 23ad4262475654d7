"""Trust checks of the machine: its CPU, its wake-ups, its backlogs, its flows' starts, and its idle round trips."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from testbed.lab.core.deploy.watch.check import CheckStatus
from testbed.lab.core.deploy.watch.rtt import RttReport
from testbed.record.record import Check
from testbed.run.machine.canary import Lateness
from testbed.run.machine.cpu import MAX_CPU_BUSY, CpuUse, SoftnetCounts

MAX_STEAL = 0.05
MAX_START_SKEW = 0.10
"""The share of the measured time for which the last flows may run without the first ones."""


def check_machine(cpu: CpuUse, polling: float = 0.0) -> Iterator[Check]:
    """Judges the CPU time while traffic ran.

    `polling` is the share of it that went into looking for work without a pause, by programs that give way to all
    others; it does not count.
    """
    busy = max(0.0, cpu.busy - polling)
    besides = f", and {polling:.0%} looking for completions at the lowest priority" if polling else ""
    yield Check.at_most(
        name="cpu",
        title="CPU of the machine",
        value=busy,
        limit=MAX_CPU_BUSY,
        message=f"the machine was {busy:.0%} busy (limit {MAX_CPU_BUSY:.0%}){besides},"
        f" {cpu.steal:.0%} stolen by the hypervisor",
    )
    yield Check.at_most(
        name="steal",
        title="CPU stolen by the hypervisor",
        value=cpu.steal,
        limit=MAX_STEAL,
        message=f"{cpu.steal:.1%} of the CPU was given to other machines (limit {MAX_STEAL:.0%})",
    )


def check_start_skew(starts_s: Sequence[float], lasted_s: Sequence[float]) -> Iterator[Check]:
    """Judges whether timed flows ran together."""
    shortest = min(lasted_s, default=0.0)
    spread = max(starts_s, default=0.0) - min(starts_s, default=0.0)
    skew = spread / shortest if shortest > 0 else 0.0
    yield Check.at_most(
        name="start-skew",
        title="Flows ran together",
        value=skew,
        limit=MAX_START_SKEW,
        message=f"flows started within {spread:.2f} s of each other, {skew:.1%} of the measured time"
        f" (limit {MAX_START_SKEW:.0%})",
    )


MAX_DELAY_EXCESS = 0.02
"""The share of a base round trip by which packets may be held longer than their path's delay, on average."""


def check_delays(counters: Mapping[str, float], base_rtt_ns: int) -> Iterator[Check]:
    """Judges how exactly endpoints held packets for the delay of their path; `counters` are those of all workers."""
    handed = counters.get("delay_handed", 0)
    if not handed:
        return
    excess = counters.get("delay_excess_ns", 0) / handed / base_rtt_ns
    lost = round(counters.get("delay_overruns", 0))
    yield Check(
        name="path-delay",
        title="Packets held for their path's delay",
        value=excess,
        limit=MAX_DELAY_EXCESS,
        ok=abs(excess) <= MAX_DELAY_EXCESS and not lost,
        message=f"packets were held {excess:+.2%} of a base round trip longer than their path's delay, on average"
        f" (limit {MAX_DELAY_EXCESS:.0%})" + (f"; {lost} did not fit" if lost else ""),
    )


MAX_WIRES_LATE = 0.5
"""The lateness that the wires of a subnet may have on average, in times of a full frame: an HCA has eight that wait."""


def check_wires(late: Mapping[str, int], frame_ns: float) -> Iterator[Check]:
    """Judges how late the process that carries the frames of a subnet told HCAs of them; `frame_ns` is the time of a
    full frame on their links."""
    turns = late.get("turns", 0)
    mean_ns = late.get("sum_ns", 0) / turns if turns else 0.0
    yield Check.at_most(
        name="wires",
        title="The wires of the subnet were on time",
        value=mean_ns / frame_ns,
        limit=MAX_WIRES_LATE,
        message=f"frames were handed to HCAs {mean_ns / 1e6:.3f} ms late on average, {late.get('most_ns', 0) / 1e6:.2f}"
        f" ms at most, and one takes {frame_ns / 1e6:.2f} ms on its link",
    )


MAX_WAKE_NS = 5_000_000
"""The lateness with which a real-time thread may wake, as its 99th percentile: ten times what an undisturbed machine
needs."""


def check_lateness(lateness: Lateness | None) -> Iterator[Check]:
    """Judges how late the machine woke a real-time thread, the canary, while traffic ran."""
    if lateness is None:
        return
    yield Check.at_most(
        name="canary",
        title="A real-time thread was woken on time",
        value=lateness.p99_ns / 1e6,
        limit=MAX_WAKE_NS / 1e6,
        message=f"a real-time thread woke p50 {lateness.p50_ns / 1e6:.2f}, p99 {lateness.p99_ns / 1e6:.2f}, at most"
        f" {lateness.max_ns / 1e6:.2f} ms late (limit p99 {MAX_WAKE_NS / 1e6:g} ms)",
    )


MAX_LATE_SHARE = 0.02
"""The share of a run by which a step may begin late: in 230 runs of shipped scenarios it was 0.006 at most."""


def check_late_steps(counters: Mapping[str, float], elapsed_s: float) -> Iterator[Check]:
    """Judges how late a worker began a step that was due: what it sends then ends late through no fault of the fabric.

    Nothing where none was late at all, as in a simulation.
    """
    late_s = counters.get("latest_timer_us", 0.0) / 1e6
    if not late_s:
        return
    limit_s = max(MAX_WAKE_NS / 1e9, MAX_LATE_SHARE * elapsed_s)
    yield Check.at_most(
        name="late-steps",
        title="Steps began when they were due",
        value=late_s * 1e3,
        limit=limit_s * 1e3,
        message=f"a step of the workload began at most {late_s * 1e3:.2f} ms late (limit {limit_s * 1e3:.3g} ms:"
        f" {MAX_LATE_SHARE:.0%} of the run, or {MAX_WAKE_NS / 1e6:g} ms)",
    )


def check_backlogs(before: SoftnetCounts, after: SoftnetCounts) -> Iterator[Check]:
    """Judges how many packets the kernel dropped between the ports, where no queue of ours counts them."""
    dropped = after.dropped - before.dropped
    yield Check(
        name="softnet",
        title="No packet dropped between the ports",
        value=dropped,
        limit=0,
        ok=dropped == 0,
        message=f"the kernel's own backlog dropped {dropped} packets and ran out of its time slice"
        f" {after.squeezed - before.squeezed} times",
    )


def check_idle_rtt(before: RttReport, after: RttReport) -> Iterator[Check]:
    """Judges the idle fabric's round trips before and after the runs by what the topology declares."""
    worst, message = 0.0, ""
    ok = True
    for when, report in (("before", before), ("after", after)):
        for path in report.paths:
            if path.compared_ns is None:
                ok, message = False, f"no probe from {path.a} to {path.b} came back {when} the runs"
                continue
            off = abs(path.compared_ns - path.modelled_ns) / max(path.modelled_ns, 1)
            if path.status is CheckStatus.FAIL:
                ok, message = False, f"{when} the runs the round trip {path.a} to {path.b} was off: {path.detail}"
            worst = max(worst, off)
    yield Check(
        name="idle-rtt",
        title="Idle round trips as declared",
        value=worst,
        limit=1.0,
        ok=ok,
        message=message or f"idle round trips were within {worst:.1%} of the declared ones, or the machine's own",
    )
