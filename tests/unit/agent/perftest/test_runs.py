"""Real runs of the measuring tools between two addresses of the loopback interface."""

from __future__ import annotations

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

import pytest

from testbed.agent.perftest.exchange import Channel
from testbed.agent.perftest.options import TOOLS

_networks = count(os.getpid() % 200 * 60)
PATIENCE_S = 30
WELL_UNDER_WAY = 4000
"""Datagrams, far more than those of the warm-up."""


def addresses() -> tuple[str, str]:
    """Two addresses that no other test of this run, and hardly one beside it, uses."""
    number = next(_networks)
    prefix = f"127.{20 + number // 250 % 200}.{number % 250}"
    return f"{prefix}.1", f"{prefix}.2"


def start(tool: str, *argv: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "testbed.agent.perftest", tool, *argv]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextmanager
def server(tool: str, address: str, *argv: str) -> Iterator[subprocess.Popen[str]]:
    """A server that has begun to listen. The caller waits for its end."""
    process = start(tool, "-i", address, *argv)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "Data ex. method" in line:
                break
        yield process
    finally:
        process.kill()
        process.communicate()


def measure(tool: str, *argv: str, source: tuple[str, str] | None = None) -> tuple[str, str]:
    """What client and server print of a run that must succeed."""
    here, there = source or addresses()
    with server(tool, there, *argv) as process:
        client = start(tool, there, "-i", here, *argv)
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


CASES = [(name, "rud") for name in TOOLS] + [
    ("write_bw", "rod"),
    ("read_bw", "rod"),
    ("send_bw", "rod"),
    ("send_lat", "rod"),
    ("write_lat", "rod"),
    ("atomic_lat", "rod"),
    ("write_bw", "rudi"),
    ("read_bw", "rudi"),
    ("write_lat", "rudi"),
]


@pytest.mark.parametrize(("tool", "mode"), CASES)
def test_every_tool_measures_in_every_mode(tool: str, mode: str) -> None:
    out, theirs = measure(tool, "-n", "20", "--mode", mode)
    ((size, iterations, *figures),) = rows(out)
    assert int(size) == (8 if tool == "atomic_lat" else 2 if "lat" in tool else 65536)
    assert iterations == "20"
    assert all(float(figure) > 0 for figure in figures)
    assert rows(theirs) == rows(out)


@pytest.mark.parametrize("tool", ["write_bw", "read_bw", "send_bw"])
def test_both_directions(tool: str) -> None:
    out, _ = measure(tool, "-n", "20", "-b", "-q", "2")
    assert rows(out)[0][1] == "20"


@pytest.mark.parametrize("cc", ["rccc", "both", "none"])
def test_every_congestion_control(cc: str) -> None:
    assert rows(measure("write_bw", "-n", "20", "--cc", cc, "--paths", "single")[0])


def test_all_sizes_have_a_row_each(tmp_path: Path) -> None:
    path = tmp_path / "all.json"
    out, _ = measure("send_bw", "-n", "2", "-a", "-t", "2", "-m", "9000", "--out_json_file", str(path))
    sizes = [2**power for power in range(1, 24)]
    assert [int(row[0]) for row in rows(out)] == sizes
    assert [row["MsgSize"] for row in json.loads(path.read_text())["results"]] == sizes


@pytest.mark.parametrize("tool", ["write_bw", "send_lat"])
def test_a_duration_instead_of_iterations(tool: str) -> None:
    ((_, iterations, *_),) = rows(measure(tool, "-D", "0.3")[0])
    assert int(iterations) > 10


def test_encrypted(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    path = tmp_path / "key"
    path.write_text("00112233445566778899aabbccddeeff" * 2)
    out, _ = measure("write_bw", "-n", "20", "--tss", str(path))
    assert "Security        : TSS" in out


def test_over_ipv6() -> None:
    if not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 here")
    with server("write_bw", "::1", "-n", "5") as process:
        client = start("write_bw", "::1", "-n", "5")
        _, problem = client.communicate(timeout=PATIENCE_S)
        assert client.returncode == 1
        assert "::1 is this host: give an address of its own to this side (-i)" in problem
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130


# --- what goes wrong ---------------------------------------------------------------------------------


def fails(process: subprocess.Popen[str], words: str, code: int = 1) -> str:
    out, problem = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code, problem
    assert words in problem
    assert "Traceback" not in problem
    return out


def test_no_server() -> None:
    here, there = addresses()
    fails(start("write_bw", there, "-i", here, "--timeout", "0.2"), f"nobody listens at {there} port 18515")


def test_a_host_that_does_not_exist() -> None:
    fails(start("write_bw", "no.such.host.invalid"), "no way to no.such.host.invalid")


def test_an_address_that_is_not_ours() -> None:
    fails(start("write_bw", "-i", "203.0.113.9"), "cannot listen at 203.0.113.9 port 18515")


def test_sides_that_were_started_differently() -> None:
    here, there = addresses()
    with server("write_bw", there, "-n", "5") as process:
        fails(start("write_bw", there, "-i", here, "-n", "6"), "the two sides differ in -n: 5 here, 6 there")
        fails(process, "the two sides differ in -n: 5 here, 6 there")


def test_another_tool() -> None:
    here, there = addresses()
    with server("write_bw", there) as process:
        fails(start("read_bw", there, "-i", here), "uet_write_bw here, uet_read_bw there")
        fails(process, "uet_write_bw here, uet_read_bw there")


def test_a_client_that_says_nothing_sensible() -> None:
    here, there = addresses()
    with server("write_bw", there) as process, socket.create_connection((there, 18515), 5, (here, 0)) as item:
        item.sendall(b"GET / HTTP/1.1\r\n\r\n")
        fails(process, "the other side has gone, or is no tool of this kind")


def test_a_client_that_says_nothing_at_all() -> None:
    here, there = addresses()
    silent = server("write_bw", there, "--timeout", "0.2")
    with silent as process, socket.create_connection((there, 18515), 5, (here, 0)):
        fails(process, "the other side does not say anything")


def test_a_port_that_is_taken() -> None:
    here, there = addresses()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as item:
        item.bind((here, 4793))
        with server("write_bw", there) as process:
            fails(start("write_bw", there, "-i", here), f"cannot open the fabric endpoint {here}")
            fails(process, f"the other side says: cannot open the fabric endpoint {here}")


def test_a_server_that_dies_while_it_is_measured() -> None:
    here, there = addresses()
    with server("send_lat", there, "-D", "60") as process:
        client = start("send_lat", there, "-i", here, "-D", "60")
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(" #bytes"):
                break
        process.kill()
        fails(client, "the other side has gone")


@pytest.mark.parametrize("tool", ["write_bw", "send_lat"])
def test_ctrl_c_prints_what_was_measured(tool: str) -> None:
    here, there = addresses()
    with server(tool, there, "-D", "60") as process:
        client = start(tool, there, "-i", here, "-D", "60")
        assert client.stdout is not None
        for line in client.stdout:
            if line.startswith(" #bytes"):
                break
        before = datagrams_of(process.pid)
        while datagrams_of(process.pid) < before + WELL_UNDER_WAY:
            assert client.poll() is None
        client.send_signal(signal.SIGINT)
        out = fails(client, f"uet_{tool}: interrupted", 130)
        assert int(out.splitlines()[0].split()[1]) > 0
        fails(process, "the other side says: it was interrupted")


def datagrams_of(pid: int) -> int:
    """UDP datagrams received in the network namespace of a process."""
    lines = [line.split() for line in Path(f"/proc/{pid}/net/snmp").read_text().splitlines() if line.startswith("Udp:")]
    return int(dict(zip(*lines, strict=True))["InDatagrams"])


def test_a_listening_socket_can_be_taken_at_once_again() -> None:
    _, there = addresses()
    Channel.listen(there, 18515).close()
    Channel.listen(there, 18515).close()
