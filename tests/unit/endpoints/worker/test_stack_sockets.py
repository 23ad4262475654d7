"""Sockets of our own TCP behave as the kernel's do: errors, readiness, closing, and epoll's view of them."""

import errno
import heapq
import select
import socket
import struct
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from testbed.endpoints.worker.stack_sockets import StackLoop, StackPoll, StackSocket, StackSockets, StackTimer
from testbed.endpoints.worker.streams.tcp_info import read_tcp_info
from testbed.protocols.datagram import Incoming
from testbed.protocols.tcp.stack import TcpStack

HERE, THERE, PORT = "10.0.0.1", "10.0.0.2", 4420
MS = 1_000_000
RESET = struct.pack("ii", 1, 0)


class Site:
    """Two hosts whose segments take 1 ms."""

    def __init__(self) -> None:
        self.time = 0
        self.loops = {address: StackLoop() for address in (HERE, THERE)}
        self.calls: list[tuple[int, int, Callable[[int], None]]] = []
        self.number = 0
        for address, loop in self.loops.items():
            loop.stacks[address] = TcpStack(address, Random(address), mtu_bytes=1500)

    def now(self) -> int:
        return self.time

    def touch(self, endpoint: Any) -> None:
        """Everything is looked at after each step."""

    def call_at(self, when: int, action: Callable[[int], None]) -> None:
        self.number += 1
        heapq.heappush(self.calls, (when, self.number, action))

    def open(self, address: str, port: int = 0) -> StackSocket:
        item = StackSockets(self, self.loops[address]).open(None, 0, "")
        item.bind((address, port))
        return item

    def run(self, until_ns: int) -> None:
        while True:
            for loop in self.loops.values():
                loop.serve()
                for stack in loop.stacks.values():
                    for outgoing in stack.transmit(self.time):
                        self.call_at(self.time + MS, self._deliver(stack.address, outgoing.remote, outgoing.to_bytes()))
            timers = [timer for loop in self.loops.values() for s in loop.stacks.values() if (timer := s.next_timer())]
            times = [*timers, *([self.calls[0][0]] if self.calls else [])]
            if not times or min(times) > until_ns:
                self.time = until_ns
                return
            self.time = max(self.time, min(times))
            while self.calls and self.calls[0][0] <= self.time:
                heapq.heappop(self.calls)[2](self.time)
            for loop in self.loops.values():
                for stack in loop.stacks.values():
                    stack.handle_timer(self.time)

    def _deliver(self, source: str, destination: str, data: bytes) -> Callable[[int], None]:
        stack = self.loops[destination].stacks[destination]
        return lambda now: stack.receive((Incoming(source, 0, data),), now)

    def pair(self) -> tuple[StackSocket, StackSocket]:
        listener, client = self.open(THERE, PORT), self.open(HERE, 20_000)
        listener.listen(10)
        with pytest.raises(BlockingIOError):
            client.connect((THERE, PORT))
        self.run(self.time + 10 * MS)
        server, peer = listener.accept()
        assert peer == (HERE, 20_000) == server.getpeername()
        return client, server


def test_bytes_go_both_ways_and_none_means_not_yet() -> None:
    site = Site()
    client, server = site.pair()
    with pytest.raises(BlockingIOError):
        client.recv(10)
    assert client.sendmsg((b"head", b"", memoryview(b"body"))) == 8
    server.send(b"answer")
    site.run(site.time + 10 * MS)
    buffer = bytearray(6)
    assert server.recv_into(memoryview(buffer)) == 6
    assert bytes(buffer) == b"headbo"
    assert server.recv(100) == b"dy"
    assert client.recv(100) == b"answer"


def test_several_buffers_are_filled_one_after_another() -> None:
    site = Site()
    client, server = site.pair()
    client.send(b"abcdefghij")
    site.run(site.time + 10 * MS)
    first, second = memoryview(bytearray(4)), memoryview(bytearray(10))
    assert server.recvmsg_into([first, second])[0] == 10
    assert (bytes(first), bytes(second[:6])) == (b"abcd", b"efghij")
    client.send(b"last")
    site.run(site.time + 60 * MS)
    assert server.recvmsg_into([first, second])[0] == 4  # the first is full, and there is nothing for the second


def test_bytes_that_nobody_looks_at_are_not_copied() -> None:
    site = Site()
    client, server = site.pair()
    client.send(b"x" * 5000)
    site.run(site.time + 20 * MS)
    buffer = bytearray(5000)
    assert server.recv_into(buffer, 5000, socket.MSG_TRUNC) == 5000
    assert not any(buffer)


def test_a_full_buffer_takes_no_more_and_is_writable_again() -> None:
    site = Site()
    client, server = site.pair()
    sent = 0
    with pytest.raises(BlockingIOError):
        while True:
            sent += client.send(b"x" * 65_536)
    assert sent >= 87_380
    assert not client.events() & select.EPOLLOUT
    got = 0
    for _ in range(200):
        site.run(site.time + 5 * MS)
        if server.events() & select.EPOLLIN:
            got += len(server.recv(1 << 20))
    assert got == sent
    assert client.events() & select.EPOLLOUT


def test_nobody_listens() -> None:
    site = Site()
    client = site.open(HERE, 20_000)
    with pytest.raises(BlockingIOError):
        client.connect((THERE, PORT))
    site.run(10 * MS)
    assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED
    assert client.events() & select.EPOLLERR


def test_a_reset_is_an_error_and_a_shutdown_is_the_end() -> None:
    site = Site()
    client, server = site.pair()
    server.shutdown(socket.SHUT_WR)
    site.run(site.time + 10 * MS)
    assert client.recv(10) == b""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    client.close()
    assert client.fileno() == -1
    site.run(site.time + 10 * MS)
    with pytest.raises(ConnectionResetError):
        server.recv(10)
    with pytest.raises(ConnectionResetError):
        server.send(b"x")


def test_addresses_and_ports_that_cannot_be() -> None:
    site = Site()
    item = StackSockets(site, site.loops[HERE]).open(None, 0, "")
    with pytest.raises(OSError, match="assign requested address"):
        item.bind(("10.9.9.9", 1))
    site.open(THERE, PORT).listen(1)
    with pytest.raises(OSError, match="in use"):
        site.open(THERE, PORT).listen(1)
    site.pair  # noqa: B018
    first = site.open(HERE, 20_001)
    with pytest.raises(BlockingIOError):
        first.connect((THERE, PORT))
    assert site.open(HERE, 20_001).connect_ex((THERE, PORT)) == errno.EADDRNOTAVAIL
    free = site.open(HERE)
    assert free.connect_ex((THERE, PORT)) == errno.EINPROGRESS
    assert free.getsockname() == (HERE, 32_768)


def test_the_account_is_the_kernel_s() -> None:
    site = Site()
    client, server = site.pair()
    client.send(b"x" * 20_000)
    site.run(site.time + 100 * MS)
    server.recv(20_000)
    info, peer = read_tcp_info(client), read_tcp_info(server)
    assert info.acked_bytes == 20_001  # with the SYN
    assert info.sent_packets == peer.received_packets == 14
    assert info.min_rtt_us == 2000
    assert info.cwnd_bytes >= 10 * 1448
    assert info.busy_us > 0
    with pytest.raises(OSError, match="not available"):
        client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_loop_tells_as_long_as_there_is_something() -> None:
    site = Site()
    client, server = site.pair()
    got: list[bytes] = []
    site.loops[THERE].watch(server.fileno(), lambda _: got.append(server.recv(4)))
    client.send(b"abcdefgh")
    site.run(site.time + 10 * MS)
    assert got == [b"abcd", b"efgh"]
    site.loops[THERE].unwatch(server.fileno())
    client.send(b"more")
    site.run(site.time + 10 * MS)
    assert len(got) == 2


def test_a_poll_is_ready_as_long_as_one_of_its_sockets_is() -> None:
    site = Site()
    client, server = site.pair()
    loop = site.loops[THERE]
    poll = StackPoll(loop)
    poll.register(server, select.EPOLLIN)
    poll.register(3, select.EPOLLIN)  # a descriptor of this machine is none of its affair
    calls: list[list[tuple[int, int]]] = []

    def work(_: int) -> None:
        calls.append(poll.poll())
        server.recv(4)

    loop.watch(poll.fileno(), work)
    client.send(b"abcdefgh")
    site.run(site.time + 10 * MS)
    assert calls == [[(server.fileno(), select.EPOLLIN)]] * 2
    poll.modify(server.fileno(), select.EPOLLOUT)
    assert poll.poll() in ([], [(server.fileno(), select.EPOLLOUT)])
    poll.unregister(server)
    assert poll.poll() == []


def test_a_timer_fires_at_its_time_and_at_the_earliest() -> None:
    site = Site()
    loop, fired = site.loops[HERE], []
    timer = StackTimer(site, loop)

    def on_timer(_: int) -> None:
        timer.fired()
        fired.append(site.time)

    loop.watch(timer.fd, on_timer, select.EPOLLIN | select.EPOLLET)
    timer.wake_by(30 * MS)
    timer.wake_by(50 * MS)
    timer.wake_by(20 * MS)
    site.run(100 * MS)
    assert fired == [20 * MS]
    timer.wake_by(120 * MS)
    site.run(200 * MS)
    assert fired == [20 * MS, 120 * MS]


def test_nobody_answers_a_socket_for_ever() -> None:
    site = Site()
    client, server = site.pair()
    site.loops[THERE].watch(server.fileno(), lambda _: None)
    client.send(b"x")
    with pytest.raises(RuntimeError, match="stays ready"):
        site.run(site.time + 10 * MS)
