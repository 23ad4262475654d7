"""The pause machine as tests drive it: what happened goes in, what to do comes out, and what was done is confirmed."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.daemons.portd import native
from testbed.daemons.portd.attachment import PRIORITIES
from testbed.daemons.portd.core import PauseCore, Report


@dataclass(frozen=True, slots=True)
class SendPause:
    """Send a PFC frame out of `port`."""

    port: int
    vector: int
    quanta: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CloseGate:
    """Close the gates of the priorities in `vector`; `confirm` it when it is done."""

    port: int
    vector: int


@dataclass(frozen=True, slots=True)
class OpenGate:
    """Open the gates of the priorities in `vector` and let the queue run; `confirm` it when it is done."""

    port: int
    vector: int


Order = SendPause | CloseGate | OpenGate
Action = Order | Report


class DrivenCore(PauseCore):
    """A pause machine with its inputs and outputs."""

    def on_xoff(self, port: int, priority: int, ns: int) -> None:
        """The account of ingress `port` crossed XOFF at `ns`."""
        self._native.core_on_xoff(self.handle, port, priority, ns)

    def on_xon(self, port: int, priority: int) -> None:
        """The account came down to XON."""
        self._native.core_on_xon(self.handle, port, priority)

    def on_pfc(self, port: int, vector: int, quanta: Sequence[int], ns: int, now: int) -> None:
        """`port` received a PFC frame at `ns`."""
        times = (ctypes.c_uint16 * PRIORITIES)(*quanta)
        self._native.core_on_pfc(self.handle, port, vector, times, ns, now)

    def on_timer(self, now: int) -> None:
        """The time that `next_timer` named has come."""
        self._native.core_on_timer(self.handle, now)

    def compare(self) -> None:
        """Correct the accounts by the map: an event may have been lost in a full ring.

        An event may also be on its way: only what was wrong twice in a row is corrected.
        """
        self._native.core_compare(self.handle, 0, self._queues // PRIORITIES)

    def confirm(self, action: Order, now: int) -> None:
        """It was done: the frame left, or the gates are closed or open, since `now`."""
        match action:
            case SendPause():
                quanta = (ctypes.c_uint16 * PRIORITIES)(*action.quanta)
                sent = native.Action(native.ActionKind.SEND_XOFF, action.port, action.vector, quanta)
                self._native.core_sent(self.handle, sent, now)
            case CloseGate():
                closed = native.Action(native.ActionKind.CLOSE_GATES, action.port, action.vector)
                self._native.core_closed(self.handle, closed, now)
            case OpenGate():
                self.opened(action.port, action.vector, now)

    def next_timer(self) -> int | None:
        """When `on_timer` should be called next; None: no need."""
        when = int(self._native.core_next_timer(self.handle))
        return None if when == native.NEVER else when

    def flush(self, now: int) -> list[Action]:
        """Return what to do now, the most urgent first: gates to close, frames that pause, frames that resume, gates to
        open, and what to report."""
        found: list[Action] = []
        action = native.Action()
        while self._native.core_next(self.handle, now, action):
            match action.kind:
                case native.ActionKind.CLOSE_GATES:
                    found.append(CloseGate(action.port, action.vector))
                case native.ActionKind.OPEN_GATES:
                    found.append(OpenGate(action.port, action.vector))
                case _:
                    found.append(SendPause(action.port, action.vector, tuple(action.quanta)))
        return [*found, *self.reports()]
