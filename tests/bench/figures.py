"""A table of measured figures beside what was promised, printed at the end of a bench run."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from testbed.run.machine.canary import Lateness

NOISE = 1.5
"""Absolute times on a shared machine are marked when over, and fail only beyond this factor; ratios fail at once."""


MOST_STOLEN = 0.03
"""Share of the CPU time that a hypervisor may give to others while a figure is measured."""


def _cpu_ticks() -> tuple[int, int]:
    """Stolen and all ticks of all CPUs since the machine started (proc(5), /proc/stat)."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return ticks[7], sum(ticks)


class StolenTime:
    """How much of a test's time went to other machines on the same host: what it measured then tells of them."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self._stolen, self._all = _cpu_ticks()

    @property
    def share(self) -> float:
        stolen, total = _cpu_ticks()
        return (stolen - self._stolen) / max(total - self._all, 1)


STOLEN = StolenTime()
"""Of the test that is running; begun anew by a fixture."""


MOST_LATE_MS = 0.3
"""At the 99th percentile, of a real-time thread that sleeps (`testbed.run.machine.canary`). Where the machine wakes it
later, what reacts to events cannot show how fast it is itself."""


def doubt_of(late: Lateness, allowed_ns: float = math.inf) -> str:
    """Why a reaction measured meanwhile is not to be trusted; "" where it is.

    `allowed_ns` is what the one slowest reaction may take: where the machine alone used up half of it, nobody can tell.
    """
    if late.p99_ns / 1e6 > MOST_LATE_MS:
        return f"the machine wakes a real-time thread {late.p99_ns / 1e6:.2g} ms late"
    if late.max_ns > allowed_ns / 2:
        return f"the machine woke a real-time thread {late.max_ns / 1e6:.2g} ms late once"
    return ""


@dataclass(frozen=True, slots=True)
class Figure:
    """`measured` beside the one limit that is promised, `at_most` or `at_least`; `ratio` figures allow no noise."""

    what: str
    measured: float
    _: KW_ONLY
    at_most: float = math.inf
    at_least: float = -math.inf
    unit: str = ""
    ratio: bool = False
    stolen: float = field(default_factory=lambda: STOLEN.share)
    """Share of the CPU time that was stolen while it was measured."""
    doubt: str = ""
    """Why else it says more of the machine than of us; "" for no reason."""

    @property
    def distrust(self) -> str:
        """Why it is not to be trusted; "" where it is."""
        if self.stolen > MOST_STOLEN:
            return f"{self.stolen:.0%} of the CPU was stolen"
        return self.doubt

    @property
    def trusted(self) -> bool:
        return not self.distrust

    @property
    def met(self) -> bool:
        return self.at_least <= self.measured <= self.at_most

    @property
    def acceptable(self) -> bool:
        if self.met or self.ratio:
            return self.met
        return self.at_least / NOISE <= self.measured <= self.at_most * NOISE

    def row(self) -> str:
        sign, limit = (">=", self.at_least) if math.isinf(self.at_most) else ("<=", self.at_most)
        verdict = "met" if self.met else "OVER"
        if not self.met and not self.trusted:
            verdict = f"not to be trusted: {self.distrust}"
        elif not self.met and self.acceptable:
            verdict = f"OVER, within {NOISE:g} times: what a shared machine adds"
        return f"{self.what:<62} {self.measured:>9.2f} {self.unit:<3} {sign} {limit:<6g} {verdict}"


FIGURES: list[Figure] = []


def judge(*figures: Figure) -> None:
    """Record figures for the table and fail the test for one that is not acceptable.

    One that is missed and not to be trusted (the hypervisor took the CPU away, say) tells nothing of us, either way:
    the table says so.
    """
    FIGURES.extend(figures)
    bad = [figure.row() for figure in figures if figure.trusted and not figure.acceptable]
    assert not bad, "\n".join(bad)
