"""Sockets for peers that are other implementations, on loopback: each datagram comes with its IP header."""

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from agent_io_fakes import EV, datagram, forbid_raw_sockets, own_address

from testbed.base.linux import socket_options as options
from testbed.endpoints.agent import Agent
from testbed.endpoints.sockets import SocketConfig, SocketGroup
from testbed.protocols.datagram import DONT_FRAGMENT, Incoming
from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.roce.memory import ALL_ACCESS
from testbed.protocols.roce.packets.opcodes import UDP_PORT
from testbed.protocols.roce.work import RemoteBuffer

pytestmark = [pytest.mark.netns]

Opener = Callable[..., SocketGroup]
UDP_NO_CHECK6_TX = 101
PATIENCE_NS = 10_000_000_000
FOREIGN = SocketConfig(port=UDP_PORT, trimmed=False, foreign_peers=True)


@pytest.fixture
def open_group() -> Iterator[Opener]:
    with ExitStack() as opened:

        def open_one(config: SocketConfig = FOREIGN, address: str = "") -> SocketGroup:
            group = SocketGroup(address or own_address(), config)
            opened.callback(group.close)
            return group

        yield open_one


def received(group: SocketGroup) -> list[Incoming]:
    found = []
    while batch := group.receive(group.receivers[0]):
        found += [item._replace(data=bytes(item.data)) for item in batch]
    return found


def send_raw(source: str, to: str, payload: bytes, *, word: int, tos: int = 0, port: int = UDP_PORT) -> None:
    """An IPv4 packet with a second word of the sender's choice, from UDP port `EV`."""
    udp = struct.pack("!HHHH", EV, port, 8 + len(payload), 0)
    header = struct.pack("!BBHIBBH", 0x45, tos, 28 + len(payload), word, 64, 17, 0)
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as item:
        item.sendto(header + socket.inet_aton(source) + socket.inet_aton(to) + udp + payload, (to, 0))


def test_the_header_comes_with_each_datagram(open_group: Opener) -> None:
    group = open_group()
    source = own_address()
    send_raw(source, group.address, b"first", word=0x1234_4000, tos=3)
    send_raw(source, group.address, b"another port", word=0x1235_4000, port=UDP_PORT + 1)
    send_raw(source, group.address, b"may be fragmented", word=0xFFFF_0000)
    assert received(group) == [
        Incoming(source, EV, b"first", True, 0, False, 0x1234_4000),
        Incoming(source, EV, b"may be fragmented", False, 0, False, 0xFFFF_0000),
    ]
    assert (group.counters.received, group.counters.received_bytes, group.overflows) == (2, 22, 0)


@pytest.mark.parametrize("raw", [True, False])
def test_what_is_sent_has_an_identification_of_0_in_runs_too(
    open_group: Opener, raw: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not raw:
        forbid_raw_sockets(monkeypatch)
    sender = open_group()
    receiver = open_group()
    sent = [datagram(receiver.address, number) for number in range(40)]
    sender.send(sent)
    arrived = received(receiver)
    assert [item.data for item in arrived] == [item.to_bytes() for item in sent]
    assert {item.fragment_word for item in arrived} == {DONT_FRAGMENT}


def test_what_the_kernel_drops_for_want_of_room_is_known(open_group: Opener) -> None:
    sender = open_group()
    receiver = open_group(SocketConfig(port=UDP_PORT, trimmed=False, foreign_peers=True, receive_buffer_bytes=4096))
    sender.send([datagram(receiver.address, number) for number in range(100)])
    assert 0 < len(received(receiver)) < 100
    assert receiver.counters.received + receiver.overflows == 100


@pytest.mark.parametrize(("foreign", "arrives"), [(True, 1), (False, 0)])
def test_over_ipv6_a_datagram_needs_no_checksum_of_udp(open_group: Opener, foreign: bool, arrives: int) -> None:
    group = open_group(SocketConfig(port=UDP_PORT, trimmed=False, foreign_peers=foreign), "::1")
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as item:
        item.setsockopt(options.SOL_UDP, UDP_NO_CHECK6_TX, 1)
        item.sendto(b"without", ("::1", UDP_PORT))
    assert [bytes(item.data) for item in group.receive(group.receivers[0])] == [b"without"] * arrives


def test_two_rnics_opened_so_understand_each_other() -> None:
    with Agent(seed=1) as agent:
        first, second = (agent.open_rnic(own_address(), RoceConfig(cc="none"), foreign_peers=True) for _ in range(2))
        here, there = first.create_qp(), second.create_qp()
        here.connect(second.address, there.number)
        there.connect(first.address, here.number)
        memory = bytearray(100_001)
        region = second.register(memory, ALL_ACCESS)
        data = bytes(range(256)) * 391
        write = here.write(data[: len(memory)], RemoteBuffer(region.base, region.rkey), time.monotonic_ns())
        assert agent.drive(lambda: write.status is not None, PATIENCE_NS)
        assert write.ok and memory == data[: len(memory)]
        assert "malformed" not in first.counters | second.counters
