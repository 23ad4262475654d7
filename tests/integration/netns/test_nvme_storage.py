"""NVMe/TCP between network namespaces: contents are verified, and a target that dies loses nothing unsaid."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from storage_sides import HOSTNQN, NQN, outcome, run_tool, start_tool, target
from two_sides import Pair, joined

pytestmark = [pytest.mark.netns, pytest.mark.timeout(120)]

NEAR, FAR = "10.84.0.2", "10.84.0.1"
MIB = 1 << 20
SIZE = 64 * MIB


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """The initiator is near, targets are far."""
    with joined("nvt", NEAR, FAR, mtu=9000) as pair:
        yield pair


def document(*namespaces: dict[str, Any], port: int = 4420, **fields: Any) -> dict[str, Any]:
    subsystem = {"nqn": NQN, "namespaces": list(namespaces), **fields}
    return {"listen": [{"address": FAR, "port": port}], "subsystems": [subsystem]}


def at(*ports: int) -> list[str]:
    return ["--nqn", NQN, *(word for port in ports for word in ("--path", f"{FAR}:{port}"))]


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def written_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


def established(namespace: str, port: str) -> str:
    """The connections of a target, as ss tells them in a namespace where its port is "sport" or "dport"."""
    argv = ["ip", "netns", "exec", namespace, "ss", "-Htn", "state", "established", port, "=", ":4420"]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def test_contents_are_verified(pair: Pair, tmp_path: Path) -> None:
    """Each backend, with and without digests, in large and in small requests; and what a host may not have."""
    namespaces = (
        {"size": SIZE},
        {"size": SIZE, "backend": "file", "path": str(tmp_path / "file")},
        {"size": 1 << 40, "backend": "pattern", "seed": 5},
        {"size": MIB, "backend": "memory", "block": 512},
    )
    config = document(*namespaces, allowed_hosts=[HOSTNQN])
    with target(pair.far, config) as running:
        assert run_tool(pair.near, "discover", "--path", FAR) == (0, [{"nqn": NQN, "address": FAR, "port": 4420}])
        digests = ["--hdgst", "--ddgst", "--queues", "2"]
        for nsid, words in ((1, []), (2, digests)):
            for step in ("write", "verify"):
                status, found = run_tool(pair.near, step, *at(4420), "--nsid", str(nsid), "--bs", "4M", *words)
                assert (status, found["bytes"], found["not_safe"], found["different"]) == (0, SIZE, [], [])
        status, found = run_tool(pair.near, "verify", *at(4420), "--seed", "1", "--size", "1M", "--bs", "64K")
        assert (status, found["different"]) == (1, [[0, MIB]])
        deep = ["--nsid", "3", "--seed", "5", "--offset", "512G", "--size", "8M"]
        assert run_tool(pair.near, "verify", *at(4420), *deep)[0] == 0
        status, found = run_tool(pair.near, "write", *at(4420), *deep)
        assert (status, found["error"]) == (1, "Namespace Is Write Protected")
        assert found["not_safe"] == [[512 << 30, 8 * MIB]]
        small = ["--nsid", "4", "--bs", "4K", "--depth", "32"]
        assert [run_tool(pair.near, step, *at(4420), *small)[0] for step in ("write", "verify")] == [0, 0]
        stranger = ["--hostnqn", "nqn.stranger", "--give-up", "600"]  # not waited for: it is refused for good
        assert run_tool(pair.near, "discover", "--path", FAR, *stranger) == (0, [])
        status, words = run_tool(pair.near, "read", *at(4420), *stranger)
        assert status == 2 and "Connect Invalid Host" in words
        for wrong in (["--size", "1000"], ["--offset", "1G"], ["--bs", "100"], ["--nsid", "9"]):
            status, words = run_tool(pair.near, "read", *at(4420), *wrong)
            assert status == 2 and words, wrong
        counts = running.stop()
    assert counts["hosts refused"] >= 1
    assert not any("terminated" in name for name in counts), counts


def slow_file(path: Path, port: int = 4420, cntlid: int = 1) -> dict[str, Any]:
    """A namespace in a file, on a medium that takes a second for all of it."""
    media = {"rate": SIZE, "latency_us": 500, "depth": 8}
    namespace = {"size": SIZE, "backend": "file", "path": str(path), "media": media}
    return document(namespace, port=port, first_cntlid=cntlid)


def test_killed_target_leaves_bytes_that_are_said_not_to_be_safe(pair: Pair, tmp_path: Path) -> None:
    path = tmp_path / "file"
    with target(pair.far, slow_file(path)) as running:
        tool = start_tool(pair.near, "write", *at(4420), "--bs", "1M", "--give-up", "0.5")
        wait_until(lambda: written_bytes(path) > SIZE // 4)
        running.kill()
        status, found = outcome(tool)
    assert status == 1 and "no path is live" in found["error"]
    unsafe = sum(length for _, length in found["not_safe"])
    assert found["bytes"] + unsafe == SIZE and 0 < unsafe < SIZE
    safe_end = found["not_safe"][0][0]
    with target(pair.far, slow_file(path)):
        words = ["--size", str(safe_end), "--bs", "1M"]
        assert run_tool(pair.near, "verify", *at(4420), *words)[0] == 0
        status, found = run_tool(pair.near, "verify", *at(4420), "--bs", "1M")
        assert status == 1 and found["different"][0][0] >= safe_end


def test_writer_that_is_stopped_says_what_is_safe(pair: Pair, tmp_path: Path) -> None:
    path = tmp_path / "file"
    with target(pair.far, slow_file(path)):
        tool = start_tool(pair.near, "write", *at(4420), "--bs", "1M")
        wait_until(lambda: written_bytes(path) > SIZE // 4)
        tool.terminate()
        status, found = outcome(tool)
        assert (status, found["error"]) == (1, "ended by SIGTERM")
        ((begin, length),) = found["not_safe"]
        assert 0 < begin == found["bytes"] == SIZE - length


def test_target_that_comes_back_loses_nothing(pair: Pair, tmp_path: Path) -> None:
    path = tmp_path / "file"
    with target(pair.far, slow_file(path)) as running:
        tool = start_tool(pair.near, "write", *at(4420), "--bs", "1M")
        wait_until(lambda: written_bytes(path) > SIZE // 4)
        running.kill()
    with target(pair.far, slow_file(path)):
        status, found = outcome(tool)
        assert (status, found["bytes"], found["not_safe"], found["flushed"]) == (0, SIZE, [], True)
        assert found["paths"][0]["associations"] == 2 and found["resent"] > 0
        assert run_tool(pair.near, "verify", *at(4420), "--bs", "1M")[0] == 0


def test_other_path_takes_over(pair: Pair, tmp_path: Path) -> None:
    """Two controllers of one namespace, in two processes; one is killed while both are written to."""
    path = tmp_path / "file"
    with target(pair.far, slow_file(path)) as first, target(pair.far, slow_file(path, 4421, cntlid=100)):
        tool = start_tool(pair.near, "write", *at(4420, 4421), "--bs", "1M")
        wait_until(lambda: written_bytes(path) > SIZE // 4)
        first.kill()
        status, found = outcome(tool)
        assert (status, found["bytes"], found["not_safe"], found["error"]) == (0, SIZE, [], "")
        assert found["resent"] > 0
        assert [item["live"] for item in found["paths"]] == [False, True]
        assert [item["associations"] for item in found["paths"]] == [1, 1]
        assert run_tool(pair.near, "verify", *at(4421), "--bs", "1M")[0] == 0


def test_cut_of_the_link_loses_nothing(pair: Pair, tmp_path: Path) -> None:
    """Neither end is told of it: both notice by their keep-alive, and the initiator comes back."""
    path = tmp_path / "file"

    with target(pair.far, slow_file(path)) as running:
        tool = start_tool(pair.near, "write", *at(4420), "--bs", "1M", "--kato", "500")
        wait_until(lambda: written_bytes(path) > SIZE // 4)
        subprocess.run(["ip", "-n", pair.far, "link", "set", "eth0", "down"], check=True)
        try:
            wait_until(lambda: not established(pair.far, "sport") and not established(pair.near, "dport"))
        finally:
            subprocess.run(["ip", "-n", pair.far, "link", "set", "eth0", "up"], check=True)
        status, found = outcome(tool)
        assert (status, found["bytes"], found["not_safe"], found["flushed"]) == (0, SIZE, [], True)
        assert found["paths"][0]["associations"] == 2
        assert run_tool(pair.near, "verify", *at(4420), "--bs", "1M")[0] == 0
        assert running.stop()["keep-alive time-outs"] == 1


FLOOD = """
import socket, sys
answers = []
for number in range(200):
    with socket.create_connection((sys.argv[1], 4420)) as item:
        item.settimeout(10)
        try:
            item.sendall(bytes([number + 2]) + bytes(70000))
            answers.append(item.recv(1000))
        except ConnectionError:
            answers.append(b"")
print(sum(answer[:1] == bytes([3]) for answer in answers), flush=True)
idle = [socket.create_connection((sys.argv[1], 4420)) for _ in range(300)]
print(len(idle), flush=True)
sys.stdin.read()
"""


def test_flood_of_connections_and_garbage(pair: Pair) -> None:
    """Garbage is answered by a termination; connections that say nothing are bounded; the target goes on."""
    config = document({"size": SIZE}) | {"most_connections": 100, "controller": {"most_unconnected": 40}}
    with target(pair.far, config) as running:
        assert run_tool(pair.near, "write", *at(4420))[0] == 0
        before = running.resident_bytes
        argv = ["ip", "netns", "exec", pair.near, sys.executable, "-c", FLOOD, FAR]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as flood:
            assert int(flood.stdout.readline()) > 150
            assert int(flood.stdout.readline()) == 300
            assert running.resident_bytes < before + 16 * MIB
            assert run_tool(pair.near, "verify", *at(4420))[0] == 0  # They keep nobody out.
            flood.communicate("")
        counts = running.stop()
    assert counts["connections displaced"] > 200
    assert counts["terminated: invalid pdu header field"] > 150


def test_full_medium_and_address_in_use(pair: Pair, tmp_path: Path) -> None:
    """A write that the file system has no room for is refused for good; a second listener ends with a message."""
    full = tmp_path / "full"
    full.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8M", "tmpfs", str(full)], check=True)
    try:
        config = document({"size": SIZE, "backend": "file", "path": str(full / "file")})
        with target(pair.far, config):
            status, found = run_tool(pair.near, "write", *at(4420))
            assert (status, found["error"]) == (1, "Capacity Exceeded")
            with pytest.raises(AssertionError, match="Address already in use"), target(pair.far, config):
                pass
    finally:
        subprocess.run(["umount", str(full)], check=True)
