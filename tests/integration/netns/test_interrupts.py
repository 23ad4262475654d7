"""Deploy and destroy, interrupted and killed at random moments: what follows leaves nothing."""

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.netns, pytest.mark.frr]

TOPOLOGY = """
name: {name}
scale: {{time: 10000}}
fabric:
  design: rail-optimized
  hosts: 2
  gpus: 2
  spines: 2
  nic: {{rate: 400G}}
  scale_up: {{preset: h100, by: packets}}
"""
"""Namespaces, wires and daemons of a fabric, and those of two scale-up domains with their switches."""
FEW, MANY = 2, 20
FEW_DESTROYS, MANY_DESTROYS = 2, 5


def _write_topology(sandbox: Any) -> Path:
    path: Path = sandbox.root / "topology.yml"
    path.write_text(TOPOLOGY.format(name=sandbox.name()))
    return path


def _deploy(sandbox: Any) -> subprocess.Popen[bytes]:
    process: subprocess.Popen[bytes] = sandbox.start("deploy", "-q", "-t", str(_write_topology(sandbox)))
    return process


@pytest.fixture(scope="module")
def measured(shared_sandbox: Any) -> tuple[float, float]:
    """How long deploy and destroy take on this machine as it is now, in seconds."""
    started = time.monotonic()
    assert _deploy(shared_sandbox).wait(120) == 0, (shared_sandbox.root / "out").read_text()
    deployed = time.monotonic()
    shared_sandbox.note_daemons()
    assert shared_sandbox.start("destroy", "-n", shared_sandbox.name()).wait(60) == 0
    return deployed - started, time.monotonic() - deployed


def _signal_after(process: subprocess.Popen[bytes], delay_s: float, number: signal.Signals) -> int:
    """Send a signal after a delay, unless the process ended before it; its exit status."""
    try:
        return process.wait(delay_s)
    except subprocess.TimeoutExpired:
        process.send_signal(number)
        return process.wait(60)


def _destroy(sandbox: Any) -> None:
    """`destroy` of whatever there is: nothing at all is status 3 and says so."""
    sandbox.note_daemons()
    result = sandbox.cli("destroy", "-n", sandbox.name())
    assert result.returncode == 0 or (result.returncode == 3 and "no lab named" in result.stderr), result


@pytest.mark.timeout(900)
@pytest.mark.parametrize("points", [FEW, pytest.param(MANY, marks=pytest.mark.soak)])
def test_an_interrupted_deploy_leaves_nothing(sandbox: Any, measured: tuple[float, float], points: int) -> None:
    random_numbers = random.Random(f"interrupt {points}")
    full, _ = measured
    for point in range(points):
        delay = full * (point + random_numbers.random()) / points
        status = _signal_after(_deploy(sandbox), delay, signal.SIGINT)
        if status == 0:  # it was done before the signal came
            _destroy(sandbox)
        assert sandbox.leftovers() == [], f"SIGINT after {delay:.2f} of {full:.2f} s, status {status}"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("points", [FEW, pytest.param(MANY, marks=pytest.mark.soak)])
def test_destroy_cleans_up_after_a_killed_deploy(sandbox: Any, measured: tuple[float, float], points: int) -> None:
    random_numbers = random.Random(f"kill {points}")
    full, _ = measured
    for point in range(points):
        delay = full * (point + random_numbers.random()) / points
        status = _signal_after(_deploy(sandbox), delay, signal.SIGKILL)
        _destroy(sandbox)
        assert sandbox.leftovers() == [], f"SIGKILL after {delay:.2f} of {full:.2f} s, status {status}"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("points", [FEW_DESTROYS, pytest.param(MANY_DESTROYS, marks=pytest.mark.soak)])
def test_destroy_finishes_what_a_killed_destroy_began(sandbox: Any, measured: tuple[float, float], points: int) -> None:
    random_numbers = random.Random(f"destroy {points}")
    _, full = measured
    for point in range(points):
        assert sandbox.start("deploy", "-q", "--no-wait", "-t", str(_write_topology(sandbox))).wait(60) == 0
        sandbox.note_daemons()
        delay = full * (point + random_numbers.random()) / points
        status = _signal_after(sandbox.start("destroy", "-n", sandbox.name()), delay, signal.SIGKILL)
        _destroy(sandbox)
        assert sandbox.leftovers() == [], f"SIGKILL after {delay:.2f} of {full:.2f} s, status {status}"


def test_a_deploy_interrupted_at_its_very_end_says_whether_there_is_a_lab(sandbox: Any) -> None:
    process = _deploy(sandbox)
    journal = sandbox.state.labs / sandbox.name() / "journal.jsonl"
    deadline = time.monotonic() + 60
    while not (journal.exists() and '"running"' in journal.read_text()):
        assert time.monotonic() < deadline and process.poll() is None, (sandbox.root / "out").read_text()
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
    if process.returncode == 0:
        assert sandbox.cli("inspect", "-n", sandbox.name()).returncode == 0
        _destroy(sandbox)
    else:
        assert process.returncode == 130
    assert sandbox.leftovers() == []


def test_a_second_interrupt_does_not_stop_the_undoing(sandbox: Any) -> None:
    process = _deploy(sandbox)
    journal = sandbox.state.labs / sandbox.name() / "journal.jsonl"
    deadline = time.monotonic() + 60
    while not (journal.exists() and '"nodes"' in journal.read_text()):
        assert process.poll() is None, (sandbox.root / "out").read_text()
        assert time.monotonic() < deadline
        os.sched_yield()
    process.send_signal(signal.SIGINT)
    for _ in range(5):
        process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert sandbox.leftovers() == []


@pytest.mark.thorough
def test_deploy_replaces_what_a_killed_deploy_left(sandbox: Any, measured: tuple[float, float]) -> None:
    """The next deploy of that name needs no `destroy` in between."""
    full, _ = measured
    _signal_after(_deploy(sandbox), full * 0.6, signal.SIGKILL)
    sandbox.note_daemons()
    result = sandbox.cli("deploy", "-f", "json", "-q", "-t", str(_write_topology(sandbox)))
    assert result.returncode == 0, result
    assert json.loads(result.stdout)["changed"] is True
    assert sandbox.cli("check", "-n", sandbox.name()).returncode == 0


def test_two_commands_on_one_lab_do_not_meet(sandbox: Any) -> None:
    with sandbox.state.lock_lab(sandbox.name()):
        result = sandbox.cli("deploy", "-q", "-t", str(_write_topology(sandbox)))
    assert result.returncode == 3
    assert f"another command is working on the lab {sandbox.name()}" in result.stderr


SCENARIO = """
name: interrupted
topology:
  inline: {{name: {name}, scale: {{time: 10000}}, fabric: {{design: single-switch, hosts: 3, gpus: 1}}}}
transport: {{kind: tcp}}
workload: {{kind: permutation, bytes: 400MB}}
repeat: {{runs: 5}}
probes: off
"""
"""Traffic of minutes, so that it runs whenever the signals come."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("after_s", [0.0, 0.7, 2.0])
def test_three_interrupts_of_a_run_leave_no_lab(sandbox: Any, after_s: float) -> None:
    """Ctrl-C three times within 0.4 s: the first stops the traffic, the second gives up, the third came in the middle
    of removing the lab, which stayed there as "degraded"."""
    path = sandbox.root / "scenario.yml"
    path.write_text(SCENARIO.format(name=sandbox.name()))
    process = sandbox.start("run", "-q", str(path))
    journal = sandbox.state.labs / sandbox.name() / "journal.jsonl"
    deadline = time.monotonic() + 90
    while not (journal.exists() and '"running"' in journal.read_text()):
        assert time.monotonic() < deadline and process.poll() is None, (sandbox.root / "out").read_text()
        time.sleep(0.01)
    sandbox.note_daemons()
    time.sleep(after_s)  # the moments differ: workers start, traffic runs
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.13)
    assert process.wait(90) == 130, (sandbox.root / "out").read_text()
    assert "interrupted" in (sandbox.root / "out").read_text()
    assert sandbox.state.names() == [] and sandbox.leftovers() == []
