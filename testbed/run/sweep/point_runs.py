"""The runs of one point: its lab, its traffic and its ideals, and what came of each run, on either backend."""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import ClassVar

from testbed.base.errors import ScenarioError, TestbedError
from testbed.record.record import EPOCH, Check, PointResult, RunResult
from testbed.run.faults.outcome import error_words
from testbed.run.ideals.point_ideals import PointIdeals
from testbed.run.measuring.assembled import assemble_point, assemble_run
from testbed.run.measuring.measured import Measured
from testbed.run.placed.lab import LiveLab
from testbed.run.placed.traffic import RunTraffic, make_traffic
from testbed.run.schema.model import Scenario
from testbed.run.sweep.points import Point


class RunRaised(ScenarioError):
    """A run ended with an exception that nobody foresaw, such as one of a controller that was just edited."""

    def __init__(self, index: int, point: str, error: Exception) -> None:
        of = f" of {point}" if point else ""
        super().__init__(
            f"run {index}{of} raised {error_words(error)}",
            hint="this is a mistake in the program, not in the scenario: its traceback stands above",
        )
        self.trace = "".join(traceback.format_exception(error))


@dataclass(slots=True, kw_only=True)
class RunOutcome:
    """The outcome of one run. `result` is None where it never began to move anything."""

    result: RunResult | None
    failure: TestbedError | None = None
    interrupted: bool = False

    @property
    def goes_on(self) -> bool:
        """Tell whether further runs may follow."""
        return self.failure is None and not self.interrupted


@dataclass(slots=True, kw_only=True)
class PointOutcome:
    """The outcome of a point. `failure` is what ended it early, `interrupted` says that somebody did."""

    point: Point
    result: PointResult
    failure: TestbedError | None = None
    interrupted: bool = False
    approximations: list[str] = field(default_factory=list)
    """Sentences on what its runs do not reproduce of the fabric that they model."""


class PointRuns:
    """A point with its lab and all its traffic; a backend adds how a run is done.

    `lab` is seen in the networks of the workload's ranks, `whole` is all of it, which faults may happen to. Raises
    `ScenarioError` where the lab cannot carry the traffic. With `folds` a ring collective is one step.
    """

    known: Collection[type] | None = None
    """The kinds of samples that the backend measures; None: all."""

    folds_large: ClassVar[bool] = False
    """Rings of more than a million transfers may be one step of its traffic."""

    def __init__(self, point: Point, whole: LiveLab, *, folds: bool = False) -> None:
        self.point = point
        self.whole = whole
        self.lab = whole.of_network(*point.scenario.workload.ranks.networks_in(whole.model))
        self.traffic: Sequence[RunTraffic] = [
            make_traffic(point.scenario, self.lab, seed=seed, folds=folds, folds_large=self.folds_large)
            for seed in point.scenario.repeat.seeds
        ]

    @property
    def scenario(self) -> Scenario:
        return self.point.scenario

    @cached_property
    def ideals(self) -> PointIdeals:
        return PointIdeals.of(self.scenario, self.lab, self.traffic)

    def run_result(self, index: int, started: str, measured: Measured) -> RunResult:
        """Put a run together, for the trust checks to judge. `index` counts from 1."""
        traffic = self.traffic[index - 1]
        return assemble_run(index, started, traffic, measured, self.lab, self.whole, self.ideals, self.known)

    def lost(self, index: int, why: str, *, started: str = EPOCH) -> RunOutcome:
        """Return what is known of a run whose process died: nothing, and that is why the point is invalid."""
        title = "The process of the run came to its end"
        result = RunResult(
            index=index,
            seed=self.traffic[index - 1].seed,
            started=started,
            elapsed_s=0.0,
            metrics={},
            checks=[Check(name="process", title=title, value=1, limit=0, ok=False, message=why)],
            complete=False,
        )
        return RunOutcome(result=result)

    def outcome(self, runs: Sequence[RunOutcome], approximations: Sequence[str]) -> PointOutcome:
        """Put these runs of it together, those that there are."""
        results = [one.result for one in runs if one.result is not None]
        return PointOutcome(
            point=self.point,
            result=assemble_point(self.point, self.lab, self.traffic, results, self.ideals),
            failure=next((one.failure for one in runs if one.failure is not None), None),
            interrupted=any(one.interrupted for one in runs),
            approximations=list(approximations),
        )


class UndeployedPoint(PointRuns, ABC):
    """A point whose lab is planned and not deployed: its runs are computed."""

    def run(self, index: int, on_progress: Callable[[float], bool]) -> RunOutcome:
        """Do the run of this number, from 1. `on_progress` hears the share that is done, and says whether to stop.

        An exception that nobody foresaw is the outcome's failure, with its traceback.
        """
        try:
            return self.run_once(index, on_progress)
        except TestbedError:
            raise
        except Exception as error:
            return RunOutcome(result=None, failure=RunRaised(index, self.point.name, error))

    @abstractmethod
    def run_once(self, index: int, on_progress: Callable[[float], bool]) -> RunOutcome:
        """Do the run, as `run` says."""


def stamp(moment: datetime) -> str:
    """Return a moment as records write it: UTC, as in ISO 8601, to the millisecond."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
