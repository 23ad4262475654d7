"""What the command line says of itself, and that saying it loads nothing else."""

from __future__ import annotations

import os
import subprocess
import sys

from typer.testing import CliRunner

from testbed.cli.app import VERBS, app
from testbed.cli.panels import PANELS

LIGHT = {"testbed", "testbed.compiled", "testbed.compiled.finder", "testbed.errors", "testbed.version"}
"""What the modules of verbs may import of this project, beside each other."""


def panels(text: str) -> dict[str, list[str]]:
    """The verbs that help lists, by the heading that they stand under."""
    found: dict[str, list[str]] = {}
    for line in text.partition("--help")[2].splitlines():
        if line.endswith(":") and not line.startswith(" "):
            found[line.removesuffix(":")] = current = []
        elif line.startswith("  ") and not line.startswith("   ") and found:
            current.append(line.split()[0])
    return found


def test_every_verb_stands_in_a_panel() -> None:
    shown = panels(CliRunner().invoke(app, ["--help"]).stdout)
    assert list(shown) == list(PANELS)
    assert sum(map(len, shown.values())) == len(VERBS)
    assert shown["Labs"][:3] == ["deploy", "destroy", "list"]
    assert {"link", "pfc", "exec"} <= set(shown["Nodes and links"])
    assert {"run", "compare", "results"} <= set(shown["Scenarios and results"])
    assert shown["Machine"] == ["doctor", "images", "vm"]


def test_help_loads_only_the_declarations_of_verbs() -> None:
    """A module that a verb works with is imported when the verb runs: `testbed --help` takes a quarter of a second."""
    code = "import sys, testbed.cli.app; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    ours = {name for name in modules if name.split(".")[0] == "testbed" and not name.startswith("testbed.cli")}
    assert ours == LIGHT
    assert not {"numpy", "pydantic", "rich", "yaml", "docker", "paramiko", "pyroute2"} & set(modules)
    assert "testbed.cli.output" not in modules


def test_what_looks_at_a_lab_loads_nothing_of_scenarios() -> None:
    """In an emulated machine they took `testbed stats` half of its time."""
    code = "import sys, testbed.cli.counters.watch, testbed.cli.counters.metrics_server; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not [name for name in modules if name.startswith(("testbed.scenario", "testbed.workload", "testbed.report"))]


def completed(words: str) -> list[str]:
    """What bash would offer for the last of these words."""
    environment = {
        **os.environ,
        "_TESTBED_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    argv = [sys.executable, "-m", "testbed"]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout.split()


def test_shell_completion_knows_verbs_and_options() -> None:
    assert completed("testbed de") == ["deploy", "destroy", "decode"]
    assert completed("testbed link re") == ["reset"]
    assert completed("testbed run --res") == ["--resume", "--results"]
