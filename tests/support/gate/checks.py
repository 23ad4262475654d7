"""Checks of the sources that are no tests: each counts as one. They run beside each other, one for each CPU."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from summary import Row

BIN = ".venv/bin"


def commands(root: Path) -> dict[str, list[str]]:
    """Return what is run for each check, those that take longest first."""
    tools = root / BIN
    return {
        "mypy": [str(tools / "mypy")],
        "docs": [str(root / "lab"), "docs"],
        "lint-imports": [str(tools / "lint-imports")],
        "ruff": [str(tools / "ruff"), "check", "."],
        "ruff format": [str(tools / "ruff"), "format", "--check", "."],
    }


def run_checks(root: Path) -> list[Row]:
    """Run all, print what those that fail say, and return a row of the table for each."""

    def run(item: tuple[str, Sequence[str]]) -> Row:
        name, command = item
        began = time.monotonic()
        done = subprocess.run(
            command, cwd=root, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
        took_s = time.monotonic() - began
        outcome = "failed" if done.returncode else "ok"
        said = done.stdout + done.stderr if done.returncode else ""
        print(f"{said}{name}: {outcome} ({took_s:.0f} s)", file=sys.stderr, flush=True)
        return Row(name=name, failed=1 if done.returncode else 0, took_s=took_s)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(run, commands(root).items()))
