"""`run --steady N`: all scenarios N times, and how their figures lie in their bands; and `results steady`, later."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.base.errors import ExitCode, TestbedError

if TYPE_CHECKING:
    from testbed.cli.options import Format
    from testbed.cli.scenarios.measuring import RunCommand
    from testbed.record.record import Record
    from testbed.record.steady import Steadiness
    from testbed.run.sweep.points import Sweep

LEAST_RUNS = 2


def run_steadily(
    sweeps: "Sequence[Sweep]", with_seed: "Callable[[int, int], Sweep]", command: "RunCommand", runs: int
) -> int:
    """Run all scenarios once, then all again, `runs` times in all; the worst verdict is the exit code, 130 where the
    user interrupted one.

    `with_seed` reads the n-th of the scenarios once more, with another seed of the first repeat: seeds go on after
    those of the runs that are in the results already. What has been measured is on disk after each run. A scenario
    whose first run is stopped is left out of the others, and its error raised at the end; a later run that is stopped
    is invalid.
    """
    if runs < LEAST_RUNS:
        raise TestbedError(f"--steady {runs}: a spread needs at least {LEAST_RUNS} runs", hint="--steady 10")
    before = _runs_before(command)
    series = [
        _Series(
            sweep=sweep,
            with_seed=partial(with_seed, place),
            command=command,
            planned=runs,
            before=before[sweep.scenario.name],
        )
        for place, sweep in enumerate(sweeps)
    ]
    try:
        for _ in range(runs):
            for one in series:
                if one.failure is None and not one.run_once():
                    return ExitCode.INTERRUPTED
    finally:
        if measured := [one.found for one in series if one.found is not None]:
            show_steadiness(measured, command.form)
    for one in series:
        if one.failure is not None:
            raise one.failure
    return max(one.worst for one in series)


def _runs_before(command: "RunCommand") -> Counter[str]:
    """Return the number of runs of each scenario below the directory of results."""
    from testbed.record.steady import STEADY_FILE, load_steadiness
    from testbed.record.store import RESULTS_DIRECTORY

    found: Counter[str] = Counter()
    for path in (command.results or RESULTS_DIRECTORY).rglob(STEADY_FILE):
        one = load_steadiness(path)
        if one.backend is command.backend:
            found[one.scenario] += len(one.runs)
    return found


@dataclass(kw_only=True)
class _Series:
    """The runs of one scenario. `worst` is the exit code of the worst verdict so far, `failure` what stopped the first
    run."""

    sweep: "Sweep"
    with_seed: "Callable[[int], Sweep]"
    command: "RunCommand"
    planned: int
    before: int
    found: "Steadiness | None" = None
    failure: TestbedError | None = None
    worst: int = 0
    begun: datetime = field(default_factory=lambda: datetime.now(UTC))
    directory: Path | None = None

    @property
    def same_seed(self) -> bool:
        """A seed that the file fixes holds for all; on a backend that computes, the same seed would be the same run."""
        computed = self.command.simulated or self.command.flows
        return self.sweep.scenario.repeat.fixes_seed and not computed

    def run_once(self) -> bool:
        """Run the scenario once more and keep what came of it; False where the user interrupted it."""
        from testbed.cli.options import Format
        from testbed.cli.output import console
        from testbed.cli.scenarios import measuring
        from testbed.record.store import make_results_directory

        repeat = self.sweep.scenario.repeat
        number = 1 + (len(self.found.runs) if self.found else 0)
        seed = repeat.seed if self.same_seed else repeat.seed + (self.before + number - 1) * repeat.runs
        if self.directory is None:
            name = f"{self.sweep.scenario.name}-steady"
            self.directory = make_results_directory(name, self.begun, parent=self.command.results)
        again = self.sweep if seed == repeat.seed else self.with_seed(seed)
        outcome, at = measuring.measure(again, replace(self.command, results=self.directory))
        record = outcome.record
        if record.incomplete.startswith("interrupted"):
            return False
        if outcome.failure is not None and self.found is None:
            self.failure = outcome.failure
            return True
        self._keep(record, at)
        self.worst = max(self.worst, record.verdict.outcome.exit_code)
        if self.command.form is Format.TABLE:
            name = f"{self.sweep.scenario.name}, run {number} of {self.planned}"
            said = f"{name}: {record.verdict.outcome}, {record.verdict.reasons[0]} ({at})"
            console().print(said, highlight=False, soft_wrap=True)
        return True

    def _keep(self, record: "Record", at: Path) -> None:
        from testbed.record.steady import Steadiness, steady_run, write_steadiness

        assert self.directory is not None
        content = self.found or Steadiness(
            scenario=self.sweep.scenario.name,
            backend=self.command.backend,
            environment=record.environment,
            started=self.begun.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            planned=self.planned,
            same_seed=self.same_seed,
        )
        self.found = replace(content, runs=[*content.runs, steady_run(record, at.name)])
        write_steadiness(self.found, self.directory)


def show_steadiness(found: "Sequence[Steadiness]", form: "Format") -> None:
    """Print a row for each expectation; in a table, what that means for each scenario below it."""
    from testbed.cli.options import Format
    from testbed.cli.output import console, emit
    from testbed.record.report.steadiness.rows import SteadyRow, chance_of_any, steady_rows

    rows = steady_rows(found)
    emit(rows, SteadyRow, form)
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


def write_page(page: Path, table: str, mark: str) -> None:
    """Put a table into a page, between its marks of this word. Raises `TestbedError`."""
    from testbed.record.report.steadiness.page import with_table
    from testbed.record.store import write_result

    try:
        text = page.read_text()
    except OSError as error:
        raise TestbedError(f"cannot read {page}: {error.strerror}") from error
    write_result(with_table(text, table, mark).encode(), page)
