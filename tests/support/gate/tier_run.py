"""Runs a tier: pytest as a program of its own, and again for what failed where a busy machine may be to blame."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from outcomes import OUTCOMES, PASSED, read_outcomes
from progress import Progress
from summary import Row
from tiers import Tier

HANGS_AFTER = 4.0
"""Times its budget after which a tier is interrupted: it hangs."""
MOST_REPEATED = 10
"""More failures than that are no matter of a busy machine."""
CLEAN_UP_S = 180.0
"""For fixtures to undo what they have made, after an interrupt."""
SAID_BY_TESTS = (0, 1, 5)
"""Exit codes of pytest that outcomes of tests explain: all passed, some failed, there were none."""


class TierRunner:
    """Runs one tier after another. After an interrupt `exit_code` says by which, and nothing more should be run."""

    def __init__(self, root: Path, progress: Progress, hangs_after: float = HANGS_AFTER) -> None:
        self.exit_code = 0
        self._hangs_after = hangs_after
        self._root = root
        self._progress = progress

    def run(self, tier: Tier) -> Row:
        """Run a tier, and return its row of the table."""
        began = time.monotonic()
        print(f"--- tests: {tier.name} (budget {tier.minutes:g} min)", file=sys.stderr, flush=True)
        before = self._progress.passed_before(tier.name)
        code, outcomes = self._pytest(tier, [*tier.arguments(), *tier.places], passed=before)
        failed = [test for test, outcome in outcomes.items() if outcome == "failed"]
        earlier = len(before.read_text().splitlines())
        broken = _is_broken(code, outcomes) or not (outcomes or earlier)  # a tier that has no tests proves nothing
        again: dict[str, str] = {}
        if tier.repeated and 0 < len(failed) <= MOST_REPEATED and not broken:
            print(f"--- tests: {tier.name}: {len(failed)} that failed once more, alone", file=sys.stderr, flush=True)
            code, again = self._pytest(tier, ["-m", tier.marks, *failed])
            broken = _is_broken(code, again)
        repeated = [test for test in failed if again.get(test) == "passed"]
        counts = [*(outcomes | again).values()]
        return Row(
            name=tier.name,
            passed=counts.count("passed"),
            failed=max(counts.count("failed"), int(broken)),
            skipped=counts.count("skipped"),
            repeated=tuple(repeated),
            took_s=time.monotonic() - began,
            minutes=tier.minutes,
            earlier=earlier,
        )

    def _pytest(self, tier: Tier, told: Sequence[str], passed: Path | None = None) -> tuple[int, dict[str, str]]:
        """Run pytest, and return its exit code and the outcome of each test."""
        journal = self._progress.outcomes(tier.name)
        known = len(read_outcomes(journal))
        environment = {**os.environ, **tier.environment, OUTCOMES: str(journal)}
        if passed:
            environment[PASSED] = str(passed)
        colour = "yes" if sys.stdout.isatty() else "no"
        command = [sys.executable, "-m", "pytest", f"--color={colour}", "--durations=10", "--durations-min=5", *told]
        # In a group of its own: it gets one signal, from us, whoever sends us which.
        process = subprocess.Popen(command, cwd=self._root, env=environment, stdin=subprocess.DEVNULL, process_group=0)
        code = self._wait(process, tier.minutes * 60 * self._hangs_after)
        return code, {done.test: done.outcome for done in read_outcomes(journal)[known:]}

    def _wait(self, process: subprocess.Popen[bytes], limit_s: float) -> int:
        """Wait for the end. An interrupt is handed on as that of Ctrl-C, which lets fixtures clean up."""
        try:
            return process.wait(limit_s)
        except KeyboardInterrupt as interrupt:
            self.exit_code = exit_code(interrupt)
        except subprocess.TimeoutExpired:
            print(f"lab: interrupted after {limit_s / 60:.0f} min: it hangs", file=sys.stderr, flush=True)
        os.killpg(process.pid, signal.SIGINT)
        try:
            return process.wait(CLEAN_UP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """Return what a shell says of a program that was ended by the signal of an interrupt."""
    return 128 + int(interrupt.args[0] if interrupt.args else signal.SIGINT)


def _is_broken(code: int, outcomes: Mapping[str, str]) -> bool:
    """Tell whether pytest failed for something that is no test: its own error, or what tests left behind."""
    return code not in SAID_BY_TESTS or (code == 1 and "failed" not in outcomes.values())
