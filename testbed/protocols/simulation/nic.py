"""A NIC with the endpoint behind it, which its port asks for a packet as the line becomes free; it obeys pauses.

While a class is paused, and while what waited in a pause is being sent, packets wait in the NIC: rate limiters go on at
their rates. Where `NIC_PACKETS` wait, the endpoint is asked for no more but what is urgent, which may ride in a class
that is not paused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from testbed.protocols.datagram import DONT_FRAGMENT, NIC_PACKETS, Incoming, Outgoing
from testbed.protocols.simulation.errors import ContractError, Livelock
from testbed.protocols.simulation.events import Actor, Events
from testbed.protocols.simulation.frame import DEFAULT_TTL, Frame
from testbed.protocols.simulation.port import OutputPort
from testbed.protocols.simulation.settings import FabricPortSettings
from testbed.protocols.simulation.switch import PortArrivals

if TYPE_CHECKING:
    from mypy_extensions import i64

new_tuple: Final[Callable[..., Any]] = tuple.__new__
FLOW_MIX: Final = 0x9E3779B1
MIX_BITS: Final = 0xFFFFFFFF
"""The lower bits of multiples of the golden ratio are spread evenly, whatever flows have in common."""
MAX_TIMERS_AT_ONCE: Final = 1000
"""Timers of one endpoint without time passing, before that counts as a livelock."""


class Endpoint(Protocol):
    """A transport core without I/O. All times are ns."""

    @property
    def address(self) -> str: ...

    def receive(self, datagrams: Sequence[Incoming], now: int) -> None: ...

    def transmit(self, now: int, limit: int = 64) -> list[Outgoing]:
        """Return what it wants to send now, `limit` at most. Nothing: it is asked again after something has happened to
        it."""

    def next_timer(self) -> int | None:
        """Return when `handle_timer` is due; a time in the past means now."""

    def handle_timer(self, now: int) -> None: ...


class NicTimer(Actor):
    """The event at which the timer of a NIC's endpoint is due."""

    def __init__(self, nic: NicHost) -> None:
        self._nic = nic

    def act(self, now: i64, frame: Frame | None) -> None:
        self._nic.on_timer(now)


class NicWaking(Actor):
    """The event at which an endpoint that was given something is asked what it wants."""

    def __init__(self, nic: NicHost) -> None:
        self._nic = nic

    def act(self, now: i64, frame: Frame | None) -> None:
        self._nic.on_wake(now)


class NicInput(Actor):
    """A second line, or a further one, that ends at a NIC, which counts what comes by it apart."""

    def __init__(self, nic: NicHost, settings: FabricPortSettings) -> None:
        self.arrivals = PortArrivals(settings)
        self._nic = nic

    def act(self, now: i64, frame: Frame | None) -> None:
        first, self._nic.arrivals = self._nic.arrivals, self.arrivals
        self._nic.act(now, frame)
        self._nic.arrivals = first


class NicHost(Actor):
    """Number and address in the network; what it sent and got.

    `completions` are those of its endpoint: as long as there are any, `on_completions` is called after it acted.
    """

    full = False
    """As many packets wait in it as it takes, since their class is paused or was."""
    _held = False
    """Packets wait in it whose class is paused, or was."""

    def __init__(
        self,
        number: int,
        endpoint: Endpoint,
        events: Events,
        numbers: dict[str, int],
        addresses: list[str],
        overhead_bytes: int,
    ) -> None:
        self.number = number
        self.address = endpoint.address
        self.endpoint = endpoint
        self.addresses = addresses
        self.kinds: i64 = 0
        """The place at which the kinds of its packets begin in `FabricPortSettings.priority_of`."""
        self.overhead_bytes: i64 = overhead_bytes
        self.ttl: i64 = DEFAULT_TTL
        """The time to live of what it sends."""
        self.group_of: list[int] = []
        """The group of each host by its number, which the network has set."""
        self.alive = True
        self.port: OutputPort | None = None
        """Its way out, or the first one; set as the network is built."""
        self.ports: list[OutputPort] = []
        """All its ways out."""
        self.usable: list[OutputPort] = []
        """The ways whose link has a carrier, as far as it knows: a flow takes one of them."""
        self.guests: list[NicHost] = []
        """Others of its host that send by its port, since theirs has no carrier."""
        self._by_flows = False
        """It has several ways out, or none but that of another one."""
        self.arrivals: PortArrivals | None = None
        self.completions: deque[Any] = deque()
        self.on_completions: Callable[[], None] = lambda: None
        self.sent: i64 = 0
        """Datagrams the NIC took from the endpoint."""
        self.unroutable = 0
        """Datagrams among them to an address that is not in the network."""
        self.delivered: i64 = 0
        self.delivered_bytes: i64 = 0
        """Bytes of UDP payload as it arrived."""
        self.refused = 0
        """Frames that arrived while the host was dead."""
        self.tap: Callable[[Frame, int], bool] | None = None
        """Takes frames out of the endpoint's way: what it returns True for, the endpoint does not get."""
        self.tapped = 0
        """Frames that it took."""
        self.last_active: i64 = 0
        self._numbers = numbers
        self._events = events
        self._waking = False
        self._armed: i64 = -1
        """Time of the timer event that counts, others are out of date; -1: none does."""
        self._timers_at: i64 = -1
        self._timers_now: i64 = 0
        self._timer = NicTimer(self)
        self._woken = NicWaking(self)

    def act(self, now: i64, frame: Frame | None) -> None:
        """A frame has come in whole."""
        assert frame is not None
        arrivals = self.arrivals
        if arrivals is not None:
            arrivals.count(frame)
        if self.tap is not None and self.tap(frame, now):
            self.tapped += 1
            return
        if not self.alive:
            self.refused += 1
            return
        data = frame.data
        self.delivered += 1
        self.delivered_bytes += frame.size
        length = frame.length if frame.trimmed else 0
        # The constructor of a named tuple is a function of Python's; tuple's own takes a third of its time.
        incoming: Incoming = new_tuple(
            Incoming,
            (self.addresses[frame.source], frame.entropy, data, frame.ce, length, frame.last_hop, DONT_FRAGMENT),
        )
        self._receive(incoming, now)
        self._continue(now)

    def add_port(self, port: OutputPort) -> None:
        """Give it a way out. It is one address behind all of them, as a link group or a host that routes has it."""
        if self.port is None:
            self.port = port
        self.ports.append(port)
        self.usable.append(port)
        self._by_flows = len(self.ports) > 1
        port.host = self

    def use(self, port: OutputPort, usable: bool) -> None:
        """Take one of its ways for lost, or for another one that may be used."""
        known = [one for one in self.ports if (usable if one is port else one in self.usable)]
        self.usable = known
        self.wake()

    def send_by(self, port: OutputPort | None) -> None:
        """Send by the port of another NIC of its host, as long as its only one has no carrier; None: by its own again.

        The other one is asked first when the line is free.
        """
        own, before = self.port, self.usable[0]
        now = own if port is None else port
        if now is None or now is before:
            return
        if before is not own and before.host is not None:
            before.host.guests.remove(self)
        if now is not own and now.host is not None:
            now.host.guests.append(self)
        self._by_flows = now is not own
        self.usable = [now]
        self.wake()

    def way_of(self, frame: Frame) -> OutputPort:
        """Return the port by which the flow of a packet leaves."""
        ways = self.usable or self.ports
        place: i64 = frame.flow * FLOW_MIX & MIX_BITS
        return ways[place * len(ways) // (MIX_BITS + 1)]

    def ask(self, now: i64) -> None:
        """The line is free."""
        if self.alive:
            self._pull(now)
            self._events.acted = True
            self._arm(now)
            if self.completions:
                self.on_completions()
        for guest in self.guests:
            guest.ask(now)

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
        self._events.acted = True
        self.last_active = now
        self._pull(now)
        self._arm(now)
        if self.completions:
            self.on_completions()

    def _receive(self, incoming: Incoming, now: int) -> None:
        self.endpoint.receive((incoming,), now)

    def _transmit(self, now: int) -> list[Outgoing]:
        return self.endpoint.transmit(now, 1)

    def _urgent(self) -> int:
        """Return how many answers an endpoint has that go before all else, if it knows such."""
        return 0

    def _on_room(self, now: int) -> None:
        """Tell an endpoint that asks how late it is that its NIC, having been full, takes packets again."""

    def _pull(self, now: i64) -> None:
        if self._by_flows:
            self._pull_by_flows(now)
            return
        port = self.port
        assert port is not None
        while self._takes(port, now):
            batch = self._transmit(now)
            if not batch:
                return
            if len(batch) > 1:
                raise ContractError(f"{self.address} was asked for 1 datagram and handed out {len(batch)}")
            frame = self._frame_of(batch[0])
            if frame is not None:
                port.offer(now, frame, None)
        if port.waiting >= NIC_PACKETS:
            self.full = True

    def _takes(self, port: OutputPort, now: i64) -> bool:
        """Tell whether its only port takes a packet: the line is free, or what a pause has held is not sent yet."""
        waiting = port.waiting
        idle = not port.draining and port.free <= now
        self._held = waiting > 0 and (idle or self._held)
        if not idle and not self._held:
            return False
        if waiting >= NIC_PACKETS:
            return self._urgent() > 0
        if self.full:
            self.full = False
            self._on_room(now)
        return True

    def _pull_by_flows(self, now: i64) -> None:
        """Do that with several ways, of which each flow takes one, or with that of another NIC; all are dead ends where
        none is usable."""
        ways = self.usable or self.ports
        while any(not port.draining and port.free <= now for port in ways) and (
            max(port.waiting for port in ways) < NIC_PACKETS or self._urgent()
        ):
            if self.full and max(port.waiting for port in ways) < NIC_PACKETS:
                self.full = False
                self._on_room(now)
            batch = self._transmit(now)
            if not batch:
                return
            frame = self._frame_of(batch[0])
            if frame is not None:
                self.way_of(frame).offer(now, frame, None)
        if max(port.waiting for port in ways) >= NIC_PACKETS:
            self.full = True

    def _frame_of(self, outgoing: Outgoing) -> Frame | None:
        """Make a frame of a datagram; None for one to an address that is not in the network."""
        self.sent += 1
        destination = self._numbers.get(outgoing.remote, -1)
        if destination < 0:
            self.unroutable += 1
            return None
        frame = Frame(self.number, destination, outgoing.entropy, outgoing.priority, outgoing.header, outgoing.payload)
        frame.group = self.group_of[destination]
        frame.ttl = self.ttl
        frame.kind += self.kinds
        frame.wire_bytes = frame.size + self.overhead_bytes
        return frame

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
