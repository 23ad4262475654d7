"""What the command line says of itself, and that saying it loads nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import testbed.cli
from testbed.cli.app import app, exit_code
from testbed.cli.verbs import MODULES, PANELS

pytestmark = pytest.mark.process

LIGHT = {
    "testbed",
    "testbed.base",
    "testbed.base.compiled",
    "testbed.base.compiled.finder",
    "testbed.base.errors",
    "testbed.base.quick_dataclasses",
    "testbed.base.quick_start",
    "testbed.base.rows",
    "testbed.base.version",
}
"""What the modules of verbs may import of this project, beside each other."""


HEAVY = {"docker", "jinja2", "mininet", "numpy", "paramiko", "pydantic", "pyroute2", "rich", "yaml"}
"""What takes long to import."""
CLI = Path(testbed.cli.__file__).parent
ROOT = Path(__file__).parents[3]


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
    assert sum(map(len, shown.values())) == len(MODULES)
    assert shown["Labs"][:4] == ["deploy", "apply", "diff", "destroy"]
    assert {"link", "pfc", "exec"} <= set(shown["Nodes and links"])
    assert {"run", "compare", "results"} <= set(shown["Scenarios and results"])
    assert shown["Machine"] == ["doctor", "images", "pool", "vm"]


def test_every_verb_is_declared_where_the_table_of_verbs_says() -> None:
    context = click.Context(app)
    for name in app.list_commands(context):
        command = app.get_command(context, name)
        assert command is not None and command.name == name
    in_package = {
        path.parent.name + "." + path.stem
        for path in CLI.glob("*/*.py")
        if "from testbed.cli.command import" in path.read_text()
    }
    assert set(MODULES.values()) == in_package


def test_a_verb_that_is_not_there_is_answered_with_its_like(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["inspct"]) == 3
    assert "No such command 'inspct'. (Did you mean one of: 'inspect'" in capsys.readouterr().err


def loaded_by(*arguments: str) -> set[str]:
    """The modules that a command imported until it ended well."""
    code = f"""
import atexit, sys
atexit.register(lambda: print(*sys.modules))
sys.argv = ["testbed", *{arguments!r}]
from testbed.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("inspect", "-h"), ("link", "set", "-h")])
def test_what_the_command_line_says_of_itself_loads_only_declarations_of_verbs(arguments: tuple[str, ...]) -> None:
    """A module that a verb works with is imported when the verb runs, and Pydantic where a file is validated."""
    modules = loaded_by(*arguments)
    ours = {name for name in modules if name.split(".")[0] == "testbed" and not name.startswith("testbed.cli")}
    assert ours <= LIGHT
    assert not HEAVY & modules
    assert "testbed.cli.output" not in modules


def test_labs_over_machines_that_have_all_gone_load_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "over").mkdir()
    monkeypatch.setenv("TESTBED_STATE_DIR", str(tmp_path))
    assert "testbed.api.pool.over.records" not in loaded_by("inspect", "-h")


def test_one_verb_does_not_load_the_others() -> None:
    declarations = {f"testbed.cli.{module}" for module in MODULES.values()}
    assert not declarations & loaded_by("--version")
    assert declarations & loaded_by("inspect", "-h") == {"testbed.cli.labs.inspect"}
    assert declarations <= loaded_by("--help")


def imported_by(code: str) -> set[str]:
    """The modules that Python has after this code, run by itself."""
    code += "\nimport sys; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_what_looks_at_a_lab_loads_nothing_of_scenarios() -> None:
    """In an emulated machine they took `testbed stats` half of its time."""
    modules = imported_by("import testbed.cli.counters.watch, testbed.cli.counters.metrics_server")
    assert not [
        name for name in modules if name.startswith(("testbed.run", "testbed.workload", "testbed.record.report"))
    ]


READS_A_RECORD = """
from testbed.lab.core.model import Lab
from testbed.lab.core.deploy.records.lab_record import decode_lab
from testbed.lab.core.plan.lab import plan_lab
lab = {"name": "x", "nodes": [{"name": name, "kind": "host"} for name in "ab"], "links": []}
plan_lab(decode_lab(lab), slot=0, k=1000.0)
"""


@pytest.mark.parametrize("module", ["testbed.cli.labs.list_labs", "testbed.cli.labs.inspect_views"])
def test_looking_at_a_deployed_lab_needs_no_schema_no_templates_and_no_bringing_up(module: str) -> None:
    modules = imported_by(
        f"import {module}, testbed.lab.core.deploy.live, testbed.lab.features.scale_up.watch_switches{READS_A_RECORD}"
    )
    assert not (HEAVY - {"rich"}) & modules
    assert "testbed.lab.core.deploy.lifecycle" not in modules
    assert not [name for name in modules if name.startswith("testbed.lab.core.schema")]


def test_listing_labs_loads_nothing_of_planning_and_no_rich(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTBED_STATE_DIR", str(tmp_path))
    modules = loaded_by("list")
    assert not HEAVY & modules
    assert not [name for name in modules if name.startswith(("testbed.lab.core.plan", "testbed.lab.features"))]
    assert len(modules) < 230


def test_validating_a_topology_loads_nothing_of_deployed_labs() -> None:
    modules = imported_by("import testbed.lab.core.schema, testbed.cli.labs.validate, testbed.cli.labs.sizing")
    assert not [name for name in modules if name.startswith("testbed.lab.core.deploy")]
    assert not (HEAVY - {"pydantic", "rich", "yaml"}) & modules


def test_changing_a_lab_loads_what_reads_the_maps_of_a_data_path_where_there_is_one() -> None:
    modules = imported_by("import testbed.cli.labs.apply, testbed.cli.labs.diff, testbed.api.changes")
    assert not {"docker", "mininet", "numpy", "paramiko", "pyroute2", "rich"} & modules
    assert not {"testbed.daemons.lag.node", "testbed.daemons.lag.bonding"} & modules


METRICS = {
    *("testbed.record", "testbed.record.catalogue"),
    *("testbed.protocols", "testbed.protocols.infiniband", "testbed.protocols.infiniband.metrics"),
    *("testbed.protocols.scale_up", "testbed.protocols.scale_up.metrics"),
}
"""What declares the metrics that `expect:` may name: words and arithmetic, and packages that are a docstring."""


@pytest.mark.parametrize("words", [("validate",), ("run", "--dry-run")], ids=" ".join)
def test_looking_at_a_scenario_loads_nothing_that_would_run_it(words: tuple[str, ...]) -> None:
    """Registries name what they have, and import it when it is asked for."""
    modules = loaded_by(*words, str(ROOT / "scenarios/rail-permutation.yml"))
    assert not {"docker", "mininet", "numpy", "paramiko", "pyroute2", "rich"} & modules
    running = ("emulated", "faults", "programs", "measuring", "simulated", "trust", "probes")
    below = ("daemons.kit", "endpoints", "protocols", "record", "workload.formats", "lab.core.deploy.live")
    unwanted = tuple(f"testbed.{name}" for name in (*below, *(f"run.{name}" for name in running)))
    assert sorted(name for name in modules - METRICS if name.startswith(unwanted)) == []


@pytest.mark.parametrize(
    "module",
    ["daemons.keeper.__main__", "daemons.lag.__main__", "daemons.switchd.process", "endpoints.worker.__main__"],
)
def test_a_process_of_a_lab_loads_no_planning_of_labs(module: str) -> None:
    modules = imported_by(f"import testbed.{module}")
    assert not HEAVY & modules
    assert (
        not {"testbed.lab.core.plan.operations", "testbed.lab.core.plan.lab", "testbed.lab.core.deploy", "testbed.cli"}
        & modules
    )


def completed(words: str) -> list[str]:
    """What bash would offer for the last of these words."""
    environment = {
        **os.environ,
        "_TESTBED_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    argv = [sys.executable, "-m", "testbed"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    return [line.removeprefix("plain,") for line in done.stdout.splitlines()]


def test_shell_completion_knows_verbs_and_options() -> None:
    assert completed("testbed de") == ["deploy", "destroy", "decode", "demo"]
    assert completed("testbed link re") == ["reset"]
    assert completed("testbed apply --allow re") == ["restart", "recreate"]
    assert completed("testbed run --res") == ["--resume", "--results"]
