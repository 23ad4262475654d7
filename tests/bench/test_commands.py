"""The CPU time of short commands, as a ratio to a floor below which none can go: Python with its command-line library.

A ratio holds on a slow machine as on a fast one. The seconds that were promised are those of two cores that do nothing
else, where the floor takes `FLOOR_S`; their ratio is promised everywhere.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from figures import Figure, judge

ROOT = Path(__file__).parents[2]
TESTBED = str(Path(sys.executable).parent / "testbed")
LAB = "benchcommands"
HOST, NIC = "p1-s1-h1", "p1-s1-h1:rail1"
SCENARIO = str(ROOT / "scenarios/ecmp-against-spraying.yml")
TIMES = 7
"""The least of so many is the command's own time: others only add to it."""
FLOOR = [sys.executable, "-c", "import click"]
FLOOR_S = 0.028
"""The floor where the promise was made, by what the same commands took there and here before they were made shorter."""
SHORT_S, LONGER_S, FILES_S = 0.15, 0.30, 0.50

pytestmark = [pytest.mark.bench, pytest.mark.netns, pytest.mark.frr, pytest.mark.timeout(600)]


def cpu_s(*argv: str, cwd: Path = ROOT) -> float:
    """Return the seconds of CPU, user and system, that a command and what it starts take: the least of several."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    found = []
    for _ in range(TIMES):
        process = subprocess.Popen(
            argv, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        said = process.stderr.read()
        process.stderr.close()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, (argv, said.decode())
        found.append(used.ru_utime + used.ru_stime)
    return min(found)


@pytest.fixture(scope="module")
def floor_s() -> float:
    return cpu_s(*FLOOR)


@pytest.fixture(scope="module")
def lab() -> Iterator[str]:
    """The demo's lab, deployed."""
    topology = str(ROOT / "topologies/demo.yml")
    try:
        subprocess.run([TESTBED, "deploy", "-q", "-t", topology, "-n", LAB], stdin=subprocess.DEVNULL, check=True)
        yield LAB
    finally:
        subprocess.run([TESTBED, "destroy", "-q", "-n", LAB], stdin=subprocess.DEVNULL, check=False)


def hold(what: str, measured_s: float, must_s: float, floor_s: float) -> None:
    judge(
        Figure(
            f"{what}: CPU over that of Python with click", measured_s / floor_s, at_most=must_s / FLOOR_S, ratio=True
        )
    )


@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("exec", HOST, "-n", LAB, "--", "true"),
        ("inspect", "links", "-n", LAB),
        ("inspect", "bgp", "-n", LAB),
        ("inspect", "routes", "-n", LAB),
        ("link", "down", NIC, "-n", LAB),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_short_commands(lab: str, floor_s: float, words: tuple[str, ...]) -> None:
    hold(" ".join(words), cpu_s(TESTBED, *words), SHORT_S, floor_s)


@pytest.mark.parametrize("verb", ["inspect", "stats", "check"])
def test_commands_that_look_at_a_whole_lab(lab: str, floor_s: float, verb: str) -> None:
    subprocess.run([TESTBED, "link", "up", NIC, "-n", LAB], stdin=subprocess.DEVNULL, check=True)
    hold(verb, cpu_s(TESTBED, verb, "-n", LAB), LONGER_S, floor_s)


@pytest.mark.parametrize("words", [("validate", SCENARIO), ("run", "--dry-run", SCENARIO)], ids=" ".join)
def test_commands_that_read_a_scenario(floor_s: float, words: tuple[str, ...]) -> None:
    hold(words[0], cpu_s(TESTBED, *words), FILES_S, floor_s)


def test_the_script_adds_little(floor_s: float) -> None:
    """`./lab` finds out that its environment is complete before it starts the command."""
    if not (ROOT / ".venv/.stamp").exists():
        pytest.skip("./lab has not made an environment here")
    added = cpu_s(str(ROOT / "lab"), "--version") - cpu_s(str(ROOT / ".venv/bin/testbed"), "--version")
    judge(
        Figure(
            "./lab: CPU added to a command, over that of Python with click", added / floor_s, at_most=0.3, ratio=True
        )
    )
