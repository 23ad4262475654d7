"""The verb `run`."""

from __future__ import annotations

import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.cli.labs import parse_settings
from testbed.cli.output import Format, console, emit_json
from testbed.cli.progress import StepDisplay
from testbed.cli.scenario_labs import ScenarioLabs
from testbed.deploy.state import StateDirectory
from testbed.deploy.steps import StepEvent
from testbed.errors import TestbedError
from testbed.results import RECORD_FILE, make_results_directory, write_record
from testbed.scenario import Phase, Progress, ScenarioStopped, run_sweep
from testbed.scenario.sweep import plan_points
from testbed.spec.scenario_file import load_scenario

if TYPE_CHECKING:
    from testbed.model.scenario import Scenario
    from testbed.results import Record


def run(
    files: list[Path],
    settings: list[str],
    *,
    seed: int | None,
    repeat: int | None,
    keep: bool,
    results: Path | None,
    timeout_s: float,
    form: Format,
    quiet: bool,
) -> int:
    """Run scenario files in order; the worst verdict is the exit code."""
    overrides = parse_settings(settings)
    if seed is not None:
        overrides["repeat.seed"] = seed
    if repeat is not None:
        overrides["repeat.runs"] = repeat
    scenarios = [load_scenario(file, overrides) for file in files]
    worst = 0
    for scenario in scenarios:
        record, interrupted = _run_one(
            scenario, keep=keep, results=results, timeout_s=timeout_s, form=form, quiet=quiet
        )
        worst = max(worst, record.verdict.outcome.exit_code)
        if interrupted:
            return 130
    return worst


def _run_one(
    scenario: Scenario, *, keep: bool, results: Path | None, timeout_s: float, form: Format, quiet: bool
) -> tuple[Record, bool]:
    """Run all points of a scenario, record, report. Returns the record and whether the user interrupted.

    The record is written after every point, so that nothing is lost and a sweep can go on where it ended.
    """
    state = StateDirectory()
    points = plan_points(scenario)
    directory = make_results_directory(scenario.name, datetime.now(UTC), parent=results)
    failure: TestbedError | None = None
    with (
        StepDisplay(quiet=quiet) as display,
        ScenarioLabs(state, timeout_s=timeout_s, keep=keep, notify=display) as labs,
    ):
        try:
            record = run_sweep(
                scenario,
                points,
                labs,
                on_progress=lambda event: display(_step(event)),
                on_partial=lambda partial: write_record(partial, directory / RECORD_FILE),
                command=["testbed", *sys.argv[1:]],
            )
        except ScenarioStopped as stopped:
            record, failure = stopped.record, stopped
    write_record(record, directory / RECORD_FILE)
    from testbed.report import print_record, write_report_files

    if form is Format.TABLE:
        print_record(record, console())
        console().print(f"record {directory / RECORD_FILE}", highlight=False, soft_wrap=True)
    report_path = write_report_files(record, directory)  # last: where the disk is full, record and table are there
    if form is Format.TABLE:
        console().print(f"report {report_path}", highlight=False, soft_wrap=True)
        if labs.kept:
            console().print(f"the lab {labs.kept} is still deployed: testbed destroy -n {shlex.quote(labs.kept)}")
    else:
        emit_json({"directory": str(directory), "verdict": record.verdict.outcome})
    if failure is not None:
        raise failure
    return record, record.incomplete.startswith("interrupted")


def _step(event: Progress) -> StepEvent:
    """A scenario's progress in the words of the display."""
    at = f"point {event.point}/{event.points} " if event.points > 1 else ""
    if event.phase is Phase.LAB:
        return StepEvent(step=f"{at}{event.message}", phase="stop", done=0, total=0, detail="lab")
    whole = event.total == 1.0 and event.phase is Phase.TRAFFIC
    return StepEvent(
        step=f"{at}run {event.run}/{event.runs}",
        phase="stop" if event.phase is Phase.RUN else "progress",
        done=round(event.done * 100) if whole else round(event.done),
        total=100 if whole else round(event.total),
        detail=event.phase.value,
    )
