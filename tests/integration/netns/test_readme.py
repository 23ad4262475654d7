"""The README is true: its commands run in their order, its Python runs, its topology file is valid."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.drivers.nodes.mininet_package import find_mininet
from testbed.scenario.sweep.points import plan_points
from testbed.spec import load_topology_text
from testbed.spec.scenario.file import load_scenario

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()

pytestmark = [pytest.mark.netns, pytest.mark.frr]


def blocks(language: str, section: str) -> list[str]:
    """The fenced blocks of a language in one section."""
    text = README.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def command(*arguments: str, cwd: Path, status: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "testbed", *arguments],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == status, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def newcomer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with what the commands name, and a record of labs of its own."""
    monkeypatch.setenv("TESTBED_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TESTBED_RUN_DIR", f"/run/testbed-readme-{os.getpid()}")
    for name in ("topologies", "scenarios"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def test_the_first_lab(newcomer: Path) -> None:
    (block,) = blocks("sh", "A first lab")
    commands = [shlex.split(line, comments=True) for line in block.splitlines()]
    verbs = [words[1] for words in commands]
    assert verbs[0] == "deploy" and verbs[-1] == "destroy"
    try:
        for words in commands:
            assert words[0] == "./lab"
            if words[1] == "run":  # the demo's own test runs it; a lab of that name is used as it stands
                short = [*words[1:], "--repeat", "1", "--set", "workload.duration=2s", "--set", "expect=[]"]
                subprocess.run([sys.executable, "-m", "testbed", *short], cwd=newcomer, check=False, timeout=200)
                assert list(newcomer.glob("results/*/report.html"))
                continue
            if words[1] == "capture":
                command(*words[1:-1], "1", cwd=newcomer)
                continue
            if words[1:3] == ["link", "down"]:
                command(*words[1:], cwd=newcomer)
                command("link", "up", words[3], cwd=newcomer)
                continue
            command(*words[1:], cwd=newcomer)
        assert (newcomer / "demo.html").stat().st_size > 1000
    finally:
        subprocess.run([sys.executable, "-m", "testbed", "destroy", "-n", "demo"], capture_output=True, check=False)


def test_scenarios(newcomer: Path) -> None:
    (block,) = blocks("sh", "Scenarios")
    commands = [shlex.split(line, comments=True)[1:] for line in block.splitlines()]
    assert {words[0] for words in commands} == {"workloads", "run", "results", "metrics"}
    measured = 0
    for words in commands:
        if words[0] != "run" or "--dry-run" in words:
            command(*words, cwd=newcomer)
            continue
        # what it measures is judged elsewhere: here it ends with a record and a report, whatever the machine is like
        done = subprocess.run([sys.executable, "-m", "testbed", *words], cwd=newcomer, check=False, timeout=200)
        assert done.returncode in (0, 1, 2)
        measured += 1
        assert len(list(newcomer.glob("results/*/report.html"))) == measured


def test_the_scenario_file(tmp_path: Path) -> None:
    (block,) = blocks("yaml", "Scenarios")
    for name in ("scenarios", "topologies"):
        (tmp_path / name).mkdir()
    (tmp_path / "topologies/uec-spray.yml").write_bytes((ROOT / "topologies/uec-spray.yml").read_bytes())
    file = tmp_path / "scenarios/readme.yml"
    file.write_text(block)
    assert len(plan_points(load_scenario(file))) == 3


def test_switch_ports(newcomer: Path) -> None:
    (block,) = blocks("sh", "Switch ports")
    commands = [shlex.split(line, comments=True)[1:] for line in block.splitlines()]
    assert commands[0][0] == "deploy"
    endless = {"stats": "reconcile", "serve": "http://127.0.0.1:9464/metrics"}
    try:
        for words in commands:
            if words[0] in endless:
                until_interrupted(words, endless[words[0]], newcomer)
            else:
                command(*words, cwd=newcomer)
    finally:
        subprocess.run([sys.executable, "-m", "testbed", "destroy", "-n", "rail-qos"], capture_output=True, check=False)


def until_interrupted(words: list[str], wanted: str, cwd: Path) -> None:
    """A command that runs until Ctrl-C says what it is for, and ends well."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "testbed", *words],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = ""
        while wanted not in said:
            line = process.stdout.readline()
            assert line, f"{words}: {said}"
            said += line
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
        assert process.returncode == 0, said + rest
    finally:
        process.kill()
        process.wait()


def test_the_qos_section() -> None:
    (block,) = blocks("yaml", "Switch ports")
    lab = load_topology_text("name: readme\nfabric: {design: rail-optimized}\n" + block, file="README.md")
    assert lab.qos is not None and len(lab.qos.profiles) == 2


def test_the_topology_file() -> None:
    (block,) = blocks("yaml", "A topology file")
    lab = load_topology_text(block, file="README.md")
    assert len(lab.hosts) == 129


def test_python(newcomer: Path) -> None:
    example, _ = blocks("python", "From Python and pytest")
    done = subprocess.run(
        [sys.executable, "-c", example],
        cwd=newcomer,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "1 received" in done.stdout


@pytest.mark.skipif(bool(find_mininet()), reason="Mininet is not installed: pip install mininet")
def test_mininet(newcomer: Path) -> None:
    (example,) = blocks("python", "For scripts that speak Mininet")
    done = subprocess.run(
        [sys.executable, "-c", example],
        cwd=newcomer,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "0% dropped" in done.stderr
    assert "default via" in done.stdout
    command("list", cwd=newcomer)
    assert not list(newcomer.glob("testbed-*"))


def test_pytest(newcomer: Path) -> None:
    _, example = blocks("python", "From Python and pytest")
    (newcomer / "test_example.py").write_text(example)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_example.py"],
        cwd=newcomer,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
