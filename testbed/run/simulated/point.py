"""The runs of a point on the simulator, each by itself, so that they can be spread over processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from testbed.base.errors import TestbedError
from testbed.lab.core.model import Lab
from testbed.record.record import EPOCH, Check, RunResult
from testbed.run.placed.placed_workload import DATA_LIMIT_BYTES
from testbed.run.simulated.execution import SimulatedRun, execute
from testbed.run.simulated.fabric import planned_lab
from testbed.run.sweep.point_runs import PointRuns, RunOutcome, RunRaised
from testbed.run.sweep.points import Point
from testbed.run.transports.registry import transport_on
from testbed.run.trust.ideals import check_ideals
from testbed.run.trust.ports import check_balance, check_lossless


class SimulatedPoint(PointRuns):
    """A point on its planned lab."""

    data_limit_bytes = DATA_LIMIT_BYTES
    """Collectives carry data, which is checked, as far as it goes."""

    def __init__(self, point: Point, model: Lab) -> None:
        super().__init__(point, planned_lab(model))

    def run(self, index: int, on_progress: Callable[[float], bool]) -> RunOutcome:
        """Do the run of this number, from 1. `on_progress` as of `execute`.

        An exception that nobody foresaw is the outcome's failure, with its traceback.
        """
        try:
            return self._run(index, on_progress)
        except TestbedError:
            raise
        except Exception as error:
            return RunOutcome(result=None, failure=RunRaised(index, self.point.name, error))

    def _run(self, index: int, on_progress: Callable[[float], bool]) -> RunOutcome:
        scenario = self.scenario
        transport = transport_on(self.lab, scenario.transport)
        limit_s = scenario.workload.time_limit.seconds
        done = execute(
            self.lab,
            transport,
            self.traffic[index - 1],
            limit_s=limit_s,
            on_progress=on_progress,
            faults=scenario.faults,
            data_limit_bytes=self.data_limit_bytes,
        )
        measured, result = done.measured, None
        if measured.anything:
            result = self.run_result(index, EPOCH, measured)
        if result is not None and measured.complete:
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

    def _checks(self, done: SimulatedRun) -> list[Check]:
        """Return what the trust checks of the data say; those of the machine have nothing to judge here."""
        found = [check_datagrams(done.sent, done.unaccounted)]
        found += check_lossless(self.lab.plan, done.measured.observation)
        return found if done.balance is None else [*found, *check_balance(done.balance)]


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
