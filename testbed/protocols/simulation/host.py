"""A host: one endpoint and its NIC. The NIC takes one datagram at a time, whenever its line is free."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from testbed.protocols.datagram import Incoming, Outgoing
from testbed.protocols.simulation.errors import ContractError, Livelock
from testbed.protocols.simulation.events import Actor, Events
from testbed.protocols.simulation.frame import Frame
from testbed.protocols.simulation.link import Line

if TYPE_CHECKING:
    from mypy_extensions import i64

MAX_TIMERS_AT_ONCE: Final = 1000
"""Timers of one endpoint without time passing, before that counts as a livelock."""


class Endpoint(Protocol):
    """A transport core without I/O. All times are ns."""

    @property
    def address(self) -> str: ...

    def receive(self, datagrams: Sequence[Incoming], now: int) -> None: ...

    def transmit(self, now: int, limit: int = 64) -> list[Outgoing]:
        """Return what it wants to send now, `limit` at most. Nothing: it is asked again after something has happened to
        it.
        """
        ...

    def next_timer(self) -> int | None:
        """Return when `handle_timer` is due; a time in the past means now."""
        ...

    def handle_timer(self, now: int) -> None: ...


class HostTimer(Actor):
    """When the timer of a host's endpoint is due."""

    __slots__ = ("_host",)

    def __init__(self, host: Host) -> None:
        self._host = host

    def act(self, now: i64, frame: Frame | None) -> None:
        self._host.on_timer(now)


class HostWaking(Actor):
    """When the endpoint of a host is asked what it wants: it was given something, or its line is free."""

    __slots__ = ("_host",)

    def __init__(self, host: Host) -> None:
        self._host = host

    def act(self, now: i64, frame: Frame | None) -> None:
        self._host.on_wake(now)


class Host(Actor):
    """Number and address in the network; what it sent and got."""

    __slots__ = (
        "_armed",
        "_events",
        "_numbers",
        "_pulling",
        "_timer",
        "_timers_at",
        "_timers_now",
        "_waking",
        "_woken",
        "address",
        "addresses",
        "alive",
        "delivered",
        "delivered_bytes",
        "endpoint",
        "last_active",
        "line",
        "number",
        "refused",
        "sent",
        "unroutable",
    )

    def __init__(
        self, number: int, endpoint: Endpoint, events: Events, numbers: dict[str, int], addresses: list[str]
    ) -> None:
        self.number = number
        self.address = endpoint.address
        self.endpoint = endpoint
        self.addresses = addresses
        self.alive = True
        self.line: Line | None = None
        """Its way out; set as the network is built."""
        self.sent: i64 = 0
        """Datagrams the NIC took from the endpoint."""
        self.unroutable = 0
        """Of those, the ones to an address that is not in the network."""
        self.delivered: i64 = 0
        self.delivered_bytes: i64 = 0
        """Of UDP payload as it arrived."""
        self.refused = 0
        """Frames that arrived while the host was dead."""
        self.last_active: i64 = 0
        self._numbers = numbers
        self._events = events
        self._pulling = False
        """The line is busy; as it becomes free, the endpoint is asked again."""
        self._waking = False
        self._armed: i64 = -1
        """Time of the timer event that counts, others are out of date; -1: none does."""
        self._timers_at: i64 = -1
        self._timers_now: i64 = 0
        self._timer = HostTimer(self)
        self._woken = HostWaking(self)

    def act(self, now: i64, frame: Frame | None) -> None:
        """A frame has come in whole; or, without one, the line is free."""
        if frame is None:
            self._pulling = False
            if self.alive:
                self._pull(now)
                self._events.acted = True
                self._arm(now)
            return
        if not self.alive:
            self.refused += 1
            return
        data = frame.data
        self.delivered += 1
        self.delivered_bytes += len(data)
        incoming = Incoming(
            self.addresses[frame.source],
            frame.entropy,
            data,
            frame.ce,
            frame.length if frame.trimmed else 0,
            frame.last_hop,
        )
        self.endpoint.receive((incoming,), now)
        self._continue(now)

    def wake(self) -> None:
        """Ask the endpoint for datagrams and its timer, in an event of its own: the endpoint itself may call this."""
        if not self._waking:
            self._waking = True
            self._events.put(self._events.now, self._woken, None)

    def kill(self) -> None:
        """The endpoint is called no more; what arrives is refused, what has been sent goes on."""
        self.alive = False
        self._armed = -1

    def restart(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.alive = True
        self._armed = -1
        self.wake()

    def describe(self) -> str:
        """Describe the state of the host for the message of a deadlock."""
        timer = self.endpoint.next_timer() if self.alive else None
        state = "killed" if not self.alive else "no timer" if timer is None else f"timer at {timer} ns"
        return f"{self.address}: sent {self.sent}, got {self.delivered}, last active at {self.last_active} ns, {state}"

    def _continue(self, now: i64) -> None:
        """Something has happened to the endpoint."""
        self._events.acted = True
        self.last_active = now
        if not self._pulling:
            self._pull(now)
        self._arm(now)

    def _pull(self, now: i64) -> None:
        """Take one datagram if there is any; ask again as the line becomes free."""
        batch = self.endpoint.transmit(now, 1)
        if not batch:
            return
        if len(batch) > 1:
            raise ContractError(f"{self.address} was asked for 1 datagram and handed out {len(batch)}")
        outgoing = batch[0]
        self.sent += 1
        data = outgoing.header + outgoing.payload
        destination = self._numbers.get(outgoing.remote, -1)
        frame = Frame(self.number, destination, outgoing.entropy, int(outgoing.priority), data)
        assert self.line is not None
        if destination < 0:
            self.unroutable += 1
            free = now + self.line.serialisation_ns(frame.wire_bytes)
        else:
            free = self.line.send(now, frame)
        self._pulling = True
        self._events.put(free, self, None)

    def _next_timer(self) -> int | None:
        return self.endpoint.next_timer()

    def _arm(self, now: i64) -> None:
        timer = self._next_timer()
        if timer is None:
            return
        due: i64 = timer
        due = max(due, now)
        if due < self._armed or self._armed < 0:
            self._armed = due
            self._events.put(due, self._timer, None)

    def on_wake(self, now: i64) -> None:
        """The application has acted."""
        self._waking = False
        if self.alive:
            self._continue(now)

    def on_timer(self, now: i64) -> None:
        """A timer was due now; it may be out of date."""
        if now != self._armed:
            return
        self._armed = -1
        due = self.endpoint.next_timer()
        if due is None or due > now:
            self._arm(now)
            return
        if now != self._timers_at:
            self._timers_at = now
            self._timers_now = 0
        self._timers_now += 1
        if self._timers_now > MAX_TIMERS_AT_ONCE:
            raise Livelock(now, self.address)
        self.endpoint.handle_timer(now)
        self._continue(now)
