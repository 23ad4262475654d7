"""`run --steady N`: each scenario N times, and how its figures lie in their bands; and `results steady`, afterwards."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import TestbedError

if TYPE_CHECKING:
    from testbed.cli.output import Format
    from testbed.cli.scenarios.run import RunCommand
    from testbed.results.steady import Steadiness
    from testbed.scenario.sweep.prepared import Sweep

LEAST_RUNS = 2
INTERRUPTED = 130
"""The exit code of a run that the user has ended."""


def run_steadily(
    sweeps: "Sequence[Sweep]", with_seed: "Callable[[int, int], Sweep]", command: "RunCommand", runs: int
) -> int:
    """Run every scenario `runs` times; the worst verdict of all is the exit code, 130 where the user interrupted one.

    `with_seed` reads the n-th of the scenarios once more, with another seed of the first repeat. What has been measured
    is on disk after each run. Raises what stops the first run of a scenario; a later one that is stopped is invalid.
    """
    if runs < LEAST_RUNS:
        raise TestbedError(f"--steady {runs}: a spread needs at least {LEAST_RUNS} runs", hint="--steady 10")
    worst = 0
    measured: list[Steadiness] = []
    try:
        for place, sweep in enumerate(sweeps):
            found, code = _run_one(sweep, lambda seed, place=place: with_seed(place, seed), command, runs)  # type: ignore[misc]
            measured += [found] if found else []
            if code == INTERRUPTED:
                return INTERRUPTED
            worst = max(worst, code)
    finally:
        if measured:
            show_steadiness(measured, command.form)
    return worst


def _run_one(
    sweep: "Sweep", with_seed: "Callable[[int], Sweep]", command: "RunCommand", runs: int
) -> "tuple[Steadiness | None, int]":
    """Run one scenario; None where it was interrupted before the first of its runs had ended."""
    from testbed.cli.output import Format, console
    from testbed.cli.scenarios.run import measure
    from testbed.results import Backend, Record, make_results_directory
    from testbed.results.steady import Steadiness, steady_run, write_steadiness

    repeat = sweep.scenario.repeat
    same_seed = repeat.fixes_seed and not command.simulated  # a simulation with the same seed would be the same run
    begun = datetime.now(UTC)
    directory = make_results_directory(f"{sweep.scenario.name}-steady", begun, parent=command.results)
    worst = 0
    found: Steadiness | None = None

    def keep(record: Record, at: Path) -> Steadiness:
        content = found or Steadiness(
            scenario=sweep.scenario.name,
            backend=Backend.SIMULATION if command.simulated else Backend.EMULATION,
            environment=record.environment,
            started=begun.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            planned=runs,
            same_seed=same_seed,
        )
        content = replace(content, runs=[*content.runs, steady_run(record, at.name)])
        write_steadiness(content, directory)
        return content

    for number in range(1, runs + 1):
        seed = repeat.seed if same_seed else repeat.seed + (number - 1) * repeat.runs
        again = sweep if seed == repeat.seed else with_seed(seed)
        outcome, at = measure(again, replace(command, results=directory))
        record = outcome.record
        if record.incomplete.startswith("interrupted"):
            worst = INTERRUPTED
            break
        if outcome.failure is not None and found is None:
            raise outcome.failure
        found = keep(record, at)
        worst = max(worst, record.verdict.outcome.exit_code)
        if command.form is Format.TABLE:
            said = (
                f"{sweep.scenario.name}, run {number} of {runs}: {record.verdict.outcome}, {record.verdict.reasons[0]}"
            )
            console().print(said, highlight=False, soft_wrap=True)
    if found and command.form is Format.TABLE:
        console().print(f"runs {directory}", highlight=False, soft_wrap=True)
    return found, worst


def show_steadiness(found: "Sequence[Steadiness]", form: "Format") -> None:
    """Print a row for each expectation; in a table, what that means for each scenario below it."""
    from testbed.cli.output import Format, console, emit_rows
    from testbed.report.steadiness.rows import COLUMNS, chance_of_any, steady_rows

    rows = steady_rows(found)
    emit_rows([row.as_row() for row in rows], COLUMNS, form)
    if form is not Format.TABLE:
        return
    for (scenario, backend), chance in chance_of_any(rows).items():
        one = next(row for row in rows if (row.scenario, row.backend) == (scenario, backend))
        console().print(
            f"{scenario} ({backend}): {one.invalid} of {one.runs} runs invalid; the chance that any expectation fails"
            f" in a valid run is at most {chance:.2g}",
            highlight=False,
            soft_wrap=True,
        )


def write_page(found: "Sequence[Steadiness]", page: Path) -> None:
    """Put the table of what was measured into a page, between its marks. Raises `TestbedError`."""
    from testbed.report.steadiness.page import steadiness_markdown, with_table
    from testbed.report.steadiness.rows import steady_rows
    from testbed.results import write_result

    try:
        text = page.read_text()
    except OSError as error:
        raise TestbedError(f"cannot read {page}: {error.strerror}") from error
    write_result(with_table(text, steadiness_markdown(found, steady_rows(found))).encode(), page)
