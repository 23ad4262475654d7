"""The vty protocol against a daemon of our own on a UNIX socket."""

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from testbed.base.errors import DriverError
from testbed.base.linux import vty
from testbed.lab.core.deploy.watch.sessions import missing_sessions, read_sessions
from testbed.lab.core.fabric import generate_fabric
from testbed.lab.core.fabric.params import FabricParams
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import SwitchPlan

Answer = Sequence[bytes] | None
Serve = Callable[[Path, str, dict[str, Answer]], list[str]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a daemon that sends the given pieces in answer to a command, or hangs up for None."""
    servers: list[tuple[socket.socket, threading.Thread]] = []

    def start(directory: Path, daemon: str, answers: dict[str, Answer]) -> list[str]:
        heard: list[str] = []
        directory.mkdir(exist_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(directory / f"{daemon}.vty"))
        listener.listen(4)

        def run() -> None:
            while True:
                try:
                    stream, _ = listener.accept()
                except OSError:
                    return
                with stream:
                    _converse(stream, {"enable": [b"\0\0\0\0"]} | answers, heard)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        servers.append((listener, thread))
        return heard

    yield start
    for listener, thread in servers:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def _converse(stream: socket.socket, answers: dict[str, Answer], heard: list[str]) -> None:
    received = b""
    while data := stream.recv(4096):
        received += data
        while b"\0" in received:
            command, _, received = received.partition(b"\0")
            heard.append(command.decode())
            pieces = answers[command.decode()]
            if pieces is None:
                return
            for piece in pieces:
                stream.sendall(piece)


def test_a_question_is_asked_in_enable_mode(serve: Serve, tmp_path: Path) -> None:
    heard = serve(tmp_path / "s1", "bgpd", {"show version": [b"FRR 8.4\n\0\0\0\0"]})
    assert vty.ask(tmp_path / "s1", "bgpd", "show version") == "FRR 8.4\n"
    assert heard == ["enable", "show version"]


def test_an_answer_may_come_in_pieces_and_hold_zeros(serve: Serve, tmp_path: Path) -> None:
    pieces = [b'{"a": "', b"x" * 100_000, b'"}', b"\0\0", b"\0", b"\0"]
    serve(tmp_path / "s1", "bgpd", {"show": pieces})
    assert vty.ask_json(tmp_path / "s1", "bgpd", "show") == {"a": "x" * 100_000}


@pytest.mark.parametrize("status", [1, 2, 13])
def test_a_refusal_carries_the_daemons_words(serve: Serve, tmp_path: Path, status: int) -> None:
    serve(tmp_path / "s1", "bgpd", {"show nonsense": [b"% Unknown command\n\0\0\0" + bytes([status])]})
    with pytest.raises(DriverError, match="bgpd in s1 refused 'show nonsense': % Unknown command"):
        vty.ask(tmp_path / "s1", "bgpd", "show nonsense")


def test_a_daemon_that_is_not_there_hangs_up_or_stays_silent(serve: Serve, tmp_path: Path) -> None:
    with pytest.raises(DriverError, match="bgpd in s1 does not answer: No such file"):
        vty.ask(tmp_path / "s1", "bgpd", "show")
    serve(tmp_path / "s1", "bgpd", {"show": None, "wait": []})
    with pytest.raises(DriverError, match="bgpd in s1 does not answer: the connection was closed"):
        vty.ask(tmp_path / "s1", "bgpd", "show")
    with pytest.raises(DriverError, match="bgpd in s1 does not answer: timed out"):
        vty.ask(tmp_path / "s1", "bgpd", "wait", timeout_s=0.05)


def test_json_that_is_none_is_an_error(serve: Serve, tmp_path: Path) -> None:
    serve(tmp_path / "s1", "bgpd", {"show": [b"no BGP\0\0\0\0"]})
    with pytest.raises(DriverError, match="something that is not JSON"):
        vty.ask_json(tmp_path / "s1", "bgpd", "show")


def test_what_a_daemon_tells_nobody_of_is_asked_until_it_has_come(serve: Serve, tmp_path: Path) -> None:
    answers = iter([[], [1], [1, 2]])
    serve(tmp_path / "s1", "zebra", {"show": [b"[1]\0\0\0\0"], "wait": None})
    vty.await_json(tmp_path / "s1", "zebra", "show", lambda answer: next(answers) == [*answer, 2], "its VNIs")
    assert list(answers) == []
    with pytest.raises(DriverError, match="zebra of s1 does not have its VNIs within 0 s") as raised:
        vty.await_json(tmp_path / "s1", "zebra", "wait", bool, "its VNIs", timeout_s=0)
    assert "the connection was closed" in str(raised.value.__cause__)


def test_a_daemon_that_runs_is_not_waited_for_when_it_is_gone(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match="zebra in s1 does not answer: No such file"):
        vty.await_text(tmp_path / "s1", "zebra", "show vrf", lambda _: True, "its VRFs", runs=True)
    with pytest.raises(DriverError, match="zebra of s1 does not have its VRFs within 0 s") as raised:
        vty.await_text(tmp_path / "s1", "zebra", "show vrf", lambda _: True, "its VRFs", timeout_s=0)
    assert "No such file" in str(raised.value.__cause__)


def _switch() -> SwitchPlan:
    lab = generate_fabric(FabricParams(design="rail-optimized", hosts=1, gpus=1, spines=2), name="x")
    switch = next(item for item in plan_lab(lab, k=1000).switches if item.node == "p1-s1-rail1")
    assert switch.bfd is not None
    assert [neighbor.interface for neighbor in switch.neighbors] == ["uplink1", "uplink2"]
    return switch


SUMMARY = "show bgp ipv4 unicast summary json"
ONE_UP = b"""{"peers": {"uplink1": {"state": "Established", "remoteAs": 65001, "pfxRcd": 3, "pfxSnt": 2,
 "peerUptimeMsec": 1500}}}\0\0\0\0"""


def test_sessions_as_bgpd_and_bfdd_tell_them(serve: Serve, tmp_path: Path) -> None:
    switch = _switch()
    serve(tmp_path / switch.node, "bgpd", {SUMMARY: [ONE_UP]})
    serve(
        tmp_path / switch.node,
        "bfdd",
        {"show bfd peers json": [b'[{"interface": "uplink1", "status": "down"}]\0\0\0\0']},
    )
    first, second = read_sessions(switch, tmp_path / switch.node)
    assert (first.state, first.remote_asn, first.prefixes_received, first.uptime_s, first.bfd) == (
        "Established", 65001, 3, 1.5, "down",
    )  # fmt: skip
    assert (second.state, second.bfd) == ("absent", "absent")
    assert missing_sessions([switch], tmp_path) == [
        "p1-s1-rail1: BFD to p1-spine1 (uplink1) is down",
        "p1-s1-rail1: BGP to p1-spine2 (uplink2) is absent",
    ]


def test_a_daemon_that_does_not_answer_is_what_is_missing(tmp_path: Path) -> None:
    assert missing_sessions([_switch()], tmp_path) == ["bgpd in p1-s1-rail1 does not answer: No such file or directory"]


def test_a_daemon_is_configured_command_by_command_until_it_refuses_one(tmp_path: Path, serve: Serve) -> None:
    good, bad = [b"\0\0\0\0"], [b"% Unknown command\n\0\0\0\2"]
    answers: dict[str, Answer] = {"configure terminal": good, "router bgp 1": good, "no such": bad, "end": good}
    heard = serve(tmp_path / "leaf", "bgpd", answers)
    vty.configure(tmp_path / "leaf", "bgpd", ["router bgp 1"])
    assert heard == ["enable", "configure terminal", "router bgp 1", "end"]
    with pytest.raises(DriverError, match="bgpd in leaf refused 'no such': % Unknown command"):
        vty.configure(tmp_path / "leaf", "bgpd", ["no such", "router bgp 1"])
    assert heard[4:] == ["enable", "configure terminal", "no such"]
    with pytest.raises(DriverError, match="zebra in leaf does not answer"):
        vty.configure(tmp_path / "leaf", "zebra", [])
