"""A lab as a Mininet network: scripts, the prompt, the same kernel objects as without, and nothing left."""

import json
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import mininet_script
import pytest
from observed import observe
from sandbox import Sandbox

from testbed.base.errors import CapabilityError, DriverError
from testbed.base.linux.processes import processes_in
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.steps import ignore_steps
from testbed.lab.core.deploy.watch.check import check_lab
from testbed.lab.core.deploy.watch.converge import ConvergenceWatch
from testbed.lab.core.drivers.probing.mininet import DEBIAN_PACKAGE, find_mininet
from testbed.run.emulated.workload_runner import WorkloadRunner
from testbed.run.schema.model import Transport
from testbed.run.schema.transports import TransportKind
from testbed.workload.collectives.algorithms import generate_collective
from testbed.workload.collectives.operation import CollectiveOperation

pytestmark = [
    pytest.mark.netns,
    pytest.mark.frr,
    pytest.mark.skipif(bool(find_mininet()), reason="Mininet is not installed: pip install mininet"),
]

TOPOLOGY = """
name: {name}
scale: {{time: 10000}}
fabric:
  design: rail-optimized
  hosts: 2
  gpus: 1
  spines: 2
  nic: {{rate: 400G}}
topology:
  nodes:
    probe1: {{kind: host, env: {{COLOUR: green}}}}
  links:
    - endpoints: ["probe1:rail1", "p1-s1-rail1:extra1"]
"""
QOS = "\nqos: {preset: uec}\n"


def write_topology(sandbox: Any, more: str = "", suffix: str = "a") -> str:
    path: Path = sandbox.root / f"topology-{suffix}.yml"
    path.write_text(TOPOLOGY.format(name=sandbox.name(suffix)) + more)
    return str(path)


def shells(lab: RunningLab) -> dict[str, str]:
    """The command lines of shells, by node."""
    nodes = {identity: node for node, identity in lab.identities.items()}
    return {
        nodes[process.identity]: Path(f"/proc/{process.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        for process in processes_in(nodes)
        if process.command == "bash"
    }


@pytest.mark.parametrize("source", ["pypi", pytest.param("debian", marks=pytest.mark.may_skip)])
def test_a_script(sandbox: Any, source: str) -> None:
    if source == "debian" and not DEBIAN_PACKAGE.is_dir():
        pytest.skip("Debian's mininet is not installed: apt-get install mininet")
    topology = write_topology(sandbox)
    script = Path(mininet_script.__file__)
    done = subprocess.run(
        [sys.executable, str(script), topology, source],
        env=sandbox.environment,
        cwd=sandbox.work,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["package"].startswith(str(DEBIAN_PACKAGE)) == (source == "debian")
    assert found["loss"] == 0
    assert found["hosts"] == ["p1-s1-h1", "p1-s1-h2", "probe1"]
    assert found["switches"] == ["p1-s1-rail1", "p1-spine1", "p1-spine2"]
    assert found["links"] == 5
    assert found["address"].split("/")[0] == found["ip"]
    assert found["mac"] == found["link"] == found["pexec"]
    assert found["up"] is True
    assert "1 received" in found["to a switch"]
    assert found["command"] == "cat"
    assert found["limits_kept"] is True
    assert sandbox.leftovers() == [], "net.stop() removes the lab"


def test_the_kernel_has_the_same_objects_as_without(sandbox: Sandbox) -> None:
    """Same addresses, indexes, rates and rules; MACs differ by the lab's slot alone."""
    found = {}
    for suffix, runtime in (("a", "netns"), ("b", "mininet")):
        topology = write_topology(sandbox, QOS, suffix)
        done = sandbox.cli("deploy", "-q", "--runtime", runtime, "-t", topology)
        assert done.returncode == 0, done.stderr
        lab = sandbox.running(suffix)
        assert lab.record.runtime == runtime
        assert check_lab(lab).exit_code == 0
        kernel = observe(lab.name, [node.name for node in lab.model.nodes])
        described = json.dumps(
            {node: repr(sorted(item.interfaces.items())) + str(item.rules) for node, item in kernel.items()}
        )
        found[runtime] = re.sub("mac='[0-9a-f:]+'", "mac", described)
    assert found["netns"] == found["mininet"]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [TransportKind.UET, TransportKind.ROCE])
def test_a_collective_is_right_over_transports_in_user_space(sandbox: Any, kind: TransportKind) -> None:
    topology = write_topology(sandbox)
    assert sandbox.cli("deploy", "-q", "--runtime", "mininet", "-t", topology).returncode == 0
    lab = sandbox.running()
    ranks = [host.nics[0] for host in lab.plan.hosts]
    operation = CollectiveOperation(kind="all_reduce", size_bytes=1 << 20)
    with WorkloadRunner(lab, Transport(kind=kind)) as runner:
        result = runner.run(generate_collective(operation, ranks=len(ranks)), ranks)
    assert result.failure is None and result.complete
    assert [collective.wrong for collective in result.collectives] == [0]


@pytest.mark.thorough
def test_the_prompt(sandbox: Sandbox) -> None:
    topology = write_topology(sandbox)
    assert sandbox.cli("deploy", "-q", "--runtime", "mininet", "-t", topology).returncode == 0
    again = sandbox.cli("deploy", "-q", "-f", "json", "--runtime", "mininet", "-t", topology)
    assert json.loads(again.stdout)["changed"] is False
    other = sandbox.cli("deploy", "-q", "-t", topology)
    assert other.returncode == 3 and "deployed with runtime mininet" in other.stderr

    lab = sandbox.running()
    assert {node: line.split()[-1] for node, line in shells(lab).items()} == {
        node.name: f"mininet:{node.name}" for node in lab.model.nodes
    }, "each node has its shell, which Mininet's `m` finds"

    script = sandbox.work / "commands"
    script.write_text(
        "nodes\nnet\npingall\np1-s1-h1 ping -c1 -W2 p1-spine1\nprobe1 echo $COLOUR\n"
        "link p1-s1-rail1 p1-spine1 down\np1-s1-rail1 cat /sys/class/net/uplink1/operstate\n"
        "link p1-s1-rail1 p1-spine1 up\ndpctl show\niperf p1-s1-h1 p1-s1-h2\niperfudp 1M p1-s1-h1 p1-s1-h2\n"
        "sh echo the end\n"
    )
    before = shells(lab)
    done = sandbox.cli("mininet-cli", "-n", sandbox.name(), "--script", str(script))
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr  # Mininet says everything on the latter
    assert "p1-s1-h1 p1-s1-h2 p1-s1-rail1 p1-spine1 p1-spine2 probe1" in said
    assert "p1-spine1 lo:  down1:uplink1" in said
    assert "Results: 0% dropped (6/6 received)" in said
    assert "1 received" in said
    assert {"green", "down", "the end"} <= set(said.splitlines())
    assert "no OpenFlow: FRR routes here" in said
    if shutil.which("iperf"):
        assert len(re.findall(r"\*\*\* Results: \['[\d.]+ \wbits/sec', '[\d.]+ \wbits/sec'\]", said)) == 2, said
    else:
        assert said.count("*** iperf is not installed") == 2
    assert "Unknown command" not in said
    assert shells(lab) == before, "the prompt takes its own shells with it"

    sandbox.destroy()
    assert sandbox.leftovers() == []
    assert processes_in(set(lab.identities.values())) == []


def test_iperf_says_what_it_lacks_and_what_failed(sandbox: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from testbed.mininet import attach

    lab = sandbox.deploy(sandbox.tiny()).lab
    net = attach(lab.name, state=sandbox.state)
    try:
        program = sandbox.work / "iperf"
        program.write_text("#!/bin/sh\necho no such option\nexit 1\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{sandbox.work}:/usr/bin:/bin")
        for host in net.hosts:
            host.cmd(f"PATH={sandbox.work}:$PATH")
        with pytest.raises(DriverError, match=r"iperf from p1-s1-h1 to p1-s1-h2 failed: no such option"):
            net.iperf()
        monkeypatch.setenv("PATH", str(sandbox.root))
        with pytest.raises(CapabilityError, match="iperf is not installed"):
            net.iperf()
    finally:
        net.stop()


def test_a_switch_stops_and_starts(sandbox: Sandbox) -> None:
    from testbed.mininet import attach

    outcome = sandbox.deploy(sandbox.model(spines=2, gpus=1))
    lab = outcome.lab
    net = attach(lab.name, state=sandbox.state)
    spine = net["p1-spine1"]
    try:
        daemons = lab.status()
        spine.stop()
        assert next(item for item in lab.status() if item.name == "p1-spine1").state == "degraded"
        assert len([item for item in lab.status() if item.state == "running"]) == len(daemons) - 1
        assert check_lab(lab).exit_code == 1
        spine.start()
        watch = ConvergenceWatch(lab.plan, sandbox.state.run_directory(lab.name))
        try:
            watch.wait(60, ignore_steps)
        finally:
            watch.close()
        pids = {item.name: item.pids for item in lab.status()}
        spine.start()
        assert {item.name: item.pids for item in lab.status()} == pids, "what runs is left alone"
    finally:
        sandbox.note_daemons()
        net.stop()
    assert check_lab(lab).exit_code == 0, "a network that was attached lets go of the lab"


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_destroy_cleans_up_after_a_killed_deploy_with_mininet(sandbox: Sandbox) -> None:
    topology = write_topology(sandbox)
    arguments = ("deploy", "-q", "--runtime", "mininet", "-t", topology)
    started = time.monotonic()
    assert sandbox.start(*arguments).wait(120) == 0, (sandbox.root / "out").read_text()
    full = time.monotonic() - started
    sandbox.note_daemons()
    sandbox.destroy()
    numbers = random.Random("kill mininet")
    for point in range(4):
        process = sandbox.start(*arguments)
        delay = full * (point + numbers.random()) / 4
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.wait(60)
        sandbox.note_daemons()
        name = sandbox.name()
        identities = RunningLab.open(name, sandbox.state).identities if sandbox.state.exists(name) else {}
        done = sandbox.cli("destroy", "-n", name)
        assert done.returncode == 0 or "no lab named" in done.stderr, done.stderr
        assert processes_in(set(identities.values())) == []
        assert sandbox.leftovers() == [], f"SIGKILL after {delay:.2f} of {full:.2f} s"


@pytest.mark.thorough
def test_a_killed_scripts_lab_is_used_by_the_next(sandbox: Sandbox) -> None:
    from testbed.mininet import build

    topology = write_topology(sandbox)
    script = f"import os; from testbed.mininet import build; build({topology!r}).start(); os.kill(os.getpid(), 9)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=sandbox.environment,
        cwd=sandbox.work,
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    before = sandbox.namespaces()
    assert before
    sandbox.note_daemons()
    net = build(topology, state=sandbox.state)
    try:
        assert sandbox.namespaces() == before
        assert net.ping([net["p1-s1-h1"], net["p1-s1-h2"]]) == 0
    finally:
        net.stop()
    assert sandbox.namespaces() == {}


def test_a_wrong_runtime_is_named(sandbox: Sandbox) -> None:
    done = sandbox.cli("deploy", "--runtime", "vm", "-t", write_topology(sandbox))
    assert done.returncode == 3
    assert "--runtime vm: expected netns or mininet" in done.stderr
