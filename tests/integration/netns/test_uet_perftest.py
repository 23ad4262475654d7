"""The measuring tools between network namespaces: over a single link, and through the switches of a lab."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from testbed.api import Lab
from testbed.transport.uet.packets.codes import PdsType

pytestmark = [pytest.mark.netns, pytest.mark.timeout(120)]

PATIENCE_S = 60
DISSECTOR = Path(__file__).parents[3] / "images" / "wireshark" / "uet.lua"
TOOL = (sys.executable, "-m", "testbed.agent.perftest")
Spawn = Callable[[Sequence[str]], subprocess.Popen[bytes]]
LAB_RATE = "20M"
TOPOLOGY = """
name: perftest
scale: {time: 20000}
qos: {preset: uec}
fabric: {design: rail-optimized, hosts: 1, segments: 2, gpus: 1, spines: 2}
"""


class Side(NamedTuple):
    """A host and its address."""

    spawn: Spawn
    address: str


def finish(process: subprocess.Popen[bytes]) -> str:
    out, problem = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, f"{out.decode()}\n{problem.decode()}"
    return out.decode()


def measure(near: Side, far: Side, path: Path, *words: str) -> dict[str, Any]:
    """The JSON document of a run between two sides; both must succeed and print the same table."""
    with ExitStack() as cleanup:
        server = far.spawn([*TOOL, *words, "-i", far.address])
        cleanup.callback(server.communicate)
        cleanup.callback(server.kill)
        client = near.spawn([*TOOL, *words, "--out_json_file", str(path), far.address])
        cleanup.callback(client.communicate)
        cleanup.callback(client.kill)
        ours, theirs = finish(client), finish(server)
    assert ours.splitlines()[-2:] == theirs.splitlines()[-2:]
    document: dict[str, Any] = json.loads(path.read_text())
    return document


# --- two namespaces ----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["ipv4", "ipv6"])
def sides(request: pytest.FixtureRequest) -> Iterator[tuple[Side, Side]]:
    """Two namespaces joined by a veth of MTU 4500."""

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def spawner(name: str) -> Spawn:
        def spawn(argv: Sequence[str]) -> subprocess.Popen[bytes]:
            words = ["ip", "netns", "exec", name, *argv]
            return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

        return spawn

    addresses = ("10.78.0.1", "10.78.0.2") if request.param == "ipv4" else ("fd78::1", "fd78::2")
    names = tuple(f"upt{os.getpid()}{side}{request.param[-1]}" for side in "ab")
    with ExitStack() as cleanup:
        for name in names:
            ip("netns", "add", name)
            cleanup.callback(ip, "netns", "del", name)
        peer = ("peer", "name", "eth0", "mtu", "4500", "netns", names[1])
        ip("-n", names[0], "link", "add", "eth0", "mtu", "4500", "type", "veth", *peer)
        for name, address in zip(names, addresses, strict=True):
            whole = (f"{address}/24",) if request.param == "ipv4" else (f"{address}/64", "nodad")
            ip("-n", name, "addr", "add", whole[0], "dev", "eth0", *whole[1:])
            ip("-n", name, "link", "set", "eth0", "up")
        yield Side(spawner(names[0]), addresses[0]), Side(spawner(names[1]), addresses[1])


@pytest.mark.parametrize("tool", ["write_bw", "read_bw", "send_bw"])
def test_bandwidth_over_a_link(sides: tuple[Side, Side], tool: str, tmp_path: Path) -> None:
    document = measure(*sides, tmp_path / "out.json", tool, "-n", "200", "-s", "64k", "--report_gbits")
    assert document["test_info"]["Device"] == sides[0].address
    assert document["results"]["n_iterations"] == 200
    assert 0.05 < document["results"]["BW_average"] < 20


@pytest.mark.parametrize("tool", ["send_lat", "write_lat", "atomic_lat"])
def test_latency_over_a_link(sides: tuple[Side, Side], tool: str, tmp_path: Path) -> None:
    results = measure(*sides, tmp_path / "out.json", tool, "-n", "200")["results"]
    assert 5 < results["t_min"] <= results["t_typical"] <= results["percentile_99"] <= results["t_max"]


def test_a_namespace_without_a_way_to_the_server() -> None:
    words = ["unshare", "--net", *TOOL, "write_bw", "10.78.0.2"]
    result = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert result.returncode == 1
    assert result.stderr == "uet_write_bw: no way to 10.78.0.2: Network is unreachable\n"


# --- a lab -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hosts(shared_sandbox: Any) -> Iterator[tuple[Side, Side]]:
    """Hosts of two segments: leaf, spine and leaf are between them."""
    box = shared_sandbox
    with Lab.deploy(TOPOLOGY, name=box.name(), state=box.state, directory=box.work / "lab") as lab:
        box.note_daemons()

        def side(name: str) -> Side:
            def spawn(argv: Sequence[str]) -> subprocess.Popen[bytes]:
                pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
                return lab.node(name).spawn(argv, **pipes)

            return Side(spawn, lab.node(name).address("rail1"))

        yield side("p1-s1-h1"), side("p1-s2-h1")


@pytest.mark.frr
@pytest.mark.parametrize("options", [(), ("--trimming",), ("--mode", "rod"), ("--cc", "both"), ("-b",)], ids=" ".join)
def test_bandwidth_through_a_lab_is_that_of_its_links(
    hosts: tuple[Side, Side], options: Sequence[str], tmp_path: Path
) -> None:
    fabric = ("--rate", LAB_RATE, "--base-rtt", "10ms", "-m", "1024")
    words = ("write_bw", "-s", "16k", "-n", "150", "-t", "16", "--report_gbits", *fabric, *options)
    average = measure(*hosts, tmp_path / "out.json", *words)["results"]["BW_average"]
    directions = 2 if "-b" in options else 1
    # more than the link carries is impossible; how near to it a busy machine comes is a figure of the benchmarks
    assert 0.008 < average / directions < 0.02, "of 20 Mbit/s"


@pytest.mark.frr
def test_latency_through_a_lab(hosts: tuple[Side, Side], tmp_path: Path) -> None:
    words = ("send_lat", "-n", "50", "--rate", LAB_RATE, "--base-rtt", "10ms", "-m", "1024")
    results = measure(*hosts, tmp_path / "out.json", *words)["results"]
    assert results["t_min"] <= results["t_typical"] < 20_000


@pytest.mark.frr
@pytest.mark.tshark
def test_a_run_as_a_capture_shows_it(hosts: tuple[Side, Side], tmp_path: Path) -> None:
    """`testbed decode` and the Wireshark dissector read a real run alike: from the first SYN to the end of the PDC."""
    near, far = hosts
    capture = tmp_path / "run.pcap"
    options = ("--immediate-mode", "-U", "-n", "-i", "rail1", "-w", str(capture))
    tcpdump = far.spawn(["tcpdump", *options, "udp", "port", "4793"])
    with ExitStack() as cleanup:
        cleanup.callback(tcpdump.communicate)
        cleanup.callback(tcpdump.kill)
        assert tcpdump.stderr is not None
        while b"listening on" not in (line := tcpdump.stderr.readline()):
            assert line, "tcpdump has ended"
        fabric = ("--rate", LAB_RATE, "--base-rtt", "10ms", "-m", "1024")
        measure(near, far, tmp_path / "out.json", "write_bw", "-s", "16k", "-n", "20", *fabric)
        tcpdump.send_signal(signal.SIGINT)
        tcpdump.wait(PATIENCE_S)

    decoded = run(sys.executable, "-m", "testbed", "decode", "--json", str(capture))
    ours = [json.loads(line) for line in decoded.splitlines()]
    words = ("tshark", "-n", "-X", f"lua_script:{DISSECTOR}", "-o", "udp.try_heuristic_first:TRUE", "-r", str(capture))
    fields = ("-T", "fields", "-e", "uet.type", "-e", "uet.psn", "-e", "uet.malformed")
    theirs = [line.split("\t") for line in run(*words, *fields).splitlines()]
    assert len(ours) == len(theirs) > 20 * 16
    assert not any(malformed for _, _, malformed in theirs)
    packets = [item["pds"] for item in ours]
    assert [PdsType[item["type"]] for item in packets] == [int(kind, 0) for kind, _, _ in theirs]
    assert [str(item["psn"]) if "psn" in item else "" for item in packets] == [psn for _, psn, _ in theirs]
    requests = [item for item in packets if item["type"] == "RUD_REQ" and item["spdcid"] == packets[0]["spdcid"]]
    assert "SYN" in requests[0]["flags"] and "SYN" not in requests[-1]["flags"]
    psns = {(item["psn"] - requests[0]["psn"]) & 0xFFFFFFFF for item in requests}
    assert psns >= set(range(20 * 16))
    assert any(item["type"] == "CP" and item["ctl_type"] == "CLOSE_CMD" for item in packets)


def run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
