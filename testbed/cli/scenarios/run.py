"""The verb `run`: scenarios in order, each with its record, table and report."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.base.errors import TestbedError
from testbed.cli.options import ConvergenceTimeout, FormatOption, Quiet, parse_format
from testbed.cli.panels import SCENARIOS_AND_RESULTS
from testbed.cli.scenarios.measuring import RunCommand, measure

if TYPE_CHECKING:
    from testbed.cli.output import Format
    from testbed.run.sweep.points import Sweep
    from testbed.run.sweep.runner import SweepOutcome

app = typer.Typer()


@app.command(rich_help_panel=SCENARIOS_AND_RESULTS)
def run(
    files: Annotated[list[Path], typer.Argument(metavar="SCENARIO.yml...", help="Scenarios, run one after the other.")],
    set: Annotated[
        list[str] | None,
        typer.Option("--set", help="Set a key of the scenario or its topology: workload.bytes=1MB, fabric.hosts=4."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="KEY=VALUE", help="Only points of the matrix with this value.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of the first repeat.")] = None,
    repeat: Annotated[int | None, typer.Option("--repeat", help="How many repeats.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the lab deployed.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print points, bytes and times, touch nothing.")
    ] = False,
    resume: Annotated[
        Path | None, typer.Option("--resume", metavar="DIR", help="Go on with an interrupted sweep's results.")
    ] = None,
    prove_scale: Annotated[
        bool, typer.Option("--prove-scale", help="Repeat at twice the time scale: shares and ratios must agree.")
    ] = False,
    steady: Annotated[
        int | None,
        typer.Option(
            "--steady", metavar="N", help="Run each scenario N times, and show how its figures lie in their bands."
        ),
    ] = None,
    backend: Annotated[
        str,
        typer.Option("--backend", help="emulation (a lab of this machine's kernel) or simulation (no root, k = 1)."),
    ] = "emulation",
    results: Annotated[
        Path | None, typer.Option("-o", "--results", help="Directory of results; default results/.")
    ] = None,
    report: Annotated[bool, typer.Option("--report/--no-report", help="Write the HTML page and its files.")] = True,
    timeout: ConvergenceTimeout = 120.0,
    format: FormatOption = "table",
    quiet: Quiet = False,
) -> None:
    """Run scenarios: deploy, drive traffic, measure, judge, report. Exit 0 pass, 1 fail, 2 invalid."""
    from testbed.cli.scenarios.named_files import read_sweeps

    form = parse_format(format)
    simulated = _is_simulation(backend, keep=keep, prove_scale=prove_scale, dry_run=dry_run)
    sweeps = read_sweeps(files, set or [], seed=seed, repeat=repeat, only=only or [], warn=True)
    if simulated:
        from testbed.run.simulated.support import check_supported

        for sweep in sweeps:
            check_supported(sweep)
    if dry_run:
        if steady is not None:
            raise TestbedError("--dry-run: nothing is run, and --steady is about many runs", hint="leave one out")
        from testbed.cli.scenarios.dry_run import print_dry_run

        print_dry_run(sweeps, form)
        return
    command = RunCommand(
        keep=keep,
        resume=resume,
        prove_scale=prove_scale,
        results=results,
        report=report,
        timeout_s=timeout,
        form=form,
        quiet=quiet,
        simulated=simulated,
    )
    if steady is None:
        raise typer.Exit(run_all(sweeps, command))
    from testbed.cli.scenarios.steady import run_steadily

    _check_steady(command)

    def with_seed(place: int, seed: int) -> "Sweep":
        return read_sweeps([files[place]], set or [], seed=seed, repeat=repeat, only=only or [])[0]

    raise typer.Exit(run_steadily(sweeps, with_seed, command, steady))


def _check_steady(command: RunCommand) -> None:
    """Refuse what is about a single run of a scenario. Raises `TestbedError`."""
    asked = {"--resume": command.resume, "--keep": command.keep, "--prove-scale": command.prove_scale}
    for option, wanted in asked.items():
        if wanted:
            raise TestbedError(f"{option}: --steady runs each scenario anew, several times", hint="leave one out")


def _is_simulation(backend: str, *, keep: bool, prove_scale: bool, dry_run: bool) -> bool:
    """Tell whether no lab is to be deployed. Raises `TestbedError` for what is no backend, or asks for a lab."""
    from testbed.base.names import nearest
    from testbed.record.record import Backend

    known = [one.value for one in Backend]
    if backend not in known:
        guess = nearest(backend, known)
        hint = f"did you mean {guess}?" if guess else f"one of {', '.join(known)}"
        raise TestbedError(f"there is no backend {backend!r}", hint=hint)
    if backend != Backend.SIMULATION:
        return False
    if keep:
        raise TestbedError("--keep: a simulation has no lab", hint="leave it out")
    if prove_scale:
        raise TestbedError("--prove-scale: a simulation has no time scale", hint="leave it out")
    if dry_run:
        raise TestbedError("--dry-run: a simulation touches nothing", hint="`testbed validate` checks the scenario")
    return True


def run_all(sweeps: "Sequence[Sweep]", command: RunCommand) -> int:
    """Run scenarios in order; the worst verdict is the exit code, 130 where the user interrupted one."""
    from testbed.run.sweep.scale_proof import check_provable

    if command.resume is not None and len(sweeps) != 1:
        raise TestbedError("--resume goes on with the results of one scenario", hint="name its file alone")
    if command.prove_scale:
        for sweep in sweeps:
            check_provable(sweep.scenario)
    worst, told = 0, list[dict[str, str]]()
    try:
        for sweep in sweeps:
            record = _run_one(sweep, command, told).record
            worst = max(worst, record.verdict.outcome.exit_code)
            if record.incomplete.startswith("interrupted"):
                return 130
    finally:
        _tell(told, command.form, several=len(sweeps) > 1)
    return worst


def _tell(told: list[dict[str, str]], form: "Format", *, several: bool) -> None:
    """Print for programs what became of each scenario: where its record is, and its verdict."""
    from testbed.cli.output import Format, emit_rows

    if told and form is not Format.TABLE:
        emit_rows(told, tuple(told[0]), form, json_document=told if several else told[0])


def _run_one(sweep: "Sweep", command: RunCommand, told: list[dict[str, str]]) -> "SweepOutcome":
    """Run all points of a scenario, print and report what was measured, then raise what stopped it, if anything.

    `told` gets a row for programs.
    """
    outcome, directory = measure(sweep, command)
    _show(outcome, directory, command)
    verdict = outcome.record.verdict.outcome.value
    told.append({"file": sweep.scenario.source, "directory": str(directory), "verdict": verdict})
    if outcome.failure is not None:
        raise outcome.failure
    return outcome


def _show(outcome: "SweepOutcome", directory: Path, command: RunCommand) -> None:
    """Print the record for people, write the report, and say what is where."""
    from testbed.cli.output import Format, console
    from testbed.record.store import RECORD_FILE

    table = command.form is Format.TABLE
    if table:
        from testbed.record.report import print_record

        print_record(outcome.record, console())
        console().print(f"record {directory / RECORD_FILE}", highlight=False, soft_wrap=True)
    if command.report:
        from testbed.record.report import write_report_files

        path = write_report_files(outcome.record, directory)  # last: on a full disk, record and table are there
        if table:
            console().print(f"report {path}", highlight=False, soft_wrap=True)
    if table and outcome.kept:
        kept = outcome.kept
        console().print(f"the lab {kept} is still deployed: testbed destroy -n {shlex.quote(kept)}")
