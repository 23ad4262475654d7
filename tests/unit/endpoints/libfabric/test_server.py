"""The sockets of the process that has the endpoints: programs that come, go, say nonsense, or take no replies."""

import ctypes
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agent_io_fakes import own_address

from testbed.endpoints.libfabric.server import MOST_OUTPUT_BYTES, ProviderServer
from testbed.endpoints.libfabric.settings import HostSettings, ProviderSettings, RailSettings
from testbed.endpoints.libfabric.wire import PLACE, REPLY, REQUEST, VERSION, PeerName, RequestKind, WireFlag
from testbed.endpoints.loop import Loop

PATIENCE_NS = 20_000_000_000
TURN_NS = 20_000_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ProviderServer]:
    hosts = tuple(
        HostSettings(
            name=name,
            namespace="",
            socket=str(tmp_path / f"{name}.sock"),
            rails=(RailSettings(name="rail1", address=own_address(), config={"base_rtt_ns": 2_000_000}),),
        )
        for name in ("near", "far")
    )
    loop = Loop()
    found = ProviderServer(ProviderSettings(hosts=hosts, job_id=3, dscp=26, control_dscp=48), loop)
    yield found
    found.close(patience_ns=0)
    loop.close()


class Program:
    """A program that talks to the server, whose turns happen while it waits."""

    def __init__(self, server: ProviderServer, path: Path) -> None:
        self.server = server
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.socket.setblocking(False)

    def say(self, kind: int, body: bytes = b"", peer: PeerName = (bytes(16), 0, 0), **fields: int) -> None:
        order = ("id", "length", "tag", "ignore", "data", "endpoint", "places")
        values = [fields.get(name, 0) for name in order]
        header = REQUEST.pack(kind, fields.get("flags", 0), len(body), *values, *peer)
        self.socket.sendall(header + body)

    def reply(self) -> tuple[object, ...]:
        data = b""

        def is_there() -> bool:
            nonlocal data
            try:
                data += self.socket.recv(REPLY.size - len(data))
            except BlockingIOError:
                return False
            return len(data) == REPLY.size

        run_until(self.server, is_there)
        return REPLY.unpack(data)

    def open(self) -> PeerName:
        self.say(RequestKind.HELLO, b"rail1", data=VERSION)
        *_, address, pid, _ = self.reply()
        self.say(RequestKind.OPEN_ENDPOINT, id=1)
        index = self.reply()[8]
        assert isinstance(address, bytes) and isinstance(pid, int) and isinstance(index, int)
        return address, pid, index


def run_until(server: ProviderServer, is_so: Callable[[], bool]) -> None:
    end = time.monotonic_ns() + PATIENCE_NS
    while not is_so():
        assert time.monotonic_ns() < end
        server.turn(time.monotonic_ns() + TURN_NS)


def is_closed(program: Program) -> bool:
    try:
        return program.socket.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_bytes_go_from_the_memory_of_one_program_to_that_of_another(server: ProviderServer, tmp_path: Path) -> None:
    """This process is both."""
    near, far = Program(server, tmp_path / "near.sock"), Program(server, tmp_path / "far.sock")
    near.open()
    there = far.open()
    content = bytes(number % 251 for number in range(100_000))
    source, target = ctypes.create_string_buffer(content, len(content)), ctypes.create_string_buffer(len(content))
    place = PLACE.pack(ctypes.addressof(target), len(content))
    far.say(RequestKind.RECEIVE, place, id=2, length=len(content), places=1, endpoint=1)
    place = PLACE.pack(ctypes.addressof(source), len(content))
    near.say(RequestKind.SEND, place, there, id=2, length=len(content), places=1, endpoint=1)
    assert far.reply()[2:5] == (0, 2, len(content))
    assert near.reply()[2:4] == (0, 2)
    assert target.raw == content
    counters = server.counters()
    assert (counters["connections"], counters["open"], counters["broken"]) == (2, 2, 0)
    assert counters["packets"] >= 25


def test_a_program_that_says_nonsense_is_cut_off_and_others_are_not(
    server: ProviderServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = Program(server, tmp_path / "near.sock"), Program(server, tmp_path / "near.sock")
    good.open()
    bad.open()
    bad.say(99)
    run_until(server, lambda: is_closed(bad))
    assert "no such request: 99" in capsys.readouterr().err
    good.say(RequestKind.OPEN_ENDPOINT, id=5)
    assert good.reply()[8] == 2
    assert (server.counters()["open"], server.counters()["broken"]) == (1, 1)


def test_the_end_of_a_program_is_noticed(server: ProviderServer, tmp_path: Path) -> None:
    program = Program(server, tmp_path / "near.sock")
    program.open()
    program.socket.close()
    run_until(server, lambda: server.counters()["open"] == 0)
    assert [endpoint for fep in server.agent.feps.values() for endpoint in fep.endpoints] == []


def test_of_a_program_that_takes_no_replies_no_more_is_taken(server: ProviderServer, tmp_path: Path) -> None:
    program = Program(server, tmp_path / "near.sock")
    program.open()
    request = REQUEST.pack(RequestKind.SEND, WireFlag.INLINE, 0, 1, 0, 0, 0, 0, 9, 0, bytes(16), 0, 0)
    flood = request * 1000
    sent = 0
    silent_since = time.monotonic_ns()
    while time.monotonic_ns() - silent_since < 500_000_000:
        try:
            sent += program.socket.send(flood)
            silent_since = time.monotonic_ns()
        except BlockingIOError:
            server.turn(time.monotonic_ns() + TURN_NS)
    (client,) = server._clients.values()
    kept = len(client._connection.output)
    assert MOST_OUTPUT_BYTES <= kept < 4 * MOST_OUTPUT_BYTES
    taken = 0

    def is_over() -> bool:
        nonlocal taken
        try:
            taken += len(program.socket.recv(1 << 20))
        except BlockingIOError:
            return not client._connection.output
        return False

    run_until(server, is_over)
    assert taken == sent // REQUEST.size * REPLY.size


def test_sockets_are_there_as_long_as_the_server(tmp_path: Path) -> None:
    address = own_address()
    rail = RailSettings(name="rail1", address=address, config={})
    host = HostSettings(name="h", namespace="", socket=str(tmp_path / "h.sock"), rails=(rail,))
    settings = ProviderSettings(hosts=(host,), job_id=3, dscp=0, control_dscp=48)
    loop = Loop()
    server = ProviderServer(settings, loop)
    assert (tmp_path / "h.sock").stat().st_mode & 0o777 == 0o600
    with pytest.raises(OSError):
        ProviderServer(settings, Loop())  # the endpoint is taken
    server.close(patience_ns=0)
    loop.close()
    assert not (tmp_path / "h.sock").exists()
