"""Checks of the sources that are no tests: each counts as one. They run beside each other, one for each CPU."""

from __future__ import annotations

import os
import signal
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
    """Run all, print what those that fail say, and return a row of the table for each. An interrupt ends them."""
    started: list[subprocess.Popen[str]] = []

    def run(item: tuple[str, Sequence[str]]) -> Row:
        name, command = item
        began = time.monotonic()
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        process = subprocess.Popen(
            command, cwd=root, stdin=nothing, stdout=pipe, stderr=pipe, text=True, errors="replace", process_group=0
        )
        started.append(process)
        words = "".join(process.communicate())
        took_s = time.monotonic() - began
        outcome = "failed" if process.returncode else "ok"
        print(f"{words if process.returncode else ''}{name}: {outcome} ({took_s:.0f} s)", file=sys.stderr, flush=True)
        return Row(name=name, failed=1 if process.returncode else 0, took_s=took_s)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            return list(pool.map(run, commands(root).items()))
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in started:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGTERM)
            raise
