"""The table at the end of `./lab test`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A check of the sources, or a tier. `repeated` are tests that failed, and passed when they were run alone."""

    name: str
    failed: int
    took_s: float
    passed: int | None = None
    """None for a check, which has no tests."""
    skipped: int = 0
    repeated: tuple[str, ...] = ()
    minutes: float | None = None
    """The minutes that the tier may take."""
    earlier: int = 0
    """Tests that an interrupted run before has passed."""

    @property
    def tests(self) -> int:
        """Return how many tests were run or skipped."""
        return (self.passed or 0) + self.failed + self.skipped

    @property
    def outcome(self) -> str:
        """Return the outcome in a word, and a warning where the tier took longer than it may."""
        if self.failed:
            return "FAILED"
        return "ok, over its budget" if self.minutes is not None and self.took_s > self.minutes * 60 else "ok"

    def cells(self) -> tuple[str, str, str, str, str]:
        """Return the texts of the columns."""
        tests = ""
        if self.passed is not None:
            tests = f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"
            tests += f", {self.earlier} before" if self.earlier else ""
        budget = "" if self.minutes is None else f"{self.minutes:g} min"
        return self.name, tests, f"{self.took_s:.0f} s", budget, self.outcome


def print_table(rows: Sequence[Row]) -> None:
    """Print a line for each check and tier, the tests that had to be repeated, and the sums."""
    head = ("tier", "tests", "time", "budget", "outcome")
    table = [head, *(row.cells() for row in rows)]
    widths = [max(len(cells[place]) for cells in table) for place in range(len(head))]
    print()
    for cells in table:
        name, tests, took, budget, outcome = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        print(f"{name}  {tests}  {took.strip():>{widths[2]}}  {budget.strip():>{widths[3]}}  {outcome}".rstrip())
    print()
    for row in rows:
        for test in row.repeated:
            print(f"warning: {test} failed, and passed when it was run again alone")
    passed = sum(row.passed or 0 for row in rows)
    failed = sum(row.failed for row in rows)
    skipped = sum(row.skipped for row in rows)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
