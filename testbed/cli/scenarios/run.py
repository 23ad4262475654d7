"""The verb `run`: scenarios in order, each with its record, table and report."""

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.base.errors import ExitCode, ScenarioError, TestbedError
from testbed.base.rows import row_json
from testbed.cli import options
from testbed.cli.command import PATH, argument, command, option
from testbed.cli.scenarios.measuring import RunCommand, measure

if TYPE_CHECKING:
    from testbed.api.pool.reached import ReachedMachines
    from testbed.run.sweep.points import Sweep
    from testbed.run.sweep.runner import SweepOutcome

EMULATION, SIMULATION = "emulation", "simulation"
"""Values of `--backend`, of which nothing has to be imported to know them; the first is the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldRow:
    """The outcome of a scenario, for programs: where its record is, and its verdict."""

    file: str
    directory: str
    verdict: str


@command("run", codes=options.verdicts)
@argument(
    "files", nargs=-1, required=True, metavar="SCENARIO.yml...", type=PATH, help="Scenarios, run one after the other."
)
@option("--set", multiple=True, help="Set a key of the scenario or its topology: workload.bytes=1MB, fabric.hosts=4.")
@option("--only", metavar="KEY=VALUE", multiple=True, help="Only points with this value, or the one of this name.")
@option("--seed", type=int, help="Seed of the first repeat.")
@option("--repeat", type=int, help="How many repeats.")
@option("--keep", is_flag=True, help="Leave the lab deployed.")
@option("--dry-run", is_flag=True, help="Check everything, print points, bytes and times, touch nothing.")
@option("--resume", metavar="DIR", type=PATH, help="Go on with an interrupted sweep's results.")
@option("--point", type=int, help="Run this point alone, into DIR/point-NNNN: for job arrays, and `results merge`.")
@option("--pool", help="Run on these machines: pool.yml, or ssh://user@a,ssh://user@b.")
@option("--force", is_flag=True, help="With --pool: machines of other versions may emulate.")
@option("--prove-scale", is_flag=True, help="Repeat at twice the time scale: shares and ratios must agree.")
@option(
    "--steady", metavar="N", type=int, help="Run each scenario N times, and show how its figures lie in their bands."
)
@option(
    "--backend",
    default=EMULATION,
    help="emulation (a lab of this machine's kernel), simulation (packets; no root, k = 1) or flows (no packets).",
)
@option("-o", "--results", type=PATH, help="Directory of results; default results/.")
@option("--report/--no-report", default=True, help="Write the HTML page and its files.")
@options.timeout
@options.record_format_option
@options.quiet
def run(
    files: tuple[Path, ...],
    set: tuple[str, ...],
    only: tuple[str, ...],
    seed: int | None,
    repeat: int | None,
    keep: bool,
    dry_run: bool,
    resume: Path | None,
    point: int | None,
    pool: str | None,
    force: bool,
    prove_scale: bool,
    steady: int | None,
    backend: str,
    results: Path | None,
    report: bool,
    timeout: float,
    format: options.RecordFormat,
    quiet: bool,
) -> None:
    """Run scenarios: deploy, drive traffic, measure, judge, report. Of several, the worst verdict counts."""
    from testbed.cli.scenarios.named_files import read_sweeps

    flows = is_flows(backend, keep=keep, prove_scale=prove_scale, dry_run=dry_run)
    simulated = not flows and is_simulation(backend, keep=keep, prove_scale=prove_scale)
    if force and pool is None:
        raise TestbedError("--force: it is about the machines of --pool", hint="leave it out")
    if pool is not None:
        _check_pooled(keep=keep, prove_scale=prove_scale, dry_run=dry_run, point=point, flows=flows)
    with _reached(pool, simulated=simulated) as reached:
        sweeps = read_sweeps(files, set, seed=seed, repeat=repeat, only=only, warn=True)
        if point is not None:
            sweeps = [_only_point(sweeps, point, resume=resume, steady=steady, only=only)]
        if flows:
            from testbed.run.flows.support import check_flows_supported

            _check_each(sweeps, check_flows_supported)
        if simulated:
            from testbed.run.simulated.support import check_supported

            _check_each(sweeps, check_supported)
        if dry_run:
            if steady is not None:
                raise TestbedError("--dry-run: nothing is run, and --steady is about many runs", hint="leave one out")
            if format is options.RecordFormat.CALABRIA:
                raise TestbedError("--dry-run: nothing is measured that a sheet could have", hint="leave one out")
            if simulated:
                from testbed.cli.scenarios.dry_simulation import print_dry_simulation

                print_dry_simulation(sweeps, format.of_rows)
            else:
                from testbed.cli.scenarios.dry_run import print_dry_run

                print_dry_run(sweeps, format.of_rows)
            return
        command = RunCommand(
            keep=keep,
            resume=resume,
            prove_scale=prove_scale,
            results=results,
            report=report,
            timeout_s=timeout,
            form=format.of_rows,
            sheet=format is options.RecordFormat.CALABRIA,
            quiet=quiet,
            simulated=simulated,
            flows=flows,
            point=point,
        )

        def with_seed(place: int, seed: int) -> "Sweep":
            return read_sweeps([files[place]], set, seed=seed, repeat=repeat, only=only)[0]

        def go(command: RunCommand) -> int:
            if steady is None:
                return run_all(sweeps, command)
            from testbed.cli.scenarios.steady import run_steadily

            _check_steady(command)
            return run_steadily(sweeps, with_seed, command, steady)

        if reached is None:
            sys.exit(go(command))
        from testbed.api.pool.pool import Pool

        with Pool.of(reached, command.backend, force=force) as opened:
            status = go(replace(command, pool=opened))
        sys.exit(status)


@contextlib.contextmanager
def _reached(pool: str | None, *, simulated: bool) -> "Iterator[ReachedMachines | None]":
    """Reach the machines of a pool while files are read; None where there is no pool."""
    if pool is None:
        yield None
        return
    from testbed.api.pool.reached import ReachedMachines

    with ReachedMachines(pool, SIMULATION if simulated else EMULATION) as reached:
        yield reached


def _only_point(
    sweeps: "Sequence[Sweep]", point: int, *, resume: Path | None, steady: int | None, only: Sequence[str]
) -> "Sweep":
    """Return the sweep of one point. Raises `TestbedError` where that is not all that is asked for."""
    if len(sweeps) != 1:
        raise TestbedError("--point is about the points of one scenario", hint="name its file alone")
    for name, wanted in {"--resume": resume is not None, "--steady": steady is not None}.items():
        if wanted:
            raise TestbedError(f"{name}: --point runs one point of a scenario, anew", hint="leave one out")
    if only:
        message = "--only: --point is a number among all points of the matrix, which `results merge` puts together"
        raise TestbedError(message, hint="leave one out")
    return sweeps[0].only(point)


def _check_pooled(*, keep: bool, prove_scale: bool, dry_run: bool, point: int | None, flows: bool) -> None:
    """Refuse what the machines of a pool do not do. Raises `TestbedError`."""
    if flows:
        raise TestbedError("--pool: flows are run here", hint="leave one out")
    asked = {"--keep": keep, "--prove-scale": prove_scale, "--dry-run": dry_run, "--point": point is not None}
    for name, wanted in asked.items():
        if wanted:
            raise TestbedError(f"{name}: not with --pool", hint="leave one out; --on runs a verb on one machine")


def _check_steady(command: RunCommand) -> None:
    """Refuse what is about a single run of a scenario. Raises `TestbedError`."""
    asked = {
        "--resume": command.resume,
        "--keep": command.keep,
        "--prove-scale": command.prove_scale,
        "--format calabria": command.sheet,
    }
    for name, wanted in asked.items():
        if wanted:
            raise TestbedError(f"{name}: --steady runs each scenario anew, several times", hint="leave one out")


def is_simulation(backend: str, *, keep: bool = False, prove_scale: bool = False) -> bool:
    """Tell whether no lab is to be deployed. Raises `TestbedError` for what is no backend, or asks for a lab."""
    if backend == EMULATION:
        return False
    if backend != SIMULATION:
        from testbed.base.names import choice_hint
        from testbed.record.record import Backend

        if backend == Backend.FLOWS:
            raise TestbedError("flows are for `testbed run` alone", hint="--backend simulation")
        known = [one.value for one in Backend]
        raise TestbedError(f"there is no backend {backend!r}", hint=choice_hint(backend, known))
    if keep:
        raise TestbedError("--keep: a simulation has no lab", hint="leave it out")
    if prove_scale:
        raise TestbedError("--prove-scale: a simulation has no time scale", hint="leave it out")
    return True


def is_flows(backend: str, *, keep: bool = False, prove_scale: bool = False, dry_run: bool = False) -> bool:
    """Tell whether scenarios are to be run as flows. Raises `TestbedError` for what asks for a lab beside."""
    if backend != "flows":
        return False
    for name, asked in (("--keep", keep), ("--prove-scale", prove_scale), ("--dry-run", dry_run)):
        if asked:
            raise TestbedError(f"{name}: flows have no lab", hint="leave it out")
    return True


def _check_each(sweeps: "Sequence[Sweep]", check: "Callable[[Sweep], None]") -> None:
    """Refuse scenarios that a backend cannot run, all of them by their files. Raises `ScenarioError`."""
    refused = []
    for sweep in sweeps:
        try:
            check(sweep)
        except ScenarioError as error:
            if len(sweeps) == 1:
                raise
            refused.append(f"{sweep.scenario.source}: {error.message}")
    if refused:
        raise ScenarioError("\n".join(refused), hint="leave these files or --backend out: emulation can")


def run_all(sweeps: "Sequence[Sweep]", command: RunCommand, measured: Callable[[Path], None] = lambda _: None) -> int:
    """Run scenarios in order; the worst verdict is the exit code, 130 where the user interrupted one.

    `measured` gets the directory of each record.
    """
    from testbed.run.sweep.scale_proof import check_provable

    if command.resume is not None and len(sweeps) != 1:
        raise TestbedError("--resume goes on with the results of one scenario", hint="name its file alone")
    if command.prove_scale:
        for sweep in sweeps:
            check_provable(sweep.scenario)
    worst, told = int(ExitCode.PASS), list["ToldRow"]()
    try:
        for sweep in sweeps:
            record = _run_one(sweep, command, told, measured).record
            worst = max(worst, record.verdict.outcome.exit_code)
            if record.incomplete.startswith("interrupted"):
                return ExitCode.INTERRUPTED
    finally:
        if not command.sheet:
            _tell(told, command.form, several=len(sweeps) > 1)
    return worst


def _tell(told: list["ToldRow"], form: options.Format, *, several: bool) -> None:
    """Print for programs what became of each scenario: where its record is, and its verdict."""
    from testbed.cli.output import emit

    if told and form is not options.Format.TABLE:
        documents = list(map(row_json, told))
        emit(told, ToldRow, form, document=documents if several else documents[0])


def _run_one(
    sweep: "Sweep", command: RunCommand, told: list["ToldRow"], measured: Callable[[Path], None]
) -> "SweepOutcome":
    """Run all points of a scenario, print and report what was measured, then raise what stopped it, if anything.

    `told` gets a row for programs.
    """
    outcome, directory = measure(sweep, command)
    _show(outcome, directory, command)
    measured(directory)
    verdict = outcome.record.verdict.outcome.value
    told.append(ToldRow(file=sweep.scenario.source, directory=str(directory), verdict=verdict))
    if outcome.failure is not None:
        raise outcome.failure
    return outcome


def _show(outcome: "SweepOutcome", directory: Path, command: RunCommand) -> None:
    """Print the record for people, write the report, and say what is where."""
    from testbed.cli.output import console
    from testbed.record.store import RECORD_FILE

    table = command.form is options.Format.TABLE
    if table:
        from testbed.record.report import print_record

        print_record(outcome.record, console())
        console().print(f"record {directory / RECORD_FILE}", highlight=False, soft_wrap=True)
    if command.sheet:
        from testbed.record.report.benchmark import SHEET_FILE, results_sheet
        from testbed.record.store import write_result

        sheet = results_sheet(outcome.record)
        print(sheet, end="")
        write_result(sheet.encode(errors="replace"), directory / SHEET_FILE)
    if command.report:
        from testbed.record.report import write_report_files

        path = write_report_files(outcome.record, directory)  # last: on a full disk, record and table are there
        if table:
            console().print(f"report {path}", highlight=False, soft_wrap=True)
    if table and outcome.kept:
        kept = outcome.kept
        console().print(f"the lab {kept} is still deployed: testbed destroy -n {shlex.quote(kept)}")
