"""Running scenarios from Python: `testbed.run_scenario("scenarios/rail-permutation.yml")`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from testbed.base.errors import ScenarioError
from testbed.base.names import choice_hint
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.record.record import Backend, MetricSummary, Outcome, Record
from testbed.record.store import load_record, make_results_directory
from testbed.run.emulated.sweep import run_on_own_labs, run_recorded
from testbed.run.flows.support import check_flows_supported
from testbed.run.flows.sweep import run_flows
from testbed.run.schema.file import NOTHING
from testbed.run.simulated.support import check_supported
from testbed.run.simulated.sweep import run_simulated
from testbed.run.sweep.jobs import SweepPool
from testbed.run.sweep.labs import LabOptions, held
from testbed.run.sweep.points import Sweep
from testbed.run.sweep.progress import ProgressListener, ignore_progress
from testbed.run.sweep.runner import RecordOptions, ScenarioStopped
from testbed.run.sweep.scale_proof import check_provable
from testbed.run.sweeps import read_sweep, read_sweep_for


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of `run_scenario`, beside what it runs.

    `labs` says how labs are brought up, and whether the last one stays. `backend`: on the simulator, and as flows, no
    lab is deployed, and no privilege is needed. `resume` is a results directory of the same
    scenario, or its record, to go on with. `prove_scale` repeats everything at twice the time scale: shares and ratios
    must agree. `report` writes the HTML page and its files beside the record. `state` is where deployed labs are
    recorded; None is the directory that the command line uses, too. `pool`, such as a `testbed.api.pool.pool.Pool`, has
    machines that run the points instead of this one.
    """

    labs: LabOptions = field(default_factory=LabOptions)
    backend: Backend = Backend.EMULATION
    resume: Path | None = None
    prove_scale: bool = False
    report: bool = False
    state: StateDirectory | None = None
    pool: SweepPool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioResult:
    """The result of a scenario: the record of everything measured, and where it was written, if it was."""

    record: Record
    directory: Path | None = None
    report: Path | None = None
    """The HTML page, if one was written."""
    kept: str = ""
    """Name of the lab that is still deployed because `keep` asked for it, "" for none."""

    @property
    def outcome(self) -> Outcome:
        """The verdict in a word: pass, fail, or invalid where the measurement cannot be trusted."""
        return self.record.verdict.outcome

    def metric(self, name: str, point: str = "") -> MetricSummary:
        """A metric of a point over all its runs: `result.metric("jct").median`.

        `point` is the point's name, as in "mode=spray rate=50%"; a scenario without a matrix has one without a name.
        Raises `ScenarioError` for a point or a metric that was not measured.
        """
        points = {one.name: one for one in self.record.points}
        if point not in points:
            known = f"there are: {'; '.join(map(repr, points))}"
            raise ScenarioError(f"no point is called {point!r}", hint=choice_hint(point, points, known))
        metrics = {one.name: one for one in points[point].metrics}
        if name not in metrics:
            hint = choice_hint(name, metrics, f"measured were {', '.join(metrics)}")
            raise ScenarioError(f"the metric {name!r} was not measured", hint=hint)
        return metrics[name]


def run_scenario(
    scenario: str | Path,
    *,
    overrides: Mapping[str, object] | None = None,
    only: Mapping[str, object] | None = None,
    results: Path | None = None,
    options: RunOptions | None = None,
    on_progress: ProgressListener = ignore_progress,
) -> ScenarioResult:
    """Run a scenario file, or YAML text if it has a line break, on labs that are deployed for it and then removed.

    `overrides` replaces keys of the scenario or of its topology ({"workload.bytes": "1MB", "fabric.hosts": 4}), `only`
    keeps the points of its matrix with these values. The record goes into a new directory below `results`; without it,
    nothing is written. `on_progress` is called with every step.

    The verdict is in the result, it is no exception. Raises `SpecError` for a file that is wrong, `ScenarioStopped`
    (its `record` has what was measured) where a run fails or a lab breaks, and the errors of deploying a lab. SIGINT
    ends the scenario early and gives a record that is marked incomplete.
    """
    sweep = read_sweep(scenario, overrides or NOTHING, only or NOTHING)
    chosen = options or RunOptions()
    if chosen.prove_scale:
        check_provable(sweep.scenario)
    if chosen.backend is Backend.SIMULATION:
        check_supported(sweep)
    if chosen.backend is Backend.FLOWS:
        check_flows_supported(sweep)
        if chosen.pool is not None:
            raise ScenarioError("flows are run here, and not on a pool", hint="leave one out")
    record_options = RecordOptions(
        directory=_directory(sweep, results, chosen.resume),
        previous=None if chosen.resume is None else load_record(chosen.resume),
        prove_scale=chosen.prove_scale,
    )
    if chosen.pool is not None:
        timeout_s = chosen.labs.timeout_s
        outcome = chosen.pool.run(sweep, chosen.backend, record_options, on_progress, timeout_s=timeout_s)
    elif chosen.backend is Backend.SIMULATION:
        outcome = run_simulated(sweep, record_options, on_progress)
    elif chosen.backend is Backend.FLOWS:
        outcome = run_flows(sweep, record_options, on_progress)
    else:
        state = chosen.state or StateDirectory()
        outcome = run_on_own_labs(sweep, state, chosen.labs, record_options, on_progress)
    report = _write_report(outcome.record, record_options.directory if chosen.report else None)
    if outcome.failure is not None:
        raise outcome.failure
    return ScenarioResult(record=outcome.record, directory=record_options.directory, report=report, kept=outcome.kept)


def run_on_lab(
    lab: RunningLab,
    scenario: str | Path,
    *,
    overrides: Mapping[str, object] | None = None,
    only: Mapping[str, object] | None = None,
    results: Path | None = None,
    report: bool = False,
    on_progress: ProgressListener = ignore_progress,
) -> ScenarioResult:
    """Run a scenario on a lab that is up, and leave it up: what `Lab.run` does."""
    sweep = read_sweep_for(lab.model, scenario, overrides or NOTHING, only or NOTHING)
    directory = _directory(sweep, results, None)
    try:
        with held(lab):
            record = run_recorded(sweep, lambda _: lab, RecordOptions(directory=directory), on_progress)
    except ScenarioStopped as stopped:
        _write_report(stopped.record, directory if report else None)
        raise
    page = _write_report(record, directory if report else None)
    return ScenarioResult(record=record, directory=directory, report=page)


def _directory(sweep: Sweep, results: Path | None, resume: Path | None) -> Path | None:
    if resume is not None:
        return resume if resume.is_dir() else resume.parent
    if results is None:
        return None
    return make_results_directory(sweep.scenario.name, datetime.now(UTC), parent=results)


def _write_report(record: Record, directory: Path | None) -> Path | None:
    """Write the report where there is a directory for it."""
    if directory is None:
        return None
    from testbed.record.report import write_report_files

    return write_report_files(record, directory)
