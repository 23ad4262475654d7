"""Prints the figures table after the bench tests; a figure that is missed is measured again, and both are in it."""

from __future__ import annotations

import pytest
from figures import FIGURES, STOLEN

ATTEMPTS = 3
"""What else runs on the machine makes a figure worse and never better: one attempt of so many must meet it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("bench"):
            item.add_marker(pytest.mark.flaky(reruns=ATTEMPTS - 1, only_rerun=["AssertionError"]))


@pytest.fixture(autouse=True)
def stolen_time() -> None:
    """Counted from the beginning of each test."""
    STOLEN.begin()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if FIGURES:
        terminalreporter.section("figures")
        for figure in FIGURES:
            terminalreporter.write_line(figure.row())
