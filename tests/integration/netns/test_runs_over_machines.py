"""Scenarios on one lab over two machines made of namespaces: one record, whatever clocks say, and nothing left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from namespace_machine import MachineRoom, NamespaceMachine, machines_lack
from spread_lab import LOSSLESS, TOPOLOGY, deployed, destroyed, left_on, listed, rows
from waiting import until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.frr,
    pytest.mark.timeout(900),  # of a busy machine
    pytest.mark.skipif(bool(machines_lack()), reason=f"machines of namespaces: {machines_lack()}"),
]

SCENARIO = """name: crossing
topology: {{file: both.yml}}
transports:
  roce: {{kind: roce}}
  uet: {{kind: uet}}
  tcp: {{kind: tcp}}
workload: {{kind: all-reduce, bytes: {size}}}
matrix: {{transport: [{transports}]}}
expect:
  - {{metric: wrong, max: 0, source: "every element is checked"}}
  - {{metric: jct_ratio, max: 1.5, source: "roofline: six steps of a quarter, and half a base RTT each"}}
"""
OF_THE_MACHINE = {"cpu", "steal", "canary", "path-delay", "rate", "pause-reaction", "clocks"}
"""Checks that a machine may fail which others keep busy."""
AHEAD_S = 5_000
OURS = ("testbed.endpoints.worker", "part_server", "canary")
HEADERS = 1.1
"""The most that packets of 4,500 bytes are larger than their data."""


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MachineRoom]:
    with MachineRoom(tmp_path_factory.mktemp("room"), mtu=9000) as found:
        yield found


@pytest.fixture
def work(room: MachineRoom, tmp_path: Path) -> Path:
    shutil.rmtree(Path(room.environment["HOME"], ".local"), ignore_errors=True)
    (tmp_path / "both.yml").write_text(TOPOLOGY.format(name="both") + LOSSLESS)
    return tmp_path


def write_scenario(work: Path, *, size: str = "200KB", transports: str = "roce, uet", more: str = "") -> str:
    (work / "crossing.yml").write_text(SCENARIO.format(size=size, transports=transports) + more)
    return "crossing.yml"


def record_in(work: Path) -> dict[str, Any]:
    [path] = sorted(work.glob("results/*/record.json"))[-1:]
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def workers_on(*machines: NamespaceMachine) -> list[str]:
    return [line for machine in machines for line in machine.processes() if any(word in line for word in OURS)]


def require_sound(run: dict[str, Any]) -> None:
    """A run that is whole and right, on a machine that others may have kept busy."""
    assert run["complete"], run
    failed = {check["name"]: check["message"] for check in run["checks"] if not check["ok"]}
    assert failed.keys() <= OF_THE_MACHINE, failed
    assert run["metrics"]["wrong"] == 0


def test_a_scenario_runs_on_both_machines_and_its_record_has_what_both_have_seen(room: MachineRoom, work: Path) -> None:
    machines = room.start("r1a"), room.start("r1b")
    assert "2 links between machines, 50%" in deployed(room, work, "both", machines)
    assert {row["state"] for row in rows(room, work, "inspect", "machines", "-n", "both")} == {"running"}
    checked = room.run("check", "-n", "both", "-f", "json", directory=work)
    assert checked.returncode == 0, checked.stdout
    tests = {test["name"]: test["count"] for test in json.loads(checked.stdout)["tests"]}
    assert (tests["across machines"], tests["cut links"]) == (4, 4)
    file = write_scenario(work)
    done = room.run("run", file, directory=work)
    assert done.returncode in (0, 2), done.stdout + done.stderr
    record = record_in(work)
    assert [one["name"] for one in record["machines"]] == [machine.address for machine in machines]
    assert "spread over 2 machines" in record["environment"]["approximations"][0]
    assert any("idle-rtt" in said for said in record["environment"]["approximations"]), "it says what is not judged"
    assert len(record["points"]) == 2
    for point in record["points"]:
        [run] = point["runs"]
        require_sound(run)
        checks = {check["name"]: check for check in run["checks"]}
        assert checks["cut-links"]["ok"] and "4 ends" in checks["cut-links"]["message"]
        assert checks["reconcile"]["message"].startswith("counters reconcile") and "clocks" in checks
        sent = {(port["node"], port["interface"]): port["tx_bytes"] for port in run["ports"]}
        for host in ("p1-s1-h1", "p1-s1-h2", "p1-s2-h1", "p1-s2-h2"):
            whole = 6 * 200_000 / 4  # a ring of four: each sends six quarters
            assert whole < sent[host, "rail1"] < HEADERS * whole, f"{host} of {sent}"
        up = sum(count for (node, name), count in sent.items() if node == "p1-s2-rail1" and name.startswith("uplink"))
        assert whole < up < HEADERS * whole, "one rank there sends to the other machine"
        assert {name.split(":")[1] for name in (one["name"] for one in run["series"])} >= {
            "p1-s1-rail1",
            "p1-s2-rail1",
        }
    kept_up = all(check["ok"] for point in record["points"] for run in point["runs"] for check in run["checks"])
    for expectation in record["expectations"]:
        assert expectation["outcome"] == "pass" or (expectation["metric"] != "wrong" and not kept_up), expectation
    assert len(record["expectations"]) == 4 and (done.returncode == 0) is kept_up
    assert workers_on(*machines) == []
    assert listed(room, work, "both")["state"] == "running", "the lab stays"
    for words, why in (
        (("--set", "fabric.hosts=3"), "is not the one of the scenario"),
        (("--keep",), "stays as it is"),
    ):
        refused = room.run("run", file, *words, directory=work)
        assert refused.returncode == 3 and why in refused.stderr, refused.stderr
    refused = room.run("run", write_scenario(work, transports="tcp"), directory=work)
    assert refused.returncode == 3 and "transport: tcp" in refused.stderr, refused.stderr
    destroyed(room, work, "both")
    assert left_on(*machines) == []


@pytest.mark.thorough
def test_machines_whose_clocks_are_apart_begin_together(room: MachineRoom, work: Path) -> None:
    machines = room.start("r2a"), room.start("r2b", ahead_s=AHEAD_S)
    (work / "both.yml").write_text(TOPOLOGY.format(name="both"))
    deployed(room, work, "both", machines)
    done = room.run("run", write_scenario(work, transports="roce"), directory=work)
    assert done.returncode in (0, 2), done.stdout + done.stderr
    [point] = record_in(work)["points"]
    [run] = point["runs"]
    require_sound(run)
    assert run["metrics"]["jct_ratio"] < 2
    destroyed(room, work, "both")


@pytest.mark.thorough
def test_an_interrupt_ends_the_run_on_all_machines_and_the_lab_stays(room: MachineRoom, work: Path) -> None:
    machines = room.start("r3a"), room.start("r3b")
    deployed(room, work, "both", machines)
    with _running(room, work) as running:
        _await_traffic(running, machines)
        os.killpg(running.pid, signal.SIGINT)
        _, said = running.communicate(timeout=60)
    assert running.returncode == 130, said
    assert record_in(work)["incomplete"].startswith("interrupted")
    until(lambda: not workers_on(*machines), "nothing of the run is left", timeout_s=10)
    assert listed(room, work, "both")["state"] == "running"
    destroyed(room, work, "both")
    assert left_on(*machines) == []


@pytest.mark.thorough
def test_a_machine_that_is_lost_ends_the_run_and_is_named(room: MachineRoom, work: Path) -> None:
    lives, dies = room.start("r4a"), room.start("r4b")
    deployed(room, work, "both", (lives, dies))
    with _running(room, work) as running:
        _await_traffic(running, (lives, dies))
        dies.die()
        _, said = running.communicate(timeout=120)
    assert running.returncode == 2 and dies.address in said, said
    record = record_in(work)
    assert record["incomplete"] and record["verdict"]["outcome"] == "invalid"
    until(lambda: not workers_on(lives), "nothing of the run is left", timeout_s=10)
    gone = room.run("destroy", "-n", "both", directory=work)
    assert gone.returncode == 2 and left_on(lives) == []


def _running(room: MachineRoom, work: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        room.testbed("run", write_scenario(work, size="20MB", transports="roce"), "-q"),
        cwd=work,
        env=room.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _await_traffic(running: subprocess.Popen[str], machines: tuple[NamespaceMachine, ...]) -> None:
    """Wait until packets of the run cross between the machines."""

    def sent() -> int:
        said = machines[0].run("cat", "/sys/class/net/eth0/statistics/tx_bytes").stdout
        return int(said)

    before = sent()
    until(lambda: running.poll() is not None or sent() > before + 300_000, "there is traffic", timeout_s=60)
    assert running.poll() is None, running.communicate()
