"""The loop: datagrams, timers, room, other descriptors and other threads, each in its turn."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import cast

import pytest
from agent_io_fakes import EV, FakeEndpoint, datagram, own_address

from testbed.endpoints.agent import Agent
from testbed.endpoints.loop import LEAVING_BYTES, Loop
from testbed.endpoints.pacing import Pacer
from testbed.endpoints.sockets import SocketConfig, SocketGroup
from testbed.endpoints.wire_delay import DelayLine
from testbed.protocols.datagram import Incoming, Outgoing

MS = 1_000_000
PATIENCE_NS = 5_000 * MS


def soon() -> int:
    return time.monotonic_ns() + PATIENCE_NS


def run_until(loop: Loop, reached: Callable[[], bool]) -> None:
    """Turns of the loop until `reached`; fails after some seconds."""
    end = soon()
    while not reached():
        assert time.monotonic_ns() < end, "it never happened"
        loop.run_once(end)


class Host:
    """A loop and endpoints on addresses of their own."""

    def __init__(self, cleanup: ExitStack, spin_ns: int = 0) -> None:
        self._cleanup = cleanup
        self.loop = Loop(spin_ns=spin_ns)
        cleanup.callback(self.loop.close)

    def endpoint(self, delay: DelayLine | None = None) -> FakeEndpoint:
        sockets = SocketGroup(own_address(), SocketConfig(trimmed=False))
        self._cleanup.callback(sockets.close)
        endpoint = FakeEndpoint(sockets.address)
        self.loop.add(endpoint, sockets, delay)
        return endpoint


@pytest.fixture(params=[0, 50_000], ids=["sleeping", "spinning"])
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    with ExitStack() as cleanup:
        yield Host(cleanup, request.param)


def test_endpoints_talk_to_each_other(host: Host) -> None:
    asking, answering = host.endpoint(), host.endpoint()

    def answer(item: Incoming) -> None:
        answering.outbox.append(datagram(item.remote, int.from_bytes(item.data[:4]) + 1000, entropy=item.entropy))

    answering.on_receive = answer
    asking.outbox = [datagram(answering.address, number) for number in range(700)]
    run_until(host.loop, lambda: len(asking.inbox) == 700)
    assert [int.from_bytes(item.data[:4]) for item in asking.inbox] == list(range(1000, 1700))
    assert {item.remote for item in asking.inbox} == {answering.address}


def test_a_timer_is_handled_when_it_is_due_and_not_before(host: Host) -> None:
    endpoint = host.endpoint()
    endpoint.timer = due = time.monotonic_ns() + 3 * MS
    run_until(host.loop, lambda: bool(endpoint.fired))
    assert endpoint.fired[0] >= due
    assert len(endpoint.fired) == 1


def test_timers_may_be_moved_either_way(host: Host) -> None:
    first, second = host.endpoint(), host.endpoint()
    start = time.monotonic_ns()
    first.timer = start + 2 * MS
    second.timer = start + 4_000 * MS
    host.loop.run_once()
    first.timer, second.timer = start + 8 * MS, start + 5 * MS
    host.loop.wake()
    run_until(host.loop, lambda: bool(first.fired and second.fired))
    assert first.fired[0] >= start + 8 * MS
    # One turn may find both due, and takes them one after the other.
    assert start + 5 * MS <= second.fired[0] <= first.fired[0] + MS


def test_a_run_ends_in_time(host: Host) -> None:
    host.endpoint()
    end = time.monotonic_ns() + 3 * MS
    host.loop.run(end)
    assert time.monotonic_ns() >= end


def test_nothing_runs_while_nothing_happens() -> None:
    with ExitStack() as cleanup:
        host = Host(cleanup)
        endpoint = host.endpoint()
        endpoint.timer = time.monotonic_ns() + 60_000 * MS
        host.loop.run_once()
        asked = endpoint.timer_asked
        host.loop.run(time.monotonic_ns() + 20 * MS)
        assert endpoint.timer_asked - asked <= 2


def test_another_thread_may_stop_it(host: Host) -> None:
    host.endpoint()
    stopper = threading.Timer(0.005, host.loop.stop)
    begun = time.monotonic_ns()
    stopper.start()
    host.loop.run(soon())
    stopper.join()
    host.loop.stop()
    host.loop.run(soon())
    assert time.monotonic_ns() - begun < PATIENCE_NS
    endpoint = host.endpoint()
    endpoint.timer = time.monotonic_ns()
    run_until(host.loop, lambda: bool(endpoint.fired))  # it can be run again


def test_waking_it_sends_what_there_is_now(host: Host) -> None:
    sender, receiver = host.endpoint(), host.endpoint()
    host.loop.run_once()

    def submit() -> None:
        sender.outbox = [datagram(receiver.address, 5)]
        host.loop.wake()

    thread = threading.Timer(0.005, submit)
    thread.start()
    run_until(host.loop, lambda: bool(receiver.inbox))
    thread.join()


def test_other_descriptors_are_served_and_may_give_endpoints_work(host: Host) -> None:
    sender, receiver = host.endpoint(), host.endpoint()
    ours, theirs = socket.socketpair()
    masks = []

    def command(mask: int) -> None:
        masks.append(mask)
        sender.outbox.append(datagram(receiver.address, int.from_bytes(ours.recv(100))))

    with ours, theirs:
        host.loop.watch(ours.fileno(), command)
        host.loop.run_once()
        theirs.send(b"\x07")
        run_until(host.loop, lambda: bool(receiver.inbox))
        assert masks[0] & 1
        assert int.from_bytes(receiver.inbox[0].data[:4]) == 7
        host.loop.unwatch(ours.fileno())
        theirs.send(b"\x08")
        host.loop.run_once()
        assert len(receiver.inbox) == 1


def test_nobody_starves(host: Host) -> None:
    greedy, modest, receiver = host.endpoint(), host.endpoint(), host.endpoint()
    # More than a receive buffer holds: what counts is that the others have their turns.
    greedy.outbox = [datagram(receiver.address, 1, 100)] * 5_000
    host.loop.run_once()
    assert 0 < len(greedy.outbox) < 5_000
    modest.outbox = [datagram(greedy.address, 2)]
    host.loop.wake()
    host.loop.run_once()
    host.loop.run_once()
    assert greedy.outbox
    assert greedy.inbox
    run_until(host.loop, lambda: not greedy.outbox)


def test_an_endpoint_may_be_removed(host: Host) -> None:
    sender, receiver = host.endpoint(), host.endpoint()
    host.loop.remove(receiver)
    sender.outbox = [datagram(receiver.address)]
    host.loop.run_once()
    host.loop.run_once()
    assert receiver.inbox == []
    assert receiver.pulls == 0


def test_datagrams_wait_for_the_delay_of_their_path(host: Host) -> None:
    receiver = host.endpoint(DelayLine(4 * MS))
    sender = host.endpoint()
    begun = time.monotonic_ns()
    sender.outbox = [datagram(receiver.address, number) for number in range(100)]
    run_until(host.loop, lambda: len(receiver.inbox) == 100)
    assert receiver.received_at[0] >= begun + 4 * MS
    assert [int.from_bytes(item.data[:4]) for item in receiver.inbox] == list(range(100))


@pytest.mark.parametrize("what", ["datagram", "timer"])
def test_driving_ends_with_what_was_due_and_not_an_event_later(host: Host, what: str) -> None:
    receiver, sender = host.endpoint(DelayLine(4 * MS)), host.endpoint()
    if what == "datagram":
        sender.outbox = [datagram(receiver.address)]
    else:
        sender.timer = time.monotonic_ns() + 4 * MS
    begun = time.monotonic_ns()
    assert Agent(loop=host.loop).drive(lambda: bool(receiver.inbox or sender.fired), PATIENCE_NS)
    assert time.monotonic_ns() - begun < PATIENCE_NS // 2, "it waited for another event, and none came"


class StampedSockets:
    """Hands over what a test puts into it, with the times at which that arrived; a byte in a pipe says that it may."""

    blocked_fd, retry_at, blocked, passes = -1, 0, False, False

    def __init__(self) -> None:
        reader, self.writer = os.pipe()
        os.write(self.writer, b".")
        self.receivers: tuple[int, ...] = (reader,)
        self.waiting: list[Incoming] = []
        self.stamps: list[int] = []
        self.arrivals: list[int] = []
        self.drained = True
        self.calls = 0

    def arrive(self, *texts: bytes, at: int) -> None:
        self.waiting += [Incoming("10.0.0.2", EV, text, False) for text in texts]
        self.stamps += [at] * len(texts)

    def receive(self, fd: int) -> list[Incoming]:
        self.calls += 1
        found, self.arrivals = self.waiting[:2], self.stamps[:2]
        del self.waiting[:2], self.stamps[:2]
        self.drained = len(found) < 2
        return found

    def send(self, datagrams: Sequence[Outgoing]) -> None: ...
    def flush(self) -> None: ...

    def close(self) -> None:
        for fd in (self.writer, *self.receivers):
            os.close(fd)


class TrimmingSockets(StampedSockets):
    """A second descriptor has what was trimmed, each once."""

    def __init__(self) -> None:
        super().__init__()
        reader, self._teller = os.pipe2(os.O_NONBLOCK)
        self.receivers += (reader,)

    def trim(self, text: bytes) -> None:
        os.write(self._teller, text)

    def receive(self, fd: int) -> list[Incoming]:
        if fd == self.receivers[0]:
            return super().receive(fd)
        self.arrivals = []
        try:
            return [Incoming("10.0.0.2", EV, os.read(fd, 100), False)]
        except BlockingIOError:
            return []

    def close(self) -> None:
        super().close()
        os.close(self._teller)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time that the loop sees: the test's own."""
    now = [1_000 * MS]
    monkeypatch.setattr("testbed.endpoints.loop.time.monotonic_ns", lambda: now[0])
    monkeypatch.setattr("testbed.endpoints.loop.time.sleep", lambda seconds: None)
    return now


def stamped_port(
    delay: DelayLine, *, gathers: bool, rate_bps: int = 100_000_000
) -> tuple[Loop, StampedSockets, FakeEndpoint]:
    """An endpoint of a loop that takes a turn each millisecond."""
    loop, sockets, endpoint = Loop(), StampedSockets(), FakeEndpoint("10.0.0.1")
    loop.set_tick(MS, gathers=gathers)
    loop.add(endpoint, sockets, delay, Pacer(rate_bps, 1000))
    return loop, sockets, endpoint


def close_port(loop: Loop, sockets: StampedSockets) -> None:
    loop.close()
    sockets.close()


@pytest.mark.interpreted
def test_what_is_not_due_for_long_stays_with_the_kernel_and_is_read_at_once(clock: list[int]) -> None:
    """A delay of 10 ms, and a turn each millisecond."""
    loop, sockets, endpoint = stamped_port(DelayLine(10 * MS), gathers=True)
    sockets.arrive(b"a", at=clock[0])
    loop.run_once(clock[0])
    assert sockets.calls == 1
    for number in range(8):
        sockets.arrive(b"%d" % number, at=clock[0])
        clock[0] += MS
        loop.run_once(clock[0])
    assert sockets.calls == 6, "the eight, two at a time and once more, in the turn before one of them is due"
    assert endpoint.inbox == []
    clock[0] += 2 * MS
    loop.run_once(clock[0])
    assert [bytes(item.data) for item in endpoint.inbox] == [b"a", b"0"], "when due, and not when read"
    clock[0] += 8 * MS
    loop.run_once(clock[0])
    assert [bytes(item.data) for item in endpoint.inbox] == [b"a", *(b"%d" % number for number in range(8))]
    close_port(loop, sockets)


@pytest.mark.interpreted
def test_who_measures_reads_in_every_turn(clock: list[int]) -> None:
    loop, sockets, endpoint = stamped_port(DelayLine(10 * MS), gathers=False)
    for number in range(8):
        sockets.arrive(b"%d" % number, at=clock[0])
        loop.run_once(clock[0])
        assert (sockets.calls, sockets.waiting) == (number + 1, [])
        clock[0] += MS
    assert endpoint.inbox == []
    close_port(loop, sockets)


@pytest.mark.interpreted
def test_where_nobody_knows_when_it_arrived_it_is_read_in_every_turn(clock: list[int]) -> None:
    loop, sockets, _ = stamped_port(DelayLine(10 * MS), gathers=True)
    loop.run_once(clock[0])  # it was woken for nothing
    for number in range(4):
        clock[0] += MS
        sockets.arrive(b"%d" % number, at=clock[0])
        sockets.stamps.clear()
        loop.run_once(clock[0])
        assert (sockets.calls, sockets.waiting) == (number + 2, [])
    close_port(loop, sockets)


@pytest.mark.interpreted
def test_no_more_is_left_with_the_kernel_than_its_buffer_has_room_for(clock: list[int]) -> None:
    loop, sockets, _ = stamped_port(DelayLine(10 * MS), gathers=True, rate_bps=8 * LEAVING_BYTES * 500)
    for is_read, after_ms in ((False, 1), (False, 1), (True, 0)):  # the line brings so much in 2 ms
        sockets.arrive(b"a", at=clock[0])
        loop.run_once(clock[0])
        assert (sockets.calls > 1) is is_read, "the first look alone is before"
        clock[0] += after_ms * MS
    close_port(loop, sockets)


@pytest.mark.interpreted
def test_who_is_held_for_no_time_is_left_with_the_kernel_once_at_most(clock: list[int]) -> None:
    """Peers that no wire leads to stand in no table: they are known when something has come from them."""
    loop, sockets, endpoint = stamped_port(DelayLine({"10.0.0.3": 10 * MS}), gathers=True)
    for number in range(5):
        sockets.arrive(b"%d" % number, at=clock[0])
        loop.run_once(clock[0])
        assert (sockets.calls, len(endpoint.inbox)) == (number + 1, number + 1)
        clock[0] += MS
    close_port(loop, sockets)


@pytest.mark.interpreted
def test_what_was_trimmed_does_not_hold_up_what_came_before_it(clock: list[int]) -> None:
    """It comes to another descriptor, and the kernel does not say when."""
    loop, sockets, endpoint = Loop(), TrimmingSockets(), FakeEndpoint("10.0.0.1")
    loop.set_tick(MS, gathers=True)
    loop.add(endpoint, sockets, DelayLine(20 * MS), Pacer(100_000_000, 1000))
    sockets.arrive(b"first", at=clock[0])
    loop.run_once(clock[0])
    sockets.arrive(b"second", at=clock[0])
    clock[0] += 6 * MS
    sockets.trim(b"trimmed")
    loop.run_once(clock[0])
    clock[0] += 14 * MS
    loop.run_once(clock[0])
    assert [bytes(item.data) for item in endpoint.inbox] == [b"first", b"second"]
    clock[0] += 6 * MS
    loop.run_once(clock[0])
    assert [bytes(item.data) for item in endpoint.inbox] == [b"first", b"second", b"trimmed"]
    close_port(loop, sockets)


class FullSockets:
    """Takes `room` datagrams and then waits for a descriptor to become writable."""

    def __init__(self, room: int, fd: int) -> None:
        self.receivers: tuple[int, ...] = ()
        self.blocked_fd = -1
        self.retry_at = 0
        self.sent: list[Outgoing] = []
        self.waiting: list[Outgoing] = []
        self.room = room
        self.flushes = 0
        self._fd = fd

    @property
    def blocked(self) -> bool:
        return bool(self.waiting)

    def send(self, datagrams: Sequence[Outgoing]) -> None:
        assert not self.blocked, "it was told to wait"
        self.waiting += datagrams
        self._move()

    def flush(self) -> None:
        self.flushes += 1
        self.retry_at = 0
        self._move()

    def _move(self) -> None:
        taken = min(self.room, len(self.waiting))
        self.room -= taken
        self.sent += self.waiting[:taken]
        del self.waiting[:taken]
        self.blocked_fd = self._fd if self.waiting else -1


def test_no_more_is_pulled_until_there_is_room(host: Host) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        filler = 0
        try:
            while True:
                filler += ours.send(bytes(65_536))
        except BlockingIOError:
            pass
        sockets = FullSockets(10, ours.fileno())
        endpoint = FakeEndpoint()
        endpoint.outbox = [datagram("127.0.0.1", number) for number in range(150)]
        told: list[tuple[int, int]] = []
        host.loop.add(endpoint, cast(SocketGroup, sockets), on_room=lambda at: told.append((at, endpoint.pulls)))
        endpoint.timer = time.monotonic_ns() + MS
        run_until(host.loop, lambda: bool(endpoint.fired))
        assert (len(sockets.sent), endpoint.pulls, sockets.flushes) == (10, 1, 0)
        assert not told
        emptied = time.monotonic_ns()
        sockets.room = 1000
        while filler:
            filler -= len(theirs.recv(1 << 20))
        run_until(host.loop, lambda: len(sockets.sent) == 150)
        assert sockets.sent == [datagram("127.0.0.1", number) for number in range(150)]
        assert sockets.flushes == 1
        [(at, asked)] = told
        assert at > emptied and asked == 1, "it is told before it is asked again"
        pulls = endpoint.pulls
        host.loop.run_once()
        assert endpoint.pulls == pulls  # writable is no event any more


def test_where_no_descriptor_tells_it_tries_again_at_the_time_given(host: Host) -> None:
    sockets = FullSockets(0, -1)
    endpoint = FakeEndpoint()
    endpoint.outbox = [datagram("127.0.0.1")]
    host.loop.add(endpoint, cast(SocketGroup, sockets))
    host.loop.run_once()
    assert sockets.blocked
    sockets.room = 1
    sockets.retry_at = due = time.monotonic_ns() + 2 * MS
    host.loop.wake()
    run_until(host.loop, lambda: not sockets.blocked)
    assert time.monotonic_ns() >= due
    assert sockets.flushes == 1


def test_waiting_for_room_on_the_receiving_socket_goes_on_receiving(host: Host) -> None:
    other = host.endpoint()
    with ExitStack() as cleanup:
        group = SocketGroup(own_address(), SocketConfig(trimmed=False))
        cleanup.callback(group.close)
        sockets = FullSockets(0, group.receivers[0])
        sockets.receivers = group.receivers
        sockets.receive = group.receive  # type: ignore[attr-defined]
        endpoint = FakeEndpoint(group.address)
        endpoint.outbox = [datagram(other.address, 3)]
        host.loop.add(endpoint, cast(SocketGroup, sockets))
        other.outbox = [datagram(group.address, 4, entropy=EV)]
        run_until(host.loop, lambda: bool(endpoint.inbox) and sockets.flushes > 0)
        sockets.room = 5
        run_until(host.loop, lambda: len(sockets.sent) == 1)
        host.loop.remove(endpoint)


def test_closing_it_closes_what_is_its_own() -> None:
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208
    loop = Loop()
    loop.close()
    loop.close()  # and once is enough
    assert set(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
