"""Was the emulation itself able to do what it claims? Checks of the machine around every run."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.collect.cpu import CpuUse
from testbed.results import Check

MAX_CPU_BUSY = 0.90
"""Above it, what was measured is this machine and not the fabric."""
MAX_STEAL = 0.05
MAX_START_SKEW = 0.10
"""Of the measured time: so long do the last flows run without the first ones."""


def check_machine(cpu: CpuUse) -> list[Check]:
    """CPU time while traffic ran."""
    return [
        Check(
            name="cpu",
            title="CPU of the machine",
            value=cpu.busy,
            limit=MAX_CPU_BUSY,
            ok=cpu.busy <= MAX_CPU_BUSY,
            message=f"the machine was {cpu.busy:.0%} busy (limit {MAX_CPU_BUSY:.0%}),"
            f" {cpu.steal:.0%} stolen by the hypervisor",
        ),
        Check(
            name="steal",
            title="CPU stolen by the hypervisor",
            value=cpu.steal,
            limit=MAX_STEAL,
            ok=cpu.steal <= MAX_STEAL,
            message=f"{cpu.steal:.1%} of the CPU was given to other machines (limit {MAX_STEAL:.0%})",
        ),
    ]


def check_start_skew(starts_s: Sequence[float], lasted_s: Sequence[float]) -> list[Check]:
    """Whether timed flows ran together."""
    shortest = min(lasted_s, default=0.0)
    spread = max(starts_s, default=0.0) - min(starts_s, default=0.0)
    skew = spread / shortest if shortest > 0 else 0.0
    return [
        Check(
            name="start-skew",
            title="Flows ran together",
            value=skew,
            limit=MAX_START_SKEW,
            ok=skew <= MAX_START_SKEW,
            message=f"flows started within {spread:.2f} s of each other, {skew:.1%} of the measured time"
            f" (limit {MAX_START_SKEW:.0%})",
        )
    ]
