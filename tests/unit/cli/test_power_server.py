"""What an emulator of BMCs notifies of, and what it does to nodes; notifications that are none."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any, cast

import pytest

from testbed.cli.counters.metrics_server import CannotListen
from testbed.cli.nodes import power_server
from testbed.lab.core.deploy.live import NoSuchNode, RunningLab

DONE: list[tuple[str, str]] = []
SERVED = {os.geteuid()}


@pytest.fixture(autouse=True)
def power(monkeypatch: pytest.MonkeyPatch) -> None:
    DONE.clear()

    def off(_: Any, node: str) -> bool:
        if node != "h1":
            raise NoSuchNode(f"no node {node}")
        DONE.append(("off", node))
        return True

    monkeypatch.setattr(power_server, "power_off", off)
    monkeypatch.setattr(power_server, "power_on", lambda _, node: DONE.append(("on", node)))


@pytest.fixture
def server() -> Iterator[tuple[str, int]]:
    with power_server._PowerServer(lambda: cast(RunningLab, None), "127.0.0.1", 0, SERVED) as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield serving.server_address[0], serving.server_address[1]
        serving.shutdown()
        thread.join()


def put(server: tuple[str, int], body: bytes) -> int:
    asking = HTTPConnection(*server, timeout=5)
    asking.request("PUT", "/", body)
    return asking.getresponse().status


@pytest.mark.parametrize(
    ("state", "done"),
    [("Off", [("off", "h1")]), ("On", [("on", "h1")]), ("ForceRestart", [("off", "h1"), ("on", "h1")])],
)
def test_what_is_asked_for_is_done_at_once(server: tuple[str, int], state: str, done: list[Any]) -> None:
    system = {"name": "h1", "power_state": "On", "pending_power": {"power_state": state, "apply_time": 1}}
    assert put(server, json.dumps(system).encode()) == 204
    assert done == DONE
    assert put(server, json.dumps(system | {"power_state": state, "pending_power": None}).encode()) == 204
    assert done == DONE, "what is reached is not done again"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[" * 30_000, 400),
        (b"1" * 70_000, 400),
        (b"\xff\xfe", 400),
        (b"[]", 409),
        (b'{"name": 1}', 409),
        (b'{"name": "h1", "pending_power": "Off"}', 409),
        (b'{"name": "h1", "pending_power": {}}', 409),
        (b'{"name": "../h1", "pending_power": {"power_state": "Off"}}', 409),
    ],
)
def test_what_is_no_notification_is_refused(server: tuple[str, int], body: bytes, status: int) -> None:
    assert put(server, body) == status
    assert not DONE


def test_another_user_is_refused(server: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power_server, "user_of", lambda *_: os.geteuid() + 1)
    assert put(server, b'{"name": "h1", "pending_power": {"power_state": "Off"}}') == 403
    assert not DONE


def test_the_user_of_a_connection_is_told() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as asking,
    ):
        assert power_server.user_of(asking.getsockname(), asking.getpeername()) == os.geteuid()
        assert power_server.user_of(("127.0.0.1", 1), asking.getpeername()) is None


def test_it_listens_at_a_loopback_address_alone() -> None:
    with pytest.raises(CannotListen, match="no loopback address"):
        power_server._PowerServer(lambda: cast(RunningLab, None), "0.0.0.0", 0, SERVED)
