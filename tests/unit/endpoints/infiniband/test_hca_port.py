"""Queue pairs on the HCAs of live wires, of which there is here as much as gives a frame to the HCA of its LID."""

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from testbed.daemons.subnetd.adapters import SEND_QUEUE, Adapters, HcaConnection, socket_name
from testbed.endpoints.infiniband.adapter import open_adapter
from testbed.endpoints.infiniband.hca_port import HcaPeer, HcaPort
from testbed.endpoints.infiniband.hosting import HcaHosting
from testbed.endpoints.loop import Loop
from testbed.protocols.datagram import Outgoing, Priority
from testbed.protocols.infiniband.local_routing import LocalHeader, decode_unchecked, encode_unchecked
from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.roce.memory import Access
from testbed.protocols.roce.packets.opcodes import Service
from testbed.protocols.roce.qp import QueuePair
from testbed.protocols.roce.rnic import Rnic
from testbed.protocols.roce.work import RemoteBuffer

LIDS = {"a": 1, "b": 2, "c": 3}
ADDRESSES = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}
SL = 3
PKEY = 0x8007
LANES = [0, 0, 0, 1, *[0] * 12]
PATIENCE_S = 5.0
CONFIG = RoceConfig(link_rate_bps=10**9, base_rtt_ns=1_000_000, mtu=1024, cc="none")
DATA = bytes(range(256)) * 40


class Wires:
    """Three HCAs. Frames for those in `held` stay where they are, as on a lane without credits."""

    def __init__(self, directory: Path) -> None:
        self.held: set[int] = set()
        self.frames: list[tuple[LocalHeader, bytes]] = []
        self._waiting: list[tuple[HcaConnection, bytes]] = []
        self._epoll = select.epoll()
        self._directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        hellos = {name: lambda lid=lid: self._hello(lid) for name, lid in LIDS.items()}
        self.adapters = Adapters(self._directory, hellos, self._epoll, self._take, lambda: None)
        self._wake = os.eventfd(0)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._ending = False
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @staticmethod
    def _hello(lid: int) -> dict[str, object]:
        sls = {str(other): SL for other in LIDS.values() if other == LIDS["b"] and other != lid}
        return {"lid": lid, "rate_bps": 10**9, "time_scale": 1, "pkeys": [], "sls": sls, "lanes": LANES}

    def _serve(self) -> None:
        while not self._ending:
            for descriptor, _ in self._epoll.poll(0.005):
                self.adapters.serve(descriptor)
            for connection, frame in self._waiting[:]:
                if int.from_bytes(frame[2:4], "big") not in self.held:
                    self._waiting.remove((connection, frame))
                    self._carry(connection, frame)
        self.adapters.close()
        self._epoll.close()
        os.close(self._directory)

    def _take(self, connection: HcaConnection, frame: bytes) -> None:
        connection.queued += 1
        self._waiting.append((connection, frame))

    def _carry(self, connection: HcaConnection, frame: bytes) -> None:
        self.frames.append(decode_unchecked(frame))
        name = next(one for one, lid in LIDS.items() if lid == int.from_bytes(frame[2:4], "big"))
        self.adapters.deliver(name, frame)
        self.adapters.left(connection)

    def queued(self) -> int:
        return len(self._waiting)

    def close(self) -> None:
        self._ending = True
        self._thread.join()


@pytest.fixture
def wires(tmp_path: Path) -> Iterator[Wires]:
    found = Wires(tmp_path)
    yield found
    found.close()


class Host:
    """RNICs at HCAs, driven by one loop."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.loop = Loop()
        stack.callback(self.loop.close)
        self.failures: list[str] = []
        self._hosting = HcaHosting(1, self.loop, 0, self.failures.append)
        stack.callback(self._hosting.close)
        self._directory = directory

    def open(self, name: str, pkey: int = PKEY) -> Rnic:
        peers = {ADDRESSES[other]: HcaPeer(lid=lid, pkey=pkey) for other, lid in LIDS.items() if other != name}
        return self._hosting.open_rnic(ADDRESSES[name], CONFIG, self._directory / socket_name(name), peers)

    def run(self, until: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        self.loop.touch()
        while not until():
            assert time.monotonic() < end, "it never happened"
            self.loop.run_once(time.monotonic_ns() + 5_000_000)

    def counters(self, name: str) -> dict[str, int]:
        return dict(self._hosting.counters(ADDRESSES[name]))


@pytest.fixture
def host(tmp_path: Path, wires: Wires) -> Iterator[Host]:
    with ExitStack() as stack:
        yield Host(tmp_path, stack)


def connect(a: Rnic, b: Rnic) -> tuple[QueuePair, QueuePair]:
    here, there = (rnic.create_qp(Service.RC) for rnic in (a, b))
    here.connect(b.address, there.number, send_psn=1, receive_psn=2)
    there.connect(a.address, here.number, send_psn=2, receive_psn=1)
    return here, there


def write(qp: QueuePair, rnic: Rnic, data: bytes = DATA) -> tuple[bytearray, Callable[[], bool]]:
    """Have all of `data` written to memory of `rnic`, and return that, and what tells whether it is acknowledged."""
    room = bytearray(len(data))
    region = rnic.register(memoryview(room), Access.REMOTE_WRITE, base=0)
    qp.write(memoryview(data), RemoteBuffer(0, region.rkey), time.monotonic_ns())
    return room, lambda: bool(qp.completions)


def test_messages_go_as_frames_of_their_path(host: Host, wires: Wires) -> None:
    a, b = host.open("a"), host.open("b")
    qp, _ = connect(a, b)
    room, is_done = write(qp, b)
    host.run(is_done)
    assert qp.completions[0].ok
    assert bytes(room) == DATA
    there = [(header, packet) for header, packet in wires.frames if header.slid == LIDS["a"]]
    assert len(there) == len(DATA) // CONFIG.mtu
    assert {(header.sl, header.dlid) for header, _ in there} == {(SL, LIDS["b"])}
    assert {int.from_bytes(packet[2:4], "big") for _, packet in wires.frames} == {PKEY}
    assert a.lanes == {ADDRESSES["b"]: LANES[SL]}


def test_a_lane_without_room_holds_up_no_other(host: Host, wires: Wires) -> None:
    a, b, c = host.open("a"), host.open("b"), host.open("c")
    long = bytes(200 * CONFIG.mtu)
    wires.held.add(LIDS["b"])
    held, _ = connect(a, b)
    _, is_held_done = write(held, b, long)
    host.run(lambda: bool(a.full_lanes >> LANES[SL] & 1))
    other, _ = connect(a, c)
    room, is_done = write(other, c)
    host.run(is_done)
    assert bytes(room) == DATA and not is_held_done()
    assert wires.queued() <= SEND_QUEUE, "the rest is with the queue pair"
    wires.held.clear()
    host.run(is_held_done)
    assert held.completions[0].ok and not a.full_lanes


def test_frames_that_are_wrong_reach_no_queue_pair(host: Host, wires: Wires, tmp_path: Path) -> None:
    rnic = host.open("a")
    item, _ = open_adapter(tmp_path / socket_name("c"), PATIENCE_S)
    with item:
        header = LocalHeader(vl=0, sl=0, dlid=LIDS["a"], slid=LIDS["c"], words=0)
        frame = encode_unchecked(header, bytes([4, 0, 0xFF, 0xFF]) + bytes(40))
        broken = bytes([*frame[:-5], frame[-5] ^ 1, *frame[-4:]])
        stranger = encode_unchecked(
            LocalHeader(vl=0, sl=0, dlid=LIDS["a"], slid=9, words=0), bytes([4, 0, 0xFF, 0xFF]) + bytes(40)
        )
        for one in (broken, stranger, bytes(3), frame):
            wires.adapters.deliver("a", one)
        host.run(lambda: host.counters("a")["datagrams_received"] == 4)
    assert host.counters("a")["port_wrong"] == 3
    assert rnic.counters["unknown-qp"] == 1, "the one that was right"


@pytest.mark.process
def test_another_process_has_to_wait_for_an_hca(wires: Wires, tmp_path: Path) -> None:
    """The same process may connect again: for each lane it does."""
    path = tmp_path / socket_name("a")
    first, _ = open_adapter(path, PATIENCE_S)
    second, hello = open_adapter(path, PATIENCE_S)
    assert hello["lid"] == LIDS["a"]
    child = os.fork()
    if not child:
        code = 1
        try:
            open_adapter(path, PATIENCE_S)
        except OSError as error:
            code = 0 if "another program has it" in str(error) else 2
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    for item in (first, second):
        item.close()


@pytest.mark.process
def test_what_a_program_has_left_in_a_full_queue_keeps_nobody_out(wires: Wires, tmp_path: Path) -> None:
    """A connection whose queue is full is not read, so that its end is not seen until somebody else comes."""
    wires.held.add(LIDS["b"])
    path = tmp_path / socket_name("a")
    item, _ = open_adapter(path, PATIENCE_S)
    header = LocalHeader(vl=0, sl=0, dlid=LIDS["b"], slid=LIDS["a"], words=0)
    for _ in range(SEND_QUEUE + 1):
        item.send(encode_unchecked(header, bytes(12)), socket.MSG_DONTWAIT)
    end = time.monotonic() + PATIENCE_S
    while wires.queued() < SEND_QUEUE:
        assert time.monotonic() < end
    item.close()
    child = os.fork()
    if not child:
        try:
            open_adapter(path, PATIENCE_S)
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_the_end_of_the_wires_is_told_once(host: Host, wires: Wires) -> None:
    host.open("a")
    wires.close()
    host.run(lambda: bool(host.failures))
    host.loop.run_once(0)
    assert host.failures == ["the wires of the subnet have ended"]


def test_a_packet_for_nobody_is_dropped(host: Host, wires: Wires, tmp_path: Path) -> None:
    port = HcaPort(tmp_path / socket_name("a"), {}, host.loop, lambda: None)
    port.send([Outgoing("10.9.9.9", 0, Priority.DATA, bytes(12), bytes(8))])
    assert port.counters.dropped == 1
    port.close()
