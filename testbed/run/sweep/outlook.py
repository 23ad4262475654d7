"""The outlook on a sweep before anything is deployed: each point's lab, ranks, transfers, bytes and time, and how
likely its runs are to be valid on this machine.

The CPU decides about that: the traffic's share of it as the time scale plans it, what the runner itself takes,
and what others use now, against what the trust checks allow.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from testbed.lab.core.deploy.scale import ScaleResolution
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.run.ideals.point_ideals import ideal_s
from testbed.run.machine.cpu import MAX_CPU_BUSY
from testbed.run.placed.lab import PlannedLab
from testbed.run.placed.traffic import lab_transports, make_traffic
from testbed.run.sweep.points import Point, Sweep, topology_key
from testbed.run.sweep.scales import ScenarioScales
from testbed.run.transports.registry import transport_on
from testbed.workload.steps import Compute, fabric_bytes, payload_bytes

DEPLOY_S = 1.5
DEPLOY_S_PER_NODE = 0.03
DEPLOY_S_PER_SWITCH = 0.15
"""Bring-up until converged and removal: 300 hosts and 6 switches in 6.6 s, 128 hosts and 40 switches in 10 s, on two
cores (docs/concepts/convergence.md, "How fast")."""
RUN_OVERHEAD_S = 1.0
"""Starting the traffic's processes once for all, and reading all counters before and after a run."""
IPERF_OVERHEAD_S = 2.5
"""Servers, and the warm-up of every flow."""
RUNNER_CPUS = 0.3
"""The runner's share of one CPU, to read counters and workers' answers: 29 % were measured with 16 workers."""
COMFORTABLE_BUSY = 0.75
"""Up to here what is not foreseen, such as another program that starts, has room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointOutlook:
    """The outlook on one run of a point, with the first seed; `estimated_s` is wall-clock time for all its runs,
    without the lab.

    `traffic_s` is the time in which an ideal fabric would be done, in lab time: real runs take longer.
    """

    index: int
    name: str
    values: dict[str, Any]
    lab: str
    hosts: int
    switches: int
    k: float
    workload: str
    ranks: int
    transfers: int
    requests: int
    """Over HTTP."""
    computations: int
    bytes: int
    fabric_bytes: int
    """The bytes of transfers between hosts."""
    traffic_s: float | None
    runs: int
    estimated_s: float
    warnings: list[str]
    """Things that are allowed, and hardly meant."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def foresee_point(point: Point, lab: Lab, plan: LabPlan) -> PointOutlook:
    """Makes the traffic of the first run. Raises `ScenarioError` where this lab cannot carry it."""
    scenario = point.scenario
    planned = PlannedLab(model=lab, plan=plan).of_network(*scenario.workload.ranks.networks_in(lab))
    traffic = make_traffic(scenario, planned, seed=scenario.repeat.seed)
    transfers = traffic.workload.transfers
    program = scenario.workload.is_program
    timed = scenario.workload.duration
    expected_s = timed.seconds if timed is not None else None if program else ideal_s(scenario, planned, traffic)
    if scenario.transport.measures_latency:
        expected_s = transport_on(planned, scenario.transport).expected_latency_s(traffic)
    warnings = [line for one in lab_transports(scenario, planned) for line in one.warnings()]
    overhead_s = IPERF_OVERHEAD_S if scenario.by_programs else RUN_OVERHEAD_S
    limit_s = scenario.workload.time_limit.seconds  # nobody but the program knows how long it takes
    return PointOutlook(
        index=point.index,
        name=point.name,
        values=dict(point.values),
        lab=lab.name,
        hosts=len(lab.hosts),
        switches=len(lab.switches),
        k=plan.k,
        workload=scenario.workload.kind,
        ranks=len(traffic.placement.nics),
        transfers=0 if program else len(transfers),
        requests=len(traffic.workload.requests),
        computations=sum(isinstance(step, Compute) for step in traffic.workload.steps),
        bytes=0 if timed is not None or program else payload_bytes(traffic.workload),
        fabric_bytes=0 if timed is not None or program else fabric_bytes(traffic.workload),
        traffic_s=expected_s,
        runs=scenario.repeat.runs,
        estimated_s=scenario.repeat.runs * ((limit_s if program else expected_s or 0.0) + overhead_s),
        warnings=list(dict.fromkeys(warnings)),
    )


def deploy_estimate_s(lab: Lab) -> float:
    """Wall-clock time of bringing a lab up and removing it."""
    return DEPLOY_S + DEPLOY_S_PER_NODE * len(lab.nodes) + DEPLOY_S_PER_SWITCH * len(lab.speakers)


def foresee_sweep(sweep: Sweep, scales: ScenarioScales) -> list[PointOutlook]:
    """Plan the lab of every point and make its traffic once, as `foresee_point` does.

    Raises `SpecError` with the problems of all points whose lab cannot be planned or cannot carry the workload.
    """
    plans: dict[str, LabPlan] = {}

    def foresee(point: Point) -> PointOutlook:
        lab, key = sweep.lab_of(point), topology_key(point.topology)
        if key not in plans:
            plans[key] = plan_lab(lab, k=scales(point.topology, lab).k)
        return foresee_point(point, lab, plans[key])

    return sweep.prepare(sweep.points, foresee)


def estimate_s(sweep: Sweep, points: Sequence[PointOutlook]) -> float:
    """Wall-clock seconds that the whole sweep takes, bringing its labs up and removing them included."""
    return sum(one.estimated_s for one in points) + sum(deploy_estimate_s(lab) for lab in sweep.labs.values())


class Likelihood(StrEnum):
    """The chance of a run to be valid."""

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
