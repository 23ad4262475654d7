"""The verbs `diff` and `apply` on a lab that is really there, and what Python and the stream of events see of them."""

import json
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sandbox import Sandbox
from waiting import until

from testbed.api import Lab
from testbed.lab.core.deploy.changing.refusal import ChangeRefused
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.check import check_lab
from testbed.lab.features.management.services_apply import read_services

pytestmark = [pytest.mark.netns, pytest.mark.frr]

TEXT = """\
name: {name}
scale: {{time: 10000}}
fabric:
  design: rail-optimized
  segments: 1
  hosts: 2
  gpus: 1
  spines: 1
  nic: {{per: gpu, ports: 1, rate: 400G}}
  routing: {{bfd: false}}
"""
MARK = "192.0.2.1"
"""An address that no lab has (RFC 5737): a node that has it is the one that was given it."""


@pytest.fixture
def file(sandbox: Sandbox) -> Path:
    """The file of a lab of two hosts under one rail switch and one spine."""
    path: Path = sandbox.work / "lab.yml"
    path.write_text(TEXT.format(name=sandbox.name()))
    return path


@pytest.fixture
def deployed(sandbox: Any, file: Path) -> Any:
    """The sandbox with the lab of the file in it."""
    done = sandbox.cli("deploy", "-q", "-t", "lab.yml")
    sandbox.note_daemons()
    assert done.returncode == 0, done
    return sandbox


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def running(sandbox: Sandbox) -> RunningLab:
    return sandbox.running()


def pids(sandbox: Sandbox) -> Mapping[str, Mapping[str, int]]:
    return {status.name: dict(status.pids) for status in running(sandbox).status()}


def test_from_an_edited_file_to_the_changed_lab(deployed: Any, file: Path) -> None:
    said = deployed.cli("diff")
    assert (said.returncode, said.stderr) == (0, "") and "nothing to change" in said.stdout, said
    before, daemons = deployed.namespaces(), pids(deployed)

    edit(file, "hosts: 2", "hosts: 3")
    for words in (("diff",), ("apply", "--dry-run"), ("diff", "-t", "lab.yml")):
        said = deployed.cli(*words)
        assert said.returncode == 1, said
        assert "fabric.hosts: 2 -> 3" in said.stdout and "lab.yml:6" in said.stdout and "host p1-s1-h3" in said.stdout
        assert "no packet and no session is at stake" in said.stdout
    assert deployed.namespaces() == before, "nothing was touched"

    said = deployed.cli("apply")
    deployed.note_daemons()
    assert said.returncode == 0 and "converged" in said.stdout, said
    assert deployed.namespaces().items() > before.items()
    assert {node: pids(deployed)[node] for node in daemons} == daemons
    assert check_lab(running(deployed)).exit_code == 0
    ping = deployed.cli("exec", "p1-s1-h3", "--", "ping", "-c", "1", "p1-s1-h1")
    assert ping.returncode == 0, ping
    assert deployed.cli("diff").returncode == 0
    again = deployed.cli("apply")
    assert again.returncode == 0 and "nothing to change" in again.stdout, again

    told = [json.loads(line) for line in deployed.cli("events", "--since", "deploy").stdout.splitlines()]
    kinds = [event["kind"] for event in told]
    assert kinds.count("lab-changing") == kinds.count("lab-changed") == 1
    things = {event["subject"] for event in told if event["kind"] == "thing-made"}
    assert "host p1-s1-h3" in things and any(thing.startswith("link p1-s1-h3:rail1") for thing in things)


def test_a_program_is_told_all_that_was_done(deployed: Any, file: Path) -> None:
    edit(file, "rate: 400G", "rate: 200G")
    planned = json.loads(deployed.cli("diff", "-f", "json").stdout)
    done = deployed.cli("apply", "-q", "-f", "json")
    assert done.returncode == 0, done
    document = json.loads(done.stdout)
    assert document.pop("seconds") < 60
    assert document == planned, "the plan is what was done"
    ports = [row for row in document["changes"] if row["kind"] == "port"]
    assert {row["what"] for row in ports} >= {"port p1-s1-h1:rail1", "port p1-s1-rail1:down1"}
    assert {row["detail"].partition(",")[0] for row in ports} == {"lab rate 40 Mbit/s -> 20 Mbit/s"}
    assert {(key["key"], key["line"]) for key in document["keys"]} == {("fabric.nic.rate", 9)}


def test_what_is_not_up_is_deployed(sandbox: Any, file: Path) -> None:
    planned = sandbox.cli("apply", "--dry-run", "-t", "lab.yml")
    assert planned.returncode == 1 and "is not deployed" in planned.stdout and "2 hosts" in planned.stdout, planned
    assert sandbox.namespaces() == {}
    done = sandbox.cli("apply", "-t", "lab.yml")
    sandbox.note_daemons()
    assert done.returncode == 0 and "deployed" in done.stdout, done
    assert check_lab(running(sandbox)).exit_code == 0
    assert sandbox.cli("apply", "-t", "lab.yml").returncode == 0


@pytest.mark.thorough
def test_a_new_lab_in_its_place_is_refused_until_it_is_allowed(deployed: Any, file: Path) -> None:
    file.write_text(f"{file.read_text()}qos: {{preset: uec}}\n")
    assert deployed.cli("apply", "-q").returncode == 0
    edit(file, "hosts: 2", "hosts: 140")  # more ports than the maps of its data path have room for
    before, nodes = pids(deployed), deployed.namespaces()
    for node in before:
        assert running(deployed).run(node, ["ip", "address", "add", f"{MARK}/32", "dev", "lo"]).returncode == 0
    refused = deployed.cli("apply", "-q")
    assert refused.returncode == 3 and "--allow recreate" in refused.stderr, refused
    assert "at stake" in refused.stderr and pids(deployed) == before and deployed.namespaces() == nodes
    shown = deployed.cli("diff")
    assert shown.returncode == 1 and "needs --allow recreate" in shown.stdout, shown
    done = deployed.cli("apply", "-q", "--allow", "recreate")
    deployed.note_daemons()
    assert done.returncode == 0, done
    assert len(running(deployed).model.hosts) == 140
    lab = running(deployed)
    left = [node for node in before if MARK in lab.run(node, ["ip", "address", "show", "dev", "lo"]).stdout]
    assert left == [], "no node is the one that it was: the kernel gives numbers of namespaces again"
    assert deployed.cli("diff").returncode == 0


def test_daemons_begin_again_when_that_is_allowed(sandbox: Any, file: Path) -> None:
    served = "networks: {management: {design: out-of-band, services: [dns]}}\n"
    file.write_text(file.read_text() + served)
    assert sandbox.cli("deploy", "-q", "-t", "lab.yml").returncode == 0
    sandbox.note_daemons()
    before = pids(sandbox)
    edit(file, "services: [dns]", "services: [dns, bmp]")
    shown = sandbox.cli("diff")
    assert shown.returncode == 1 and "2 sets of routing daemons" in shown.stdout, shown
    assert "--allow restart" in shown.stdout and "1 BGP session, and packets" in shown.stdout
    refused = sandbox.cli("apply", "-q")
    assert refused.returncode == 3 and "--allow restart" in refused.stderr and pids(sandbox) == before, refused
    done = sandbox.cli("apply", "-q", "--allow", "restart")
    sandbox.note_daemons()
    assert done.returncode == 0 and "2 restarted" in done.stdout, done
    after = pids(sandbox)
    assert all(after[node]["bgpd"] != before[node]["bgpd"] for node in ("p1-s1-rail1", "p1-spine1"))
    assert check_lab(running(sandbox)).exit_code == 0


@pytest.mark.thorough
def test_what_waits_in_queues_that_are_made_anew_is_told(sandbox: Any, file: Path) -> None:
    file.write_text(file.read_text() + "qos: {preset: uec}\n")
    assert sandbox.cli("deploy", "-q", "-t", "lab.yml").returncode == 0
    sandbox.note_daemons()
    assert sandbox.cli("link", "set", "p1-s1-rail1:down2", "--rate", "10%").returncode == 0
    lab = Lab.open(sandbox.name(), state=sandbox.state)
    assert lab.diff(overrides={"qos.trimming": False}).waiting_bytes == 0
    server = lab.node("p1-s1-h2").spawn(["iperf3", "-s"])
    sender, call = lab.node("p1-s1-h1"), ["iperf3", "-c", lab.node("p1-s1-h2").address("rail1")]
    until(lambda: not sender.run([*call, "-n", "1K"], check=False).returncode, "iperf3 answers")
    client = sender.spawn([*call, "-u", "-b", "100M", "-l", "1400", "-t", "60"])
    try:
        changes = until(
            lambda: (found := lab.diff(overrides={"qos.trimming": False})).waiting_bytes and found, "a queue"
        )
        assert {row.at_stake for row in changes.rows if row.effect == "remade"} == {"what waits in its queues"}
        said = sandbox.cli("diff", "--set", "qos.trimming=false")
        assert said.returncode == 1 and "wait there now" in said.stdout, said
    finally:
        for process in (client, server):
            process.kill()
            process.wait()
    refused = sandbox.cli("apply", "-q", "--set", "qos.trimming=false")
    assert refused.returncode == 3 and "p1-s1-rail1:down2 is changed by `link set`" in refused.stderr, refused
    assert sandbox.cli("link", "reset", "--all").returncode == 0
    assert sandbox.cli("apply", "-q", "--set", "qos.trimming=false").returncode == 0


@pytest.mark.thorough
def test_settings_of_the_deploy_are_part_of_the_lab(sandbox: Any, file: Path) -> None:
    assert sandbox.cli("deploy", "-q", "-t", "lab.yml", "--set", "fabric.hosts=1").returncode == 0
    sandbox.note_daemons()
    assert sandbox.cli("diff").returncode == 0
    assert "fabric.hosts: 1 -> 2" in sandbox.cli("diff", "-t", "lab.yml").stdout
    assert "fabric.hosts: 1 -> 3 (--set)" in sandbox.cli("diff", "--set", "fabric.hosts=3").stdout
    assert sandbox.cli("apply", "-q", "--set", "fabric.spines=2").returncode == 0
    sandbox.note_daemons()
    lab = running(sandbox).model
    assert (len(lab.hosts), len(lab.switches)) == (1, 3)


def test_python_sees_the_changed_lab(deployed: Any, file: Path) -> None:
    lab = Lab.open(deployed.name(), state=deployed.state)
    assert not lab.diff() and not lab.apply()
    changes = lab.diff(overrides={"fabric.hosts": 3})
    assert changes and not changes.needs and not changes.at_stake
    done = lab.apply(overrides={"fabric.hosts": 3})
    assert done.rows == changes.rows
    assert lab.node("p1-s1-h3").run(["ping", "-c", "1", lab.node("p1-s1-h1").address("rail1")]).returncode == 0
    assert lab.check() and not lab.diff()
    contained = "topology: {nodes: {p1-s1-h1: {runtime: docker}}}\n"
    with pytest.raises(ChangeRefused, match="node p1-s1-h1: a container") as refused:
        lab.apply(file.read_text() + contained)
    assert "--allow recreate" in str(refused.value.hint) and not lab.diff()
    fewer = lab.apply(file)
    assert {row.what for row in fewer.rows if row.kind == "host"} == {"host p1-s1-h3"}
    assert len(lab.nodes) == 4


def test_who_watches_sees_what_comes_after_a_change(deployed: Any, file: Path) -> None:
    output = deployed.root / "events"
    with output.open("wb") as stream:
        watcher = deployed.start("events", "-n", deployed.name(), stdout=stream)

    def seen(kind: str, subject: str) -> list[dict[str, Any]]:
        lines = output.read_text().splitlines()
        events = [json.loads(line) for line in lines if line.endswith("}")]
        return [event for event in events if (event["kind"], event["subject"]) == (kind, subject)]

    try:
        until(lambda: output.read_text().count("snapshot") == 4, "the watcher knows all nodes")
        sockets = sockets_of(watcher.pid)
        edit(file, "hosts: 2", "hosts: 3")
        assert deployed.cli("apply", "-q").returncode == 0
        until(lambda: seen("lab-changed", deployed.name()), "the end of the change")
        assert seen("thing-made", "host p1-s1-h3")
        assert deployed.cli("link", "down", "p1-s1-h3:rail1").returncode == 0
        until(lambda: [event for event in seen("link-down", "rail1") if event["node"] == "p1-s1-h3"], "its link")
        edit(file, "hosts: 3", "hosts: 2")
        assert deployed.cli("link", "up", "p1-s1-h3:rail1").returncode == 0
        assert deployed.cli("apply", "-q").returncode == 0
        until(lambda: len(seen("lab-changed", deployed.name())) == 2, "the end of the second change")
        assert seen("thing-removed", "host p1-s1-h3")
        until(lambda: sockets_of(watcher.pid) == sockets, "it holds nothing of the node that is gone")
    finally:
        watcher.terminate()
        watcher.wait()


SERVICES = "networks.management={design: out-of-band, services: [ssh]}"


def test_who_watches_is_told_of_services_that_came_later(deployed: Any, file: Path) -> None:
    output = deployed.root / "events"
    with output.open("wb") as stream:
        watcher = deployed.start("events", "-n", deployed.name(), stdout=stream)
    try:
        until(lambda: output.read_text().count("snapshot") == 4, "the watcher knows all nodes")
        for hosts in (2, 3):  # the second change finds services that are watched
            edit(file, "hosts: 2", f"hosts: {hosts}")
            assert deployed.cli("apply", "-q", "--set", SERVICES).returncode == 0
        until(lambda: output.read_text().count('"lab-changed"') == 2, "the end of both changes")
        service = next(item for item in read_services(running(deployed)) if item.node == "p1-s1-h1")
        os.kill(next(iter(service.pids.values())), signal.SIGKILL)
        until(lambda: '"service-ended"' in output.read_text(), "the end of the service")
        assert deployed.cli("link", "down", "p1-s1-h1:rail1").returncode == 0
        until(lambda: '"link-down"' in output.read_text(), "what follows")
        assert output.read_text().count('"service-ended"') == 1
    finally:
        watcher.terminate()
        watcher.wait()


def sockets_of(pid: int) -> int:
    """Count the sockets of a process: one in the namespace of a node keeps that namespace there."""
    found = 0
    for item in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed while we looked
            found += str(item.readlink()).startswith("socket:")
    return found
