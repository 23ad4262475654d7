"""Scenarios on one lab over two machines made of namespaces: one record, whatever clocks say, and nothing left."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from namespace_machine import MachineRoom, NamespaceMachine, machines_lack
from spread_lab import LOSSLESS, TOPOLOGY, deployed, destroyed, left_on, listed, rows
from waiting import until

from testbed.lab.core.schema.load import load_topology

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


def require_sound(run: dict[str, Any], *, checked: bool = True, also: Collection[str] = ()) -> None:
    """A run that is whole and right, on a machine that others may have kept busy."""
    assert run["complete"], run
    failed = {check["name"]: check["message"] for check in run["checks"] if not check["ok"]}
    assert failed.keys() <= {*OF_THE_MACHINE, *also}, failed
    assert not checked or run["metrics"]["wrong"] == 0


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
        assert {name.split(":")[1] for name in (one["name"] for one in run["series"])} >= {"p1-s1-rail1", "p1-s2-rail1"}
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
    kill = "faults:\n  - {at: 10ms, agent: p1-s1-h1, kill: true}\n"
    refused = room.run("run", write_scenario(work, more=kill), directory=work)
    assert refused.returncode == 3, refused.stderr
    assert "crossing.yml:13:5: " in refused.stderr and "agent-kill of p1-s1-h1 is none" in refused.stderr
    destroyed(room, work, "both")
    assert left_on(*machines) == []


FAULTS = """faults:
  - {{at: 50ms, until: 500ms, link: "{near}", set: {{loss: 10%, rate: 60%, both: true}}}}
  - {{at: 50ms, until: 500ms, link: "{other}", set: {{loss: 10%, both: true}}}}
  - {{at: 700ms, until: 1s, link: "{near}", down: true}}
  - {{at: 700ms, until: 1s, link: "{inside}", set: {{rate: 50%}}}}
"""


@pytest.mark.thorough
def test_tcp_crosses_and_faults_happen_where_their_links_are(room: MachineRoom, work: Path) -> None:
    """All that goes from one machine to the other crosses one of two links, both of which lose packets for a while."""
    machines = room.start("r5a"), room.start("r5b")
    deployed(room, work, "both", machines)
    links = {"near": ("p1-s1-rail1", "p1-spine2"), "other": ("p1-s2-rail1", "p1-spine1")}
    places = {name: port_to(work, *ends) for name, ends in links.items()}
    faults = FAULTS.format(**places, inside=port_to(work, "p1-s2-rail1", "p1-spine2"))
    done = room.run("run", write_scenario(work, size="2MB", transports="tcp, roce", more=faults), directory=work)
    assert done.returncode in (0, 1, 2), done.stdout + done.stderr  # with faults, it may take longer than expected
    record = record_in(work)
    assert [point["values"]["transport"] for point in record["points"]] == ["tcp", "roce"]
    for point in record["points"]:
        [run] = point["runs"]
        require_sound(run, also={"faults"})
        checks = {check["name"]: check["ok"] for check in run["checks"]}
        assert checks["cut-links"] and checks["untouched"]
        [done_as] = [check["message"] for check in run["checks"] if check["name"] == "faults"]
        slow = all(" ms late (limit" in part or " ms to happen (limit" in part for part in done_as.split("; "))
        assert checks["faults"] or slow, done_as
        assert ("tcp-cc" in checks) is (point["values"]["transport"] == "tcp"), "the hosts' own is known"
        assert sum(channel["retransmits"] for channel in run["channels"]) > 0, "packets are lost between machines"
        told = [(event["kind"], event["target"], event["at_s"]) for event in run["events"]]
        for kind, due_s in (("link-down", 0.7), ("undone-link-down", 1.0)):
            [at_s] = [at_s for what, where, at_s in told if (what, where) == (kind, places["near"])]
            assert due_s <= at_s < due_s + 2, told
        far = port_to(work, "p1-spine2", "p1-s1-rail1")
        assert {where for what, where, _ in told if what == "link-set"} >= {places["near"], far}, "both ways"
        assert {where for what, where, _ in told if what == "detected"} >= {"p1-s1-rail1", "p1-spine2"}, told
    checked = room.run("check", "-n", "both", directory=work)
    assert checked.returncode == 0, checked.stdout
    assert listed(room, work, "both")["state"] == "running"
    destroyed(room, work, "both")
    assert left_on(*machines) == []


TIMED = """name: timed
topology: {file: both.yml}
transport: {kind: tcp}
workload: {kind: permutation, scope: inter-leaf, duration: DURATION}
expect:
  - {metric: goodput_share, min: 10%, source: "far below any"}
"""


@pytest.mark.thorough
def test_flows_for_a_duration_have_their_programs_on_the_machines_of_their_hosts(room: MachineRoom, work: Path) -> None:
    machines = room.start("r6a"), room.start("r6b")
    deployed(room, work, "both", machines)
    (work / "crossing.yml").write_text(TIMED.replace("DURATION", "2s"))
    done = room.run("run", "crossing.yml", directory=work)
    assert done.returncode in (0, 1, 2), done.stdout + done.stderr
    [point] = record_in(work)["points"]
    [run] = point["runs"]
    require_sound(run, checked=False, also={"start-skew"})
    assert len(run["channels"]) == 4, "one for each host"
    assert all(channel["received_bytes"] > 100_000 for channel in run["channels"]), run["channels"]
    (work / "crossing.yml").write_text(TIMED.replace("DURATION", "60s"))
    with _running(room, work, "crossing.yml") as running:
        until(lambda: all("iperf3 -c" in str(one.processes()) for one in machines), "it sends", timeout_s=240)
        os.killpg(running.pid, signal.SIGINT)
        _, said = running.communicate(timeout=60)
    assert running.returncode == 130, said
    until(lambda: not [line for one in machines for line in one.processes() if "iperf3" in line], "no iperf3 is left")
    assert workers_on(*machines) == []
    destroyed(room, work, "both")
    assert left_on(*machines) == []


def port_to(work: Path, node: str, peer: str) -> str:
    """The port of a node that leads to another one."""
    links = load_topology(work / "both.yml").links
    ends = [(link.a, link.b) for link in links] + [(link.b, link.a) for link in links]
    return next(str(near) for near, far in ends if (near.node, far.node) == (node, peer))


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


def _running(room: MachineRoom, work: Path, file: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        room.testbed("run", file or write_scenario(work, size="20MB", transports="roce"), "-q"),
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
