"""Deploy, deploy again, replace, destroy: exactly what a lab made goes, and nothing else."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from testbed.base.errors import LabNotFound, NameInUse
from testbed.base.linux.namespaces import NETNS_DIRECTORY
from testbed.base.names import namespace_name
from testbed.lab.core.deploy import machine_settings
from testbed.lab.core.deploy.lifecycle import LabExists
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.journal import Journal, LabState
from testbed.lab.core.deploy.watch.check import check_lab
from testbed.lab.core.schema.load import load_topology

pytestmark = [pytest.mark.netns, pytest.mark.frr]

TOPOLOGIES = Path(__file__).parents[3] / "topologies"


def _run(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout


@contextmanager
def _foreign_namespace(name: str) -> Iterator[int]:
    """Somebody else's namespace with a bridge and a process in it; its process id."""
    _run("ip", "netns", "add", name)
    process = None
    try:
        _run("ip", "-n", name, "link", "add", "theirs", "type", "bridge")
        process = subprocess.Popen(["ip", "netns", "exec", name, "sleep", "300"], stdin=subprocess.DEVNULL)
        yield process.pid
        assert process.poll() is None
        assert "theirs" in _run("ip", "-n", name, "-o", "link", "show", "type", "bridge")
    finally:
        if process is not None:
            process.kill()
            process.wait()
        _run("ip", "netns", "del", name)


def _state(lab: RunningLab) -> dict[str, Any]:
    """What must not change when nothing is to be done."""
    return {
        "identities": {name: (NETNS_DIRECTORY / lab.namespace(name)).stat().st_ino for name in lab.identities},
        "pids": {status.name: dict(status.pids) for status in lab.status()},
        "routes": {status.name: lab.routes(status.name) for status in lab.status()},
        "files": {path.name: path.stat().st_mtime_ns for path in lab.directory.iterdir()},
        "record": lab.record,
    }


def _await_limits(sandbox: Any, before: Mapping[str, int | str]) -> None:
    """Wait until the machine's limits are what they were, unless a lab of others, who test beside us, holds them."""

    def back() -> bool:
        if all(Path(path).read_text().strip() == str(value) for path, value in before.items()):
            return True
        try:
            needs = json.loads(machine_settings.PLACE.read_text())["needs"]
        except FileNotFoundError:
            return False
        return bool(needs) and str(sandbox.state.state) not in needs

    until(back, "the limits of neighbours are back")


def test_deploying_twice_changes_nothing_and_destroy_leaves_nothing(sandbox: Any) -> None:
    with _foreign_namespace(f"f{sandbox.prefix}"):
        first = sandbox.deploy(sandbox.model())
        assert first.changed
        report = check_lab(first.lab)
        assert report.exit_code == 0, report
        before = _state(first.lab)

        second = sandbox.deploy(replace(sandbox.model(), source="../the/same/file.yml"))
        assert not second.changed
        assert _state(second.lab) == before

        kept = json.loads(machine_settings.PLACE.read_text())
        assert kept["needs"][str(sandbox.state.state)] > 0
        assert int(machine_settings.BACKLOG.read_text()) >= machine_settings.BACKLOG_PACKETS, "wires drop nothing"
        assert sandbox.destroy() == len(first.lab.model.nodes)
        assert sandbox.leftovers() == []
        _await_limits(sandbox, kept["before"])


@pytest.mark.may_skip
def test_neighbour_limits_hold_the_lab_and_come_back(sandbox: Any) -> None:
    paths = [
        Path(f"/proc/sys/net/{family}/neigh/default/gc_thresh{level}")
        for family in ("ipv4", "ipv6")
        for level in (1, 2, 3)
    ]
    before = [int(path.read_text()) for path in paths]
    if before[0] > 1024:
        pytest.skip("the neighbour limits of this machine are raised already")
    outcome = sandbox.deploy(sandbox.tiny(), wait=False)
    assert all(int(path.read_text()) > 2 * len(outcome.lab.plan.ports) for path in paths)
    sandbox.deploy(sandbox.tiny("b"), wait=False)
    sandbox.destroy()
    assert all(int(path.read_text()) > 2 * len(outcome.lab.plan.ports) for path in paths), "another lab needs them"
    sandbox.destroy("b")
    _await_limits(sandbox, dict(zip(map(str, paths), before, strict=True)))


def test_another_lab_of_the_same_name_is_refused_until_reconfigure(sandbox: Any) -> None:
    first = sandbox.deploy(sandbox.tiny())
    inodes = sandbox.namespaces()
    pids = {pid for status in first.lab.status() for pid in status.pids.values()}
    other = sandbox.model(segments=1, gpus=1, spines=2)
    with pytest.raises(LabExists, match="a different lab named"):
        sandbox.deploy(other)
    assert sandbox.namespaces() == inodes
    assert check_lab(first.lab).exit_code == 0

    replaced = sandbox.deploy(other, reconfigure=True)
    assert replaced.changed
    assert len(replaced.lab.model.nodes) == len(first.lab.model.nodes) + 1
    assert pids.isdisjoint(sandbox.processes())
    assert check_lab(replaced.lab).exit_code == 0


def test_a_refused_reconfigure_leaves_the_old_lab_running(sandbox: Any) -> None:
    first = sandbox.deploy(sandbox.tiny())
    before = _state(first.lab)
    other = sandbox.model(segments=1, gpus=1, spines=2)
    foreign = namespace_name(other.name, "p1-spine2")
    subprocess.run(["ip", "netns", "add", foreign], check=True)
    try:
        with pytest.raises(NameInUse, match=foreign):
            sandbox.deploy(other, reconfigure=True)
        assert foreign in sandbox.namespaces(), "and somebody else's namespace is theirs"
    finally:
        subprocess.run(["ip", "netns", "del", foreign], check=True)
    assert _state(first.lab) == before
    assert not sandbox.deploy(sandbox.tiny()).changed
    assert check_lab(first.lab).exit_code == 0


@pytest.mark.thorough
def test_a_lab_of_another_version_stands_in_nobodys_way(sandbox: Any) -> None:
    """It is listed, another lab comes and goes beside it, and `destroy` removes it, from its journal."""
    sandbox.deploy(sandbox.tiny("a"))
    record = sandbox.state.lab_directory(sandbox.name("a")) / "lab.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"schema": 99, "version": "9.9"}))
    with pytest.raises(LabExists, match=r"deployed by testbed 9\.9"):
        sandbox.deploy(sandbox.tiny("a"))
    other = sandbox.deploy(sandbox.tiny("b"))
    listed = json.loads(sandbox.cli("list", "-f", "json").stdout)
    assert {row["name"]: row["state"] for row in listed} == {sandbox.name("a"): "unknown", sandbox.name("b"): "running"}
    assert check_lab(other.lab).exit_code == 0
    refused = sandbox.cli("inspect", "-n", sandbox.name("a"))
    assert refused.returncode == 3 and f"testbed destroy -n {sandbox.name('a')}" in refused.stderr
    sandbox.destroy("b")
    gone = sandbox.cli("destroy", "-n", sandbox.name("a"))
    assert gone.returncode == 0, gone.stderr
    assert sandbox.namespaces() == {} and sandbox.processes() == {}


def test_a_lab_with_a_dead_daemon_is_not_called_unchanged(sandbox: Any) -> None:
    outcome = sandbox.deploy(sandbox.tiny())
    switch = next(status for status in outcome.lab.status() if "bgpd" in status.pids)
    os.kill(switch.pids["bgpd"], 9)
    with pytest.raises(LabExists, match=f"not whole: {switch.name}"):
        sandbox.deploy(sandbox.tiny())
    assert sandbox.deploy(sandbox.tiny(), reconfigure=True).changed


def test_destroying_one_of_two_labs_does_not_harm_the_other(sandbox: Any) -> None:
    sandbox.deploy(sandbox.model("a"))
    other = sandbox.deploy(sandbox.model("b"))
    before = _state(other.lab)
    sandbox.destroy("a")
    assert _state(other.lab) == before
    report = check_lab(other.lab)
    assert report.exit_code == 0, report
    with pytest.raises(LabNotFound, match=f"there are: {sandbox.name('b')}"):
        sandbox.destroy("a")


def test_a_namespace_of_that_name_made_by_somebody_else_is_not_touched(sandbox: Any) -> None:
    name = f"{sandbox.name()}-p1-s1-h2"
    with _foreign_namespace(name):
        before = sandbox.namespaces()
        with pytest.raises(NameInUse, match=name):
            sandbox.deploy(sandbox.tiny())
        assert sandbox.namespaces() == before
        with pytest.raises(LabNotFound):
            sandbox.destroy()
        assert [item for item in sandbox.leftovers() if item != f"namespace {name}" and name not in item] == []


def test_a_namespace_replaced_behind_our_back_survives_destroy(sandbox: Any) -> None:
    outcome = sandbox.deploy(sandbox.tiny(), wait=False)
    name = outcome.lab.namespace("p1-s1-h2")
    _run("ip", "netns", "del", name)
    with _foreign_namespace(name):
        inode = (NETNS_DIRECTORY / name).stat().st_ino
        sandbox.destroy()
        assert sandbox.namespaces() == {name: inode}


def test_destroy_ends_processes_that_users_started_in_nodes(sandbox: Any) -> None:
    lab = sandbox.deploy(sandbox.tiny(), wait=False).lab
    process = lab.spawn("p1-s1-h1", ["sleep", "300"], stdin=subprocess.DEVNULL)
    sandbox.destroy()
    assert process.wait(5) == -9


def test_what_a_user_put_into_the_lab_directory_stays(sandbox: Any) -> None:
    lab = sandbox.deploy(sandbox.tiny(), wait=False).lab
    data = json.loads((lab.directory / "topology-data.json").read_text())
    assert set(data["nodes"]) == {node.name for node in lab.model.nodes}
    own = lab.directory / "notes.txt"
    own.write_text("mine")
    sandbox.destroy()
    assert [path.name for path in lab.directory.iterdir()] == ["notes.txt"]
    own.unlink()
    lab.directory.rmdir()


def test_commands_of_nodes_run_once_routing_is_there_and_their_failure_undoes_the_deploy(sandbox: Any) -> None:
    model = sandbox.tiny()
    far = "010011AC"  # 172.17.0.1, the spine's loopback, as /proc/net/route has it: known only over BGP
    nodes = tuple(
        replace(node, exec=(("grep", far, "/proc/net/route"),)) if node.name == "p1-s1-rail1" else node
        for node in model.nodes
    )
    lab = sandbox.deploy(replace(model, nodes=nodes)).lab
    assert lab.life_cycle is LabState.RUNNING
    sandbox.destroy()
    nodes = tuple(replace(node, exec=(("false",),)) if node.name == "p1-s1-h2" else node for node in model.nodes)
    with pytest.raises(Exception, match="p1-s1-h2: exec false ended with status 1"):
        sandbox.deploy(replace(model, nodes=nodes))
    assert sandbox.leftovers() == []


@pytest.mark.parametrize("rounds", [5, pytest.param(50, marks=pytest.mark.soak)])
def test_nothing_grows_over_many_rounds(sandbox: Any, rounds: int) -> None:
    """Five times of a small lab; many times of one with an overlay, whose switches have namespaces and mounts more."""
    model = sandbox.tiny()
    if rounds > 5:
        model = replace(load_topology(TOPOLOGIES / "two-tenants.yml"), name=model.name)

    def census() -> dict[str, int]:
        return {
            "namespaces": len(sandbox.namespaces()),
            "processes": len(sandbox.processes()),
            "descriptors": len(list(Path("/proc/self/fd").iterdir())),
            "threads": len(list(Path("/proc/self/task").iterdir())),
            "mounts of /run/netns": sum(
                line.split()[4] == str(NETNS_DIRECTORY)
                for line in Path("/proc/self/mountinfo").read_text().splitlines()
            ),
        }

    sandbox.deploy(model, wait=False)
    sandbox.destroy()
    before = census()
    for _ in range(rounds):
        sandbox.deploy(model, wait=False)
        sandbox.destroy()
        assert sandbox.leftovers() == []
    assert census() == before


def test_a_journal_alone_is_enough_to_destroy(sandbox: Any) -> None:
    """As after a crash between the first entry and the record."""
    lab = sandbox.deploy(sandbox.tiny(), wait=False).lab
    (sandbox.state.lab_directory(lab.name) / "lab.json").unlink()
    assert Journal(sandbox.state.lab_directory(lab.name)).read().state is LabState.RUNNING
    assert sandbox.destroy() == len(lab.model.nodes)
    assert sandbox.leftovers() == []
