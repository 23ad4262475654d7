"""The half of a connection that receives: bytes in order, blocks that are not, acknowledgements and their delays, and
the window that is advertised.

Acknowledgements follow Linux (net/ipv4/tcp_input.c, tcp_output.c): one for each segment at the begin of a connection,
then for every second full one, or after a delay of 40 to 200 ms; at once for what is out of order. The window begins
with 64 KiB and grows with what the application reads in a round trip (dynamic right-sizing, tcp_rcv_space_adjust).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import Final

from testbed.protocols.tcp.rto import MS
from testbed.protocols.tcp.segment import MOST_SACK_BLOCKS, TcpSegment

INITIAL_RECEIVE_WINDOW: Final = 65_535
"""Half of the second number of tcp_rmem."""
MOST_RECEIVE_WINDOW: Final = 3 << 20
"""Half of its third number, 6 MiB: the other half is for what the kernel keeps beside the bytes."""
LEAST_DELAY_NS: Final = 40 * MS
"""TCP_DELACK_MIN and TCP_ATO_MIN."""
MOST_DELAY_NS: Final = 200 * MS
MOST_QUICK_ACKS: Final = 16
FIRST_FULL_BYTES: Final = 536
WINDOW_SCALE: Final = 7
DIALOGUE: Final = 1
"""After so many answers acknowledgements wait for the next one (tcp_pingpong_thresh)."""


class TcpReceiver:
    """Sequence numbers are of 64 bits. `next` is RCV.NXT of RFC 9293."""

    def __init__(self, first: int, mss: int) -> None:
        self.next = first
        self.mss = mss
        self.finished = False
        """The peer has sent all that it will ever send, and it is here."""
        self.ack_now = False
        self.ack_due_ns = -1
        """When a delayed acknowledgement is sent at the latest; -1: none is owed."""
        self.window_bytes = INITIAL_RECEIVE_WINDOW
        """So many bytes may be kept that nobody has read."""
        self.out_of_order = 0
        """Segments that did not arrive in order."""
        self.received = 0
        """Segments with bytes."""
        self.duplicate: tuple[int, int] | None = None
        """The bytes that arrived twice, to be told once (RFC 2883)."""
        self.ece = False
        """Segments that are sent now tell of a mark."""
        self.exact_marks = False
        """Each mark is echoed as it comes (RFC 8257, section 3.2), rather than until the sender answers (RFC 3168)."""
        self._ready: deque[bytes] = deque()
        self.readable = 0
        """Bytes that are there to be read."""
        self._firsts: list[int] = []
        """The numbers at which the blocks out of order begin; `_ends` and `_pieces` have the rest of each."""
        self._ends: list[int] = []
        self._pieces: list[deque[bytes]] = []
        self._recent: list[int] = []
        """These begins again, of the block that changed last first."""
        self._fin = -1
        """The sequence number of the peer's FIN; -1: it is not known."""
        self._acknowledged = first
        self._advertised_end = first + self.window_bytes
        self._full = FIRST_FULL_BYTES
        """The largest segment so far, which counts as a full one (icsk_ack.rcv_mss)."""
        self._quick = 0
        self._ato_ns = 0
        self._last_ns = -1
        self._turns = 0
        """Answers that followed what they answer: a dialogue has its acknowledgements on its own data."""
        self._pushed = False
        self._space = min(self.window_bytes, 10 * mss)
        self._space_begin = first
        self._space_ns = -1
        self._read_to = first
        self._rtt_ns = 0
        self._last_tsecr = -1

    # --- bytes come --------------------------------------------------------------------------------------

    def on_segment(self, first: int, segment: TcpSegment, marked: bool, fin: bool, now: int) -> bool:
        """Take the bytes of a segment; `first` is the number of its first one. Whether there are new ones in order.

        What lies beyond the window is left out.
        """
        data = segment.payload
        end = first + len(data)
        limit = self._advertised_end
        if fin and self._fin < 0 and end <= limit:
            self._fin = end
        if end > limit:
            data = data[: max(0, limit - first)]
            end = first + len(data)
            self.ack_now = True
        if data:
            self.received += 1
            self._note_arrival(len(data), segment, now)
        if self.exact_marks:
            self._note_mark(marked)
        elif marked:
            self.ece = True
        before = self.next
        if end <= before:
            if data:
                self.duplicate = (first, end)
            self.ack_now = True  # it arrived before, or there is nothing in it
        elif first > before:
            self.out_of_order += 1
            self.ack_now = True
            if data or end == self._fin:
                self._keep(first, end, data)
        else:
            if first < before:
                self.duplicate = (first, before)
                data = data[before - first :]
            self._take(data)
            if self._firsts:
                self.ack_now = True  # it fills a hole
                self._fill()
            self._owe(now)
        if self.next == self._fin and not self.finished:
            self.finished = True
            self.next += 1
            self.ack_now = True
        return self.next != before

    def _take(self, data: bytes) -> None:
        if not data:
            return
        self._ready.append(data)
        self.readable += len(data)
        self.next += len(data)

    def _fill(self) -> None:
        """Take the blocks that follow what is in order now."""
        firsts, ends = self._firsts, self._ends
        while firsts and firsts[0] <= self.next:
            first, end, pieces = firsts.pop(0), ends.pop(0), self._pieces.pop(0)
            self._recent.remove(first)
            skip = self.next - first
            if end <= self.next:
                continue
            for piece in pieces:
                if skip >= len(piece):
                    skip -= len(piece)
                    continue
                self._take(piece[skip:])
                skip = 0

    def _keep(self, first: int, end: int, data: bytes) -> None:
        """Keep bytes out of order, those of them that are new."""
        firsts, ends, pieces = self._firsts, self._ends, self._pieces
        place = bisect_right(firsts, first)
        if place and ends[place - 1] >= first:
            place -= 1
            if ends[place] >= end:
                if data:  # a FIN alone has none, and its block is longer by it
                    self.duplicate = (first, end)
                self._touch(firsts[place])
                return
            pieces[place].append(data[ends[place] - first :])
            ends[place] = end
        else:
            firsts.insert(place, first)
            ends.insert(place, end)
            pieces.insert(place, deque((data,)))
        while place + 1 < len(firsts) and firsts[place + 1] <= ends[place]:
            self._join(place)
        self._touch(firsts[place])

    def _join(self, place: int) -> None:
        """Join a block with the one behind it, which it reaches."""
        firsts, ends, pieces = self._firsts, self._ends, self._pieces
        behind, end, more = firsts.pop(place + 1), ends.pop(place + 1), pieces.pop(place + 1)
        self._recent.remove(behind)
        skip = ends[place] - behind
        for piece in more:
            if skip >= len(piece):
                skip -= len(piece)
                continue
            pieces[place].append(piece[skip:])
            skip = 0
        ends[place] = max(ends[place], end)

    def _touch(self, first: int) -> None:
        if first in self._recent:
            self._recent.remove(first)
        self._recent.insert(0, first)

    def _note_mark(self, marked: bool) -> None:
        """Acknowledge at once where marks begin or end, so that one segment, at most, is told in the other's state.

        RFC 8257, section 3.2, has what came before acknowledged on its own, in its own state.
        """
        if marked != self.ece:
            if self.ack_due_ns >= 0:
                self.ack_now = True
            self.ece = marked

    # --- acknowledgements --------------------------------------------------------------------------------

    def _note_arrival(self, size: int, segment: TcpSegment, now: int) -> None:
        """Learn the pace of arrivals (tcp_event_data_recv), and the round trip (tcp_rcv_rtt_measure_ts)."""
        if size < self._full:
            self._pushed = True
        else:
            self._full = min(size, self.mss)
        if not self._ato_ns:
            self._ato_ns = LEAST_DELAY_NS
            self._begin_quick_acks()
        else:
            gap = now - self._last_ns
            if gap <= LEAST_DELAY_NS // 2:
                self._ato_ns = self._ato_ns // 2 + LEAST_DELAY_NS // 2
            elif gap < self._ato_ns:
                self._ato_ns = self._ato_ns // 2 + gap
            elif gap > MOST_DELAY_NS + self._rtt_ns:
                self._begin_quick_acks()
        self._last_ns = now
        if segment.has_timestamps and size >= self.mss and segment.tsecr and segment.tsecr != self._last_tsecr:
            self._last_tsecr = segment.tsecr
            rtt_ns = max(1, now // MS - segment.tsecr & 0xFFFF_FFFF) * MS
            if rtt_ns < 1 << 40:
                self._rtt_ns = self._rtt_ns + (rtt_ns - self._rtt_ns >> 3) if self._rtt_ns else rtt_ns

    def _begin_quick_acks(self) -> None:
        self._quick = min(max(2, self.window_bytes // (2 * self._full)), MOST_QUICK_ACKS)

    def _owe(self, now: int) -> None:
        """Decide when to acknowledge bytes in order (__tcp_ack_snd_check, tcp_send_delayed_ack)."""
        if (self._quick and self._turns < DIALOGUE) or self.next - self._acknowledged > self._full:
            self.ack_now = True
        if not self.ack_now and self.ack_due_ns < 0:
            delay = min(max(self._ato_ns, LEAST_DELAY_NS), MOST_DELAY_NS)
            if self._rtt_ns and self._turns < DIALOGUE:
                delay = min(delay, max(self._rtt_ns, LEAST_DELAY_NS))
            self.ack_due_ns = now + delay

    def on_timer(self, now: int) -> None:
        """The delayed acknowledgement is due (tcp_delack_timer_handler)."""
        if 0 <= self.ack_due_ns <= now:
            self.ack_now = True
            self.ack_due_ns = -1
            if self._turns < DIALOGUE:
                self._ato_ns = min(2 * self._ato_ns, MOST_DELAY_NS)
            else:
                self._turns = 0
                self._ato_ns = LEAST_DELAY_NS

    def on_sent(self, now: int, *, with_data: bool) -> None:
        """An acknowledgement of all that has come was sent, by itself or with data."""
        if self._quick:
            self._quick -= 1
        if with_data and self._last_ns >= 0 and now - self._last_ns < self._ato_ns:
            self._turns += 1
        self.ack_now = False
        self.ack_due_ns = -1
        self._acknowledged = self.next
        self.duplicate = None

    def sack_blocks(self) -> tuple[tuple[int, int], ...]:
        """Return the blocks to be told: what came twice, then those out of order, of what changed last first.

        The peer's FIN has a number, too, and belongs to the block that it follows.
        """
        found = [] if self.duplicate is None else [self.duplicate]
        for first in self._recent:
            if len(found) >= MOST_SACK_BLOCKS:
                break
            end = self._ends[bisect_right(self._firsts, first) - 1]
            found.append((first, end + 1 if end == self._fin else end))
        return tuple(found)

    # --- the window --------------------------------------------------------------------------------------

    def advertise(self) -> int:
        """Return the window to be told now (bytes from `next` on); what was told before is never taken back."""
        end = max(self._advertised_end, self.next + self.window_bytes - self.readable)
        # in whole units of the scale, so that the peer reads what is meant
        window = (end - self.next) >> WINDOW_SCALE
        self._advertised_end = max(self._advertised_end, self.next + (window << WINDOW_SCALE))
        return min(window, 0xFFFF)

    # --- bytes go ----------------------------------------------------------------------------------------

    def read(self, most: int) -> bytes:
        """Return the next bytes in order, `most` at most, of one piece that arrived."""
        if not self.readable or most <= 0:
            return b""
        ready = self._ready
        data = ready[0]
        if len(data) > most:
            ready[0] = data[most:]
            data = data[:most]
        else:
            ready.popleft()
        self.readable -= len(data)
        return data

    def on_read(self, now: int) -> None:
        """Make room for what the application has read (tcp_rcv_space_adjust, tcp_cleanup_rbuf)."""
        self._read_to = self.next - int(self.finished) - self.readable
        self._adjust(now)
        open_bytes = self._advertised_end - self.next
        if self.window_bytes - self.readable >= 2 * open_bytes:
            self.ack_now = True
        if self._pushed and not self.readable:
            self._pushed = False
            if self.ack_due_ns >= 0 and self._turns < DIALOGUE:
                self.ack_now = True

    def _adjust(self, now: int) -> None:
        if self._space_ns < 0:
            self._space_ns = now
            return
        if not self._rtt_ns or now - self._space_ns < self._rtt_ns:
            return
        copied = self._read_to - self._space_begin
        if copied > self._space:
            window = 2 * copied + 16 * self.mss
            window += 2 * (window * (copied - self._space) // self._space)
            self.window_bytes = max(self.window_bytes, min(window, MOST_RECEIVE_WINDOW))
            self._space = copied
        self._space_begin = self._read_to
        self._space_ns = now
