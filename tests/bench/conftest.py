"""Prints the figures table after the bench tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parents[1] / "integration/docker"))

from figures import FIGURES, STOLEN


@pytest.fixture(autouse=True)
def stolen_time() -> None:
    """Counted from the beginning of each test."""
    STOLEN.begin()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if FIGURES:
        terminalreporter.section("figures")
        for figure in FIGURES:
            terminalreporter.write_line(figure.row())
