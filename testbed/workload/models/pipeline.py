"""Pipeline schedules: in which order a stage does its forward and backward passes.

Both leave the same bubble, (p - 1) / m of the time of m micro-batches on p stages; 1F1B holds the activations of p
micro-batches at most instead of m. Sources: Huang et al., "GPipe", NeurIPS 2019, figure 2; Narayanan et al., "Efficient
large-scale language model training on GPU clusters using Megatron-LM", SC 2021, section 2.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from testbed.workload.choices import choose, require_positive


class Schedule(StrEnum):
    GPIPE = "gpipe"
    ONE_FORWARD_ONE_BACKWARD = "1f1b"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A micro-batch through one stage."""

    backward: bool
    micro_batch: int


def schedule_of(schedule: Schedule | str, *, stage: int, stages: int, micro_batches: int) -> list[Pass]:
    """The passes of one stage, in order."""
    require_positive(micro_batches=micro_batches)
    forward = [Pass(backward=False, micro_batch=number) for number in range(micro_batches)]
    backward = [Pass(backward=True, micro_batch=number) for number in range(micro_batches)]
    match choose(Schedule, schedule, "schedule"):
        case Schedule.GPIPE:
            return forward + backward[::-1]
        case Schedule.ONE_FORWARD_ONE_BACKWARD:
            warm_up = min(stages - stage - 1, micro_batches)
            steady = [one for pair in zip(forward[warm_up:], backward, strict=False) for one in pair]
            return forward[:warm_up] + steady + backward[micro_batches - warm_up :]
