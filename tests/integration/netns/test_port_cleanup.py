"""What labs with switch ports leave behind: nothing, whatever became of the deploy. And one QoS in another's place."""

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ebpf_objects import ebpf_objects
from sandbox import Sandbox
from switch_ports import PortLab, received, send
from waiting import until

from testbed.base.datapath.abi import ClassFlag
from testbed.base.linux.namespaces import NETNS_DIRECTORY
from testbed.lab.core.deploy.pausing.reaction import planned_reaction_ns
from testbed.lab.core.plan.operations import InstallPort
from testbed.lab.core.schema.load import load_topology

pytestmark = [pytest.mark.netns, pytest.mark.frr, pytest.mark.timeout(300)]

HOSTS = 8
PORTS = 2 * (2 * HOSTS + 1)
OF_PORTS = ["port_cut", "port_egress", "port_enqueue", "port_ingress", "port_purge", "queues"]
"""No other lab has so many: its eBPF programs are known by it."""
FEW, MANY = 1, 15
LOSSLESS = """
  classes:
    rdma: {dscp: [26], lossless: true, weight: 60, ecn: false, pfc: {xoff: 30kB, xon: 15kB, headroom: 300kB}}
    control: {dscp: [48], strict: true}
    bulk: {default: true, weight: 40}
"""
TRIMMING = """
  trimming: true
  classes:
    rdma: {dscp: [26], weight: 70, limit: 60kB, ecn: {kmin: 10kB, kmax: 20kB}}
    control: {dscp: [48], strict: true}
    bulk: {default: true, weight: 30}
"""


def topology(box: Any, qos: str = LOSSLESS) -> Path:
    nodes, links = [], ['    - {endpoints: ["s1:eth100", "s2:eth100"], rate: 50M}']
    for switch in (1, 2):
        for host in range(1, HOSTS + 1):
            nodes.append(f"    h{switch}{host}: {{kind: host}}")
            links.append(f'    - {{endpoints: ["h{switch}{host}:eth1", "s{switch}:eth{host}"], rate: 50M}}')
    path: Path = box.root / "topology.yml"
    lines = [
        f"name: {box.name()}",
        "scale: {time: 1}",
        "fabric: {mtu: 1500, routing: {bfd: off}}",
        "qos:",
        qos.strip("\n"),
        "topology:",
        "  nodes:",
        "    s1: {kind: switch, role: rail}",
        "    s2: {kind: switch, role: spine}",
        *nodes,
        "  links:",
        *links,
        "",
    ]
    path.write_text("\n".join(lines))
    return path


def deploy(box: Any) -> subprocess.Popen[bytes]:
    process: subprocess.Popen[bytes] = box.start("deploy", "-q", "-t", str(topology(box)))
    return process


def destroy(box: Any) -> None:
    """`destroy` of whatever there is: nothing at all is status 3 and says so."""
    box.note_daemons()
    result = box.cli("destroy", "-n", box.name())
    assert result.returncode == 0 or (result.returncode == 3 and "no lab named" in result.stderr), result


def nothing_is_left(box: Any, when: str) -> None:
    assert box.leftovers() == [], when
    until(lambda: not ebpf_objects(PORTS), f"the kernel drops the programs and maps: {when}")


@contextlib.contextmanager
def running(box: Any) -> Iterator[PortLab]:
    lab = PortLab(box.running())
    try:
        yield lab
    finally:
        lab.close()


@pytest.fixture
def measured(sandbox: Sandbox) -> float:
    """How long a deploy takes here and now, in seconds; the pause reaction is known afterwards."""
    planned_reaction_ns(load_topology(topology(sandbox)), sandbox.state)
    started = time.monotonic()
    assert deploy(sandbox).wait(120) == 0, (sandbox.root / "out").read_text()
    took = time.monotonic() - started
    assert ebpf_objects(PORTS) == OF_PORTS
    destroy(sandbox)
    nothing_is_left(sandbox, "an ordinary destroy")
    return took


@pytest.mark.timeout(900)
@pytest.mark.parametrize("points", [FEW, pytest.param(MANY, marks=pytest.mark.soak)])
def test_interrupted_and_killed_deploys_leave_nothing(sandbox: Any, measured: float, points: int) -> None:
    numbers = random.Random(f"ports {points}")
    for number in (signal.SIGINT, signal.SIGKILL):
        for point in range(points):
            delay_s = measured * (point + numbers.random()) / points
            process = deploy(sandbox)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(delay_s)
            if process.poll() is None:
                process.send_signal(number)
            status = process.wait(60)
            if number is signal.SIGKILL or status == 0:
                destroy(sandbox)
            nothing_is_left(sandbox, f"{number.name} after {delay_s:.2f} of {measured:.2f} s, status {status}")


def test_destroy_removes_what_a_killed_measurement_left(sandbox: Sandbox) -> None:
    """The first deploy with a lossless class measures how long pausing takes, with nodes and an agent of its own."""
    (sandbox.state.state / "pause-reaction.json").unlink(missing_ok=True)
    process = deploy(sandbox)
    name = f"reaction-{process.pid}"
    run = Path(f"/run/testbed-{name}")

    def busy() -> list[str]:
        """Command lines of what serves the measurement."""
        lines = (entry / "cmdline" for entry in Path("/proc").iterdir() if entry.name.isdigit())
        words = (str(run).encode(), f"getppid() == {process.pid}".encode())
        found = []
        for path in lines:
            with contextlib.suppress(OSError):
                line = path.read_bytes()
                if any(word in line for word in words):
                    found.append(line.decode())
        return found

    until(lambda: len(busy()) >= 3, "it measures: agent, guard, load")
    process.kill()
    process.wait(30)
    destroy(sandbox)
    until(lambda: not busy(), "all of its processes end")
    assert not run.exists()
    assert not [path for path in NETNS_DIRECTORY.iterdir() if path.name.startswith(f"{name}-")]
    assert str(run) not in Path("/proc/self/mountinfo").read_text()
    nothing_is_left(sandbox, "a killed measurement")


def test_destroy_needs_no_pause_agent(sandbox: Sandbox) -> None:
    """Not even with a gate closed and a storm on."""
    assert deploy(sandbox).wait(120) == 0, (sandbox.root / "out").read_text()
    with running(sandbox) as lab:
        kill_the_agent(lab)
    destroy(sandbox)
    nothing_is_left(sandbox, "the agent and its guard were killed")


def kill_the_agent(lab: PortLab) -> None:
    agent, gate = lab.running.pause_agent, lab.gate("h11", "eth1", 3)
    agent.storm(lab.name, lab.number("s1", "eth1"), 3, 60_000_000_000)
    until(lambda: gate["closed"], "the storm closes the host's gate")
    status = agent.status()
    for pid in (status.guard_pid, status.pid):
        os.kill(pid, signal.SIGSTOP)  # so that neither sees the other's end
    for pid in (status.guard_pid, status.pid):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.thorough
def test_another_qos_in_the_place_of_the_first(sandbox: Sandbox) -> None:
    path = topology(sandbox)
    assert sandbox.cli("deploy", "-q", "-t", str(path)).returncode == 0
    with running(sandbox) as lab:
        assert lab.running.pause_agent.status().labs[lab.name].ports == PORTS
        used = sorted({item.profile for item in lab.running.plan.installs})
        assert lab.maps.profiles["classes"]["flags"][used, 3].min() & ClassFlag.LOSSLESS
    topology(sandbox, TRIMMING)
    done = sandbox.cli("deploy", "-q", "--reconfigure", "-t", str(path))
    assert done.returncode == 0, done
    assert ebpf_objects(PORTS) == OF_PORTS, "one set"
    with running(sandbox) as lab:
        trims_instead_of_pausing(lab)
        lab.reconciles()
    assert not list(sandbox.state.run.glob("portd*")), "no class is lossless: nobody has to pause"
    destroy(sandbox)
    nothing_is_left(sandbox, "a lab in another's place")


def trims_instead_of_pausing(lab: PortLab) -> None:
    classes = lab.maps.profiles["classes"][:, 3]
    assert not (classes["flags"] & ClassFlag.LOSSLESS).any()
    installs = [item for item in lab.running.plan.operations if isinstance(item, InstallPort)]
    assert {int(classes[item.profile]["limit_bytes"]) for item in installs if item.switch} == {60_000}
    lab.introduce("h11", "h21")
    with lab.sink("h21") as sink, lab.sender("h11", "h21", 3) as item:
        send(item, 50)
        until(lambda: lab.account("h21", "eth1", 3)["in_packets"] == 50, "packets pass")
        assert received(sink) == list(range(50))
