"""A host at its NIC: the port asks its endpoint for a packet as the line becomes free, and obeys pauses.

Where `NIC_PACKETS` wait in a NIC whose class is paused, its endpoint is asked for no more but what is urgent: that may
ride in a class which is not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from testbed.protocols.datagram import DONT_FRAGMENT, NIC_PACKETS, Incoming, Outgoing
from testbed.protocols.simulation.errors import ContractError
from testbed.protocols.simulation.events import Events
from testbed.protocols.simulation.fabric.port import OutputPort
from testbed.protocols.simulation.fabric.switch import Arrivals
from testbed.protocols.simulation.frame import Frame
from testbed.protocols.simulation.host import Endpoint, Host

if TYPE_CHECKING:
    from mypy_extensions import i64

new_tuple: Final[Callable[..., Any]] = tuple.__new__


def ignore_endings() -> None:
    """What hears of ended operations where nobody else does."""


class NicHost(Host):
    """`completions` are those of its endpoint: as long as there are any, `on_completions` is called after it acted."""

    __slots__ = ("arrivals", "completions", "on_completions", "overhead_bytes", "port")

    def __init__(
        self,
        number: int,
        endpoint: Endpoint,
        events: Events,
        numbers: dict[str, int],
        addresses: list[str],
        overhead_bytes: int,
    ) -> None:
        super().__init__(number, endpoint, events, numbers, addresses)
        self.overhead_bytes: i64 = overhead_bytes
        self.port: OutputPort | None = None
        self.arrivals: Arrivals | None = None
        self.completions: deque[Any] = deque()
        self.on_completions: Callable[[], None] = ignore_endings

    def act(self, now: i64, frame: Frame | None) -> None:
        """A frame has come in whole."""
        assert frame is not None
        arrivals = self.arrivals
        if arrivals is not None:
            arrivals.count(frame)
        if not self.alive:
            self.refused += 1
            return
        data = frame.data
        self.delivered += 1
        self.delivered_bytes += len(data)
        length = frame.length if frame.trimmed else 0
        # The constructor of a named tuple is a function of Python's; tuple's own takes a third of its time.
        incoming: Incoming = new_tuple(
            Incoming,
            (self.addresses[frame.source], frame.entropy, data, frame.ce, length, frame.last_hop, DONT_FRAGMENT),
        )
        self._receive(incoming, now)
        self._continue(now)

    def ask(self, now: i64) -> None:
        """The line is free."""
        if self.alive:
            self._pull(now)
            self._events.acted = True
            self._arm(now)
            if self.completions:
                self.on_completions()

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

    def _pull(self, now: i64) -> None:
        port = self.port
        assert port is not None
        while not port.draining and port.free <= now and (port.waiting < NIC_PACKETS or self._urgent()):
            batch = self._transmit(now)
            if not batch:
                return
            if len(batch) > 1:
                raise ContractError(f"{self.address} was asked for 1 datagram and handed out {len(batch)}")
            outgoing = batch[0]
            self.sent += 1
            data = outgoing.header + outgoing.payload
            destination = self._numbers.get(outgoing.remote, -1)
            if destination < 0:
                self.unroutable += 1
                continue
            frame = Frame(self.number, destination, outgoing.entropy, outgoing.priority, data)
            frame.wire_bytes = len(data) + self.overhead_bytes
            port.offer(now, frame, None)
