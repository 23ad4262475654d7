"""Real runs of the measuring tools between two addresses of the loopback interface."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random

import pytest

from testbed.endpoints.perftest.errors import MismatchError, PerftestError
from testbed.endpoints.perftest.exchange import ToolConnection
from testbed.endpoints.perftest.options import parse_options
from testbed.endpoints.perftest.registry import TOOLS
from testbed.endpoints.perftest.transport import ToolMemory
from testbed.endpoints.perftest.transports.roce import RoceEndpoint, RoceOptions
from testbed.protocols.roce.rnic import Rnic

pytestmark = pytest.mark.process

_networks = count(os.getpid() % 200 * 60)
PATIENCE_S = 100
ENDS = ("local", "remote")
WELL_UNDER_WAY = 4000
"""Datagrams, far more than those of the warm-up."""


def addresses() -> tuple[str, str]:
    """Two addresses that no other test of this run, and hardly one beside it, uses."""
    number = next(_networks)
    prefix = f"127.{20 + number // 250 % 200}.{number % 250}"
    return f"{prefix}.1", f"{prefix}.2"


def start(tool: str, *argv: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "testbed.endpoints.perftest", tool, *argv]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def read_until(process: subprocess.Popen[str], words: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return


@contextmanager
def server(tool: str, address: str, *argv: str) -> Iterator[subprocess.Popen[str]]:
    """A server that has begun to listen. The caller waits for its end."""
    process = start(tool, "-i", address, *argv)
    try:
        read_until(process, "Data ex. method")
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def both(
    tool: str, *argv: str, clients: tuple[str, ...] = (), others: str = ""
) -> Iterator[tuple[subprocess.Popen[str], subprocess.Popen[str]]]:
    """A server, and a client of it with options of its own, or of another tool."""
    here, there = addresses()
    with server(tool, there, *argv) as process:
        yield process, start(others or tool, there, "-i", here, *argv, *clients)


def measure(tool: str, *argv: str) -> tuple[str, str]:
    """What client and server print of a run that must succeed."""
    with both(tool, *argv) as (process, client):
        out, problem = client.communicate(timeout=PATIENCE_S)
        theirs, their_problem = process.communicate(timeout=PATIENCE_S)
        assert (client.returncode, problem) == (0, ""), their_problem
        assert (process.returncode, their_problem) == (0, "")
    return out, theirs


def rows(text: str) -> list[list[str]]:
    """The cells of the result table."""
    lines = text.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith(" #bytes"))
    return [line.split() for line in lines[head + 1 :] if not line.startswith("-")]


OVER_UDP = [name for name in TOOLS if not name.startswith("su_")]
CASES = [(name, ()) for name in OVER_UDP]
CASES += [
    ("uet_write_bw", ("--mode", "rod")),
    ("uet_read_bw", ("--mode", "rudi")),
    ("roce_write_bw", ("-q", "3", "--ooo")),
    ("roce_send_bw", ("-b", "-q", "2")),
    ("uet_write_bw", ("--cc", "rccc", "--paths", "single")),
    ("roce_write_bw", ("--cc", "swift")),
]
MORE = [(name, ("--mode", "rod")) for name in TOOLS if name.startswith("uet")]
MORE += [(name, ("--mode", "rudi")) for name in ("uet_write_bw", "uet_write_lat")]
MORE += [
    ("roce_send_bw", ("-q", "3", "--recovery", "selective", "-m", "256")),
    ("roce_read_bw", ("-q", "3", "-o", "1")),
    ("roce_write_lat", ("--ooo", "--tclass", "0")),
]
MORE += [(name, ("-b", "-q", "2")) for name in OVER_UDP if name.endswith("_bw")]
MORE += [("uet_write_bw", ("--cc", cc, "--paths", "single")) for cc in ("both", "none")]
MORE += [("roce_write_bw", ("--cc", cc)) for cc in ("timely", "none")]
CASES += [pytest.param(*more, marks=pytest.mark.thorough) for more in MORE if more not in CASES]


@pytest.mark.parametrize(("tool", "options"), CASES, ids=lambda item: item if isinstance(item, str) else "".join(item))
def test_every_tool_measures_in_every_way(tool: str, options: tuple[str, ...]) -> None:
    out, theirs = measure(tool, "-n", "20", *options)
    ((size, iterations, *figures),) = rows(out)
    assert int(size) == (8 if "atomic" in tool else 2 if "lat" in tool else 65536)
    assert iterations == "20"
    assert all(float(figure) > 0 for figure in figures)
    assert rows(theirs) == rows(out)


def test_both_sides_tell_the_same_queue_pairs() -> None:
    out, theirs = measure("roce_write_bw", "-n", "5", "-q", "2")
    ends = [
        {side: [line.split(": ")[1] for line in text.splitlines() if f"{side} address" in line] for side in ENDS}
        for text in (out, theirs)
    ]
    assert len(set(ends[0]["local"] + ends[0]["remote"])) == 4
    assert (ends[0]["local"], ends[0]["remote"]) == (ends[1]["remote"], ends[1]["local"])


def test_all_sizes_have_a_row_each(tmp_path: Path) -> None:
    path = tmp_path / "all.json"
    out, _ = measure("uet_send_bw", "-n", "2", "-a", "-t", "2", "-m", "9000", "--out_json_file", str(path))
    sizes = [2**power for power in range(1, 24)]
    assert [int(row[0]) for row in rows(out)] == sizes
    assert [row["MsgSize"] for row in json.loads(path.read_text())["results"]] == sizes


@pytest.mark.parametrize("words", [("--out_json",), ("--out_json_file", "mine.json")])
def test_two_ends_in_one_directory_write_two_files(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's is where it was asked for; the server's beside it, and it says so."""
    monkeypatch.chdir(tmp_path)
    out, theirs = measure("uet_send_bw", "-n", "5", *words)
    name = words[1] if len(words) > 1 else "perftest_out.json"
    beside = name.replace(".json", ".server.json")
    assert {path.name for path in tmp_path.iterdir()} == {name, beside}
    for path, text in ((name, out), (beside, theirs)):
        written = json.loads(Path(path).read_text())
        assert written["test_info"]["Device"] in text
        assert written["results"]["n_iterations"] == 5
    assert f"JSON results of this side: {beside}" in theirs and "JSON results" not in out


def test_two_ends_with_files_of_their_own_write_those(tmp_path: Path) -> None:
    files = [str(tmp_path / f"{name}.json") for name in ("server", "client")]
    argv = ("-n", "5", "--out_json_file", files[0])
    with both("roce_send_bw", *argv, clients=("--out_json_file", files[1])) as (process, client):
        assert client.communicate(timeout=PATIENCE_S)[1] == ""
        process.communicate(timeout=PATIENCE_S)
    devices = [json.loads(Path(name).read_text())["test_info"]["Device"] for name in files]
    assert [device.rpartition(".")[2] for device in devices] == ["2", "1"]


@pytest.mark.parametrize("tool", ["uet_write_bw", "uet_send_lat", "roce_read_bw", "roce_write_lat"])
def test_a_duration_instead_of_iterations(tool: str) -> None:
    ((_, iterations, *_),) = rows(measure(tool, "-D", "0.3")[0])
    assert int(iterations) > 10


def test_encrypted(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    path = tmp_path / "key"
    path.write_text("00112233445566778899aabbccddeeff" * 2)
    out, _ = measure("uet_write_bw", "-n", "20", "--tss", str(path))
    assert "Security        : TSS" in out


def test_over_ipv6() -> None:
    if not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 here")
    with server("uet_write_bw", "::1", "-n", "5") as process:
        client = start("uet_write_bw", "::1", "-n", "5")
        _, problem = client.communicate(timeout=PATIENCE_S)
        assert client.returncode == 1
        assert "::1 is this host: give an address of its own to this side (-i)" in problem
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130


def fails(process: subprocess.Popen[str], words: str, code: int = 1) -> str:
    out, problem = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code, problem
    assert words in problem
    assert "Traceback" not in problem
    return out


def test_no_server() -> None:
    here, there = addresses()
    fails(start("uet_write_bw", there, "-i", here, "--timeout", "0.2"), f"nobody listens at {there} port 18515")


def test_a_host_that_does_not_exist() -> None:
    fails(start("uet_write_bw", "no.such.host.invalid"), "no way to no.such.host.invalid")


def test_an_address_that_is_not_ours() -> None:
    fails(start("uet_write_bw", "-i", "203.0.113.9"), "cannot listen at 203.0.113.9 port 18515")


def test_sides_that_were_started_differently() -> None:
    with both("uet_write_bw", "-n", "5", clients=("-n", "6")) as (process, client):
        fails(client, "the two sides differ in -n: 5 here, 6 there")
        fails(process, "the two sides differ in -n: 5 here, 6 there")


def test_another_tool() -> None:
    with both("uet_write_bw", others="uet_read_bw") as (process, client):
        fails(client, "uet_write_bw here, uet_read_bw there")
        fails(process, "uet_write_bw here, uet_read_bw there")


def test_a_client_that_says_nothing_sensible() -> None:
    here, there = addresses()
    with server("uet_write_bw", there) as process, socket.create_connection((there, 18515), 5, (here, 0)) as item:
        item.sendall(b"GET / HTTP/1.1\r\n\r\n")
        fails(process, "the other side has gone, or is no tool of this kind")


def test_a_client_that_says_nothing_at_all() -> None:
    here, there = addresses()
    silent = server("uet_write_bw", there, "--timeout", "0.2")
    with silent as process, socket.create_connection((there, 18515), 5, (here, 0)):
        fails(process, "the other side does not say anything")


def test_a_port_that_is_taken() -> None:
    here, there = addresses()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as item:
        item.bind((here, 4793))
        with server("uet_write_bw", there) as process:
            fails(start("uet_write_bw", there, "-i", here), f"cannot open the fabric endpoint {here}")
            fails(process, f"the other side says: cannot open the fabric endpoint {here}")


@pytest.mark.parametrize("tool", ["uet_send_lat", "roce_send_lat", "roce_write_bw"])
def test_a_server_that_dies_while_it_is_measured(tool: str) -> None:
    with both(tool, "-D", "60") as (process, client):
        read_until(process, " #bytes")
        process.kill()
        fails(client, "the other side has gone")


def test_a_peer_that_falls_silent_ends_in_the_error_of_its_queue_pair() -> None:
    """Its host is gone, not its program: nothing closes the TCP connection."""
    with both("roce_write_bw", "-D", "60", clients=("-u", "12")) as (process, client):
        read_until(client, " #bytes")
        await_traffic(client, process.pid)
        process.send_signal(signal.SIGSTOP)
        fails(client, "failed with RETRY_EXCEEDED: the peer does not answer")
        process.send_signal(signal.SIGCONT)
        fails(process, "the other side says: a WRITE of QPN")


def test_a_link_that_is_too_short_for_the_path_mtu() -> None:
    options = parse_options(TOOLS["roce_write_lat"], ["-m", "2048"])
    transport = options.tool.transport
    transport.check_link(options, 2112, 20)
    with pytest.raises(PerftestError) as problem:
        transport.check_link(options, 1500, 20)
    assert str(problem.value) == (
        "a path MTU of 2048 bytes needs a link MTU of 2112, and that to the other side is 1500: -m 1024 fits"
    )
    with pytest.raises(PerftestError, match=r"needs a link MTU of 2132, and that to the other side is 200$"):
        transport.check_link(options, 200, 40)


@pytest.mark.parametrize(
    "change",
    [
        {"qps": []},
        {"qps": [[1 << 24, 0]]},
        {"qps": [[17, -1]]},
        {"qps": [["x", 0]]},
        {"qps": 3},
        {"rkey": 1 << 32},
        {"rkey": "x"},
        {"address": -1},
        {"address": 1 << 64},
        {"address": None},
    ],
    ids=str,
)
def test_an_introduction_that_makes_no_sense_is_refused(change: dict[str, object]) -> None:
    options = parse_options(TOOLS["roce_write_bw"], [])
    assert isinstance(options.transport, RoceOptions)
    memory = ToolMemory(memoryview(bytearray(8)), memoryview(bytearray(8)))
    endpoint = RoceEndpoint(options, Rnic("10.0.0.1", options.transport.config, Random(1), 0), memory)
    with pytest.raises(MismatchError):
        endpoint.connect("10.0.0.2", {**endpoint.introduction, **change})


@pytest.mark.parametrize("tool", ["uet_write_bw", "uet_send_lat", "roce_write_bw"])
def test_ctrl_c_prints_what_was_measured(tool: str) -> None:
    with both(tool, "-D", "60") as (process, client):
        read_until(client, " #bytes")
        await_traffic(client, process.pid)
        client.send_signal(signal.SIGINT)
        out = fails(client, f"{tool}: interrupted", 130)
        assert int(out.splitlines()[0].split()[1]) > 0
        fails(process, "the other side says: it was interrupted")


def await_traffic(client: subprocess.Popen[str], pid: int) -> None:
    """Wait until the measurement of `client` against process `pid` is well under way."""
    before = datagrams_of(pid)
    while datagrams_of(pid) < before + WELL_UNDER_WAY:
        assert client.poll() is None


def datagrams_of(pid: int) -> int:
    """UDP datagrams received in the network namespace of a process."""
    lines = [line.split() for line in Path(f"/proc/{pid}/net/snmp").read_text().splitlines() if line.startswith("Udp:")]
    return int(dict(zip(*lines, strict=True))["InDatagrams"])


def test_a_listening_socket_can_be_taken_at_once_again() -> None:
    _, there = addresses()
    ToolConnection.listen(there, 18515).close()
    ToolConnection.listen(there, 18515).close()
