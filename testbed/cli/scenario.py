"""The verb `run`."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.cli.dry_run import duration
from testbed.cli.output import Format, console, emit_json
from testbed.cli.progress import StepDisplay
from testbed.cli.scenario_files import Sweep
from testbed.cli.scenario_labs import ScenarioLabs
from testbed.cli.scenario_scale import ScenarioScales
from testbed.deploy.records.state import StateDirectory
from testbed.deploy.steps import StepCallback, StepEvent
from testbed.errors import TestbedError
from testbed.results import RECORD_FILE, load_record, make_results_directory, write_record
from testbed.scenario import Phase, Progress, ScenarioStopped, run_sweep
from testbed.scenario.sweep.scale_proof import at_twice_the_scale, check_provable, compare_scales, with_proof
from testbed.vm.remote.recorded_command import asked_command

if TYPE_CHECKING:
    from testbed.results import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How scenarios are run. `resume` is a directory of results to go on with."""

    keep: bool = False
    resume: Path | None = None
    prove_scale: bool = False
    results: Path | None = None
    report: bool = True
    timeout_s: float = 120.0
    form: Format = Format.TABLE
    quiet: bool = False


def run(sweeps: Sequence[Sweep], options: RunOptions) -> int:
    """Run scenarios in order; the worst verdict is the exit code."""
    if options.resume is not None and len(sweeps) != 1:
        raise TestbedError("--resume goes on with the results of one scenario", hint="name its file alone")
    if options.prove_scale:
        for sweep in sweeps:
            check_provable(sweep.scenario)
    worst = 0
    for sweep in sweeps:
        record, interrupted = _run_one(sweep, options)
        worst = max(worst, record.verdict.outcome.exit_code)
        if interrupted:
            return 130
    return worst


def _run_one(sweep: Sweep, options: RunOptions) -> tuple[Record, bool]:
    """Run all points of a scenario, record, report. Returns the record and whether the user interrupted.

    The record is written after every point, so that nothing is lost and a sweep can go on where it ended.
    """
    state = StateDirectory()
    scenario, points, form = sweep.scenario, sweep.points, options.form
    previous = None if options.resume is None else load_record(options.resume)
    if options.resume is None:
        directory = make_results_directory(scenario.name, datetime.now(UTC), parent=options.results)
    else:
        directory = options.resume if options.resume.is_dir() else options.resume.parent
    failure: TestbedError | None = None
    with (
        StepDisplay(quiet=options.quiet) as display,
        ScenarioLabs(
            state,
            ScenarioScales(points, sweep.labs, state),
            timeout_s=options.timeout_s,
            keep=options.keep,
            notify=display,
        ) as labs,
    ):
        steps = SweepSteps(runs=sum(point.scenario.repeat.runs for point in points), show=display)
        command = asked_command()
        try:
            record = run_sweep(
                scenario,
                points,
                labs,
                previous=previous,
                on_progress=steps,
                on_partial=lambda partial: write_record(partial, directory / RECORD_FILE),
                command=command,
            )
            if options.prove_scale and not record.incomplete:
                write_record(record, directory / RECORD_FILE)
                slower = run_sweep(
                    scenario, at_twice_the_scale(points, record), labs, on_progress=steps, command=command
                )
                record = with_proof(record, compare_scales(record, slower))
        except ScenarioStopped as stopped:
            record, failure = stopped.record, stopped
    write_record(record, directory / RECORD_FILE)
    if form is Format.TABLE:
        from testbed.report import print_record

        print_record(record, console())
        console().print(f"record {directory / RECORD_FILE}", highlight=False, soft_wrap=True)
    if options.report:
        from testbed.report import write_report_files

        path = write_report_files(record, directory)  # last: where the disk is full, record and table are there
        if form is Format.TABLE:
            console().print(f"report {path}", highlight=False, soft_wrap=True)
    if form is Format.TABLE:
        if labs.kept:
            console().print(f"the lab {labs.kept} is still deployed: testbed destroy -n {shlex.quote(labs.kept)}")
    else:
        emit_json({"directory": str(directory), "verdict": record.verdict.outcome})
    if failure is not None:
        raise failure
    return record, record.incomplete.startswith("interrupted")


class SweepSteps:
    """A scenario's progress in the words of the display, and how long the rest will take.

    What is left is judged by what the runs so far took, labs included; nothing is said before the first has ended.
    """

    def __init__(self, *, runs: int, show: StepCallback, clock: Callable[[], float] = time.monotonic) -> None:
        self._runs = runs
        self._done = 0
        self._show = show
        self._clock = clock
        self._begin = clock()

    def __call__(self, event: Progress) -> None:
        at = f"point {event.point}/{event.points} " if event.points > 1 else ""
        if event.phase is Phase.LAB:
            self._show(StepEvent(step=f"{at}{event.message}", phase="stop", done=0, total=0, detail="lab"))
            return
        if event.phase is Phase.RUN:
            self._done += 1
        whole = event.total == 1.0 and event.phase is Phase.TRAFFIC
        self._show(
            StepEvent(
                step=f"{at}run {event.run}/{event.runs}",
                phase="stop" if event.phase is Phase.RUN else "progress",
                done=round(event.done * 100) if whole else round(event.done),
                total=100 if whole else round(event.total),
                detail=event.phase.value + self._left(),
            )
        )

    def _left(self) -> str:
        left = self._runs - self._done
        if left <= 0 or not self._done:
            return ""
        return f", about {duration((self._clock() - self._begin) / self._done * left)} left"
