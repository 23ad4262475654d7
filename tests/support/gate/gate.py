"""`./lab test`: checks of the sources side by side, then one tier of tests after another, and a table of the outcomes.

    gate.py [--all | --everything [--anew]] [--part NAME ...] [PYTEST ARGUMENTS...]

The exit code is 0 where all passed, 1 where something failed, 2 for a mistake in the arguments. Ctrl-C and SIGTERM end
what runs, have it undo what it made, and leave with 130 and 143.
`--everything` takes hours. What of it has passed is kept in build/tests for as long as the sources stay as they are, so
that the next one goes on where this one was interrupted.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from checks import COMPILING, run_checks
from progress import Progress
from summary import Row, print_table
from tier_run import TierRunner, exit_code
from tiers import BY_NAME, FIRST, GATE, PARTS, WITHOUT_ROOT, Tier

ROOT = Path(__file__).parents[3]
USAGE = """./lab test [--all | --everything [--anew]] [--part NAME ...] [PYTEST ARGUMENTS...]

  (nothing)      checks of the sources and the tiers that a change should pass before it is shown to anybody
  --all          the gate: what CI runs
  --everything   all tiers, hours; goes on where it was interrupted, --anew begins again
  --part NAME    this tier alone; may be given several times
  --parts        this list
  other words    go to pytest: a file, a directory, -k EXPRESSION

tiers:
"""

ONLY_SAYS = frozenset({"--co", "--collect-only", "--fixtures", "--help", "--markers", "--version", "-h"})
"""The words with which pytest tells something and runs no test."""


class Asked:
    """The request that the arguments make."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.pytest: list[str] = []
        self.tiers: list[Tier] = []
        self.anew = self.everything = self.all = False
        words = iter(arguments)
        for word in words:
            match word:
                case "--all":
                    self.all = True
                case "--everything":
                    self.everything = True
                case "--anew":
                    self.anew = True
                case "--part":
                    name = next(words, "")
                    if name not in BY_NAME:
                        print(f"lab: there is no tier {name!r}: {', '.join(BY_NAME)}", file=sys.stderr)
                        raise SystemExit(2)
                    self.tiers.append(BY_NAME[name])
                case _:
                    self.pytest.append(word)
        self.checked = not (self.tiers or self.pytest)
        """True if the sources are checked, too."""
        if not self.tiers:
            # A test of the gate that is asked for by name is run, whatever tier it is in.
            self.tiers = [*GATE, *PARTS] if self.everything else [*GATE] if self.all or self.pytest else [*FIRST]


def tier_of_arguments(tiers: Sequence[Tier], arguments: Sequence[str]) -> Tier:
    """Return the one run of what somebody asks for by name: of these tiers, what the arguments select."""
    marks = " or ".join(f"({tier.marks})" for tier in tiers)
    return Tier(name="asked", summary="", marks=marks, minutes=60, places=tuple(arguments), repeated=False)


def usage() -> str:
    """Return what can be asked for."""
    rows = [f"  {tier.name:14} {tier.minutes:4g} min  {tier.summary}" for tier in BY_NAME.values()]
    return USAGE + "\n".join(rows)


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # `timeout` sends it to us, and to our group once more
    raise KeyboardInterrupt(number)


def main(arguments: Sequence[str]) -> int:
    """Run what is asked for."""
    if "--parts" in arguments:
        print(usage())
        return 0
    asked = Asked(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts its background jobs deaf to the first
        signal.signal(number, _interrupt)
    os.environ["TESTBED_TEST_ALONE"] = "1"  # what is left behind is ours (tests/conftest.py)
    try:
        rows: list[Row] = run_checks(ROOT) if asked.checked else []
        if not asked.checked:
            run_checks(ROOT, only=(COMPILING,))
    except KeyboardInterrupt as interrupt:
        return exit_code(interrupt)
    tiers = [tier_of_arguments(asked.tiers, asked.pytest)] if asked.pytest else asked.tiers
    if not ONLY_SAYS.isdisjoint(asked.pytest):
        return subprocess.call([sys.executable, "-m", "pytest", *tiers[0].arguments(), *tiers[0].places], cwd=ROOT)
    left_out = [] if asked.pytest or os.geteuid() == 0 else [tier for tier in tiers if tier.name not in WITHOUT_ROOT]
    with tempfile.TemporaryDirectory(prefix="testbed-gate-") as scratch:
        goes_on = asked.everything and not asked.pytest
        progress = Progress(ROOT / "build/tests" if goes_on else Path(scratch), ROOT, keep=goes_on and not asked.anew)
        runner = TierRunner(ROOT, progress)
        for tier in tiers:
            if tier not in left_out and not runner.exit_code:
                rows.append(runner.run(tier))
        if not runner.exit_code and not any(row.failed for row in rows):
            progress.forget()
    print_table(rows)
    if left_out:
        print(f"left out, for they need root: {', '.join(tier.name for tier in left_out)}: sudo ./lab test")
    if runner.exit_code:
        return runner.exit_code
    if asked.pytest and not any(row.tests for row in rows):
        print("no test was chosen; those that take long need --everything beside", file=sys.stderr)
        return 2
    return 1 if any(row.failed for row in rows) else 2 if left_out and len(left_out) == len(tiers) else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
