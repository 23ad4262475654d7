"""The sockets of a fabric end point, on loopback: what goes out comes in, in whatever way it is carried."""

import errno
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from agent_io_fakes import EV, ScriptedSocket, datagram, forbid_raw_sockets, free_port, own_address
from kernel_stamps import stamped_socket

from testbed.base.linux import socket_options as options
from testbed.endpoints import sockets
from testbed.endpoints.sockets import Marking, SocketConfig, SocketGroup
from testbed.protocols.datagram import Incoming, Outgoing, Priority
from testbed.protocols.uet.packets.codes import UDP_PORT

SKEW_NS = 10_000_000
"""Between two clocks that are read one after the other, on a machine that has other things to do."""
WAYS = {
    "gso": (SocketConfig(), False),
    "one by one": (SocketConfig(gso_segments=1), False),
    "raw": (SocketConfig(gso_segments=1), True),
    "raw and gso": (SocketConfig(), True),
}
"""Without the compiled mover there are no raw sockets: the last two are then others of these."""
Opener = Callable[..., SocketGroup]


@pytest.fixture
def open_group(monkeypatch: pytest.MonkeyPatch) -> Iterator[Opener]:
    with ExitStack() as opened:

        def open_one(config: SocketConfig | None = None, raw: bool = True, address: str = "") -> SocketGroup:
            with monkeypatch.context() as patch:
                if not raw:
                    forbid_raw_sockets(patch)
                group = SocketGroup(address or own_address(), config)
            opened.callback(group.close)
            return group

        yield open_one


def received(group: SocketGroup) -> list[Incoming]:
    """All that has arrived, copied."""
    found = []
    while batch := group.receive(group.receivers[0]):
        found += [item._replace(data=bytes(item.data)) for item in batch]
    return found


def numbers(datagrams: list[Incoming]) -> list[int]:
    return [int.from_bytes(item.data[:4]) for item in datagrams]


@pytest.fixture
def plain() -> Iterator[socket.socket]:
    """A UDP socket of nobody's, which tells the TOS of what it receives."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as item:
        item.bind((own_address(), UDP_PORT))
        options.receive_tos(item)
        item.settimeout(5)
        yield item


@pytest.mark.parametrize("way", WAYS)
def test_datagrams_arrive_whole_in_order_and_with_their_entropy(open_group: Opener, way: str) -> None:
    sender, receiver = open_group(*WAYS[way]), open_group(*WAYS[way])
    sizes = [1000] * 80 + [9000, 9000, 8999, 4, 4, 5000] + [20_000] * 5
    sent = [datagram(receiver.address, number, size, EV + number // 40) for number, size in enumerate(sizes)]
    sender.send(sent)
    assert not sender.blocked
    arrived = received(receiver)
    assert [item.data for item in arrived] == [item.to_bytes() for item in sent]
    assert [item.entropy for item in arrived] == [item.entropy for item in sent]
    assert {item.remote for item in arrived} == {sender.address}
    assert not any(item.trimmed or item.ce for item in arrived)
    assert sender.counters.sent == receiver.counters.received == len(sizes)
    assert sender.counters.sent_bytes == receiver.counters.received_bytes == sum(sizes)
    assert sender.counters.errors == receiver.counters.errors == {}


@pytest.mark.parametrize("way", WAYS)
def test_ipv6_works_alike(open_group: Opener, way: str) -> None:
    port = free_port("::1")
    config, raw = WAYS[way]
    group = open_group(replace(config, port=port), raw, address="::1")
    entropy = free_port("::1")
    group.send([datagram("::1", number, 700, entropy) for number in range(30)])
    arrived = received(group)
    assert numbers(arrived) == list(range(30))
    assert {(item.remote, item.entropy) for item in arrived} == {("::1", entropy)}


def test_a_message_takes_as_many_datagrams_as_fit_into_it(open_group: Opener) -> None:
    sender, receiver = open_group(raw=False), open_group()
    assert sender.gso
    for size, count, calls in ((1000, 64, 1), (1000, 65, 2), (4160, 15, 1), (4160, 16, 2), (40_000, 2, 2)):
        before = sender.counters.send_calls
        sender.send([datagram(receiver.address, number, size) for number in range(count)])
        assert sender.counters.send_calls - before == calls, (size, count)
        assert numbers(received(receiver)) == list(range(count))


def test_a_run_ends_where_flow_priority_or_length_changes(open_group: Opener) -> None:
    sender, receiver, other = open_group(raw=False), open_group(), open_group()
    to, away = receiver.address, other.address
    retransmission = Priority.RETRANSMISSION
    for tail, calls in (
        ([datagram(to), datagram(to, size=999)], 1),  # the last may be shorter
        ([datagram(to, size=999), datagram(to, size=999)], 2),  # but only one
        ([datagram(to, size=1001)], 2),
        ([datagram(to, entropy=EV + 1)], 2),
        ([datagram(away)], 2),
        ([datagram(to, priority=retransmission)], 2),
    ):
        before = sender.counters.send_calls
        sender.send([datagram(to), datagram(to), *tail])
        assert sender.counters.send_calls - before == calls
    assert len(received(receiver)) + len(received(other)) == sender.counters.sent == 20


def test_priorities_are_marked(open_group: Opener, plain: socket.socket) -> None:
    sender = open_group(SocketConfig(marking=Marking(data=10, retransmission=12, control=46)))
    remote = plain.getsockname()[0]
    found = []
    for priority in (Priority.DATA, Priority.CONTROL, Priority.RETRANSMISSION, Priority.DATA):
        sender.send([datagram(remote, priority=priority)])
        _, control, _, _ = plain.recvmsg(2000, 64)
        found += [data[0] for _, kind, data in control if kind == socket.IP_TOS]
    assert found == [10 << 2 | 2, 46 << 2, 12 << 2 | 2, 10 << 2 | 2]


@pytest.mark.parametrize(("tos", "ce"), [(0, False), (1, False), (2, False), (3, True), (0x6B, True), (0x6A, False)])
def test_congestion_experienced_is_seen(open_group: Opener, plain: socket.socket, tos: int, ce: bool) -> None:
    group = open_group()
    plain.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
    plain.sendto(b"marked", (group.address, UDP_PORT))
    (item,) = received(group)
    assert (item.ce, item.data, item.remote, item.entropy) == (ce, b"marked", plain.getsockname()[0], UDP_PORT)


def test_any_datagram_of_a_stranger_is_received(open_group: Opener, plain: socket.socket) -> None:
    group = open_group()
    contents = [b"", b"\0", b"\xff" * 65_507, b"", b"x" * 1472]
    for content in contents:
        plain.sendto(content, (group.address, UDP_PORT))
    assert [item.data for item in received(group)] == contents
    assert received(group) == []


def test_a_receive_brings_about_as_many_datagrams_as_configured(open_group: Opener) -> None:
    sender, receiver = open_group(), open_group(SocketConfig(receive_datagrams=30))
    sender.send([datagram(receiver.address, number, 4160) for number in range(300)])
    sizes = []
    while batch := receiver.receive(receiver.receivers[0]):
        sizes.append(len(batch))
    assert sum(sizes) == 300
    assert all(size <= 45 for size in sizes[1:])  # nobody knew how many one message holds at first


@pytest.mark.parametrize("way", WAYS)
def test_what_cannot_be_sent_is_counted_and_the_rest_goes(open_group: Opener, way: str) -> None:
    sender, receiver = open_group(*WAYS[way]), open_group()
    good = receiver.address
    sender.send(
        [
            datagram(good, 1),
            datagram("localhost", 0),
            datagram("::1", 0),
            datagram(good, 2),
            datagram(good, 0, entropy=0),
            datagram(good, 0, entropy=65_536),
            datagram(good, 3),
            datagram(good, 0, size=65_508),
            datagram(good, 4),
            datagram("255.255.255.255", 0),
            datagram(good, 5),
        ]
    )
    assert numbers(received(receiver)) == [1, 2, 3, 4, 5]
    counters = sender.counters
    assert (counters.sent, counters.dropped, sum(counters.errors.values())) == (5, 6, 6)
    assert {errno.EMSGSIZE, errno.EADDRNOTAVAIL} <= counters.errors.keys()
    assert not sender.blocked


def test_an_entropy_value_that_is_anothers_port_is_none_for_a_udp_socket(open_group: Opener) -> None:
    sender, receiver = open_group(raw=False), open_group()
    taken = free_port(sender.address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind((sender.address, taken))
        sender.send([datagram(receiver.address, 0, entropy=taken), datagram(receiver.address, 1)])
    assert numbers(received(receiver)) == [1]
    assert sender.counters.errors == {errno.EADDRINUSE: 1}


@pytest.mark.skipif(not sockets.HAS_MOVER, reason="the mover is there in a build alone")
def test_what_a_raw_socket_sends_has_right_headers(open_group: Opener) -> None:
    sender = open_group(SocketConfig(port=free_port(own_address()), marking=Marking(data=10)))
    to = own_address()
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP) as raw:
        raw.bind((to, 0))
        raw.settimeout(5)
        for size in (4, 5, 13, 1000, 1001, 65_507):
            header, payload = b"odd" if size > 4 else b"", bytes(range(256)) * 256
            payload = payload[: size - len(header)]
            sender.send([Outgoing(to, EV + size % 7, Priority.DATA, header, payload)])
            packet = raw.recv(1 << 17)
            assert (packet[0], packet[1], packet[6:10]) == (0x45, 10 << 2 | 2, bytes((0x40, 0, 64, 17)))
            assert packet[12:20] == socket.inet_aton(sender.address) + socket.inet_aton(to)
            assert packet[20:22] == (EV + size % 7).to_bytes(2)
            assert packet[24:26] == (8 + size).to_bytes(2)
            assert packet[28:] == header + payload
            pseudo = packet[12:20] + bytes((0, 17)) + packet[24:26]
            assert packet[26:28] != bytes(2)  # nothing but 0 says that there is none
            assert ones_complement_sum(pseudo + packet[20:]) == 0xFFFF  # RFC 768


def ones_complement_sum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + bytes(len(data) & 1)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


@pytest.mark.skipif(not sockets.HAS_MOVER, reason="the mover is there in a build alone")
def test_the_kernel_says_when_datagrams_arrived(open_group: Opener) -> None:
    sender, receiver = open_group(), open_group(SocketConfig(stamps=True))
    with stamped_socket():
        before = time.monotonic_ns()
        for number in range(3):
            sender.send([datagram(receiver.address, number)])
        time.sleep(0.2)
        read = time.monotonic_ns()
        assert len(receiver.receive(receiver.receivers[0])) == 3
    assert len(receiver.arrivals) == 3
    assert before - SKEW_NS <= receiver.arrivals[0] <= receiver.arrivals[2] <= read - 100_000_000, "not when it is read"
    other = open_group()
    sender.send([datagram(other.address)])
    assert len(other.receive(other.receivers[0])) == 1
    assert other.arrivals == []


def test_the_entropy_value_may_be_the_port_that_is_received_on(open_group: Opener) -> None:
    sender, receiver = open_group(), open_group()
    for number, entropy in enumerate((UDP_PORT, EV, UDP_PORT)):
        sender.send([datagram(receiver.address, number, entropy=entropy)])
    assert [item.entropy for item in received(receiver)] == [UDP_PORT, EV, UDP_PORT]
    receiver.send([datagram(sender.address, 7)])
    assert numbers(received(sender)) == [7]


def test_the_entropy_socket_unused_for_longest_is_closed(open_group: Opener) -> None:
    sender, receiver = open_group(raw=False), open_group()
    for entropy in (*range(EV, EV + sockets.ENTROPY_SOCKETS), EV, EV + sockets.ENTROPY_SOCKETS):
        sender.send([datagram(receiver.address, size=4, entropy=entropy)])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        with pytest.raises(OSError, match="in use"):
            other.bind((sender.address, EV))
        other.bind((sender.address, EV + 1))
    assert [item.entropy for item in received(receiver)][-2:] == [EV, EV + sockets.ENTROPY_SOCKETS]


def test_an_address_has_one_group(open_group: Opener) -> None:
    group = open_group()
    with pytest.raises(OSError, match="in use"):
        SocketGroup(group.address)
    with pytest.raises(OSError, match="assign"):
        SocketGroup("192.0.2.1")
    for address in ("fe80::1", "ff02::1", "224.0.0.1", "0.0.0.0", "::", "localhost"):
        with pytest.raises(ValueError, match=r"cannot be|does not appear"):
            SocketGroup(address)


def test_what_the_kernel_drops_for_want_of_room_is_known(open_group: Opener) -> None:
    sender, receiver = open_group(), open_group(SocketConfig(receive_buffer_bytes=4096))
    sender.send([datagram(receiver.address, number, entropy=EV + number) for number in range(100)])
    assert 0 < len(received(receiver)) < 100
    assert receiver.counters.received + receiver.overflows == 100


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the next sends fail with."""

    def open_scripted(address: str, kind: int, protocol: int = socket.IPPROTO_UDP) -> socket.socket:
        return ScriptedSocket(socket.AF_INET, kind | socket.SOCK_NONBLOCK, protocol)

    values: list[int] = []
    monkeypatch.setattr(options, "open_socket", open_scripted)
    monkeypatch.setattr(ScriptedSocket, "script", values)
    return values


@pytest.mark.parametrize("way", ["gso", "one by one"])
def test_without_room_datagrams_wait_in_order(open_group: Opener, script: list[int], way: str) -> None:
    sender, receiver = open_group(*WAYS[way]), open_group(raw=False)
    script += [0, errno.EAGAIN, errno.EAGAIN]
    sender.send([datagram(receiver.address, number, entropy=EV + number) for number in range(3)])
    assert (sender.blocked, sender.waiting, sender.retry_at) == (True, 2, 0)
    assert sender.blocked_fd not in (-1, *sender.receivers)
    sender.send([datagram(receiver.address, 3)])
    assert numbers(received(receiver)) == [0]
    assert sender.waiting == 3
    sender.flush()
    assert sender.blocked
    sender.flush()
    assert (sender.blocked, sender.waiting, sender.blocked_fd) == (False, 0, -1)
    assert numbers(received(receiver)) == [1, 2, 3]
    assert (sender.counters.blocked, sender.counters.errors) == (2, {})


def test_where_no_descriptor_tells_of_room_a_time_does(open_group: Opener, script: list[int]) -> None:
    sender, receiver = open_group(raw=False), open_group(raw=False)
    script.append(errno.ENOBUFS)
    sender.send([datagram(receiver.address, number) for number in range(5)])
    assert (sender.blocked, sender.blocked_fd) == (True, -1)
    assert sender.retry_at > 0
    sender.flush()
    assert (sender.blocked, sender.retry_at) == (False, 0)
    assert numbers(received(receiver)) == [0, 1, 2, 3, 4]


def test_an_interface_without_checksums_makes_do_without_gso(open_group: Opener, script: list[int]) -> None:
    sender, receiver = open_group(raw=False), open_group(raw=False)
    script.append(errno.EIO)
    sender.send([datagram(receiver.address, number) for number in range(30)])
    assert not sender.gso
    assert numbers(received(receiver)) == list(range(30))


def test_a_run_that_is_too_long_for_the_interface_goes_one_by_one(open_group: Opener, script: list[int]) -> None:
    sender, receiver = open_group(raw=False), open_group(raw=False)
    script += [errno.EINVAL, errno.EMSGSIZE, errno.EINVAL, errno.EMSGSIZE]
    sender.send([datagram(receiver.address, number) for number in range(5)])
    assert sender.gso
    assert numbers(received(receiver)) == [2, 3, 4]
    assert sender.counters.errors == {errno.EMSGSIZE: 2}


def test_refusals_of_the_network_are_counted_only(open_group: Opener, script: list[int]) -> None:
    sender, receiver = open_group(raw=False), open_group(raw=False)
    script += [errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.EPERM]
    sender.send([datagram(receiver.address, number) for number in range(5)])
    assert numbers(received(receiver)) == [3, 4]
    assert sender.counters.dropped == 3


def test_nothing_is_received_where_only_sending_is_meant() -> None:
    address = own_address()
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
    ):
        options.receive_nothing(deaf)
        deaf.setblocking(False)
        deaf.bind((address, EV))
        other.sendto(b"hello", (address, EV))
        with pytest.raises(BlockingIOError):
            deaf.recv(100)


def test_payloads_are_read_where_they_lie(open_group: Opener) -> None:
    sender, receiver = open_group(), open_group()
    memory = bytearray(b"a" * 3000)
    view = memoryview(memory)
    sender.send(
        [Outgoing(receiver.address, EV, Priority.DATA, b"head", view[at : at + 1000]) for at in (0, 1000, 2000)]
    )
    memory[:] = b"b" * 3000
    assert [item.data for item in received(receiver)] == [b"head" + b"a" * 1000] * 3


@pytest.mark.skipif(not sockets.HAS_MOVER or os.geteuid() != 0, reason="raw sockets need the mover and root")
def test_what_is_of_another_class_goes_past_data_that_waits(
    open_group: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pause of the data's class is not one of CNPs, where they have a class of their own."""
    marking = Marking(data=26, retransmission=26, control=26, notification=48)
    sender, receiver = open_group(SocketConfig(marking=marking, gso_segments=1)), open_group(raw=False)
    send, paused = sockets.mover.send, [True]

    def send_unless_paused(fd: int, *rest: Any) -> tuple[int, int]:
        *_, queue, start, _stop = rest
        if paused[0] and queue[start].priority is not Priority.NOTIFICATION:
            raise BlockingIOError
        return send(fd, *rest)

    monkeypatch.setattr(sockets.mover, "send", send_unless_paused)
    kinds = [Priority.DATA, Priority.NOTIFICATION, Priority.CONTROL, Priority.DATA]
    sender.send([datagram(receiver.address, number, priority=kind) for number, kind in enumerate(kinds)])
    assert (sender.blocked, sender.waiting, sender.passes) == (True, 3, True)
    sender.send([datagram(receiver.address, 4, priority=Priority.NOTIFICATION)])
    assert numbers(received(receiver)) == [1, 4]
    sender.send([datagram(receiver.address, number) for number in range(5, 5 + sockets.MOST_WAITING)])
    assert not sender.passes
    paused[0] = False
    sender.flush()
    assert numbers(received(receiver))[:3] == [0, 2, 3]
    assert (sender.blocked, sender.waiting) == (False, 0)


def test_without_a_class_of_their_own_notifications_wait_with_data(open_group: Opener) -> None:
    assert not open_group(SocketConfig(marking=Marking(data=26, retransmission=26, control=26, notification=26))).passes


def test_what_one_thread_has_received_stays_while_another_receives() -> None:
    groups = [SocketGroup(address, SocketConfig(port=45_999, trimmed=False)) for address in THREADED]
    done: list[bytes] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind(("127.0.0.1", 0))
        for address, data in zip(THREADED, (b"first", b"other"), strict=True):
            sender.sendto(data, (address, 45_999))
    try:
        for group in groups:
            assert select.select([group.receivers[0]], [], [], 5)[0]
        [held] = groups[0].receive(groups[0].receivers[0])
        thread = threading.Thread(
            target=lambda: done.extend(bytes(item.data) for item in groups[1].receive(groups[1].receivers[0]))
        )
        thread.start()
        thread.join()
        assert (bytes(held.data), done) == (b"first", [b"other"])
    finally:
        for group in groups:
            group.close()


THREADED = ("127.0.79.1", "127.0.79.2")
