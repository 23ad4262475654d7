"""A program of the user's own on a lab: whether its ranks can be placed, and what its small steps stand for.

A step of a small model here stands for one of a large model there by the factor s = bytes there / bytes here. Lab time
is then the real fabric's time x k / s, which is what the computing of a step is padded to.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.base.errors import ScenarioError
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.placed.lab import LiveLab
from testbed.run.schema.model import Workload
from testbed.workload.parameters import Values
from testbed.workload.registry import workload_kind

PADDING = "LAB_PAD_S"
"""The variable of a rank's environment that says how long a step waits instead of computing, s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Represented:
    """The real step that a step of a program stands for.

    `factor` is s, 1 where nothing is represented. `padding_s` is lab time; 0 without computing to stand for.
    """

    factor: float
    padding_s: float
    bytes_here: int | None
    """The stated bytes of the step here; None where none are."""


def represent(workload: Workload, *, bdp_bytes: int, k: float) -> Represented:
    """Work out what a step of a program stands for on a lab with this time scale and bandwidth-delay product."""
    kind = workload_kind(workload.kind)
    values = Values(
        parameters={one.name: one for one in kind.parameters}, written=workload.parameters, bdp_bytes=bdp_bytes
    )
    here = values.bytes("bytes") if values.given("bytes") else None
    factor = values.bytes("represents") / here if here and values.given("represents") else 1.0
    computing_s = values.ns("compute") / 1e9 if values.given("compute") else 0.0
    return Represented(factor=factor, padding_s=computing_s * k / factor, bytes_here=here)


def check_program(lab: LiveLab, workload: Workload, nics: tuple[PortPlan, ...], *, bdp_bytes: int) -> None:
    """Raise `ScenarioError` where nothing of a program would cross the fabric, or its steps cannot end in time."""
    if len({nic.node for nic in nics}) < 2:
        raise ScenarioError(
            f"all ranks of the program are on {nics[0].node}: nothing of it would cross the fabric",
            hint="ranks of two hosts or more",
        )
    stands = represent(workload, bdp_bytes=bdp_bytes, k=lab.plan.k)
    limit_s = workload.time_limit.seconds
    if stands.padding_s >= limit_s:
        raise ScenarioError(
            f"at k = {lab.plan.k:g} the computing of one step is {stands.padding_s:.0f} s, and the time limit is"
            f" {limit_s:g} s",
            hint="represents: 14GB beside bytes, a smaller scale.time, or a higher workload.time_limit",
        )
