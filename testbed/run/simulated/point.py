"""The runs of a point on the simulator, each by itself, so that they can be spread over processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from testbed.base.errors import TestbedError
from testbed.lab.core.model import Lab
from testbed.lab.observe.reconcile import Reconciliation
from testbed.record.record import Check, PointResult, RunResult
from testbed.run.emulated.assembled import RunIdentity, assemble_point, assemble_run
from testbed.run.ideals.point_ideals import PointIdeals
from testbed.run.placed.traffic import RunTraffic, make_traffic
from testbed.run.simulated.execution import SimulatedRun, execute
from testbed.run.simulated.lab import planned_lab
from testbed.run.sweep.outlook import PlannedLab
from testbed.run.sweep.points import Point
from testbed.run.transports.registry import transport_on
from testbed.run.trust.ideals import check_ideals
from testbed.run.trust.pauses import check_lossless
from testbed.run.trust.ports import check_balance

EPOCH = "1970-01-01T00:00:00.000Z"
"""When every simulation begins, by its own clock."""


@dataclass(slots=True, kw_only=True)
class RunOutcome:
    """What came of one run. `result` is None where it never began to move anything."""

    result: RunResult | None
    failure: TestbedError | None = None
    interrupted: bool = False


class SimulatedPoint:
    """A point with its lab and all its traffic. Raises `ScenarioError` where the lab cannot carry it."""

    def __init__(self, point: Point, model: Lab) -> None:
        self.point = point
        self.lab: PlannedLab = planned_lab(model).of_network(*point.scenario.workload.ranks.networks_in(model))
        self.traffic: Sequence[RunTraffic] = [
            make_traffic(point.scenario, self.lab, seed=seed) for seed in point.scenario.repeat.seeds
        ]

    @cached_property
    def ideals(self) -> PointIdeals:
        return PointIdeals.of(self.point.scenario, self.lab, self.traffic)

    def run(self, index: int, on_progress: Callable[[float], bool]) -> RunOutcome:
        """Do the run of this number, from 1. `on_progress` as of `execute`."""
        scenario, traffic = self.point.scenario, self.traffic[index - 1]
        transport = transport_on(self.lab, scenario.transport)
        limit_s = scenario.workload.time_limit.seconds
        done = execute(self.lab, transport, traffic, limit_s=limit_s, on_progress=on_progress, faults=scenario.faults)
        measured = done.measured
        if not measured.anything:
            return RunOutcome(result=None, failure=measured.failure, interrupted=measured.interrupted)
        identity = RunIdentity(index=index, started=EPOCH)
        result = assemble_run(identity, traffic, measured, self.lab, self.lab, self.ideals)
        if measured.complete:
            result = replace(result, checks=[*self._checks(done), *check_ideals(result)])
        return RunOutcome(result=result, failure=measured.failure, interrupted=measured.interrupted)

    def lost(self, index: int, why: str) -> RunOutcome:
        """Return what is known of a run whose process died: nothing, and that is why the point is invalid."""
        title = "The process of the run came to its end"
        result = RunResult(
            index=index,
            seed=self.traffic[index - 1].seed,
            started=EPOCH,
            elapsed_s=0.0,
            metrics={},
            checks=[Check(name="process", title=title, value=1, limit=0, ok=False, message=why)],
            complete=False,
        )
        return RunOutcome(result=result)

    def result(self, runs: Sequence[RunResult]) -> PointResult:
        """Put these runs of it together."""
        return assemble_point(self.point, self.lab, self.traffic, runs, self.ideals)

    def _checks(self, done: SimulatedRun) -> list[Check]:
        """Return what the trust checks of the data say; those of the machine have nothing to judge here."""
        found = [check_datagrams(done.sent, done.unaccounted)]
        found += check_lossless(self.lab.plan, done.measured.observation)
        balance: Reconciliation | None = done.balance
        return found if balance is None else [*found, *check_balance(balance)]


def check_datagrams(sent: int, unaccounted: int) -> Check:
    """Tell whether it is known of every datagram what became of it."""
    return Check(
        name="datagrams",
        title="Every datagram is accounted for",
        value=abs(unaccounted),
        limit=0,
        ok=not unaccounted,
        message=f"of {sent} datagrams that were sent, {abs(unaccounted)} are neither delivered nor counted as lost",
    )
