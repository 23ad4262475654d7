"""One carried connection at one end, without I/O: frames and the program's bytes go in, frames and bytes come out.

Both ends are alike once they are open. What the program of this end writes is read as far as the window of the other
end allows (`room`, `read`), and goes as frames of DATA that are numbered, since messages overtake each other. What
comes is put in order (`written` tells that the program has taken it), and the other end is given credit for it. Each
direction ends by itself: with `read_end` here and FIN there, after which `end_due` says that the program is to be told.
With both ended the connection is closed. RESET, and anything that a peer that keeps to this would not send, ends it at
once (`was_reset`).

    opener: OPENING -> (REFUSED) WAITING -> OPENING ... -> OPEN -> CLOSED
    other:  CONNECTING -> OPEN -> CLOSED

The opener's program has been told that it is connected before anybody listened. So who refuses is asked again until
`patience_ns` are over, and then the connection is reset.

A window is in bytes, of which a frame costs `LEAST_COST` at least: so it bounds memory, whatever is sent. The sender
reads only when a whole frame fits, and credit is told for a quarter of a window at a time.
"""

from __future__ import annotations

import errno
from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from testbed.run.carrier.frames import HEADER_BYTES, ConnectionEnds, Frame, FrameKind, encode, write_data_header

LEAST_COST = 256
"""The least that a frame of DATA takes of a window: about as much is kept of one beside its bytes."""
CREDITS_PER_WINDOW = 4
RETRY_NS = 250_000_000
"""The pause before a connection that was refused is asked for again."""


class ConnectionState(StrEnum):
    OPENING = "opening"
    """The other end has been asked, and has not answered."""
    WAITING = "waiting"
    """It has refused, and will be asked again."""
    CONNECTING = "connecting"
    """The program that listens here is being asked."""
    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The limits of a connection: its receive window, the longest frame of DATA without its header, and for how long
    who refuses is asked again."""

    window_bytes: int
    data_bytes: int
    patience_ns: int

    def __post_init__(self) -> None:
        if not LEAST_COST <= self.data_bytes <= self.window_bytes // CREDITS_PER_WINDOW:
            raise ValueError(f"frames of {self.data_bytes} bytes in a window of {self.window_bytes}")


def cost(size: int) -> int:
    """Return what a frame with so much data takes of a window."""
    return max(size, LEAST_COST)


class CarriedConnection:
    """Made by `open_connection` and `accept_connection`. Times are ns of any clock that does not go back."""

    def __init__(
        self, number: int, ends: ConnectionEnds, limits: ConnectionLimits, *, is_opener: bool, word: int = 0
    ) -> None:
        self.number = number
        self.ends = ends
        self.is_opener = is_opener
        self.state = ConnectionState.OPENING if is_opener else ConnectionState.CONNECTING
        self.was_reset = False
        """It ended at once, and the program is to be told so."""
        self.error = ""
        """Why it was reset, where the other end broke the protocol."""
        self.peer_word = 0
        """The word that the other end's transport has told in OPEN or OPENED."""
        self.read_ended = False
        """Our program writes no more."""
        self.write_ended = False
        """Our program has been told that no more comes."""
        self.timer_at: int | None = None
        """When `handle_timer` is to be called."""
        self._limits = limits
        self._word = word
        self._outbox: list[bytes] = []
        self._gives_up_at = 0
        # What we send.
        self._peer_window = 0
        self._frames = 0
        self._spent = 0
        self._credited = 0
        # What we receive.
        self._early: dict[int, bytes] = {}
        self._ready: deque[memoryview] = deque()
        self._costs: deque[int] = deque()
        self._next = 0
        self._arrived_cost = 0
        self._taken_cost = 0
        self._told_cost = 0
        self._final: int | None = None

    # --- the beginning -----------------------------------------------------------------------------------

    def ask(self, now: int) -> None:
        """Ask the other end for the connection."""
        if not self._gives_up_at:
            self._gives_up_at = now + self._limits.patience_ns
        self.state = ConnectionState.OPENING
        self.timer_at = None
        self._tell(FrameKind.OPEN, window=self._limits.window_bytes, word=self._word, ends=self.ends)

    def connected(self) -> None:
        """Somebody listens here: the other end is told."""
        assert self.state is ConnectionState.CONNECTING
        self.state = ConnectionState.OPEN
        self._tell(FrameKind.OPENED, window=self._limits.window_bytes, word=self._word)

    def refused(self, reason: int) -> None:
        """Nobody listens here, or nobody can be reached: an errno says why. The connection is forgotten."""
        assert self.state is ConnectionState.CONNECTING
        self.state = ConnectionState.CLOSED
        self._tell(FrameKind.REFUSED, value=reason)

    def handle_timer(self, now: int) -> None:
        """Ask again where it is time."""
        if self.timer_at is not None and self.timer_at <= now and self.state is ConnectionState.WAITING:
            self.ask(now)

    # --- what our program does ---------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """The bytes of our program that may be read now; 0 where it has to wait."""
        if self.state is not ConnectionState.OPEN or self.read_ended:
            return 0
        left = self._peer_window - (self._spent - self._credited)
        longest = min(self._limits.data_bytes, self._peer_window // CREDITS_PER_WINDOW)
        return longest if left >= longest else 0

    def read(self, buffer: bytearray, size: int) -> memoryview:
        """Return the message for `size` bytes of our program, which are in `buffer` from `HEADER_BYTES` on."""
        assert 0 < size <= self.room
        write_data_header(buffer, from_opener=self.is_opener, number=self.number, sequence=self._frames)
        self._frames += 1
        self._spent += cost(size)
        return memoryview(buffer)[: HEADER_BYTES + size]

    def read_end(self) -> None:
        """Our program has ended its direction."""
        if self.state is ConnectionState.OPEN and not self.read_ended:
            self.read_ended = True
            self._tell(FrameKind.FIN, value=self._frames)
            self._close_if_ended()

    def fail(self, reason: int) -> None:
        """Our program is gone or has reset the connection (an errno says how): the other end is told."""
        if self.state is ConnectionState.CLOSED:
            return
        if self.state is not ConnectionState.WAITING:  # the other end has forgotten it then
            self._tell(FrameKind.RESET, value=reason)
        self._reset("")

    def drop(self, error: str) -> None:
        """End it without a word to the other end, which cannot be reached."""
        if self.state is not ConnectionState.CLOSED:
            self._reset(error)

    # --- what is for our program -------------------------------------------------------------------------

    @property
    def to_write(self) -> memoryview | None:
        """The next bytes for our program; None where there are none yet."""
        return self._ready[0] if self._ready and self.state is ConnectionState.OPEN else None

    @property
    def end_due(self) -> bool:
        """Tell whether our program has got all that there will be, and is to be told so (`write_end`)."""
        return (
            self.state is ConnectionState.OPEN
            and not self.write_ended
            and not self._ready
            and self._final is not None
            and self._next == self._final
        )

    def written(self, size: int) -> None:
        """Our program has taken so much of `to_write`."""
        first = self._ready[0]
        if size < len(first):
            self._ready[0] = first[size:]
            return
        self._ready.popleft()
        self._taken_cost += self._costs.popleft()
        if self._taken_cost - self._told_cost >= self._limits.window_bytes // CREDITS_PER_WINDOW:
            self._told_cost = self._taken_cost
            if self._final is None:  # else nothing is waiting for it
                self._tell(FrameKind.CREDIT, value=self._taken_cost)

    def write_end(self) -> None:
        """Our program has been told that no more comes."""
        self.write_ended = True
        self._close_if_ended()

    # --- what the other end says -------------------------------------------------------------------------

    def take_frames(self) -> list[bytes]:
        """Return the frames that are to be sent, in order."""
        frames = self._outbox
        self._outbox = []
        return frames

    def on_frame(self, frame: Frame, now: int) -> None:
        """Take a frame of the other end, whatever it is; what breaks the protocol resets the connection."""
        if self.state is ConnectionState.CLOSED:
            return
        match frame.kind:
            case FrameKind.DATA:
                self._on_data(frame)
            case FrameKind.CREDIT:
                self._on_credit(frame.value)
            case FrameKind.FIN:
                self._on_fin(frame.value)
            case FrameKind.RESET:
                self._reset("")
            case FrameKind.OPENED:
                self._on_opened(frame)
            case FrameKind.REFUSED:
                self._on_refused(now)
            case FrameKind.OPEN:
                self._violated("it opens twice")

    def _on_opened(self, frame: Frame) -> None:
        if self.state is not ConnectionState.OPENING:
            self._violated("it was not asked, and opens")
            return
        self.state = ConnectionState.OPEN
        self._peer_window = frame.window
        self.peer_word = frame.word

    def set_peer_window(self, window: int) -> None:
        """Note the window that OPEN had."""
        self._peer_window = window

    def _on_refused(self, now: int) -> None:
        if self.state is not ConnectionState.OPENING:
            self._violated("it was not asked, and refuses")
        elif now + RETRY_NS > self._gives_up_at:
            self._reset("")
        else:
            self.state = ConnectionState.WAITING
            self.timer_at = now + RETRY_NS

    def _on_data(self, frame: Frame) -> None:
        sequence, size = frame.value, len(frame.data)
        if self.state is ConnectionState.WAITING or self.state is ConnectionState.CONNECTING:
            self._violated("data before it is open")
            return
        if sequence < self._next or sequence in self._early:
            self._violated(f"frame {sequence} comes twice")
            return
        if self._final is not None and sequence >= self._final:
            self._violated(f"frame {sequence} after the end")
            return
        self._arrived_cost += cost(size)
        if self._arrived_cost - self._taken_cost > self._limits.window_bytes or size > self._limits.window_bytes:
            self._violated("it sends more than it may")
            return
        if sequence >= self._next + self._limits.window_bytes // LEAST_COST:
            self._violated(f"frame {sequence} is too far ahead")
            return
        self._early[sequence] = frame.data
        while (data := self._early.pop(self._next, None)) is not None:
            self._ready.append(memoryview(data))
            self._costs.append(cost(len(data)))
            self._next += 1

    def _on_credit(self, taken: int) -> None:
        if taken > self._spent:
            self._violated("it has taken more than was sent")
            return
        self._credited = max(self._credited, taken)  # an older one may have been overtaken

    def _on_fin(self, frames: int) -> None:
        if self.state is ConnectionState.WAITING or self.state is ConnectionState.CONNECTING:
            self._violated("an end before it is open")
        elif self._final is not None:
            self._violated("it ends twice")
        elif frames < self._next or any(sequence >= frames for sequence in self._early):
            self._violated(f"it ends after {frames} frames, and has sent more")
        elif frames > self._next + self._limits.window_bytes // LEAST_COST:
            self._violated(f"it ends after {frames} frames, more than it may have sent")
        else:
            self._final = frames

    # --- the end -----------------------------------------------------------------------------------------

    def _close_if_ended(self) -> None:
        if self.read_ended and self.write_ended:
            self.state = ConnectionState.CLOSED

    def _violated(self, error: str) -> None:
        self._tell(FrameKind.RESET, value=errno.EPROTO)
        self._reset(error)

    def _reset(self, error: str) -> None:
        self.state = ConnectionState.CLOSED
        self.was_reset = True
        self.error = error
        self.timer_at = None
        self._early.clear()
        self._ready.clear()
        self._costs.clear()

    def _tell(
        self, kind: FrameKind, *, value: int = 0, window: int = 0, word: int = 0, ends: ConnectionEnds | None = None
    ) -> None:
        frame = Frame(kind, self.is_opener, self.number, value, b"", window, word, ends)
        self._outbox.append(encode(frame))


def open_connection(
    number: int, ends: ConnectionEnds, limits: ConnectionLimits, now: int, *, word: int = 0
) -> CarriedConnection:
    """Return a connection that a program of this end has opened; the other end is asked."""
    found = CarriedConnection(number, ends, limits, is_opener=True, word=word)
    found.ask(now)
    return found


def accept_connection(frame: Frame, limits: ConnectionLimits, *, word: int = 0) -> CarriedConnection:
    """Return the connection that an OPEN asks for: the program that listens here is to be asked."""
    assert frame.ends is not None
    found = CarriedConnection(frame.number, frame.ends, limits, is_opener=False, word=word)
    found.set_peer_window(frame.window)
    found.peer_word = frame.word
    return found
