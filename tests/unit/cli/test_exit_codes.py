"""Exit codes of every verb: 3 for what could not begin, 2 for what has no answer, 1 for a bad verdict alone."""

import errno
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest

from testbed.base.errors import ConvergenceError, DriverError, ExitCode, TestbedError
from testbed.cli.app import app, exit_code
from testbed.cli.command import VerbCommand
from testbed.record.record import Outcome

ROOT = Path(__file__).parents[3]
RECORDS = ROOT / "tests" / "data" / "records"
NOT_STARTED = 3


def leaves(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, VerbCommand]]:
    """Every verb that does something, by its words."""
    if not isinstance(command, click.Group):
        assert isinstance(command, VerbCommand)
        yield " ".join(words), command
        return
    for name in command.list_commands(click.Context(command)):
        child = command.get_command(click.Context(command), name)
        assert child is not None
        yield from leaves(child, (*words, name))


VERBS = dict(leaves(app))
GROUPS = sorted({name.rpartition(" ")[0] for name in VERBS if " " in name})
LAB = ("-n", "nowhere")
MISSING = {
    "deploy": ("-t", "no.yml"),
    "apply": LAB,
    "diff": LAB,
    "destroy": LAB,
    "inspect": LAB,
    "check": LAB,
    "events": LAB,
    "validate": ("no.yml",),
    "generate": ("no-design",),
    "schema": ("no-kind",),
    "graph": ("-t", "no.yml"),
    "import": ("no.clab.yml",),
    "exec": ("h1", *LAB, "--", "true"),
    "launch": (*LAB, "--", "true"),
    "console": ("no-lab",),
    "shell": ("h1", *LAB),
    "logs": ("h1", *LAB),
    "capture": ("h1:eth1", *LAB),
    "trace": ("h1", "h2", *LAB),
    "decode": ("no.pcap",),
    "uet plot": ("no.jsonl",),
    "link set": ("h1:eth1", "--loss", "1%", *LAB),
    "link show": LAB,
    "link reset": ("--all", *LAB),
    "link down": ("h1:eth1", *LAB),
    "link up": ("h1:eth1", *LAB),
    "pfc show": LAB,
    "pfc storm": ("h1:eth1", "--for", "1s", *LAB),
    "stats": LAB,
    "serve metrics": ("--listen", "127.0.0.1:0", *LAB),
    "serve power": ("--listen", "127.0.0.1:0", *LAB),
    "service restart": ("dns", *LAB),
    "power off": ("h1", *LAB),
    "power on": ("h1", *LAB),
    "power reset": ("h1", *LAB),
    "node restart": ("h1", *LAB),
    "node recreate": ("h1", *LAB),
    "node kill": ("h1", "bgpd", *LAB),
    "mininet-cli": LAB,
    "exercise start": ("no-exercise",),
    "exercise hint": LAB,
    "exercise check": LAB,
    "exercise solve": LAB,
    "run": ("no.yml",),
    "job": ("all-reduce", "bytes=1MiB", *LAB),
    "workloads": ("no-kind",),
    "metrics": ("no_metric",),
    "report": ("no",),
    "export": ("no",),
    "compare": ("no", "nothing"),
    "results list": ("no",),
    "results show": ("no",),
    "results merge": ("no", "-o", "whole"),
    "pool check": ("no.yml",),
    "results steady": ("no", "--page", "no.md"),
    "results backends": ("no",),
    "images build": ("no-image",),
    "vm ssh": LAB,
    "vm exec": (*LAB, "--", "true"),
    "vm cp": ("here", "there"),
}
"""For each verb that needs something, words that name what is not there: a lab, a file, a machine."""
NEEDS_NOTHING = {
    "list",
    "demo",
    "examples",
    "exercise list",
    "roce states",
    "uet states",
    "doctor",
    "images list",
    "vm build",
    "vm up",
    "vm down",
    "vm status",
}
"""The verbs that name nothing that could be missing, or that make what is."""


@pytest.fixture(autouse=True)
def nothing_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STATE", "RUN", "CACHE"):
        monkeypatch.setenv(f"TESTBED_{name}_DIR", str(tmp_path / name.lower()))
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def test_the_table_of_what_is_missing_has_every_verb() -> None:
    assert set(MISSING) | NEEDS_NOTHING == set(VERBS)
    assert not set(MISSING) & NEEDS_NOTHING


@pytest.mark.parametrize("verb", VERBS)
def test_a_bad_option_could_not_begin(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code([*verb.split(), "--no-such-option"]) == NOT_STARTED
    assert capsys.readouterr().err.strip()


@pytest.mark.parametrize("verb", MISSING)
def test_what_is_missing_could_not_begin(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code([*verb.split(), *MISSING[verb]]) == NOT_STARTED
    said = capsys.readouterr()
    assert said.err.strip() and "Traceback" not in said.err and not said.out
    assert list(Path.cwd().iterdir()) == [], "nothing was begun"


@contextmanager
def nobody_reads() -> Iterator[None]:
    """Standard output and standard error are pipes whose reader is gone."""
    with pytest.MonkeyPatch.context() as patch:
        streams = []
        for name in ("stdout", "stderr"):
            reading, writing = os.pipe()
            os.close(reading)
            streams.append(os.fdopen(writing, "w", buffering=1))
            patch.setattr(sys, name, streams[-1])
        yield
        for stream in streams:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            stream.close()


@pytest.mark.parametrize("words", [["workloads"], ["--help"], ["--version"], ["link", "-h"], ["list"], ["schema"]])
def test_nobody_who_reads_is_no_verdict(words: list[str]) -> None:
    """As in `testbed workloads | head -1`: a shell says 141 for what SIGPIPE has ended."""
    with nobody_reads():
        assert exit_code(words) == 141


@pytest.mark.parametrize("words", [["validate", "no.yml"], ["lsit"], ["list", "--no-such-option"]])
def test_a_mistake_that_nobody_hears_of_has_its_code(words: list[str]) -> None:
    with nobody_reads():
        assert exit_code(words) == NOT_STARTED


@pytest.mark.parametrize("verb", [name for name in VERBS if any(one.required for one in VERBS[name].params)])
def test_a_missing_argument_could_not_begin(verb: str) -> None:
    assert exit_code(verb.split()) == NOT_STARTED


@pytest.mark.parametrize("verb", [name for name in VERBS if any(one.name == "format" for one in VERBS[name].params)])
def test_a_format_that_is_none_could_not_begin(verb: str) -> None:
    assert exit_code([*verb.split(), *MISSING.get(verb, ()), "-f", "yaml"]) == NOT_STARTED


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("inspct",),
        *((group,) for group in GROUPS),
        *((group, "no-verb") for group in GROUPS),
        ("--log-level", "loud", "list"),
        ("--on", "nowhere", "list"),
        ("--clock", "virtual", "list"),
        ("inspect", "-n", "No Lab!"),
        ("destroy", "-n", "../etc"),
        ("run", str(ROOT / "scenarios/incast-trimming.yml"), "--backend", "simulate"),
        ("run", str(ROOT / "scenarios/incast-trimming.yml"), "--set", "workload.kinds=incast", "--dry-run"),
        ("run", str(ROOT / "scenarios/incast-trimming.yml"), "--steady", "1"),
        ("validate", str(ROOT / "topologies/demo.yml"), "--set", "fabrik.hosts=2"),
    ],
    ids=" ".join,
)
def test_a_typo_could_not_begin(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(list(words)) == NOT_STARTED
    assert "Traceback" not in capsys.readouterr().err


def test_a_mistake_in_a_file_could_not_begin() -> None:
    Path("bad.yml").write_text("name: bad\nfabrik: {}\n")
    for words in (
        ["validate", "bad.yml"],
        *([verb, "-t", "bad.yml"] for verb in ("deploy", "apply", "diff", "graph")),
        ["run", "bad.yml"],
    ):
        assert exit_code(words) == NOT_STARTED, words


@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        ["--help"],
        ["run", "--help"],
        ["list"],
        ["results", "list"],
        ["roce", "states"],
        ["uet", "states"],
        ["schema", "scenario"],
        ["metrics"],
        ["workloads"],
        ["generate"],
        ["vm", "down"],
        ["validate", str(ROOT / "topologies/demo.yml")],
        ["inspect", "sizing", "-t", str(ROOT / "topologies/demo.yml")],
        ["run", "--dry-run", str(ROOT / "scenarios/incast-trimming.yml")],
        ["results", "show", str(RECORDS / "permutation-lb.json")],
    ],
    ids=" ".join,
)
def test_what_is_done_is_0(words: list[str]) -> None:
    assert exit_code(words) == 0


def test_verdicts_have_the_codes_of_the_table() -> None:
    assert [outcome.exit_code for outcome in (Outcome.PASS, Outcome.FAIL, Outcome.INVALID)] == [0, 1, 2]
    assert (ConvergenceError("x", missing=()).exit_code, DriverError("x").exit_code) == (1, 2)
    assert TestbedError("x").exit_code == NOT_STARTED


SMALL = """\
name: small
topology: {inline: {name: small, qos: {preset: uec}, fabric: {design: single-switch, hosts: 3, gpus: 1}}}
transport: {kind: uet}
workload: {kind: incast, bytes: 20kB, senders: 2, time_limit: LIMIT}
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("limit", "expect", "code"),
    [
        ("1s", "expect: [{metric: jct, min: 0, source: none}]\n", ExitCode.PASS),
        ("1s", "expect: [{metric: jct, max: 0, source: none}]\n", ExitCode.FAIL),
        ("1us", "", ExitCode.INVALID),
    ],
)
def test_run_ends_with_its_verdict(limit: str, expect: str, code: ExitCode, capsys: pytest.CaptureFixture[str]) -> None:
    Path("small.yml").write_text(SMALL.replace("LIMIT", limit) + expect)
    done = exit_code(["run", "small.yml", "--backend", "simulation", "--no-report", "-q", "-f", "json"])
    said = capsys.readouterr()
    assert done == code, said.err
    assert json.loads(said.out)["verdict"] == code.name.lower()


def test_compare_tells_worse_from_what_cannot_be_compared(tmp_path: Path) -> None:
    base = RECORDS / "permutation-lb.json"
    document = json.loads(base.read_text())
    for point in document["points"]:
        for run in point["runs"]:
            run["metrics"]["tail_fct_ratio"] *= 4
    worse = tmp_path / "worse.json"
    worse.write_text(json.dumps(document))
    assert exit_code(["compare", str(base), str(base)]) == 0
    assert exit_code(["compare", str(base), str(worse)]) == 1
    assert exit_code(["compare", str(base), str(RECORDS / "silent-failure.json")]) in (ExitCode.INVALID, NOT_STARTED)


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (RuntimeError("a bug"), ExitCode.INVALID, "RuntimeError: a bug"),
        (AssertionError("a bug"), ExitCode.INVALID, "Traceback"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/state"),
            ExitCode.INVALID,
            "No space left on device (/state)",
        ),
        (OSError(errno.EIO, "Input/output error"), ExitCode.INVALID, "Traceback"),
        (DriverError("the kernel refused it"), ExitCode.INVALID, "error: the kernel refused it"),
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", "x"),
            NOT_STARTED,
            "No such file or directory (x)",
        ),
        (FileExistsError(errno.EEXIST, "File exists", "x.yml"), NOT_STARTED, "File exists (x.yml)"),
        (PermissionError(errno.EACCES, "Permission denied", "x"), NOT_STARTED, "Permission denied (x)"),
        (TestbedError("what is this?"), NOT_STARTED, "error: what is this?"),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED, "error: interrupted"),
    ],
    ids=repr,
)
def test_errors_have_their_codes(
    error: BaseException, code: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def callback() -> None:
        raise error

    monkeypatch.setitem(app.commands, "list", VerbCommand("list", callback=callback))
    assert exit_code(["list"]) == code
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        ("deploy topologies/demo.yml", "Did you mean '-t topologies/demo.yml'?"),
        ("graph demo.yaml", "Did you mean '-t demo.yaml'?"),
        ("destroy demo", "Did you mean '-n demo'?"),
        ("destroy demo now", "arguments (demo now)\n"),
        ("demo now", "(now)"),
        ("help", "Did you mean '--help'?"),
        ("help validate", "Did you mean 'validate --help'?"),
        ("link help down", "Did you mean 'down --help'?"),
        ("version", "Did you mean '--version'?"),
        ("version validate", "Did you mean '--version'?"),
        ("validte", "Did you mean 'validate'?"),
        ("--clock virtal list", "--clock virtal: expected wall or virtual"),
        ("metrics fct", "did you mean fct_"),
        ("metrics list", "`testbed metrics` lists them all"),
        ("apply -y", "No such option '-y'. It asks nothing: leave it out."),
        ("deploy --force", "Did you mean '--reconfigure'?"),
        ("console --port 80", "Did you mean '--bind 127.0.0.1:PORT'?"),
        ("serve metrics --port 80", "Did you mean '--listen 127.0.0.1:PORT'?"),
        ("check --lab demo", "Did you mean '--name'?"),
        ("list --json", "Did you mean '--format json'?"),
        ("list --jsn", "No such option '--jsn'.\n"),
        ("check -n demo", "hint: testbed deploy -t TOPOLOGY.yml"),
        ("export demo.yml --to netlab", "hint: export -t demo.yml --to netlab"),
        ("decode /dev/zero", "testbed capture NODE:IF -w FILE"),
        ("results list none", "without one it is results/"),
    ],
)
def test_a_mistake_in_the_command_line_says_what_is_meant(
    arguments: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(arguments.split()) == NOT_STARTED
    assert meant in capsys.readouterr().err


@pytest.mark.parametrize("status", [0, 1, 2, 77, 127, 141])
def test_a_verb_that_runs_a_program_ends_with_its_code(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(app.commands, "list", VerbCommand("list", callback=lambda: sys.exit(status)))
    assert exit_code(["list"]) == status


def test_a_lab_that_does_not_converge_is_no_verdict_on_a_scenario(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> Any:
        raise ConvergenceError("routing has not converged", missing=())

    monkeypatch.setattr("testbed.run.emulated.sweep.run_on_own_labs", refuse)
    Path("small.yml").write_text(SMALL.replace("LIMIT", "1s"))
    assert exit_code(["run", "small.yml", "-q"]) == ExitCode.INVALID
    assert "routing has not converged" in capsys.readouterr().err


def test_only_verbs_that_judge_and_those_that_run_a_program_have_codes_of_their_own() -> None:
    judging = {name for name, verb in VERBS.items() if 1 in verb.codes}
    assert judging == {
        "deploy",
        "apply",
        "diff",
        "check",
        "run",
        "job",
        "compare",
        "exercise check",
        "doctor",
        "pool check",
        "results merge",
        "vm status",
        "demo",
        "trace",
    }
    assert {name for name, verb in VERBS.items() if "own" in verb.codes} == {
        "exec",
        "launch",
        "shell",
        "vm exec",
        "vm ssh",
    }


def test_help_tells_the_codes_of_a_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["check", "--help"]) == 0
    said = capsys.readouterr().out
    assert "Exit codes:" in said and "a test failed" in said


def test_the_page_has_every_code_and_every_verb_with_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sphinx", reason="the documentation's packages are not installed: pip install testbed[docs]")
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_ext"))
    from reference import exit_codes

    page = exit_codes.page()
    assert set(exit_codes.MEANINGS) == set(ExitCode)
    for code in ExitCode:
        assert f"| `{int(code)}` |" in page
    for name, verb in VERBS.items():
        assert page.count(f"| [`{name}`]") == len(verb.codes), name


def test_figures_are_those_of_expectations_or_those_that_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["results", "backends", "--expected", "--metric", "jct"]) == NOT_STARTED
    assert "leave one out" in capsys.readouterr().err
