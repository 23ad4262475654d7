"""Checks of the sources that are no tests: each counts as one. They run beside each other, one for each CPU.

The transports are compiled beside them: most of a minute of that is one process alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from summary import Row

BIN = ".venv/bin"
COMPILING = "compiling"
"""No check: what hinders it is told, and no reason not to go on, for the same sources run interpreted."""


def commands(root: Path) -> dict[str, list[str]]:
    """Return what is run for each check, those that take longest first."""
    tools = root / BIN
    compiled = os.environ.get("TESTBED_PURE", "0") == "0"
    return {
        **({COMPILING: [str(tools / "python"), "-m", "testbed.base.compiled"]} if compiled else {}),
        "mypy": [str(tools / "mypy")],
        "docs": [str(root / "lab"), "docs"],
        "lint-imports": [str(tools / "lint-imports")],
        "ruff": [str(tools / "ruff"), "check", "."],
        "ruff format": [str(tools / "ruff"), "format", "--check", "."],
    }


def run_checks(root: Path, only: Collection[str] | None = None) -> list[Row]:
    """Run all, or those called so, print what those that fail say, and return a row of the table for each.

    An interrupt ends them.
    """
    chosen = {name: command for name, command in commands(root).items() if only is None or name in only}
    started: list[subprocess.Popen[str]] = []

    def run(item: tuple[str, Sequence[str]]) -> Row:
        name, command = item
        began = time.monotonic()
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        process = subprocess.Popen(
            command,
            cwd=root,
            stdin=nothing,
            stdout=pipe,
            stderr=None if name == COMPILING else pipe,  # what is a minute's work is told while it is done
            text=True,
            errors="replace",
            process_group=0,
        )
        started.append(process)
        words = "".join(filter(None, process.communicate()))
        took_s = time.monotonic() - began
        outcome = "failed" if process.returncode else "ok"
        print(f"{words if process.returncode else ''}{name}: {outcome} ({took_s:.0f} s)", file=sys.stderr, flush=True)
        return Row(name=name, failed=int(process.returncode != 0 and name != COMPILING), took_s=took_s)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            return list(pool.map(run, chosen.items()))
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in started:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGTERM)
            raise
