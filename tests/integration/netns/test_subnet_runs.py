"""Scenarios of `kind: ib` over the wires of a lab that is up, as those in virtual time: the same record and metrics."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from testbed.api.scenarios import ScenarioResult, run_on_lab
from testbed.base.errors import ScenarioError
from testbed.base.installation.packages import missing_programs
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.schema.load import load_topology
from testbed.lab.features.infiniband.live import LinksChange, LiveSubnet
from testbed.lab.features.infiniband.plane import PROGRAMS, SEARCH
from testbed.lab.features.infiniband.wires import Reroute
from testbed.record.record import PointResult
from testbed.record.subnet_counters import SubnetLoad

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(
        bool(missing_programs(PROGRAMS, SEARCH)),
        reason="what InfiniBand needs is not installed: `testbed doctor` says so",
    ),
]
TOPOLOGIES = Path(__file__).parents[3] / "topologies" / "infiniband"
TIME_SCALE = 30_000.0
"""A frame of 4 kB takes 2.5 ms: a machine that does other things, too, is in time."""
SHIFT = "{kind: tornado, shift: 2, bytes: 512kB}"
FRAMES = 512_000 // 4096


@pytest.fixture(scope="module")
def topology(shared_sandbox: Any) -> Path:
    """Two leaves and two spines with four HCAs, and two lanes."""
    found = Path(shared_sandbox.work) / "wires.yml"
    text = (TOPOLOGIES / "wires.yml").read_text()
    found.write_text(text.replace("name: ib-wires", f"name: {shared_sandbox.name('w')}"))
    return found


@pytest.fixture(scope="module")
def lab(shared_sandbox: Any, topology: Path) -> Iterator[RunningLab]:
    yield shared_sandbox.deploy(load_topology(topology), k=TIME_SCALE).lab
    shared_sandbox.destroy("w")


def run(lab: RunningLab, transport: str, workload: str = SHIFT, more: str = "") -> ScenarioResult:
    text = f"name: t\ntopology: {{file: x.yml}}\ntransport: {{kind: ib{transport}}}\nworkload: {workload}\n"
    return run_on_lab(lab, f"{text}repeat: {{runs: 1, seed: 1}}\n{more}")


def median(result: ScenarioResult, metric: str) -> float:
    found = result.metric(metric).median
    assert found is not None
    return found


def point_of(result: ScenarioResult) -> PointResult:
    return result.record.points[0]


def load_of(result: ScenarioResult) -> SubnetLoad:
    found = point_of(result).runs[0].subnet
    assert found is not None
    return found


def hcas_open(lab: RunningLab) -> list[str]:
    wires = LiveSubnet(lab).wires
    assert wires is not None
    return [name for name, hca in wires.status()["hcas"].items() if hca["open"]]


@pytest.mark.parametrize("options", ["", ", connections: dc", ", service: ud", ", cc: ccti"])
def test_a_shift_has_its_lines(lab: RunningLab, options: str) -> None:
    result = run(lab, options)
    run_of = point_of(result).runs[0]
    assert run_of.complete
    assert median(result, "jct_ratio") >= 0.98, "no faster than lines; a busy machine is slower"
    assert median(result, "ib_lost") == 0
    assert median(result, "ib_deadlocked") == 0
    load = load_of(result)
    assert (load.engine, load.vls, load.stuck) == ("ftree", 2, 0)
    sent = {port.node: port.xmit_pkts for port in load.ports if ":" in port.node}
    assert len(sent) == 4
    assert all(count >= FRAMES for count in sent.values()), "data of each, and answers"
    busy = {f"{port.node}:{port.interface}": port.utilisation for port in run_of.ports}
    assert busy["p1-s1-h1:rail1"] > 0, "ports have the names of the topology"
    assert {check.name for check in run_of.checks} >= {"wires", "cpu", "canary"}
    assert not hcas_open(lab), "the HCAs are given back"


def test_collectives_are_right_to_the_bit(lab: RunningLab) -> None:
    result = run(lab, "", "{kind: all-reduce, bytes: 256kB}")
    (found, *_) = point_of(result).runs[0].collectives
    assert found.wrong == 0


def test_two_senders_to_one_wait_for_credits(lab: RunningLab) -> None:
    result = run(lab, "", "{kind: incast, senders: 3, bytes: 256kB}")
    assert median(result, "jct_ratio") >= 0.98, "no faster than lines; a busy machine is slower"
    assert median(result, "ib_wait_share") > 0
    waiting = max(load_of(result).ports, key=lambda port: port.xmit_wait_s)
    assert waiting.lanes[0].xmit_wait_s > 0


def test_a_link_that_goes_costs_frames_until_the_manager_has_other_tables(lab: RunningLab) -> None:
    wires = LiveSubnet(lab).wires
    path = wires.subnet().path("p1-s1-h1:rail1", "p1-s2-h1:rail1")
    leaf, port = path[1]
    link = next(str(state.a) for state in LiveSubnet(lab).links() if (state.link.a, state.link.a_port) == (leaf, port))
    faults = f"faults:\n  - {{at: 300ms, until: 900ms, link: '{link}', down: true}}\n"
    result = run(lab, "", "{kind: tornado, shift: 2, bytes: 2MB}", faults)
    run_of = point_of(result).runs[0]
    assert run_of.complete, "what was lost is sent again"
    kinds = [event.kind for event in run_of.events]
    assert kinds.count("link-down") == 1 and kinds.count("undone-link-down") == 1
    assert median(result, "ib_lost") > 0
    assert not run_of.events or run_of.events[0].at_s >= 0.3
    assert load_of(result).engine == "ftree", "the link is back"


def faults_of(lab: RunningLab, faults: str, workload: str = "{kind: tornado, shift: 2, bytes: 2MB}") -> ScenarioResult:
    """A run with faults that all happened as planned, and after which the subnet is what it was. Queue pairs send again
    what nobody has acknowledged in 66 us of the fabric, 2 s of the lab."""
    result = run(lab, ", timeout: 4", workload, f"faults:\n  - {faults}\n")
    run_of = point_of(result).runs[0]
    assert run_of.complete, "what was lost is sent again"
    (check,) = (check for check in run_of.checks if check.name == "faults")
    assert check.ok, check
    live = LiveSubnet(lab)
    assert all(state.up for state in live.links())
    assert live.wires.subnet().lfts == live.reader.read().lfts, "frames go by the tables that the nodes hold"
    return result


def test_a_switch_that_is_killed_takes_its_frames_along_and_comes_back(lab: RunningLab) -> None:
    wires = LiveSubnet(lab).wires
    path = wires.subnet().path("p1-s1-h1:rail1", "p1-s2-h1:rail1")
    spine = path[2][0]
    result = faults_of(lab, f"{{at: 300ms, until: 900ms, node: {spine}, kill: true}}")
    kinds = [event.kind for event in point_of(result).runs[0].events]
    assert kinds.count("node-kill") == kinds.count("undone-node-kill") == 1
    assert "rerouted" in kinds[kinds.index("node-kill") :]
    assert median(result, "ib_lost") > 0
    told = next(event for event in point_of(result).runs[0].events if event.kind == "rerouted")
    assert "new tables after" in told.detail and "times slower" in told.detail, "in the time of lab and fabric"


def test_a_leaf_that_is_killed_cuts_its_hosts_off_until_it_is_back(lab: RunningLab) -> None:
    result = faults_of(lab, "{at: 300ms, until: 900ms, node: p1-s2-rail1, kill: true}")
    assert median(result, "ib_lost") > 0


def test_credits_that_leak_keep_a_lane_waiting(lab: RunningLab) -> None:
    leak = '{at: 100ms, until: 700ms, link: "p1-s1-h1:rail1", leak: {vl: 0}}'
    result = faults_of(lab, leak, "{kind: tornado, shift: 2, bytes: 1MB}")
    assert [event.kind for event in point_of(result).runs[0].events] == ["credit-leak", "undone-credit-leak"]
    port = next(one for one in load_of(result).ports if one.node == "p1-s1-h1:rail1")
    assert port.xmit_wait_s > 0.4
    assert port.lanes[0].xmit_wait_s > 0.4
    assert median(result, "ib_deadlocked") == 0, "nobody waits for each other"
    assert median(result, "ib_lost") == 0


def test_a_manager_that_is_killed_is_started_again(lab: RunningLab) -> None:
    """It is the only one: tables stay as they are meanwhile, and frames go on by them."""
    result = faults_of(lab, "{at: 200ms, until: 600ms, manager: p1-s1-h1, kill: true}")
    kinds = [event.kind for event in point_of(result).runs[0].events]
    assert kinds.count("manager-kill") == kinds.count("undone-manager-kill") == 1
    assert median(result, "ib_lost") == 0
    assert not LiveSubnet(lab).ended()


def test_a_fault_is_as_short_as_it_is_though_tables_take_longer(
    lab: RunningLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trap that is lost has the manager told after two seconds; the link has long been down, and the run is valid."""
    tables = LiveSubnet.await_tables

    def late(subnet: LiveSubnet, change: LinksChange) -> Reroute | None:
        threading.Event().wait(2.0)
        return tables(subnet, change)

    monkeypatch.setattr(LiveSubnet, "await_tables", late)
    result = faults_of(lab, "{at: 100ms, until: 600ms, link: 'p1-s1-rail1:uplink1', down: true}")
    events = point_of(result).runs[0].events
    down = next(event for event in events if event.kind == "link-down")
    back = next(event for event in events if event.kind == "undone-link-down")
    assert back.at_s - down.at_s < 1.5


@pytest.fixture
def long_run(lab: RunningLab, shared_sandbox: Any, topology: Path, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command line, in the midst of a run of a minute."""
    scenario = tmp_path / "long.yml"
    scenario.write_text(
        f"name: long\ntopology: {{file: {topology}}}\ntransport: {{kind: ib}}\n"
        "workload: {kind: tornado, shift: 2, bytes: 50MB}\nrepeat: {runs: 1, seed: 1}\n"
    )
    process = shared_sandbox.start("run", str(scenario), "-o", str(tmp_path / "results"), "-q")
    try:
        until(lambda: len(hcas_open(lab)) == 4, "all HCAs are in use")
        yield process
    finally:
        process.kill()
        process.wait()


def test_an_interrupted_run_is_kept_and_gives_the_hcas_back(
    lab: RunningLab, long_run: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    long_run.send_signal(signal.SIGINT)
    assert long_run.wait(60) != 0
    (record,) = tmp_path.rglob("record.json")
    assert json.loads(record.read_text())["incomplete"]
    until(lambda: not hcas_open(lab), "the HCAs are given back")
    assert median(run(lab, ""), "ib_lost") == 0


def test_a_run_ends_with_its_wires(lab: RunningLab, long_run: subprocess.Popen[bytes]) -> None:
    """It says what has ended, and the next one has wires again."""
    live = LiveSubnet(lab)
    os.kill(int(live.wires.status()["pid"]), signal.SIGKILL)
    assert long_run.wait(60) != 0
    live.start_wires()
    assert median(run(lab, ""), "ib_lost") == 0


def test_a_deadlock_is_seen_and_keeps_no_later_run_waiting(shared_sandbox: Any) -> None:
    """A ring by shortest ways on one lane: no frame moves any more (Dally and Seitz)."""
    model = replace(load_topology(TOPOLOGIES / "ring-minhop.yml"), name=shared_sandbox.name("r"))
    lab = shared_sandbox.deploy(model, k=TIME_SCALE).lab
    try:
        begun = time.monotonic()
        result = run(lab, "", "{kind: tornado, shift: 4, bytes: 2MB, time_limit: 90s}")
        assert time.monotonic() - begun < 60, "it ends with the deadlock, as a simulation does"
        assert median(result, "ib_deadlocked") == 1
        assert load_of(result).stuck > 0
        assert (load_of(result).deadlocked_s or 99) < 30
        (event,) = point_of(result).runs[0].events
        assert event.kind == "deadlocked"
        assert event.detail.count(" VL 0") == event.detail.count(" waits for ") + 1 >= 3
        assert median(run(lab, "", "{kind: tornado, shift: 1, bytes: 64kB}"), "ib_deadlocked") == 0
    finally:
        shared_sandbox.destroy("r")


def test_ranks_of_different_partitions_are_refused(shared_sandbox: Any) -> None:
    model = replace(load_topology(TOPOLOGIES / "partitions.yml"), name=shared_sandbox.name("p"))
    lab = shared_sandbox.deploy(model, k=TIME_SCALE).lab
    try:
        with pytest.raises(ScenarioError, match="in no partition together"):
            run(lab, "", "{kind: tornado, shift: 1, bytes: 64kB}")
    finally:
        shared_sandbox.destroy("p")
