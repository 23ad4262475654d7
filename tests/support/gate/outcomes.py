"""Notes the outcome of each test as it ends, and leaves out those that a run before has passed (tests/conftest.py).

`TESTBED_TEST_OUTCOMES` names the file that gets a line for each test; `TESTBED_TEST_PASSED` one with a line for each
test that is left out. With pytest-xdist it is the first process that notes, and all read the second file alike.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

OUTCOMES, PASSED = "TESTBED_TEST_OUTCOMES", "TESTBED_TEST_PASSED"


@dataclass(frozen=True, slots=True, kw_only=True)
class TestOutcome:
    """The outcome of a test: `passed`, `failed` (also in a fixture) or `skipped`, and how long it took."""

    __test__ = False
    test: str
    outcome: str
    took_s: float


def read_outcomes(path: Path) -> list[TestOutcome]:
    """Return what has been noted. A line may be cut short, by a machine that was switched off."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            found.append(TestOutcome(**json.loads(line)))
        except ValueError:
            continue
    return found


class OutcomePlugin:
    """Notes outcomes in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: dict[str, tuple[str, float]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome, took_s = self._open.get(report.nodeid, ("passed", 0.0))
        if report.outcome != "passed" and outcome != "failed":
            outcome = report.outcome
        self._open[report.nodeid] = (outcome, took_s + report.duration)
        if report.when not in ("setup", "call"):  # its end, or that of its process in the middle of it
            outcome, took_s = self._open.pop(report.nodeid)
            noted = {"test": report.nodeid, "outcome": outcome, "took_s": round(took_s, 3)}
            with self._path.open("a") as file:
                file.write("\n" + json.dumps(noted))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot be read as a test that fails, and is not passed."""
        if report.failed:
            with self._path.open("a") as file:
                file.write("\n" + json.dumps({"test": report.nodeid, "outcome": "failed", "took_s": 0.0}))


def note_outcomes(config: pytest.Config) -> None:
    """Note outcomes where a file is named for them: for this run, not for those that a test starts."""
    if not hasattr(config, "workerinput") and (path := os.environ.pop(OUTCOMES, "")):
        config.pluginmanager.register(OutcomePlugin(Path(path)))


def leave_out_passed(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that have passed before."""
    if not (path := os.environ.get(PASSED, "")):
        return
    passed = frozenset(Path(path).read_text().splitlines())
    if done := [item for item in items if item.nodeid in passed]:
        items[:] = [item for item in items if item.nodeid not in passed]
        config.hook.pytest_deselected(items=done)
