"""What is in force in a lab when it is to be changed: runs, faults, changed links, other commands."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from sandbox import Sandbox

from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl
from testbed.lab.core.deploy.links.recorded import WireChange, read_link_state
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.power import power_off

pytestmark = [pytest.mark.netns, pytest.mark.frr]

TOPOLOGY = """
name: {name}
scale: {{time: 10000}}
fabric: {{design: rail-optimized, hosts: {hosts}, gpus: 1, spines: 2, nic: {{rate: {rate}}}}}
qos: {{preset: uec}}
"""
NIC = "p1-s1-h1:rail1"


def _write(sandbox: Any, hosts: int, rate: str = "400G") -> str:
    path: Path = sandbox.root / f"{hosts}-{rate}.yml"
    path.write_text(TOPOLOGY.format(name=sandbox.name(), hosts=hosts, rate=rate))
    return str(path)


def _deploy(sandbox: Sandbox) -> None:
    result = sandbox.cli("deploy", "-q", "-t", _write(sandbox, 2))
    sandbox.note_daemons()
    assert result.returncode == 0, result


def _lab(sandbox: Sandbox) -> RunningLab:
    return sandbox.running()


def _refused(sandbox: Any, path: str, *words: str) -> None:
    """It is refused with these words, and nothing of the lab is touched."""
    before = dict(_lab(sandbox).link_states()), _lab(sandbox).record
    result = sandbox.cli("apply", "-q", "-t", path)
    assert result.returncode == 3, result
    for word in words:
        assert word in result.stderr, result
    assert (dict(_lab(sandbox).link_states()), _lab(sandbox).record) == before
    assert not sandbox.state.is_changing(sandbox.name())


def test_a_name_that_is_not_deployed_is_deployed(sandbox: Sandbox) -> None:
    result = sandbox.cli("apply", "-q", "-t", _write(sandbox, 2))
    sandbox.note_daemons()
    assert result.returncode == 0, result
    assert len(_lab(sandbox).hosts) == 2 and _lab(sandbox).record.revision == 1
    assert sandbox.cli("check", "-n", sandbox.name()).returncode == 0


@pytest.mark.thorough
def test_what_link_set_has_changed_is_kept_or_refused_by_name(sandbox: Sandbox) -> None:
    _deploy(sandbox)
    with LinkControl(_lab(sandbox)) as links:
        links.set(NIC, LinkChange(rate_share=0.5, loss=0.25))
        before = links.show(NIC)
    assert sandbox.cli("apply", "-q", "-t", _write(sandbox, 3)).returncode == 0
    sandbox.note_daemons()
    with LinkControl(_lab(sandbox)) as links:
        after = links.show(NIC)
        assert (after.change, after.actual) == (before.change, before.actual), "the kernel and the maps have it, too"
    _refused(sandbox, _write(sandbox, 3, "200G"), NIC, "rate_bps", "loss", f"testbed link reset {NIC}")
    assert sandbox.cli("link", "reset", NIC, "-n", sandbox.name()).returncode == 0
    assert sandbox.cli("apply", "-q", "-t", _write(sandbox, 3, "200G")).returncode == 0


@pytest.mark.parametrize(
    "change", [LinkChange(up=False), pytest.param(LinkChange(silent=True), marks=pytest.mark.thorough)]
)
def test_a_change_of_routing_waits_for_no_link_that_is_cut(sandbox: Any, change: LinkChange) -> None:
    _deploy(sandbox)
    uplink = "p1-s1-rail1:uplink1"
    with LinkControl(_lab(sandbox)) as links:
        links.set(uplink, change)
    _refused(sandbox, _write(sandbox, 3), f"{uplink} is cut", f"testbed link reset {uplink}")
    assert read_link_state(_lab(sandbox).state_directory).changes[uplink] != WireChange()


def test_a_node_without_power_is_named(sandbox: Sandbox) -> None:
    _deploy(sandbox)
    power_off(_lab(sandbox), "p1-spine2")
    _refused(sandbox, _write(sandbox, 3), "p1-spine2 has no power", "testbed power on p1-spine2")


def test_a_daemon_that_does_not_run_is_named(sandbox: Sandbox) -> None:
    _deploy(sandbox)
    pid = next(status.pids["bgpd"] for status in _lab(sandbox).status() if status.name == "p1-s1-rail1")
    signal.pidfd_send_signal(_opened(pid), signal.SIGKILL)
    path = _write(sandbox, 2).replace("2-400G", "spines")
    Path(path).write_text(TOPOLOGY.format(name=sandbox.name(), hosts=2, rate="400G").replace("spines: 2", "spines: 3"))
    _refused(sandbox, path, "bgpd of p1-s1-rail1 does not run")


def _opened(pid: int) -> int:
    import os

    return os.pidfd_open(pid)


def test_two_applies_at_once_do_not_meet(sandbox: Sandbox) -> None:
    _deploy(sandbox)
    path = _write(sandbox, 3)
    journal = sandbox.state.lab_directory(sandbox.name()) / "journal.jsonl"
    process = sandbox.start("apply", "-q", "-t", path)
    while '"changing"' not in journal.read_text():
        assert process.poll() is None, (sandbox.root / "out").read_text()
    result = sandbox.cli("apply", "-q", "-t", path)
    assert process.wait(60) == 0
    sandbox.note_daemons()
    if result.returncode:  # else the first had ended before the second came that far
        assert result.returncode == 3, result
        assert f"another command is working on the lab {sandbox.name()}: testbed apply -q -t" in result.stderr, result
    assert sandbox.cli("apply", "-q", "-t", path).returncode == 0
    assert _lab(sandbox).record.revision == 2


SCENARIO = """
name: in-use
topology:
  inline: {{name: {name}, scale: {{time: 10000}}, fabric: {{design: single-switch, hosts: {hosts}, gpus: 1}}}}
transport: {{kind: tcp}}
workload: {{kind: permutation, bytes: {size}}}
probes: off
"""
INLINE = "{{name: {name}, scale: {{time: 10000}}, fabric: {{design: single-switch, hosts: {hosts}, gpus: 1}}}}\n"


def test_a_run_refuses_a_change_and_ends_as_if_nothing_had_been(sandbox: Sandbox) -> None:
    scenario, path = sandbox.root / "in-use.yml", sandbox.root / "more.yml"
    scenario.write_text(SCENARIO.format(name=sandbox.name(), hosts=3, size="40MB"))
    path.write_text(INLINE.format(name=sandbox.name(), hosts=4))
    process = sandbox.start("run", "-q", str(scenario))
    usage = sandbox.state.lab_directory(sandbox.name()) / "in-use"
    deadline = time.monotonic() + 90
    while not usage.exists():
        assert time.monotonic() < deadline and process.poll() is None, (sandbox.root / "out").read_text()
        time.sleep(0.01)
    sandbox.note_daemons()
    _refused(sandbox, str(path), f"the lab {sandbox.name()} is in use and cannot be changed", "testbed run -q")
    process.send_signal(signal.SIGINT)
    assert process.wait(90) in (0, 130), (sandbox.root / "out").read_text()


@pytest.mark.thorough
def test_a_record_says_which_state_of_the_file_it_ran_on(sandbox: Sandbox) -> None:
    path = sandbox.root / "lab.yml"
    states = {}
    for hosts in (2, 3):
        path.write_text(INLINE.format(name=sandbox.name(), hosts=hosts))
        assert sandbox.cli("apply", "-q", "-t", str(path)).returncode == 0
        sandbox.note_daemons()
        scenario = sandbox.root / "ran.yml"
        scenario.write_text(SCENARIO.format(name=sandbox.name(), hosts=hosts, size="10KB"))
        result = sandbox.cli("run", "-q", "-o", str(sandbox.root / f"results{hosts}"), str(scenario))
        assert result.returncode in (0, 2), result  # whether the machine kept up is no matter
        record = json.loads(next((sandbox.root / f"results{hosts}").rglob("record.json")).read_text())
        states[hosts] = [(point["lab"]["state"], point["lab"]["revision"]) for point in record["points"]]
    ((first, one),), ((second, two),) = states[2], states[3]
    assert (one, two) == (1, 2)
    assert first and second and first != second
