"""The verbs `run` and `report`."""

from __future__ import annotations

import shlex
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.cli.labs import parse_settings
from testbed.cli.output import Format, console, emit_json
from testbed.cli.progress import StepDisplay
from testbed.deploy.lifecycle import DeployOptions, deploy_lab, destroy_lab
from testbed.deploy.scale import resolve_scale
from testbed.deploy.state import StateDirectory
from testbed.deploy.steps import StepEvent
from testbed.errors import TestbedError
from testbed.results import (
    RECORD_FILE,
    REPORT_FILE,
    load_record,
    make_results_directory,
    write_atomically,
    write_record,
)
from testbed.scenario import Progress, ScenarioStopped, run_scenario
from testbed.spec import load_topology
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
    """Deploy, run, record, report, destroy. Returns the record and whether the user interrupted."""
    state = StateDirectory()
    lab = load_topology(Path(scenario.topology.file), overrides=scenario.topology.set)
    scale = resolve_scale(lab, state)
    if scale.warning:
        print(f"warning: {scale.warning}", file=sys.stderr)
    options = DeployOptions(k=scale.k, timeout_s=timeout_s)
    command = ["testbed", *sys.argv[1:]]
    failure: TestbedError | None = None
    with StepDisplay(quiet=quiet) as display:
        outcome = deploy_lab(lab, state, options, display)
        try:
            record = run_scenario(
                scenario, outcome.lab, on_progress=lambda event: display(_step(event)), command=command
            )
        except ScenarioStopped as stopped:
            record, failure = stopped.record, stopped
        finally:
            if outcome.changed and not keep:
                destroy_lab(lab.name, state)
    directory = make_results_directory(scenario.name, datetime.fromisoformat(record.started), parent=results)
    write_record(record, directory / RECORD_FILE)
    report_path = write_report(record, directory)
    if form is Format.TABLE:
        from testbed.report import print_record

        print_record(record, console())
        console().print(f"record {directory / RECORD_FILE}\nreport {report_path}", highlight=False, soft_wrap=True)
        if keep:
            console().print(f"the lab {lab.name} is still deployed: testbed destroy -n {shlex.quote(lab.name)}")
    else:
        emit_json({"directory": str(directory), "verdict": record.verdict.outcome})
    if failure is not None:
        raise failure
    return record, record.incomplete.startswith("interrupted")


def _step(event: Progress) -> StepEvent:
    """A scenario's progress in the words of the display."""
    done = event.phase == "run"
    return StepEvent(
        step=f"run {event.run}/{event.runs}",
        phase="stop" if done else "progress",
        done=round(event.done),
        total=round(event.total),
        detail=event.message or event.phase.value,
    )


def write_report(record: Record, directory: Path) -> Path:
    """Render the HTML report of a record into its directory."""
    from testbed.report import render_report

    path = directory / REPORT_FILE
    write_atomically(render_report(record).encode(), path)
    return path


def report(record_file: Path) -> None:
    """Write the report of a record anew."""
    record = load_record(record_file)
    directory = record_file if record_file.is_dir() else record_file.parent
    print(write_report(record, directory))
