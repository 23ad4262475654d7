"""InfiniBand back ends for real: OpenSM over ibsim in a lab, the real tools in hosts, links and managers that go."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from testbed.base.installation.packages import missing_programs
from testbed.base.linux.processes import package_environment
from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.check import CheckStatus, check_lab
from testbed.lab.core.schema.load import load_topology
from testbed.lab.features.infiniband.live import LiveSubnet, NoSubnet
from testbed.lab.features.infiniband.offline import compute_subnet
from testbed.lab.features.infiniband.plane import NOBODY, PROGRAMS, SEARCH
from testbed.lab.features.infiniband.running import noted_pids
from testbed.protocols.infiniband.routes import judge_routes

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(
        bool(missing_programs(PROGRAMS, SEARCH)),
        reason="what InfiniBand needs is not installed: `testbed doctor` says so",
    ),
]
TOPOLOGIES = Path(__file__).parents[3] / "topologies" / "infiniband"
UPLINK = "p1-s1-rail1:uplink1"
KILLED = """
import json, os, signal, sys
from pathlib import Path

from testbed.lab.core.schema.load import load_topology
from testbed.lab.features.infiniband.offline import compute_subnet
from testbed.lab.features.infiniband.reading import SubnetReader
from testbed.lab.features.infiniband.running import noted_pids

def read(reader):
    directory = reader.plane.directory
    print(json.dumps([str(directory), sorted(noted_pids(directory))]), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

SubnetReader.read = read
compute_subnet(load_topology(Path(sys.argv[1])).infiniband)
"""
"""Computes a subnet, and is killed while its programs run."""


@pytest.fixture(scope="module")
def tree(shared_sandbox: Any) -> Iterator[RunningLab]:
    """The fat tree of 32 HCAs with two managers, deployed once."""
    model = replace(load_topology(TOPOLOGIES / "fat-tree-32.yml"), name=shared_sandbox.name("t"))
    outcome = shared_sandbox.deploy(model, k=1.0)
    yield outcome.lab
    shared_sandbox.destroy("t")


def results(lab: RunningLab) -> dict[str, CheckStatus]:
    return {result.name: result.status for result in check_lab(lab).results}


def test_the_subnet_is_what_the_oracles_say(tree: RunningLab) -> None:
    found = check_lab(tree)
    assert found, str(found)
    details = {result.name: result.detail for result in found.results}
    assert details["subnet routes"] == "992 pairs of HCAs routed, 4 links at most"
    assert details["shifts"] == "31 shifts without contention (D-mod-K)"


def test_its_programs_are_nobodys_and_have_no_capabilities(tree: RunningLab) -> None:
    pids = noted_pids(LiveSubnet(tree).plane.directory)
    assert len(pids) == 3, "ibsim and two managers"
    for pid in pids.values():
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        assert set(status["Uid"].split()) == {str(NOBODY)}
        assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("ibnetdiscover",), '"p1-s8-h4:rail1"'),
        (("iblinkinfo",), '"p1-spine4"'),
        (("ibhosts",), "p1-s1-h1:rail1"),
        (("sminfo",), "SMINFO_MASTER"),
        (("perfquery",), "PortXmitData"),
        (("saquery", "-p", "--src-to-dst", "1:5"), "slid....................1"),
        (("smpquery", "nodedesc", "1"), "p1-s1-h1:rail1"),
        (("ibstat",), "State: Active"),
        (("ibqueryerrors",), "nodes checked"),
    ],
)
def test_the_real_tools_run_in_hosts(tree: RunningLab, command: tuple[str, ...], says: str) -> None:
    done = tree.run("p1-s3-h2", command, timeout_s=60)
    assert says in done.stdout + done.stderr, done
    assert done.returncode == 0, done


def test_a_path_is_traced_and_a_table_shown(tree: RunningLab) -> None:
    subnet = LiveSubnet(tree).reader.read()
    source, target = subnet.nodes["p1-s1-h1:rail1"], subnet.nodes["p1-s8-h4:rail1"]
    traced = tree.run("p1-s2-h1", ("ibtracert", str(source.lid), str(target.lid)), timeout_s=60).stdout
    path = subnet.path(source.name, target.name)
    assert path is not None
    assert all(f'"{name}"' in traced for name, _ in path[1:]), traced
    leaf = subnet.nodes["p1-s1-rail1"]
    shown = tree.run("p1-s2-h1", ("ibroute", str(leaf.lid)), timeout_s=60).stdout
    assert f"0x{target.lid:04x} {subnet.lfts[leaf.name][target.lid]:03d}" in shown, shown


def test_the_largest_lid_is_read_though_tools_leave_it_out_at_a_multiple_of_64(tree: RunningLab) -> None:
    subnet = LiveSubnet(tree).reader.read()
    top = max(node.lid for node in subnet.nodes.values())
    assert all(len(table) > top for table in subnet.lfts.values())
    assert judge_routes(subnet).broken == 0


def test_a_link_that_goes_reaches_the_manager_and_people_are_told_what_ftree_makes_of_it(tree: RunningLab) -> None:
    live = LiveSubnet(tree)
    with LinkControl(tree) as control:
        assert control.is_beside(UPLINK)
        control.set(UPLINK, LinkChange(up=False))
        try:
            found = results(tree)
            assert found["subnet links"] is CheckStatus.FAIL
            assert found["subnet routes"] is CheckStatus.PASS, "new tables lead around the link"
            assert found["routing engine"] is CheckStatus.FAIL
            assert "ftree gave this fabric up" in live.engine_sentence()
            assert "one missing uplink" in live.engine_sentence()
            assert max(judge_routes(live.reader.read()).worst_flows) == 2
            shown = tree.run("p1-s1-h1", ("iblinkinfo",), timeout_s=60).stdout
            assert "Down/" in shown
        finally:
            assert control.reset_all() == [UPLINK]
    assert check_lab(tree)
    assert live.engine_sentence() == ""


def test_a_link_right_after_the_subnet_is_up_is_not_missed(shared_sandbox: Any) -> None:
    model = replace(load_topology(TOPOLOGIES / "partitions.yml"), name=shared_sandbox.name("u"))
    lab = shared_sandbox.deploy(model, k=1.0).lab
    try:
        live = LiveSubnet(lab)
        for _ in range(3):
            live.set_link(UPLINK, up=False)
            assert judge_routes(live.reader.read()).broken == 0
            live.set_link(UPLINK, up=True)
    finally:
        shared_sandbox.destroy("u")


def test_a_manager_that_is_stuck_is_replaced(shared_sandbox: Any) -> None:
    """ibsim may lose the answer that OpenSM waits for; one that is stopped does as little."""
    model = replace(load_topology(TOPOLOGIES / "partitions.yml"), name=shared_sandbox.name("s"))
    lab = shared_sandbox.deploy(model, k=1.0).lab
    try:
        live = LiveSubnet(lab)
        (name,) = (node.name for node in live.planned.managers)
        stuck = noted_pids(live.plane.directory)[name]
        os.kill(stuck, signal.SIGSTOP)
        live.set_link(UPLINK, up=False)
        assert noted_pids(live.plane.directory)[name] != stuck
        assert not Path(f"/proc/{stuck}/exe").exists()
        assert judge_routes(live.reader.read()).broken == 0
    finally:
        shared_sandbox.destroy("s")


def test_only_up_and_down_are_changes_of_such_a_link(tree: RunningLab) -> None:
    with LinkControl(tree) as control, pytest.raises(NoSubnet, match="its rate share cannot be changed"):
        control.set(UPLINK, LinkChange(rate_share=0.5))
    with pytest.raises(NoSubnet, match="no port"):
        LiveSubnet(tree).link("p1-s1-rail1:uplink9")


def test_a_standby_manager_takes_over_and_the_dead_one_is_started_again(tree: RunningLab) -> None:
    live = LiveSubnet(tree)
    first, second = (node.name for node in live.planned.managers)
    assert {state.hca: state.state for state in live.reader.managers()} == {first: "master", second: "standby"}
    live.kill_manager(first)
    until(lambda: live.reader.read().sm == second, "the second manager takes over")
    assert live.ended() == [first]
    assert results(tree)["subnet managers"] is CheckStatus.FAIL
    live.set_link(UPLINK, up=False)  # the new master does what the old one did
    live.set_link(UPLINK, up=True)
    live.restart_manager(first)
    until(
        lambda: {state.hca: state.state for state in live.reader.managers()} == {first: "master", second: "standby"},
        "the first manager is master again",
    )
    # The first of the file is the master where it runs; ports are told in the sweep that it begins with.
    until(lambda: live.reader.read().sm == first, "its sweep has come")
    until(lambda: check_lab(tree), "the lab passes its tests again")


def test_partitions_are_as_written_and_nobody_crosses_them(shared_sandbox: Any) -> None:
    model = replace(load_topology(TOPOLOGIES / "partitions.yml"), name=shared_sandbox.name("p"))
    lab = shared_sandbox.deploy(model, k=1.0).lab
    try:
        assert check_lab(lab), str(check_lab(lab))
        subnet = LiveSubnet(lab).reader.read()
        lid = {name: node.lid for name, node in subnet.nodes.items()}
        red = f"{lid['p1-s1-h1:rail1']}:{lid['p1-s2-h1:rail1']}"
        across = f"{lid['p1-s2-h1:rail1']}:{lid['p1-s3-h1:rail1']}"
        inside = lab.run("p1-s2-h2", ("saquery", "-p", "--src-to-dst", red), timeout_s=60).stdout
        assert "pkey....................0x8001" in inside, inside
        assert "sl......................0x1" in inside, inside
        assert subnet.sl("p1-s1-h1:rail1", "p1-s2-h1:rail1") == 1
        none = lab.run("p1-s2-h2", ("saquery", "-p", "--src-to-dst", across), timeout_s=60)
        assert "pkey" not in none.stdout, "there is no path between partitions"
        assert (subnet.sl2vl[:2], subnet.vl_low) == ((0, 1), ((0, 8), (1, 64)))
    finally:
        shared_sandbox.destroy("p")


def test_destroy_leaves_nothing(shared_sandbox: Any) -> None:
    model = replace(load_topology(TOPOLOGIES / "partitions.yml"), name=shared_sandbox.name("d"))
    lab = shared_sandbox.deploy(model, k=1.0).lab
    plane = LiveSubnet(lab).plane
    pids = noted_pids(plane.directory)
    assert pids
    shared_sandbox.destroy("d")
    assert not plane.directory.exists()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids.values())
    assert not Path("/run/netns", plane.namespace).exists()


@pytest.mark.parametrize("engine", ["minhop", "lash"])
def test_a_ring_deadlocks_on_one_lane_and_not_with_levels_of_their_own(engine: str) -> None:
    lab = load_topology(TOPOLOGIES / f"ring-{engine}.yml")
    assert lab.infiniband is not None
    subnet = compute_subnet(lab.infiniband)
    report = judge_routes(subnet)
    assert (subnet.engine, report.broken) == (engine, 0)
    assert bool(report.cycle) is (engine == "minhop")
    assert (len(report.lanes) > 1) is (engine == "lash")


def test_two_subnets_are_computed_beside_each_other_and_leave_nothing(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    lab = load_topology(TOPOLOGIES / "fat-tree-32.yml")
    assert lab.infiniband is not None
    fabric = lab.infiniband
    before = set(Path("/tmp").glob("testbed-subnet-*"))
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: compute_subnet(fabric), range(2))
    assert one == other, "one file gives one subnet"
    assert judge_routes(one).free_shifts == 31
    assert set(Path("/tmp").glob("testbed-subnet-*")) <= before


def test_a_run_that_is_killed_leaves_no_programs() -> None:
    command = [sys.executable, "-c", KILLED, str(TOPOLOGIES / "fat-tree-32.yml")]
    done = subprocess.run(command, env=package_environment(), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    directory, programs = json.loads(done.stdout)
    try:
        assert programs == ["ibsim", "p1-s1-h1:rail1"]
        until(lambda: not noted_pids(Path(directory)), "no program is left")
    finally:
        shutil.rmtree(directory)


def test_cut_links_are_cut_before_the_manager_looks() -> None:
    lab = load_topology(TOPOLOGIES / "fat-tree-32.yml")
    assert lab.infiniband is not None
    subnet = compute_subnet(lab.infiniband, down=[("p1-s1-rail1", 8)])
    assert subnet.engine == "updn"
    assert subnet.peer("p1-s1-rail1", 8) is None
    assert judge_routes(subnet).broken == 0
