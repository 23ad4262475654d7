"""Frames of endpoints that are not believed: connections in the name of others, and what is for nobody."""

import errno
import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address

import pytest

from testbed.base.linux import syscalls
from testbed.endpoints import namespace
from testbed.endpoints.loop import Loop
from testbed.run.carrier.configuration import CarriedNic, CarrierConfiguration
from testbed.run.carrier.frames import ConnectionEnds, Frame, FrameKind, decode, encode
from testbed.run.carrier.gateway import Gateway
from testbed.run.carrier.messengers.messenger import ArrivedMessage, Told, Undelivered

pytestmark = pytest.mark.netns

VICTIM, FRIEND, STRANGER = "10.9.0.2", "10.9.0.1", "10.9.0.3"
PORT = 5201
ENDS = ConnectionEnds(IPv4Address(FRIEND), 40_000, IPv4Address(VICTIM), PORT)


class FakeFlow:
    word = 0
    is_ready = True

    def connect(self, peer_word: int) -> None:
        pass

    def on_told(self) -> None:
        pass

    def send(self, message: memoryview, context: object) -> None:
        raise AssertionError("nothing is sent")

    def close(self, *, at_once: bool) -> None:
        pass


class FakeMessenger:
    """Hands out what a test puts into it, and keeps what it is told."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.arrivals = self.completions = list[tuple[str, bytes]]()
        self.told: list[tuple[str, Frame]] = []

    def open_flow(self, peer: str) -> FakeFlow:
        return FakeFlow()

    def tell(self, peer: str, frame: bytes, context: object) -> None:
        self.told.append((peer, decode(frame)))

    def poll(self) -> Iterator[ArrivedMessage | Told | Undelivered]:
        while self.arrivals:
            peer, message = self.arrivals.pop(0)
            yield ArrivedMessage(peer, memoryview(message))

    def counters(self) -> Mapping[str, int]:
        return {}


@pytest.fixture
def victim() -> Iterator[str]:
    """The path of a namespace that has one address, and takes packets to the other hosts' for its own."""
    name = f"carrier{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        for words in (
            f"link set lo up|address add {VICTIM}/32 dev lo|route add local {FRIEND} dev lo|route add local {STRANGER}"
            " dev lo"
        ).split("|"):
            subprocess.run(["ip", "-n", name, *words.split()], check=True)
        yield f"/run/netns/{name}"
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


def answers(path: str, *messages: tuple[str, bytes]) -> tuple[list[Frame], str]:
    """Return what a gateway tells those that send it messages, and who connected to the victim's program ("": nobody).

    All in a thread of its own, since it moves to another namespace.
    """
    configuration = CarrierConfiguration(
        lab="lab",
        journal="",
        kind="uet",
        job_id=1,
        nics=(
            CarriedNic(host="victim", endpoint=VICTIM, addresses=(VICTIM,)),
            CarriedNic(host="friend", endpoint=FRIEND, addresses=(FRIEND,)),
            CarriedNic(host="stranger", endpoint=STRANGER, addresses=(STRANGER,)),
        ),
        owners={VICTIM: "victim", FRIEND: "friend", STRANGER: "stranger"},
        namespaces={"victim": path},
        endpoints={},
        tick_ns=0,
        window_bytes=1 << 16,
        data_bytes=1 << 14,
        patience_ns=0,
    )

    def work() -> tuple[list[Frame], str]:
        loop = Loop()
        messenger = FakeMessenger(VICTIM)
        gateway = Gateway(configuration, loop, lambda address: messenger)
        listener = socket.create_server((VICTIM, PORT))
        listener.setblocking(False)
        messenger.arrivals += messages
        gateway.turn()
        for _ in range(10):
            loop.run_once(0)
        try:
            item, (peer, _) = listener.accept()
            item.close()
        except BlockingIOError:
            peer = ""
        listener.close()
        gateway.close()
        loop.close()
        namespace._entered = -1  # the thread that was elsewhere ends
        return [frame for _, frame in messenger.told], peer

    return syscalls.in_thread(work)


def opening(ends: ConnectionEnds = ENDS) -> bytes:
    return encode(Frame(FrameKind.OPEN, True, 7, window=1 << 16, ends=ends))


def test_a_host_opens_connections_in_its_own_name(victim: str) -> None:
    frames, peer = answers(victim, (FRIEND, opening()))
    assert ([frame.kind for frame in frames], peer) == ([FrameKind.OPENED], FRIEND)


def test_a_host_opens_none_in_the_name_of_another(victim: str, monkeypatch: pytest.MonkeyPatch) -> None:
    frames, peer = answers(victim, (STRANGER, opening()))
    assert ([(frame.kind, frame.value) for frame in frames], peer) == ([(FrameKind.REFUSED, errno.EACCES)], "")
    # Without the guard it is believed.
    monkeypatch.setattr(Gateway, "_refusal", lambda *_: 0)
    assert answers(victim, (STRANGER, opening()))[1] == FRIEND


@pytest.mark.parametrize(
    ("sender", "ends", "reason"),
    [
        ("10.9.0.9", ENDS, errno.EACCES),
        (VICTIM, ENDS._replace(source=IPv4Address(VICTIM)), errno.EACCES),
        (FRIEND, ENDS._replace(destination=IPv4Address(STRANGER)), errno.EADDRNOTAVAIL),
        (FRIEND, ENDS._replace(destination=IPv4Address("10.99.0.1")), errno.EADDRNOTAVAIL),
    ],
)
def test_whoever_is_none_of_the_carried_opens_nothing(
    victim: str, sender: str, ends: ConnectionEnds, reason: int
) -> None:
    frames, peer = answers(victim, (sender, opening(ends)))
    assert ([(frame.kind, frame.value) for frame in frames], peer) == ([(FrameKind.REFUSED, reason)], "")


@pytest.mark.parametrize(
    ("message", "kinds"),
    [
        (b"", []),
        (b"\xff" * 64, []),
        (encode(Frame(FrameKind.DATA, True, 9, 0, b"x")), [FrameKind.RESET]),
        (encode(Frame(FrameKind.OPENED, False, 9, window=4096)), [FrameKind.RESET]),
        (encode(Frame(FrameKind.RESET, True, 9)), []),
        (encode(Frame(FrameKind.CREDIT, True, 9)), []),
        (encode(Frame(FrameKind.FIN, False, 9)), []),
    ],
)
def test_what_is_of_no_connection_makes_none(victim: str, message: bytes, kinds: list[FrameKind]) -> None:
    frames, peer = answers(victim, (FRIEND, message))
    assert ([frame.kind for frame in frames], peer) == (kinds, "")


def test_a_peer_that_opens_without_end_meets_a_limit(victim: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.run.carrier.gateway.MOST_ENDS", 3)
    messages = [
        (FRIEND, encode(Frame(FrameKind.OPEN, True, number, window=1 << 16, ends=ENDS._replace(source_port=number))))
        for number in range(1001, 1009)
    ]
    frames, _ = answers(victim, *messages)
    refused = [frame.value for frame in frames if frame.kind is FrameKind.REFUSED]
    assert refused == [errno.ENOBUFS] * 5
