"""A lab of containers and namespaces: one fabric, and every verb works on either."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sandbox import Sandbox

from testbed.base.names import namespace_name
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.check import check_lab
from testbed.lab.core.model import NodeKind
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.containers.engine import CAPABILITIES, NODE_LABEL, ContainerEngine
from testbed.lab.features.containers.runtimes.docker import LiveContainers
from testbed.lab.features.containers.schema import CAPABILITIES as ALL_CAPABILITIES

pytestmark = [pytest.mark.docker, pytest.mark.frr, pytest.mark.timeout(600)]

TOPOLOGY = """
name: {name}
fabric: {{design: rail-optimized, hosts: 2, gpus: 2, segments: 2, spines: 2}}
topology:
  kinds:
    host: {{runtime: docker, env: {{COLOUR: green}}}}
  nodes:
    p1-s1-h2: {{runtime: netns}}
    p1-s2-h2:
      cmd: [sh, -c, "{cmd}"]
      binds: ["{shared}:/shared:ro"]
      cpu: 0.5
      memory: 128MB
      capabilities: [SYS_NICE]
    p1-spine1: {{runtime: docker}}
    p1-s1-rail1: {{runtime: docker}}
"""
CMD = "echo started as $COLOUR; exec sleep infinity"
CONTAINERS = {"p1-s1-h1", "p1-s2-h1", "p1-s2-h2", "p1-spine1", "p1-s1-rail1"}


@pytest.fixture(scope="module")
def mixed(engine: Any, shared_sandbox: Any) -> RunningLab:
    """Containers: three hosts of four, a spine and a rail switch."""
    shared = shared_sandbox.work / "shared"
    shared.mkdir()
    (shared / "note").write_text("from outside\n")
    text = TOPOLOGY.format(name=shared_sandbox.name(), shared=shared, cmd=CMD)
    lab: RunningLab = shared_sandbox.deploy(load_topology_text(text, file="mixed.yml")).lab
    return lab


@pytest.fixture
def connection(engine: Any) -> Iterator[ContainerEngine]:
    client = ContainerEngine.connect(engine.url)
    yield client
    client.close()


def container_id(lab: RunningLab, node: str) -> str:
    """The engine's name of a node's container."""
    nodes = lab.runtime(node)
    assert isinstance(nodes, LiveContainers)
    return nodes.container_id(node)


def _inspected(lab: RunningLab, connection: ContainerEngine, node: str) -> dict[str, Any]:
    found: dict[str, Any] = connection.client.containers.get(container_id(lab, node)).attrs
    return found


def test_the_fabric_works_whatever_its_nodes_are(mixed: RunningLab) -> None:
    report = check_lab(mixed)
    assert report.exit_code == 0, report


def test_inspect_tells_containers_apart(mixed: RunningLab, shared_sandbox: Any) -> None:
    done = shared_sandbox.cli("inspect", "-f", "json")
    nodes = {node["name"]: node for node in json.loads(done.stdout)[mixed.name]}
    assert {name for name, node in nodes.items() if node["runtime"] == "docker"} == CONTAINERS
    assert {node["state"] for node in nodes.values()} == {"running"}
    assert nodes["p1-spine1"]["image"] == "testbed/switch"
    assert set(nodes["p1-spine1"]["pids"]) == {"mgmtd", "zebra", "bgpd"}
    assert "testbed/host" in shared_sandbox.cli("inspect").stdout


def test_only_the_network_and_the_rights_that_are_needed(mixed: RunningLab, connection: ContainerEngine) -> None:
    def capabilities(node: str) -> set[str]:
        status = mixed.run(node, ["cat", "/proc/self/status"]).stdout
        mask = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapBnd")), 16)
        listed = Path("/usr/include/linux/capability.h").read_text()
        numbers = {
            words[1].removeprefix("CAP_"): int(words[2])
            for line in listed.splitlines()
            if len(words := line.split()) == 3 and words[1].startswith("CAP_") and words[2].isdigit()
        }
        assert set(ALL_CAPABILITIES) <= set(numbers)
        return {name for name, number in numbers.items() if mask >> number & 1}

    assert capabilities("p1-s1-h1") == set(CAPABILITIES[NodeKind.HOST])
    assert capabilities("p1-s2-h2") == {*CAPABILITIES[NodeKind.HOST], "SYS_NICE"}
    assert capabilities("p1-spine1") == set(CAPABILITIES[NodeKind.SWITCH])
    assert mixed.run("p1-s1-h1", ["ls", "/sys/class/net"]).stdout.split() == ["lo", "rail1", "rail2"]
    for node in CONTAINERS:
        host = _inspected(mixed, connection, node)["HostConfig"]
        assert (host["NetworkMode"], host["Privileged"], host["PidMode"]) == ("none", False, "")


def test_what_the_file_says_of_a_container(mixed: RunningLab, connection: ContainerEngine) -> None:
    host = _inspected(mixed, connection, "p1-s2-h2")["HostConfig"]
    assert (host["NanoCpus"], host["Memory"], host["MemorySwap"]) == (500_000_000, 128_000_000, 128_000_000)
    assert mixed.run("p1-s2-h2", ["cat", "/shared/note"]).stdout == "from outside\n"
    assert mixed.run("p1-s2-h2", ["touch", "/shared/x"]).returncode != 0
    assert mixed.run("p1-s1-h1", ["printenv", "COLOUR"]).stdout == "green\n"
    assert mixed.run("p1-s1-h2", ["printenv", "COLOUR"]).stdout == "green\n"
    assert mixed.run("p1-s1-h1", ["hostname"]).stdout == "p1-s1-h1\n"


def test_the_memory_limit_holds(mixed: RunningLab) -> None:
    """A process that wants more is killed, and the container lives on."""
    greedy = mixed.run("p1-s2-h2", ["python3", "-c", "x = b'x' * 300_000_000"], timeout_s=60)
    assert greedy.returncode == 137
    assert mixed.run("p1-s2-h2", ["true"]).returncode == 0


class TestExec:
    """Commands in a container are processes like any other."""

    def test_streams_and_status(self, mixed: RunningLab, shared_sandbox: Any) -> None:
        done = shared_sandbox.cli("exec", "p1-s1-h1", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
        assert (done.stdout, done.stderr, done.returncode) == ("out\n", "err\n", 7)

    @pytest.mark.parametrize("size", [0, 5, 3_000_000])
    def test_input_comes_back_whole(self, mixed: RunningLab, size: int) -> None:
        data = os.urandom(size)
        process = mixed.spawn("p1-s1-h1", ["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.communicate(data, timeout=60)[0] == data
        assert process.returncode == 0

    def test_input_from_a_file(self, mixed: RunningLab, tmp_path: Path) -> None:
        (tmp_path / "in").write_bytes(b"line\n" * 10_000)
        with (tmp_path / "in").open("rb") as source:
            process = mixed.spawn("p1-s1-h1", ["wc", "-l"], stdin=source, stdout=subprocess.PIPE)
            assert process.communicate(timeout=60)[0] == b"10000\n"

    @pytest.mark.parametrize(("number", "status"), [(2, 130), (15, 143), (9, 137)])
    def test_signals_are_the_commands(self, mixed: RunningLab, number: int, status: int) -> None:
        argv = ["sh", "-c", "echo ready; exec sleep 300"]
        process = mixed.spawn("p1-s1-h1", argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.wait(30) == status
        process.stdout.close()
        assert mixed.run("p1-s1-h1", ["pgrep", "-fx", "sleep 300"]).stdout == ""

    def test_a_signal_right_after_the_start_is_not_lost(self, mixed: RunningLab) -> None:
        processes = [mixed.spawn("p1-s1-h1", ["sleep", "301"], stdin=subprocess.DEVNULL) for _ in range(4)]
        for number, process in enumerate(processes):
            if number % 2:  # after a moment in which the engine starts it, or has just done so
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(number * 0.05)
            process.kill()
        assert {process.wait(30) for process in processes} <= {137, -12}  # -12: before it had asked the engine
        assert mixed.run("p1-s1-h1", ["pgrep", "-fx", "sleep 301"]).stdout == ""

    def test_a_command_that_is_not_there(self, mixed: RunningLab, shared_sandbox: Any) -> None:
        done = shared_sandbox.cli("exec", "p1-s1-h1", "--", "no-such-command")
        assert done.returncode in {126, 127}
        assert "no-such-command" in done.stdout + done.stderr
        assert "Traceback" not in done.stderr

    def test_a_terminal(self, mixed: RunningLab, shared_sandbox: Any) -> None:
        argv = [
            "script",
            "-qec",
            f"{sys.executable} -m testbed exec p1-s1-h1 -- sh -c 'tty; stty size; exit 3'",
            "/dev/null",
        ]
        environment = shared_sandbox.environment
        done = subprocess.run(
            argv,
            env=environment,
            cwd=shared_sandbox.work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert b"/dev/pts/" in done.stdout, done
        assert done.returncode == 3


def test_vtysh_speaks_to_the_daemons_in_the_container(mixed: RunningLab) -> None:
    answer = mixed.run("p1-spine1", ["vtysh", "-c", "show bgp summary json"]).stdout
    peers = json.loads(answer)["ipv4Unicast"]["peers"]
    assert len(peers) == 4
    assert {peer["state"] for peer in peers.values()} == {"Established"}
    assert len(list(mixed.sessions())) == 16


@pytest.mark.parametrize("node", ["p1-s1-h1", "p1-spine1", "p1-s1-h2"])
def test_a_node_knows_its_name_and_the_others(mixed: RunningLab, node: str) -> None:
    """A container of a host, one of a switch, and a namespace."""
    name, *hosts = mixed.run(node, ["sh", "-c", "hostname; cat /etc/hosts"]).stdout.splitlines()
    assert name == node
    address = str(mixed.port("p1-s1-h2", "rail1").address).partition("/")[0]
    assert [line.split()[:2] for line in hosts if "rail1.p1-s1-h2" in line] == [[address, "p1-s1-h2"]]


def test_logs(mixed: RunningLab, shared_sandbox: Any) -> None:
    assert shared_sandbox.cli("logs", "p1-s2-h2").stdout == "started as green\n"
    assert "bgpd: " in shared_sandbox.cli("logs", "p1-spine1", "-d", "bgpd").stdout


def test_traffic_from_container_to_namespace(mixed: RunningLab) -> None:
    server_address = str(mixed.port("p1-s1-h2", "rail1").address).partition("/")[0]
    server = mixed.spawn(
        "p1-s1-h2",
        ["iperf3", "-s", "-1", "--forceflush", "-B", server_address],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    while b"listening" not in server.stdout.readline():
        pass
    done = mixed.run("p1-s2-h1", ["iperf3", "-c", server_address, "-t", "1", "-J"], timeout_s=60)
    server.communicate(timeout=30)
    assert json.loads(done.stdout)["end"]["sum_received"]["bytes"] > 100_000


@pytest.mark.parametrize("tool", ["uet_write_bw", "roce_write_bw"])
def test_the_transports_tools_between_containers(mixed: RunningLab, tool: str) -> None:
    address = str(mixed.port("p1-s1-h1", "rail1").address).partition("/")[0]
    argv = [tool, "-n", "20", "-s", "4096"]
    server = mixed.spawn(
        "p1-s1-h1", [*argv, "-i", address], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    deadline = time.monotonic() + 30
    done = mixed.run("p1-s2-h1", [*argv, address], timeout_s=60)
    while done.returncode and time.monotonic() < deadline:  # until the server listens
        done = mixed.run("p1-s2-h1", [*argv, address], timeout_s=60)
    assert done.returncode == 0, done
    assert server.wait(30) == 0
    assert "4096" in done.stdout
    server.stdout.close()


GPUS = """
name: {name}
scale: {{time: 50000}}
fabric:
  design: rail-optimized
  hosts: 1
  segments: 1
  gpus: 2
  spines: 1
  scale_up: {{preset: h100, by: packets}}
topology:
  kinds:
    host: {{runtime: docker}}
"""


def test_gpus_of_a_container_meet_over_their_domains_switch(sandbox: Sandbox) -> None:
    """The lab lends the container the library of endpoints, and what it has to know of its GPUs."""
    model = sandbox.load(GPUS)
    lab: RunningLab = sandbox.deploy(model, k=50_000.0).lab
    host = "p1-s1-h1"
    argv = ["su_write_bw", "-s", "64k", "-n", "40"]
    server = lab.spawn(host, [*argv, "--gpu", "2"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert server.stdout is not None
    done = lab.run(host, [*argv, "--gpu", "1", "127.0.0.1"], timeout_s=60)
    assert done.returncode == 0, done
    assert server.communicate(timeout=30)[0].decode().splitlines()[-2:] == done.stdout.splitlines()[-2:]
    share = float(done.stdout.splitlines()[-2].split()[-1])
    assert 0 < share <= 100, "of a GPU's rate"
    changed = lab.run(host, ["sh", "-c", 'test -r "$TESTBED_GPUS" && echo >>"$TESTBED_GPUS"'])
    assert "Read-only file system" in changed.stderr, "what the lab says is not the container's to change"
    sandbox.destroy()


def test_capture_needs_nothing_in_the_image(mixed: RunningLab, shared_sandbox: Any) -> None:
    assert mixed.run("p1-s1-h1", ["tcpdump", "--version"]).returncode != 0
    target = str(mixed.port("p1-s2-h1", "rail1").address).partition("/")[0]
    capture = shared_sandbox.start("capture", "p1-s1-h1:rail1", "-c", "1", "-w", "x.pcap", "icmp")
    deadline = time.monotonic() + 30
    while capture.poll() is None and time.monotonic() < deadline:
        mixed.run("p1-s1-h1", ["ping", "-c1", "-W1", "-I", "rail1", target])
    assert capture.wait(1) == 0
    assert (shared_sandbox.work / "x.pcap").stat().st_size > 24


def test_deploying_it_again_changes_nothing(mixed: RunningLab, shared_sandbox: Any) -> None:
    before = mixed.identities
    text = TOPOLOGY.format(name=mixed.name, shared=shared_sandbox.work / "shared", cmd=CMD)
    again = shared_sandbox.deploy(load_topology_text(text, file="mixed.yml"))
    assert not again.changed
    assert again.lab.identities == before


def test_the_lab_directory_says_how_to_reach_a_container(mixed: RunningLab) -> None:
    data = json.loads((mixed.directory / "topology-data.json").read_text())
    assert {name for name, node in data["nodes"].items() if node["runtime"] == "docker"} == CONTAINERS
    assert (
        f"ansible_host: {namespace_name(mixed.name, 'p1-s1-h1')}"
        in (mixed.directory / "ansible-inventory.yml").read_text()
    )


def test_a_container_that_ended_is_seen(mixed: RunningLab, connection: ContainerEngine) -> None:
    """Last: the lab is not whole afterwards."""
    connection.client.containers.get(container_id(mixed, "p1-s2-h1")).kill()
    states = {status.name: status.state for status in mixed.status()}
    assert states.pop("p1-s2-h1") == "exited"
    assert set(states.values()) == {"running"}


def test_one_goes_and_nothing_of_it_stays(mixed: RunningLab, shared_sandbox: Any, connection: ContainerEngine) -> None:
    """With what runs in it, and after somebody removed one of its containers."""
    process = mixed.spawn("p1-s1-h1", ["sleep", "300"], stdin=subprocess.DEVNULL)
    connection.client.containers.get(container_id(mixed, "p1-s2-h1")).remove(force=True)
    (shared_sandbox.work / "shared/note").unlink()
    done = shared_sandbox.cli("destroy", "-n", mixed.name)
    assert done.returncode == 0, done.stderr
    assert process.wait(30) != 0
    listed = connection.client.containers.list(all=True, filters={"label": NODE_LABEL})
    assert [container.name for container in listed if container.name.startswith(shared_sandbox.prefix)] == []
