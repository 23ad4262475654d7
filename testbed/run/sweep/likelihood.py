"""How likely the runs of a scenario are to be valid on this machine, before they are run.

What decides is the CPU: the traffic's share of it as the time scale plans it, what the runner itself takes, and what
others use now, against what the trust checks allow.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from testbed.lab.core.deploy.scale import ScaleResolution
from testbed.run.trust.machine import MAX_CPU_BUSY

RUNNER_CPUS = 0.3
"""What the runner takes of one CPU to read counters and workers' answers: 29 % were measured with 16 workers."""
COMFORTABLE_BUSY = 0.75
"""Up to here what is not foreseen, such as another program that starts, has room."""


class Likelihood(StrEnum):
    """How likely a run is to be valid."""

    LIKELY = "likely"
    UNCERTAIN = "uncertain"
    UNLIKELY = "unlikely"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectancy:
    """The share of all CPUs that a run is expected to keep busy, what it is made of, and what follows.

    `traffic` is an upper bound where `bound`: that of all NICs sending at once, which the workload may not do.
    """

    valid: Likelihood
    busy: float
    traffic: float
    runner: float
    others: float
    limit: float
    bound: bool

    @property
    def sentence(self) -> str:
        """Say it in a sentence."""
        most = "at most " if self.bound else ""
        parts = f"{self.traffic:.0%} the traffic, {self.runner:.0%} the runner, {self.others:.0%} others now"
        verdict = {
            Likelihood.LIKELY: "so a run is likely to be valid",
            Likelihood.UNCERTAIN: "so a run may be invalid",
            Likelihood.UNLIKELY: "so a run is unlikely to be valid",
        }[self.valid]
        return (
            f"{most}{self.busy:.0%} of the CPUs are expected to be busy ({parts}), and {self.limit:.0%} are allowed,"
            f" {verdict}"
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"sentence": self.sentence}


def expect_busy(scale: ScaleResolution, cores: int | None = None) -> Expectancy:
    """Return what is expected of runs at this time scale; `cores` are those of this machine by default."""
    runner = RUNNER_CPUS / (cores or len(os.sched_getaffinity(0)))
    others = scale.others.busy + scale.others.steal
    busy = min(1.0, scale.load + runner + others)
    if busy <= COMFORTABLE_BUSY:
        valid = Likelihood.LIKELY
    elif busy <= MAX_CPU_BUSY or scale.bound:
        valid = Likelihood.UNCERTAIN
    else:
        valid = Likelihood.UNLIKELY
    return Expectancy(
        valid=valid, busy=busy, traffic=scale.load, runner=runner, others=others, limit=MAX_CPU_BUSY, bound=scale.bound
    )
