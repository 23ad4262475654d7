"""The gateway of a process where descriptors run out, and whom an event of a program's socket concerns."""

import errno
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from testbed.endpoints.loop import Loop
from testbed.run.carrier.configuration import CarrierConfiguration
from testbed.run.carrier.gateway import CarrierHost, Gateway

CONFIGURATION = CarrierConfiguration(
    lab="x",
    journal="",
    kind="uet",
    job_id=1,
    nics=(),
    owners={},
    namespaces={},
    endpoints={},
    tick_ns=0,
    window_bytes=1 << 16,
    data_bytes=4096,
    patience_ns=1,
)


class CrowdedListener:
    """A listener whose process has no descriptor for what waits in it."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.accepts = 0
        self.client = socket.create_connection(self._socket.getsockname())

    def fileno(self) -> int:
        return self._socket.fileno()

    def accept(self) -> tuple[socket.socket, Any]:
        self.accepts += 1
        raise OSError(errno.EMFILE, "Too many open files")

    def close(self) -> None:
        self.client.close()
        self._socket.close()


class CountingEndpoint:
    """An endpoint that counts how often it is asked for its timer."""

    address, urgent = "10.0.0.1", 0

    def __init__(self) -> None:
        self.asked = 0

    def receive(self, datagrams: Any, now: int) -> None: ...
    def transmit(self, now: int, limit: int = 64) -> list[Any]:
        self.asked += 1
        return []

    def next_timer(self) -> int | None:
        return None

    def handle_timer(self, now: int) -> None: ...


class NoSockets:
    receivers: tuple[int, ...] = ()
    blocked_fd, retry_at, blocked, passes, drained = -1, 0, False, False, True

    def __init__(self) -> None:
        self.arrivals: list[int] = []

    def receive(self, fd: int) -> list[Any]:
        return []

    def send(self, datagrams: Any) -> None: ...
    def flush(self) -> None: ...


@pytest.fixture
def listener() -> Iterator[CrowdedListener]:
    made = CrowdedListener()
    yield made
    made.close()


def gateway_with(listener: CrowdedListener, loop: Loop) -> Gateway:
    made = Gateway(CONFIGURATION, loop, lambda address: None)  # type: ignore[arg-type, return-value]
    host = CarrierHost("h1", -1, listeners={socket.AF_INET: listener})  # type: ignore[dict-item]
    made._hosts["h1"] = host
    made._watch(host, socket.AF_INET, listener)  # type: ignore[arg-type]
    return made


@pytest.mark.interpreted
def test_who_has_no_descriptor_left_looks_again_after_a_while_and_not_all_the_time(
    listener: CrowdedListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop()
    gateway = gateway_with(listener, loop)
    assert loop.take_events(0) and listener.accepts == 1
    assert not loop.take_events(0), "nobody is told of what cannot be taken"
    assert gateway.next_timer() is not None
    gateway.turn()
    assert not loop.take_events(0) and listener.accepts == 1
    monkeypatch.setattr(gateway, "_listen_at", 1)
    gateway.turn()
    assert loop.take_events(0) and listener.accepts == 2
    gateway._hosts.clear()
    loop.close()


@pytest.mark.interpreted
def test_a_want_of_descriptors_limits_nobody_for_good(
    listener: CrowdedListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop()
    gateway = gateway_with(listener, loop)
    gateway.limit_descriptors(1000)
    whole = gateway._most_ends
    assert loop.take_events(0) and gateway._is_full and gateway._most_ends == 1
    gateway._listen_again()  # a connection has ended
    assert gateway.next_timer() is not None and gateway._most_ends == 1
    monkeypatch.setattr(gateway, "_listen_at", 1)
    gateway.turn()
    assert gateway._most_ends == whole and gateway.next_timer() is None
    gateway._hosts.clear()
    loop.close()


def test_an_event_of_a_program_asks_no_endpoint(listener: CrowdedListener) -> None:
    loop, endpoint = Loop(), CountingEndpoint()
    loop.add(endpoint, NoSockets())
    loop.serve()
    before = endpoint.asked
    gateway = gateway_with(listener, loop)
    assert loop.take_events(0)
    loop.serve()
    assert endpoint.asked == before
    gateway._hosts.clear()
    loop.close()
