"""Agents in processes of their own, driven over their control sockets: what they do, refuse, survive and leave."""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from agent_io_fakes import own_address

from testbed.agent.agent import Agent
from testbed.agent.arguments import load_domain, parse_delay, parse_rate, parse_time
from testbed.agent.control import ControlServer
from testbed.agent.control_client import ControlClient, ControlError
from testbed.agent.pattern import PERIOD, first_difference, make_pattern
from testbed.transport.uet.errors import UsageError
from testbed.transport.uet.security.tss import SecureDomain

JOB = 7
KEY = 4711
SIZE = 100_000
MS = 1_000_000
CONFIG = {"base_rtt_ns": MS, "rto_min_ns": 20 * MS}
ACCESS = ["remote_read", "remote_write", "remote_atomic"]


class Process:
    """`python -m testbed.agent`, and a client of it."""

    def __init__(self, cleanup: ExitStack, control: Path, *arguments: str) -> None:
        self.control = control
        command = [sys.executable, "-m", "testbed.agent", "--control", str(control), *arguments]
        self.process = cleanup.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        cleanup.callback(self.process.kill)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        self.client = cleanup.enter_context(ControlClient(control))

    def open(self, address: str) -> int:
        """A FEP and an endpoint of the job; the endpoint's number."""
        self.client.request("open", address=address, config=CONFIG)
        return int(self.client.request("endpoint", address=address, job_id=JOB)["endpoint"])

    def ends(self) -> int:
        return self.process.wait(timeout=20)


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as cleanup:
        yield lambda name, *arguments: Process(cleanup, tmp_path / name, *arguments)


# --- operations ----------------------------------------------------------------------------------------


def test_every_operation_between_two_processes(start: Start) -> None:
    near, far = start("near"), start("far")
    here, there = own_address(), own_address()
    a, b = near.open(here), far.open(there)
    ask, tell = near.client.request, far.client.request
    key = tell("register", address=there, bytes=SIZE, access=ACCESS, key=KEY)["key"]
    receives = tell("recv", endpoint=b, bytes=SIZE, count=2, pattern=3)["operations"]
    receives += tell("recv", endpoint=b, bytes=SIZE, tag=5, source=here, pattern=4)["operations"]
    operations = ask("send", endpoint=a, to=there, bytes=SIZE, count=2, pattern=3)["operations"]
    operations += ask("send", endpoint=a, to=there, bytes=SIZE, tag=5, pattern=4, mode="ROD")["operations"]
    for mode, seed in (("RUD", 1), ("ROD", 2), ("RUDI", 6)):
        more = ask("write", endpoint=a, to=there, key=key, bytes=SIZE, pattern=seed, mode=mode)["operations"]
        assert near.client.wait(more)[0]["status"] == "OK"
        assert tell("verify", address=there, key=key, bytes=SIZE, pattern=seed)["verified"]
        more = ask("read", endpoint=a, to=there, key=key, bytes=SIZE, pattern=seed, mode=mode)["operations"]
        assert near.client.wait(more)[0]["verified"] is True
    assert [item["status"] for item in near.client.wait(operations)] == ["OK"] * 3
    received = far.client.wait(receives)
    assert [(item["length"], item["verified"]) for item in received] == [(SIZE, True)] * 3
    assert {item["source"] for item in received} == {f"{here}/0/1"}
    atomic = {"endpoint": a, "to": there, "key": key, "datatype": "UINT64", "offset": 8}
    first = ask("atomic", **atomic, opcode="WRITE", operand="05" + "00" * 7)["operations"]
    assert near.client.wait(first)[0]["result"] is None
    swap = ask("atomic", **atomic, opcode="CSWAP", operand="09" + "00" * 7, compare="05" + "00" * 7, fetch=True)
    assert near.client.wait(swap["operations"])[0]["result"] == "05" + "00" * 7
    counted = ask("counters", address=here)[here]
    assert counted["pdcs"] == 2 and counted["sockets"]["sent"] > 100


def test_a_write_with_header_data_is_told_to_who_opened_the_endpoint(start: Start) -> None:
    agent = start("control")
    near, far = own_address(), own_address()
    a, b = agent.open(near), agent.open(far)
    agent.client.request("register", address=far, bytes=8, access=["remote_write"], key=KEY)
    agent.client.request("write", endpoint=a, to=far, key=KEY, bytes=8, header_data=77)
    events = [agent.client.next_event(), agent.client.next_event()]
    notice = next(item for item in events if item["operation"] is None)
    assert (notice["kind"], notice["header_data"], notice["endpoint"]) == ("remote-write", 77, b)


def test_data_that_is_not_the_pattern_is_found(start: Start) -> None:
    agent = start("control")
    near, far = own_address(), own_address()
    a, b = agent.open(near), agent.open(far)
    receive = agent.client.request("recv", endpoint=b, bytes=100, pattern=1)["operations"]
    agent.client.request("send", endpoint=a, to=far, bytes=100, pattern=2)
    told = agent.client.wait(receive)[0]
    assert told["verified"] is False and told["first_difference"] is not None


def test_refusals_of_the_target_are_told(start: Start) -> None:
    agent = start("control")
    near, far = own_address(), own_address()
    a, _ = agent.open(near), agent.open(far)
    agent.client.request("register", address=far, bytes=10, access=["remote_read"], key=KEY)
    for request, code in (
        ({"key": KEY, "bytes": 1}, "PERM_VIOLATION"),
        ({"key": KEY + 1, "bytes": 1}, "BAD_MKEY"),
        ({"key": KEY, "bytes": 11}, "PERM_VIOLATION"),
    ):
        done = agent.client.request("write", endpoint=a, to=far, **request)["operations"]
        assert agent.client.wait(done)[0]["status"] == code


def test_receives_are_taken_back(start: Start) -> None:
    agent = start("control")
    b = agent.open(own_address())
    [one, other] = agent.client.request("recv", endpoint=b, bytes=10, count=2)["operations"]
    assert agent.client.request("cancel", operation=one) == {"cancelled": True}
    assert agent.client.request("cancel", operation=one) == {"cancelled": False}
    agent.client.request("close", endpoint=b)
    assert [item["status"] for item in agent.client.wait([one, other])] == ["CANCELLED", "CANCELLED"]
    assert agent.client.request("list")["operations"] == 0


def test_traces_are_written(start: Start, tmp_path: Path) -> None:
    agent = start("control")
    near, far = own_address(), own_address()
    a, b = agent.open(near), agent.open(far)
    with pytest.raises(ControlError, match="off"):
        agent.client.request("dump", address=near, path=str(tmp_path / "trace"))
    agent.client.request("trace", address=near, on=True)
    agent.client.request("recv", endpoint=b, bytes=SIZE)
    agent.client.wait(agent.client.request("send", endpoint=a, to=far, bytes=SIZE)["operations"])
    dumped = agent.client.request("dump", address=near, path=str(tmp_path / "trace"))
    lines = (tmp_path / "trace").read_text().splitlines()
    assert dumped == {"events": len(lines), "dropped": 0}
    assert {"sent", "acked"} <= {json.loads(line)["kind"] for line in lines}
    with pytest.raises(ControlError, match="os: "):
        agent.client.request("dump", address=near, path=str(tmp_path))


# --- peers that die ------------------------------------------------------------------------------------


def test_a_killed_peer_fails_operations_and_a_new_one_in_its_place_works(start: Start) -> None:
    near, far = start("near"), start("far")
    there = own_address()
    a, b = near.open(own_address()), far.open(there)
    far.client.request("recv", endpoint=b, bytes=SIZE)
    first = near.client.request("send", endpoint=a, to=there, bytes=SIZE)["operations"]
    assert near.client.wait(first)[0]["status"] == "OK"
    far.process.send_signal(signal.SIGKILL)
    far.ends()
    lost = near.client.request("send", endpoint=a, to=there, bytes=SIZE, count=3)["operations"]
    lost += near.client.request("read", endpoint=a, to=there, key=KEY, bytes=10)["operations"]
    ended = near.client.wait(lost, timeout_s=20)
    assert {item["status"] for item in ended} == {"UNDELIVERABLE"} and all(item["error"] for item in ended)
    again = start("far")  # replaces the socket that the dead one left
    b = again.open(there)
    receive = again.client.request("recv", endpoint=b, bytes=SIZE, pattern=9)["operations"]
    sent = near.client.request("send", endpoint=a, to=there, bytes=SIZE, pattern=9)["operations"]
    assert near.client.wait(sent, timeout_s=20)[0]["status"] == "OK"
    assert again.client.wait(receive)[0]["verified"] is True


def test_a_peer_that_restarts_at_once_is_told_apart(start: Start) -> None:
    near, far = start("near"), start("far")
    there = own_address()
    a, b = near.open(own_address()), far.open(there)
    far.client.request("recv", endpoint=b, bytes=1)
    near.client.wait(near.client.request("send", endpoint=a, to=there, bytes=1)["operations"])
    far.process.kill()
    far.ends()
    again = start("far")
    b = again.open(there)
    receive = again.client.request("recv", endpoint=b, bytes=1, count=2)["operations"]
    first = near.client.request("send", endpoint=a, to=there, bytes=1)["operations"]
    # It goes to the context of the dead one, which the new one does not know.
    assert near.client.wait(first, timeout_s=20)[0]["status"] == "UNDELIVERABLE"
    second = near.client.request("send", endpoint=a, to=there, bytes=1, count=2)["operations"]
    assert [item["status"] for item in near.client.wait(second)] == ["OK", "OK"]
    assert [item["status"] for item in again.client.wait(receive)] == ["OK", "OK"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_closes_everything_in_order(start: Start, number: signal.Signals) -> None:
    near, there = own_address(), own_address()
    staying = start("staying")
    a = staying.open(near)
    leaving = start("leaving", "--address", there, "--job", str(JOB), "--base-rtt", "1ms")
    b = leaving.client.request("list")["endpoints"][0]["endpoint"]
    leaving.client.request("recv", endpoint=b, bytes=1)
    staying.client.wait(staying.client.request("send", endpoint=a, to=there, bytes=1)["operations"])
    leaving.process.send_signal(number)
    assert leaving.ends() == 0
    assert not leaving.control.exists()
    counters = staying.client.request("counters")[near]
    assert counters["pdcs"] == 0 and "pdc-failed" not in counters["fep"]
    with pytest.raises(ConnectionError):
        leaving.client.request("list")


def test_shutdown_and_closing_of_one_fep(start: Start) -> None:
    agent = start("control")
    near, far = own_address(), own_address()
    a, b = agent.open(near), agent.open(far)
    waiting = agent.client.request("recv", endpoint=b, bytes=1, count=2)["operations"]
    agent.client.wait(agent.client.request("send", endpoint=a, to=far, bytes=1)["operations"])
    agent.client.request("close", address=far)
    assert agent.client.wait(waiting)[1]["status"] == "CANCELLED"
    assert agent.client.request("list")["feps"] == [near]
    assert agent.client.request("counters")[near]["pdcs"] == 0
    agent.open(far)
    agent.client.request("shutdown")
    assert agent.ends() == 0 and not agent.control.exists()


# --- the protocol --------------------------------------------------------------------------------------


def exchange(server: ControlServer, *lines: bytes) -> list[dict[str, Any]]:
    """Send lines raw, and return as many answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(10)
        connection.connect(str(server.path))
        answers = b""
        pending = b"".join(line + b"\n" for line in lines)
        connection.setblocking(False)
        loop = server._agent.loop
        while answers.count(b"\n") < len(lines):
            if pending:
                with suppress(BlockingIOError):
                    pending = pending[connection.send(pending) :]
            loop.run_once(0)
            server.report()
            with suppress(BlockingIOError):
                answers += connection.recv(1 << 16)
        return [json.loads(line) for line in answers.splitlines()]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ControlServer]:
    with Agent() as agent:
        server = ControlServer(agent, tmp_path / "control", memory_limit=1 << 20)
        yield server
        server.close()


@pytest.mark.parametrize(
    ("line", "code", "where", "place"),
    [
        (b"{", "json", "offset", 1),
        (b'{"do": list}', "json", "offset", 7),
        ('{"do": "ä", x}'.encode(), "json", "offset", 13),
        (b'{"do": "\xff"}', "json", "offset", 8),
        (b"[]", "json", "offset", 0),
        (b"7", "json", "offset", 0),
        (b'{"do": "list", "id": NaN}', "json", "offset", 0),
        (b'{"id": ' + b"1" * 5000 + b"}", "json", "offset", 0),
        (b"[" * 100_000, "json", "offset", 0),
        (b" " * ((1 << 20) + 1), "json", "offset", 1 << 20),
        (b"x" * (3 << 20), "json", "offset", 1 << 20),
        (b"{}", "field", "field", "do"),
        (b'{"do": 7}', "field", "field", "do"),
        (b'{"do": "fly"}', "unknown", "field", "do"),
        (b'{"do": "list", "id": {}}', "field", "field", "id"),
        (b'{"do": "list", "more": 1}', "field", "field", "more"),
        (b'{"do": "open"}', "field", "field", "address"),
        (b'{"do": "open", "address": "127.0.0.1", "config": 7}', "field", "field", "config"),
        (b'{"do": "open", "address": "127.0.0.1", "config": {"x": 7}}', "field", "field", "config.x"),
        (b'{"do": "open", "address": "127.0.0.1", "config": {"mpr": "8"}}', "field", "field", "config.mpr"),
        (b'{"do": "open", "address": "127.0.0.1", "config": {"entropies": [1]}}', "field", "field", "config.entropies"),
        (b'{"do": "endpoint", "address": "10.0.0.1", "job_id": 7}', "usage", "field", "address"),
        (b'{"do": "recv", "endpoint": 1, "bytes": 1}', "usage", "field", "endpoint"),
        (b'{"do": "recv", "endpoint": true}', "field", "field", "endpoint"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    server: ControlServer, line: bytes, code: str, where: str, place: int | str
) -> None:
    answers = exchange(server, b'{"do": "list", "id": "before"}', line, b'{"do": "list", "id": "after"}')
    assert [item["ok"] for item in answers] == [True, False, True]
    error = answers[1]["error"]
    assert (error["code"], error[where], error["line"]) == (code, place, 2)
    assert error["message"]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"do": "open", "address": "localhost"}, "usage"),
        ({"do": "open", "address": "203.0.113.77"}, "os"),
        ({"do": "open", "address": "127.0.0.1", "config": {"mpr": 0}}, "usage"),
        ({"do": "register", "bytes": (1 << 20) + 1, "access": []}, "limit"),
        ({"do": "register", "bytes": 1, "access": ["all"]}, "field"),
        ({"do": "register", "bytes": 1, "access": "remote_read"}, "field"),
        ({"do": "register", "bytes": 1, "access": [], "key": 1 << 64}, "field"),
        ({"do": "verify", "key": 5, "bytes": 1, "pattern": 0}, "usage"),
        ({"do": "close", "key": 5}, "usage"),
        ({"do": "dump", "path": "\ud800"}, "usage"),
        ({"do": "dump", "path": "\0"}, "usage"),
        ({"do": "recv", "bytes": 1 << 16, "count": 17}, "limit"),
        ({"do": "recv", "bytes": 0, "count": 1 << 20}, "field"),
        ({"do": "send", "to": "10.0.0.1/x/1", "bytes": 1}, "field"),
        ({"do": "send", "to": "10.0.0.1", "bytes": 1, "mode": "FAST"}, "field"),
        ({"do": "send", "to": "10.0.0.1", "bytes": 9000, "mode": "UUD"}, "usage"),
        ({"do": "send", "to": "10.0.0.1", "bytes": 1 << 21}, "limit"),
        ({"do": "read", "to": "10.0.0.1", "bytes": 1, "key": 1, "mode": "UUD"}, "usage"),
        ({"do": "atomic", "to": "10.0.0.1", "key": 1, "opcode": "SUM", "datatype": "INT8", "operand": "x"}, "field"),
        ({"do": "atomic", "to": "10.0.0.1", "key": 1, "opcode": "ADD", "datatype": "INT8"}, "field"),
    ],
)
def test_what_cannot_work_is_refused_and_costs_nothing(
    server: ControlServer, request_: dict[str, Any], code: str
) -> None:
    address = own_address()
    opening = {"do": "open", "address": address}, {"do": "endpoint", "address": address, "job_id": JOB}
    exchange(server, *(json.dumps(item).encode() for item in opening))
    free = server.commands._free_bytes
    if request_["do"] != "open":
        request_ = {"address": address} | request_
    if request_["do"] in ("send", "recv", "read", "write", "atomic"):
        request_ = {key: value for key, value in request_.items() if key != "address"} | {"endpoint": 1}
    if request_["do"] == "dump":
        exchange(server, json.dumps({"do": "trace", "address": address, "on": True}).encode())
    [answer] = exchange(server, json.dumps(request_).encode())
    assert answer["error"]["code"] == code
    assert server.commands._free_bytes == free


def test_random_lines_never_end_the_agent(server: ControlServer) -> None:
    random = Random(5)
    names = ["open", "recv", "send", "atomic", "close", "trace", "verify", "counters", "cancel"]
    fields = ["address", "endpoint", "bytes", "to", "key", "operation", "config", "count", "mode", "tag", "on"]
    values = [0, -1, 1 << 70, 1.5, "", "127.0.0.1", "::1", None, True, [], {}, [[]], "\0"]
    lines = []
    for _ in range(400):
        request: dict[str, Any] = {name: random.choice(values) for name in random.sample(fields, 4)}
        lines.append(json.dumps(request | {"do": random.choice(names)}).encode())
        lines.append(random.randbytes(random.randrange(1, 60)).replace(b"\n", b"").replace(b"\r", b"") + b"x")
    answers = exchange(server, *lines)
    assert len(answers) == len(lines)


def test_clients_see_the_same_and_what_they_open_remains(start: Start) -> None:
    agent = start("control")
    address = own_address()
    with ControlClient(agent.control) as passing:
        passing.request("open", address=address, config=CONFIG)
        endpoint = passing.request("endpoint", address=address, job_id=JOB)["endpoint"]
        passing.request("recv", endpoint=endpoint, bytes=5)
    listed = agent.client.request("list")
    assert listed["feps"] == [address] and listed["operations"] == 1
    sent = agent.client.request("send", endpoint=endpoint, to=address, bytes=5)["operations"]
    assert agent.client.wait(sent)[0]["status"] == "OK"


def test_the_socket_is_for_its_user_alone(server: ControlServer) -> None:
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
def test_other_users_are_not_heard(start: Start, tmp_path: Path) -> None:
    agent = start("control")
    root = Path(tempfile.gettempdir())
    for path in (agent.control, *agent.control.parents):
        if root in path.parents:
            path.chmod(0o777)  # as if somebody had opened it
    ask = (
        "import os, socket, sys; os.setuid(65534); s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
        "s.settimeout(10); print(s.recv(1))"
    )
    done = subprocess.run([sys.executable, "-c", ask, agent.control], capture_output=True, text=True, check=False)
    assert done.stdout == "b''\n", done.stderr
    assert agent.client.request("list")["feps"] == []


def test_a_socket_in_use_is_left_alone(server: ControlServer, tmp_path: Path) -> None:
    with Agent() as agent:
        with pytest.raises(OSError):
            ControlServer(agent, server.path)
        file = tmp_path / "file"
        file.write_text("mine")
        with pytest.raises(OSError):
            ControlServer(agent, file)
        assert file.read_text() == "mine"
    assert exchange(server, b'{"do": "list"}')[0]["ok"]


def test_a_socket_that_was_replaced_is_not_removed(tmp_path: Path) -> None:
    with Agent() as agent:
        server = ControlServer(agent, tmp_path / "control")
        server.path.unlink()
        server.path.write_text("somebody else's")
        server.close()
    assert (tmp_path / "control").read_text() == "somebody else's"


def test_who_does_not_read_is_disconnected(server: ControlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.agent.control.MOST_UNREAD", 1 << 18)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as deaf:
        deaf.connect(str(server.path))
        deaf.setblocking(False)
        loop = server._agent.loop
        for _ in range(10_000):
            try:
                deaf.send(b'{"do": "list"}\n' * 100)
            except BlockingIOError:
                pass
            except (BrokenPipeError, ConnectionResetError):
                break
            loop.run_once(0)
            server.report()
        else:
            pytest.fail("it is still connected")
    assert exchange(server, b'{"do": "list"}')[0]["ok"]


# --- the command ---------------------------------------------------------------------------------------


def test_units() -> None:
    assert parse_rate("400M") == 400_000_000 and parse_rate("2.5G") == 2_500_000_000 and parse_rate("7") == 7
    assert parse_time("2ms") == 2 * MS and parse_time("1.5us") == 1500
    assert parse_delay("1ms") == MS
    assert parse_delay("10.0.4.0/24=1ms,::/0=2ms") == {"10.0.4.0/24": MS, "::/0": 2 * MS}
    for parse, text in ((parse_rate, "4X"), (parse_rate, "-1M"), (parse_time, "5"), (parse_delay, "a=b")):
        with pytest.raises(argparse.ArgumentTypeError):
            parse(text)


@pytest.mark.parametrize(
    "arguments",
    [["--address", "203.0.113.77"], ["--payload", "1"], ["--tss", "/nonexistent", "--address", "127.0.0.1"]],
)
def test_arguments_that_cannot_work(tmp_path: Path, arguments: list[str]) -> None:
    command = [sys.executable, "-m", "testbed.agent", "--control", str(tmp_path / "control"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith("testbed.agent: ") and done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def key_file(path: Path, **values: object) -> Path:
    path.write_text(json.dumps({"sdi": 5, "key": bytes(range(32)).hex()} | values))
    path.chmod(0o600)
    return path


def test_encrypted_agents_talk(start: Start, tmp_path: Path) -> None:
    keys = key_file(tmp_path / "keys", mode="cluster")
    near, far = own_address(), own_address()
    common = ("--job", str(JOB), "--base-rtt", "1ms", "--tss", str(keys))
    agents = start("near", "--address", near, *common), start("far", "--address", far, *common)
    a, b = (agent.client.request("list")["endpoints"][0]["endpoint"] for agent in agents)
    receive = agents[1].client.request("recv", endpoint=b, bytes=SIZE, pattern=1)["operations"]
    agents[0].client.request("send", endpoint=a, to=far, bytes=SIZE, pattern=1)
    assert agents[1].client.wait(receive)[0]["verified"] is True


def test_key_files(tmp_path: Path) -> None:
    assert isinstance(load_domain(str(key_file(tmp_path / "good", ssi=3)), alone=True), SecureDomain)
    with pytest.raises(UsageError, match="SSI"):
        load_domain(str(tmp_path / "good"), alone=False)
    for name, values in (
        ("short", {"key": "00"}),
        ("extra", {"x": 1}),
        ("mode", {"mode": "x"}),
        ("sdi", {"sdi": None}),
    ):
        with pytest.raises(UsageError):
            load_domain(str(key_file(tmp_path / name, **values)), alone=True)
    (tmp_path / "good").chmod(0o640)
    with pytest.raises(UsageError, match="chmod"):
        load_domain(str(tmp_path / "good"), alone=True)


def test_an_idle_agent_is_small_and_at_rest(start: Start) -> None:
    agent = start("control", "--address", own_address(), "--job", str(JOB))
    agent.client.request("list")
    pid = agent.process.pid
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    assert int(status["VmRSS"].split()[0]) <= 40 * 1024
    assert int(status["Threads"]) == 1 and Path(f"/proc/{pid}/wchan").read_text() in (
        "ep_poll",
        "do_epoll_wait",
        "0",
        "",
    )


def test_what_an_agent_does_not_need_is_not_loaded() -> None:
    ask = "import sys, testbed.agent.__main__; print(*sys.modules)"
    loaded = set(subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout.split())
    assert "testbed.transport.uet.fep" in loaded
    assert loaded.isdisjoint({"asyncio", "numpy", "pydantic", "cryptography", "testbed.spec", "testbed.units"})


# --- patterns ------------------------------------------------------------------------------------------


def test_a_pattern_is_of_its_seed_and_place() -> None:
    whole = make_pattern(3, 3 * PERIOD)
    assert make_pattern(3, 1000, PERIOD - 500) == whole[PERIOD - 500 : PERIOD + 500]
    assert make_pattern(4, 1000) != make_pattern(3, 1000)
    assert first_difference(memoryview(whole), 3) is None
    damaged = bytearray(whole)
    damaged[2 * PERIOD + 7] ^= 1
    assert first_difference(memoryview(damaged), 3) == 2 * PERIOD + 7
    assert first_difference(memoryview(whole)[5:], 3, 5) is None
    assert first_difference(memoryview(whole)[4096:], 3) is not None
