"""Running one scenario for a verb: how it was asked for, steps shown while it runs, and where its record goes."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.base.errors import ConvergenceError, ExitCode

if TYPE_CHECKING:
    from testbed.api.pool.over.records import SpreadRecord
    from testbed.api.pool.pool import Pool
    from testbed.cli.options import Format
    from testbed.record.record import Backend
    from testbed.run.sweep.points import Sweep
    from testbed.run.sweep.runner import RecordOptions, SweepOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCommand:
    """The options by which `run` runs scenarios and shows them.

    `sheet`: the results sheet is all that is printed. `resume` is a directory of results to go on with; `simulated`: on
    the simulator, without a lab; `flows`: as flows, without one, too. `pool`: on its machines. `point`: it is the only
    one of the sweep.
    """

    form: "Format"
    sheet: bool = False
    keep: bool = False
    resume: Path | None = None
    prove_scale: bool = False
    results: Path | None = None
    report: bool = True
    timeout_s: float = 120.0
    quiet: bool = False
    simulated: bool = False
    flows: bool = False
    pool: "Pool | None" = None
    point: int | None = None

    @property
    def backend(self) -> "Backend":
        from testbed.record.record import Backend

        if self.flows:
            return Backend.FLOWS
        return Backend.SIMULATION if self.simulated else Backend.EMULATION


def measure(sweep: "Sweep", command: RunCommand) -> "tuple[SweepOutcome, Path]":
    """Run all points of a scenario, and return what came of it with the directory of its record."""
    from testbed.cli.output import warn
    from testbed.cli.progress import StepDisplay
    from testbed.cli.scenarios.run_progress import SweepSteps

    record_options = _record_options(sweep, command)
    with StepDisplay(quiet=command.quiet) as display:
        steps = SweepSteps(runs=sweep.runs, show=display)
        if command.pool is not None:
            command.pool.tell(warn)
            outcome = command.pool.run(sweep, command.backend, record_options, steps, timeout_s=command.timeout_s)
        elif command.simulated:
            from testbed.run.simulated.sweep import run_simulated

            outcome = run_simulated(sweep, record_options, steps)
        elif command.flows:
            from testbed.run.flows.sweep import run_flows

            outcome = run_flows(sweep, record_options, steps)
        elif (spread := _spread_lab(sweep, command)) is not None:
            from testbed.api.pool.over.run import run_spread

            outcome = run_spread(sweep, spread, record_options, steps)
        else:
            from testbed.lab.core.deploy.records.state import StateDirectory
            from testbed.run.emulated.sweep import run_on_own_labs
            from testbed.run.sweep.labs import LabOptions

            lab_options = LabOptions(timeout_s=command.timeout_s, keep=command.keep, notify=display, warn=warn)
            try:
                outcome = run_on_own_labs(sweep, StateDirectory(), lab_options, record_options, steps)
            except ConvergenceError as error:
                error.exit_code = ExitCode.INVALID  # it is no verdict on the scenario
                raise
    assert record_options.directory is not None
    return outcome, record_options.directory


def _spread_lab(sweep: "Sweep", command: RunCommand) -> "SpreadRecord | None":
    """Return the lab over several machines that a scenario runs on; None where none of its labs is one.

    Raises `TestbedError` where only some are, and for what such a lab does not do.
    """
    from testbed.base.errors import TestbedError
    from testbed.cli.machine.over import spread_called

    found = {lab.name: spread_called(lab.name) for lab in sweep.labs.values()}
    spread = [record for record in found.values() if record is not None]
    if not spread:
        return None
    if len(found) > 1:
        raise TestbedError(
            f"{spread[0].name} is up on several machines, and the scenario has other labs, too: {', '.join(found)}",
            hint=f"testbed destroy -n {spread[0].name}, or --only points of that lab",
        )
    for name, asked in (("--keep", command.keep), ("--prove-scale", command.prove_scale)):
        if asked:
            raise TestbedError(
                f"{name}: {spread[0].name} is up on several machines, and stays as it is", hint="leave it out"
            )
    return spread[0]


def _record_options(sweep: "Sweep", command: RunCommand) -> "RecordOptions":
    """Return the directory of the record: a new one, that of a point, or on with the one that `--resume` names."""
    from testbed.record.store import load_record, make_point_directory, make_results_directory
    from testbed.run.sweep.runner import RecordOptions
    from testbed.vm.remote.recorded_command import asked_command

    resume = command.resume
    previous = None if resume is None else load_record(resume)
    if command.point is not None:
        directory = make_point_directory(sweep.scenario.name, command.point, parent=command.results)
    elif resume is None:
        directory = make_results_directory(sweep.scenario.name, datetime.now(UTC), parent=command.results)
    else:
        directory = resume if resume.is_dir() else resume.parent
    return RecordOptions(
        directory=directory, previous=previous, prove_scale=command.prove_scale, command=tuple(asked_command())
    )
