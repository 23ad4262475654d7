"""The loop that drives endpoints: it waits for datagrams, room and time, and calls the endpoint that they are for.

epoll(7) and a timer of nanoseconds instead of an event loop of coroutines: a round trip has two of these turns in it.
Nothing runs while nothing happens.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from testbed.endpoints.pacing import Pacer
from testbed.endpoints.timer import Timer
from testbed.endpoints.wire_delay import DelayLine
from testbed.protocols.datagram import Incoming, Outgoing

PULL = 64
"""Datagrams asked of an endpoint at a time."""
PULLS_PER_TURN = 2
"""After so many the other endpoints and descriptors have their turn: what they wait is what acknowledgements wait."""
PULLS_OF_SMALL = 8
"""In a loop that gathers, a paced endpoint is asked so often in a turn at most, where its packets are so small that its
NIC still has room."""
MOST_TICKS = 4
"""With turns that take longer than ticks, what has arrived is taken to have waited for half of so many at most."""
LEAVING_TICKS = 16
"""Turns for which what has arrived is left with the kernel at most, where none of it is due before."""
LEAVING_BYTES = 1 << 20
"""No more is left there than a line brings in this time: small packets take eight times as much of a receive buffer."""
_MOST_RECEIVES = 16
"""Calls that take what was left there in a turn at most."""
_MOST_EVENTS = 64
_WOKEN = select.EPOLLIN | select.EPOLLERR | select.EPOLLHUP


class Endpoint(Protocol):
    """A transport without I/O. Times are ns of `time.monotonic_ns`."""

    address: str

    @property
    def urgent(self) -> int:
        """Datagrams that are there and go before all others: acknowledgements."""

    def receive(self, datagrams: Sequence[Incoming], now: int) -> None:
        """Take what has arrived. The data is valid during this call only. Raises nothing, whatever the bytes."""

    def transmit(self, now: int, limit: int = 64) -> list[Outgoing]:
        """Return what is to be sent now, at most `limit` datagrams; fewer: nothing more for the time being."""

    def next_timer(self) -> int | None:
        """Return when `handle_timer` is to be called, though nothing has arrived by then."""

    def handle_timer(self, now: int) -> None: ...


class DatagramSockets(Protocol):
    """The sockets of an endpoint's address, as `testbed.endpoints.sockets.SocketGroup` has them."""

    receivers: tuple[int, ...]
    arrivals: list[int]
    drained: bool
    blocked_fd: int
    retry_at: int

    @property
    def blocked(self) -> bool: ...

    @property
    def passes(self) -> bool: ...

    def receive(self, fd: int) -> list[Incoming]: ...

    def send(self, datagrams: Sequence[Outgoing]) -> None: ...

    def flush(self) -> None: ...


class _Port:
    """An endpoint with its sockets, and what the loop remembers of it."""

    def __init__(
        self,
        endpoint: Endpoint,
        sockets: DatagramSockets,
        delay: DelayLine | None,
        pacer: Pacer | None,
        on_room: Callable[[int], None],
    ) -> None:
        self.endpoint = endpoint
        self.sockets = sockets
        self.delay = delay
        self.pacer = pacer
        self.on_room = on_room
        self.full = False
        """Its sockets had no room when it was asked last."""
        self.touched = True
        """It must be asked what it has to send and when its timer is."""
        self.more = False
        """It had more to send than a turn allows."""
        self.wake_at: int | None = None
        self.receive_at = 0
        """Before it nothing is due of what the kernel has of it, which is read then, all at once."""
        self.waiting_fd = -1
        """Watched for room."""


class Loop:
    """Runs one or more endpoints, each on the sockets of its address, in the thread that calls `run`.

    `spin_ns`: how long to look for work without a pause before sleeping. It buys a few microseconds of latency and
    costs a CPU, so it is for measuring tools. Only `stop` and `wake` may be called from other threads, and from signal
    handlers.
    """

    def __init__(self, *, spin_ns: int = 0) -> None:
        self._spin_ns = spin_ns
        self._epoll = select.epoll()
        self._timer = Timer()
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stopping = False
        self.tick_ns = 0
        """The least time between two turns that `set_tick` has set."""
        self._gathers = False
        self._turned_at = 0
        self._period_ns = 0
        """Time from the last turn to the present one, where it did not wait for events; else 0."""
        self._ports: list[_Port] = []
        self._readers: dict[int, _Port] = {}
        self._writers: dict[int, _Port] = {}
        self._callbacks: dict[int, Callable[[int], None]] = {}
        self._touching: set[int] = set()
        """The watched descriptors after whose callbacks every endpoint is asked."""
        self._epoll.register(self._timer.fd, select.EPOLLIN | select.EPOLLET)
        self._epoll.register(self._wakeup, select.EPOLLIN)

    # --- what is driven -------------------------------------------------------------------------------

    def add(
        self,
        endpoint: Endpoint,
        sockets: DatagramSockets,
        delay: DelayLine | None = None,
        pacer: Pacer | None = None,
        on_room: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Drive `endpoint` from the next turn on; `delay` is what its datagrams wait for after they were received,
        `pacer` what keeps it from running ahead of its NIC. `on_room` is told the time when sockets that were full, as
        they are while a class is paused, take datagrams again."""
        port = _Port(endpoint, sockets, delay, pacer, on_room)
        self._ports.append(port)
        for fd in sockets.receivers:
            self._readers[fd] = port
            self._epoll.register(fd, select.EPOLLIN)

    def remove(self, endpoint: Endpoint) -> None:
        """Drive it no longer. Its sockets stay open and are the caller's to close, after this.

        Not to be called by an endpoint, while it is being driven.
        """
        for port in [port for port in self._ports if port.endpoint is endpoint]:
            self._ports.remove(port)
            self._stop_waiting(port)
            for fd in port.sockets.receivers:
                del self._readers[fd]
                self._epoll.unregister(fd)

    def watch(
        self, fd: int, callback: Callable[[int], None], events: int = select.EPOLLIN, *, touches: bool = True
    ) -> None:
        """Call `callback` with the epoll events of `fd` whenever one of `events` (or an error) is there.

        Every endpoint is asked for datagrams and its timer afterwards: the callback may have given it work. One that
        does not do so of each `touches` none, and calls `touch` itself.
        """
        self._callbacks[fd] = callback
        if touches:
            self._touching.add(fd)
        self._epoll.register(fd, events)

    def modify(self, fd: int, events: int) -> None:
        """Watch `fd` for other events."""
        self._epoll.modify(fd, events)

    def unwatch(self, fd: int) -> None:
        """Watch `fd` no longer. It is to be called before `fd` is closed."""
        del self._callbacks[fd]
        self._touching.discard(fd)
        self._epoll.unregister(fd)

    # --- running --------------------------------------------------------------------------------------

    def set_tick(self, tick_ns: int, *, gathers: bool = False) -> None:
        """Take no more than one turn in `tick_ns`, so that one wake-up serves all that has come; 0: any number.

        What has arrived, where the kernel does not say when, counts as having arrived half of the time since the last
        turn earlier. What is due waits for the next turn: handing it out as much too early would keep the mean and
        make round trips shorter than the shortest one there is, which congestion control takes for queues elsewhere.

        `gathers`: what arrives for a paced endpoint may stay with the kernel until it is nearly due, and small packets
        leave many at a time. It is for who carries much and measures nothing: turns follow one another meanwhile, so
        that what is due waits for a part of a tick more often.
        """
        self.tick_ns = tick_ns
        self._gathers = gathers

    def stop(self) -> None:
        """Make `run` return after its present turn, or at once when it is called next."""
        self._stopping = True
        self.wake()

    def wake(self) -> None:
        """Have every endpoint asked for datagrams and its timer: to be called after giving one work."""
        os.eventfd_write(self._wakeup, 1)

    def run(self, until: int | None = None) -> None:
        """Run until `stop`, or until `time.monotonic_ns` has reached `until`."""
        while until is None or time.monotonic_ns() < until:
            if self._stopping:
                self._stopping = False
                return
            self.run_once(until)

    def fileno(self) -> int:
        """Return a descriptor for another event loop, such as asyncio's, to wait for: readable when it is time for
        `turn`."""
        return self._epoll.fileno()

    def touch(self, endpoint: Endpoint | None = None) -> None:
        """Do what `wake` does, without its system call, for the thread that runs the turns itself; for one endpoint,
        or all."""
        for port in self._ports:
            if endpoint is None or port.endpoint is endpoint:
                port.touched = True

    def turn(self) -> bool:
        """One turn without waiting, for whoever waits for `fileno`. True: there is more to be done, so take another."""
        self.run_once(0)
        return self.arm()

    def arm(self) -> bool:
        """Have `fileno` become readable when the next timer of an endpoint is due. True: there is something to be done
        now."""
        deadline: int | None = None
        for port in self._ports:
            if port.touched or port.more:
                return True
            if port.wake_at is not None and (deadline is None or port.wake_at < deadline):
                deadline = port.wake_at
        if deadline is not None:
            self._timer.wake_by(deadline)
        return False

    def run_once(self, until: int | None = 0) -> bool:
        """One turn: wait for events, at most until `until` (ns; 0: not at all; None: as long as it takes), handle them.

        Whether there was anything to do.
        """
        found = self.take_events(until)
        return self.serve() or found

    def take_events(self, until: int | None = 0) -> bool:
        """The first half of `run_once`: endpoints receive, and do what is due. Whether there were events.

        Whatever an endpoint learns, it learns here: who asks it between the two halves hears of all.
        """
        now = time.monotonic_ns()
        if self.tick_ns and until != 0:
            now = self._put_off(now)
        deadline = until
        busy = False
        for port in self._ports:
            busy = busy or port.touched or port.more
            if port.wake_at is not None and (deadline is None or port.wake_at < deadline):
                deadline = port.wake_at
        if busy or (deadline is not None and deadline <= now):
            events = self._epoll.poll(0, self._most_events)
        else:
            events = self._wait(now, deadline)
            self._period_ns = 0
            self._turned_at = time.monotonic_ns()
        for fd, mask in events:
            self._dispatch(fd, mask)
        now = time.monotonic_ns()
        for port in self._ports:
            if port.touched or (port.wake_at is not None and port.wake_at <= now):
                port.touched = _do_due(port, now) or port.touched
        return bool(events)

    def _put_off(self, now: int) -> int:
        """Sleep until the next turn may begin; what time it is then."""
        wait_ns = self._turned_at + self.tick_ns - now
        if wait_ns > 0:
            time.sleep(wait_ns / 1e9)
            now = time.monotonic_ns()
        self._period_ns = min(now - self._turned_at, MOST_TICKS * self.tick_ns)
        self._turned_at = now
        return now

    def serve(self) -> bool:
        """The second half of `run_once`: endpoints send. Whether one had to be asked."""
        served = False
        for port in self._ports:
            now = time.monotonic_ns()
            if port.touched or port.more or (port.wake_at is not None and port.wake_at <= now):
                self._serve(port, now)
                served = True
        return served

    def _wait(self, now: int, deadline: int | None) -> list[tuple[int, int]]:
        if self._spin_ns:
            end = now + self._spin_ns
            if deadline is not None:
                end = min(end, deadline)
            while time.monotonic_ns() < end:
                events = self._epoll.poll(0, self._most_events)
                if events:
                    return events
            if end == deadline:
                return []
        if deadline is not None:
            self._timer.wake_by(deadline)
        return self._epoll.poll(-1, self._most_events)

    @property
    def _most_events(self) -> int:
        """Sockets that are left readable are to keep nobody out."""
        return _MOST_EVENTS + len(self._readers) if self._gathers else _MOST_EVENTS

    def _dispatch(self, fd: int, mask: int) -> None:
        port = self._readers.get(fd)
        if port is not None and mask & _WOKEN:
            if port.delay is not None and port.pacer is not None and self._gathers and self.tick_ns:
                self._gather(port, port.delay, port.pacer, fd)
            else:
                datagrams = port.sockets.receive(fd)
                if datagrams:
                    port.touched = True
                    if port.delay is None:
                        port.endpoint.receive(datagrams, time.monotonic_ns())
                    else:
                        port.delay.hold(datagrams, time.monotonic_ns() - self._period_ns // 2, port.sockets.arrivals)
        if fd in self._writers:
            if mask & ~select.EPOLLIN:
                port = self._writers[fd]
                self._stop_waiting(port)
                port.sockets.flush()
                port.touched = True
        elif port is None:
            self._dispatch_other(fd, mask)

    def _gather(self, port: _Port, delay: DelayLine, pacer: Pacer, fd: int) -> None:
        """Take what has arrived into the line that delays it.

        Where the kernel says when each datagram arrived, it may stay there until the first of them is due: a call for
        many costs hardly more than one for each. What comes to another descriptor, of which the kernel does not say it,
        gets in line behind what has arrived before.
        """
        sockets = port.sockets
        stamped = sockets.receivers[0]
        if fd != stamped:
            self._take_stamped(port, delay, pacer, stamped)
            self._hold(port, delay, fd)
        elif self._turned_at >= port.receive_at:
            self._take_stamped(port, delay, pacer, stamped)

    def _take_stamped(self, port: _Port, delay: DelayLine, pacer: Pacer, fd: int) -> None:
        """Take all that has arrived at a descriptor, as far as a turn allows, and note when to look again."""
        for turn in range(_MOST_RECEIVES):
            found = self._hold(port, delay, fd)
            if not (found or turn) or (found and not port.sockets.arrivals):
                return
            if not found or port.sockets.drained:
                ticks_ns = min(delay.least_ns - 2 * self.tick_ns, LEAVING_TICKS * self.tick_ns)
                port.receive_at = time.monotonic_ns() + min(ticks_ns, pacer.line_ns(LEAVING_BYTES))
                return

    def _hold(self, port: _Port, delay: DelayLine, fd: int) -> bool:
        """Take what one call receives into the line that delays it; whether there was anything."""
        datagrams = port.sockets.receive(fd)
        if datagrams:
            delay.hold(datagrams, time.monotonic_ns() - self._period_ns // 2, port.sockets.arrivals)
            due_at = delay.next_due()
            if due_at is not None and (port.wake_at is None or due_at < port.wake_at):
                port.wake_at = due_at
        return bool(datagrams)

    def _dispatch_other(self, fd: int, mask: int) -> None:
        if fd == self._timer.fd:
            self._timer.fired()
            return
        callback = self._callbacks.get(fd)
        if callback is not None:
            touches = fd in self._touching  # the callback may end the watch
            callback(mask)
            if not touches:
                return
        elif fd == self._wakeup:
            os.eventfd_read(fd)
        self.touch()

    def _serve(self, port: _Port, now: int) -> None:
        """Send what the endpoint has to send, and note when it is to be asked again."""
        sockets = port.sockets
        if sockets.retry_at and sockets.retry_at <= now:
            sockets.flush()
        port.touched = port.more = False
        if port.full and not sockets.blocked:
            port.on_room(now)
        if port.pacer is None:
            port.more = _pull(port, now)
        elif not sockets.blocked:
            _pull_paced(port, port.pacer, now, PULLS_OF_SMALL if self._gathers else port.pacer.pulls)
        elif sockets.passes and port.endpoint.urgent:
            _pull_urgent(port, port.pacer, now)
        port.full = sockets.blocked
        if sockets.blocked_fd != port.waiting_fd:
            self._stop_waiting(port)
            if sockets.blocked_fd >= 0:
                self._wait_for_room(port, sockets.blocked_fd)
        self._set_wake_up(port)

    def _set_wake_up(self, port: _Port) -> None:
        wake_at = port.endpoint.next_timer()
        if port.delay is not None:
            due = port.delay.next_due()
            if due is not None and (wake_at is None or due < wake_at):
                wake_at = due
        if port.pacer is not None and not port.sockets.blocked:
            due = port.pacer.next_due()
            if due is not None and (wake_at is None or due < wake_at):
                wake_at = due
        retry_at = port.sockets.retry_at
        if retry_at and (wake_at is None or retry_at < wake_at):
            wake_at = retry_at
        port.wake_at = wake_at

    # --- room -----------------------------------------------------------------------------------------

    def _wait_for_room(self, port: _Port, fd: int) -> None:
        port.waiting_fd = fd
        self._writers[fd] = port
        if fd in self._readers:  # the entropy value is the port that is received on
            self._epoll.modify(fd, select.EPOLLIN | select.EPOLLOUT)
        else:
            self._epoll.register(fd, select.EPOLLOUT)

    def _stop_waiting(self, port: _Port) -> None:
        fd = port.waiting_fd
        if fd < 0:
            return
        port.waiting_fd = -1
        del self._writers[fd]
        if fd in self._readers:
            self._epoll.modify(fd, select.EPOLLIN)
        else:
            self._epoll.unregister(fd)

    def close(self) -> None:
        """Close what belongs to the loop; sockets of endpoints and watched descriptors do not. Once is enough."""
        if self._epoll.closed:
            return
        self._epoll.close()
        self._timer.close()
        os.close(self._wakeup)


def _do_due(port: _Port, now: int) -> bool:
    """Give the endpoint what has waited for its path's delay, and its timer; whether there was any."""
    due = [] if port.delay is None else port.delay.take(now)
    if due:
        port.endpoint.receive(due, now)
    if port.wake_at is not None and port.wake_at <= now:  # as of the last turn: what was set since is seen by the next
        timer = port.endpoint.next_timer()
        if timer is not None and timer <= now:
            port.endpoint.handle_timer(now)
            return True
    return bool(due)


def _pull(port: _Port, now: int) -> bool:
    """Send what the endpoint has, as far as a turn allows; whether it has more."""
    for _ in range(PULLS_PER_TURN):
        if port.sockets.blocked:
            return False
        datagrams = port.endpoint.transmit(now, PULL)
        if datagrams:
            port.sockets.send(datagrams)
        if len(datagrams) < PULL:
            return False
    return True


def _pull_urgent(port: _Port, pacer: Pacer, now: int) -> None:
    """Send what is urgent while data waits for its class to be resumed: what is of another class goes past it."""
    datagrams = port.endpoint.transmit(now, min(PULL, port.endpoint.urgent))
    if datagrams:
        pacer.sent(datagrams, now)
        port.sockets.send(datagrams)


def _pull_paced(port: _Port, pacer: Pacer, now: int, pulls: int) -> None:
    """Send what is urgent, and as many more as the NIC is to have: with more than one of `pulls`, it takes more small
    packets than full ones."""
    for _ in range(pulls):
        limit = min(PULL, port.endpoint.urgent + pacer.room(now))
        datagrams = port.endpoint.transmit(now, limit) if limit else []
        if datagrams:
            pacer.sent(datagrams, now)
            port.sockets.send(datagrams)
        pacer.held_back = len(datagrams) == limit
        if not datagrams or not pacer.held_back or port.sockets.blocked:
            return
