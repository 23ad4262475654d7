"""A connection: the states of RFC 9293, section 3.3.2, and its two halves.

What is to be sent is asked for segment by segment, when the line is free (`next_segment`): nothing waits in a queue of
the connection's own, so that what it knows of acknowledgements is as new as can be. Whatever a segment says is checked
against the windows before anything is believed (section 3.10.7), and RFC 5961's challenge acknowledgements are sent
where it lies outside.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from testbed.protocols.tcp.congestion.control import TcpControl
from testbed.protocols.tcp.flight import SentSegment
from testbed.protocols.tcp.receiver import WINDOW_SCALE, TcpReceiver
from testbed.protocols.tcp.rto import INITIAL_RTO_NS, MAX_RTO_NS, MS, RttEstimator
from testbed.protocols.tcp.segment import ACK, CWR, ECE, FIN, RST, SYN, TIMESTAMP_BYTES, WORD, TcpSegment, unwrap
from testbed.protocols.tcp.sender import TcpSender

MOST_HANDSHAKES: Final = 6
"""A SYN is sent again so often (tcp_syn_retries)."""
FORGIVEN_HANDSHAKES: Final = 2
"""With more of them sent, the path loses packets: the window begins with one segment (RFC 5681, section 3.1, and Linux'
tcp_init_transfer, which forgives one that was sent again)."""
DEFAULT_MSS: Final = 536
LEAST_MSS: Final = 88
TIME_WAIT_NS: Final = 60_000 * MS
MOST_CHALLENGES: Final = 64
"""Segments from outside the window that are answered between two that are not (RFC 5961, section 7)."""


class TcpState(IntEnum):
    """The states of RFC 9293, without LISTEN, which is the stack's affair."""

    CLOSED = 0
    SYN_SENT = 1
    SYN_RECEIVED = 2
    ESTABLISHED = 3
    FIN_WAIT_1 = 4
    FIN_WAIT_2 = 5
    CLOSE_WAIT = 6
    CLOSING = 7
    LAST_ACK = 8
    TIME_WAIT = 9


class TcpConnection:
    """`first` is the initial sequence number. `remote` is the peer's address, `mtu_bytes` that of the NIC.

    Whoever owns it asks for `next_segment` after anything was done to it, and sends what it returns.
    """

    def __init__(
        self,
        *,
        remote: str,
        remote_port: int,
        port: int,
        first: int,
        mtu_bytes: int,
        control: TcpControl,
        min_rto_ns: int,
    ) -> None:
        self.remote = remote
        self.remote_port = remote_port
        self.port = port
        self.state = TcpState.CLOSED
        self.error = ""
        """Why it is closed: "refused", "reset" or "timed out"; "" where it was closed as agreed, or is open."""
        self.control = control
        self.rtt = RttEstimator(min_rto_ns)
        self.mss = mtu_bytes - 40 - TIMESTAMP_BYTES
        self.sender = TcpSender(first + 1, self.mss, control, self.rtt)
        self.receiver = TcpReceiver(0, self.mss)
        self.ecn = False
        """Both ends have agreed on ECN."""
        self.queued = False
        """The stack has it among those that may have something to send."""
        self._first = first
        self._own_mss = mtu_bytes - 40
        self._shift = 0
        """By which the peer scales the windows that it tells."""
        self._scaled = True
        self._timestamps = True
        self._sack = True
        self._peer_tsval = 0
        self._window_from = 0
        """The sequence number of the segment that told the window (SND.WL1)."""
        self._handshake_wanted = False
        self._handshakes = 0
        self._handshake_ns = 0
        self._handshake_due_ns = -1
        self._reset_wanted = False
        self._closes_at_ns = -1
        self._challenges = 0
        self.in_turn = 0
        """Segments that it has sent since its turn came."""
        self.armed_ns = -1
        """When the stack looks at its timers next; -1: not at all."""
        self.noted = False
        """The application is to look at it."""

    # --- the application ---------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Tell whether bytes may be written."""
        return self.state in (TcpState.ESTABLISHED, TcpState.CLOSE_WAIT)

    @property
    def writable_bytes(self) -> int:
        return max(0, self.sender.room) if self.is_open else 0

    @property
    def is_writable(self) -> bool:
        """Tell whether there is room enough to be worth a call (sk_stream_is_writeable)."""
        return self.is_open and 2 * self.sender.room >= self.sender.buffered

    def open(self) -> None:
        """Begin the handshake."""
        self.state = TcpState.SYN_SENT
        self._handshake_wanted = True

    def write(self, data: bytes) -> None:
        """Send bytes once the windows allow it; as many as `writable_bytes` says, at most."""
        self.sender.write(data)

    def close(self) -> None:
        """Send nothing more behind what was written."""
        if self.state in (TcpState.ESTABLISHED, TcpState.SYN_RECEIVED):
            self.state = TcpState.FIN_WAIT_1
            self.sender.fin_wanted = True
        elif self.state is TcpState.CLOSE_WAIT:
            self.state = TcpState.LAST_ACK
            self.sender.fin_wanted = True
        elif self.state is TcpState.SYN_SENT:
            self._end("")

    def abort(self) -> None:
        """Let go of it at once, and tell the peer by a reset."""
        if self.state not in (TcpState.CLOSED, TcpState.SYN_SENT, TcpState.TIME_WAIT):
            self._reset_wanted = True
        self._end("")

    def _end(self, error: str) -> None:
        self.state = TcpState.CLOSED
        self.error = error
        self._handshake_wanted = False
        self._handshake_due_ns = -1
        self._closes_at_ns = -1

    # --- segments come -----------------------------------------------------------------------------------

    def accept(self, segment: TcpSegment, now: int) -> None:
        """Answer the SYN of a peer."""
        self.state = TcpState.SYN_RECEIVED
        self._take_syn(segment)
        self.ecn = self.control.wants_ecn and segment.flags & (ECE | CWR) == ECE | CWR
        self.receiver.exact_marks = self.ecn
        self._handshake_wanted = True
        self._handshake_ns = now

    def _take_syn(self, segment: TcpSegment) -> None:
        self.receiver.next = segment.sequence + 1
        self._timestamps = segment.has_timestamps
        self._scaled = segment.window_scale >= 0
        self._sack = segment.sack_permitted
        self._shift = max(0, segment.window_scale)
        self._peer_tsval = segment.tsval
        peer_mss = max(LEAST_MSS, min(segment.mss or DEFAULT_MSS, self._own_mss))
        self.mss = peer_mss - (TIMESTAMP_BYTES if self._timestamps else 0)
        self.sender.mss = self.mss
        self.receiver = TcpReceiver(segment.sequence + 1, self._own_mss - TIMESTAMP_BYTES)
        self.sender.on_window(self.sender.unacknowledged + segment.window)
        self._window_from = segment.sequence

    def on_segment(self, segment: TcpSegment, marked: bool, now: int) -> None:
        """Take a segment of this connection; `marked`: it arrived with CE. Nothing is raised, whatever it says."""
        if self.state is TcpState.CLOSED:
            return
        if self.state is TcpState.SYN_SENT:
            self._on_answer(segment, now)
            return
        receiver = self.receiver
        first = unwrap(segment.sequence, receiver.next)
        length = len(segment.payload)
        if not self._is_acceptable(first, length, segment):
            self._challenge(segment)
            return
        if segment.flags & RST:
            if first == receiver.next:
                self._end("refused" if self.state is TcpState.SYN_RECEIVED else "reset")
            else:
                self._challenge(segment)
            return
        if segment.flags & SYN:
            if self.state is TcpState.SYN_RECEIVED and first == receiver.next - 1:
                self._handshake_wanted = True  # it did not hear the answer
            else:
                self._challenge(segment)
            return
        if not segment.flags & ACK:
            return
        ack = unwrap(segment.ack, self.sender.unacknowledged)
        if ack > self.sender.next or ack <= self._first:
            self._challenge(segment)
            return
        self._challenges = 0
        # the echoed timestamp never goes back (RFC 7323, section 4.3): a copy that comes late has an old one
        if segment.has_timestamps and first <= receiver.next and (segment.tsval - self._peer_tsval) % WORD < WORD >> 1:
            self._peer_tsval = segment.tsval
        if self.state is TcpState.SYN_RECEIVED:
            self._establish(now)
        if not self._take_ack(segment, ack, first, now):
            return
        if segment.flags & CWR and self.ecn and not receiver.exact_marks:
            receiver.ece = False
        fin = bool(segment.flags & FIN)
        if length or fin:
            if not receiver.finished:
                receiver.on_segment(first, segment, marked and self.ecn, fin, now)
                if receiver.finished:
                    self._on_peer_finished(now)
            else:
                receiver.ack_now = True
        elif first != receiver.next:
            receiver.ack_now = True  # a probe of the window

    def _is_acceptable(self, first: int, length: int, segment: TcpSegment) -> bool:
        """Tell whether a segment lies in the window (RFC 9293, section 3.10.7.4), or was received before."""
        receiver = self.receiver
        window = receiver.window_bytes + (1 << WINDOW_SCALE)
        if segment.flags & (RST | SYN):
            return receiver.next - 1 <= first <= receiver.next + window
        return receiver.next - (1 << 30) < first <= receiver.next + window and length <= 1 << 16

    def _challenge(self, segment: TcpSegment) -> None:
        """Answer what makes no sense with what does, so that a peer who lives may see where it is (RFC 5961)."""
        if segment.flags & RST and self.state is TcpState.SYN_SENT:
            return
        self._challenges += 1
        if self._challenges <= MOST_CHALLENGES:
            self.receiver.ack_now = True

    def is_refused(self, segment: TcpSegment) -> bool:
        """Tell whether a segment acknowledges what the SYN of this connection was not, and is answered by a reset.

        Its peer still has an earlier connection with the same ends (RFC 9293, sections 3.5.1 and 3.10.7.3).
        """
        if self.state is not TcpState.SYN_SENT or segment.flags & (ACK | RST) != ACK:
            return False
        return segment.ack != (self._first + 1) % WORD

    def _on_answer(self, segment: TcpSegment, now: int) -> None:
        """Take the answer to a SYN (RFC 9293, section 3.10.7.3); both ends opening at once is none here."""
        is_ours = segment.flags & ACK and segment.ack == (self._first + 1) % WORD
        if segment.flags & RST:
            if is_ours:
                self._end("refused")
            return
        if not segment.flags & SYN or not is_ours:
            return
        self._take_syn(segment)
        self.ecn = self.control.wants_ecn and segment.flags & (ECE | CWR) == ECE
        self.receiver.exact_marks = self.ecn
        self._establish(now)
        self.receiver.ack_now = True

    def _establish(self, now: int) -> None:
        self.state = TcpState.ESTABLISHED
        self._handshake_wanted = False
        self._handshake_due_ns = -1
        if self._handshakes == 1:
            self.rtt.sample(now - self._handshake_ns, self.sender.unacknowledged, self.sender.next)
        elif self._handshakes > FORGIVEN_HANDSHAKES:
            self.control.window = 1

    def _take_ack(self, segment: TcpSegment, ack: int, first: int, now: int) -> bool:
        """Take what it acknowledges, and the peer's window. Whether the connection is still there."""
        sender = self.sender
        end = ack + (segment.window << self._shift if self._scaled else segment.window)
        opened = end > sender.window_end
        newer = ack > sender.unacknowledged or first > self._window_from or (first == self._window_from and opened)
        if ack >= sender.unacknowledged and newer:
            sender.on_window(end)
            self._window_from = first
        sacks: tuple[tuple[int, int], ...] = ()
        if segment.sack and self._sack:
            near = sender.unacknowledged
            sacks = tuple((unwrap(a, near), unwrap(b, near)) for a, b in segment.sack)
        if ack < sender.unacknowledged and not sacks:
            return True
        echoed_ns = -1
        if segment.has_timestamps and segment.tsecr:
            ago = (now // MS - segment.tsecr) % WORD
            echoed_ns = now // MS * MS - ago * MS if ago < WORD >> 1 else -1
        marked = self.ecn and bool(segment.flags & ECE)
        sender.on_ack(
            ack,
            sacks,
            now,
            marked=marked,
            echoed_ns=echoed_ns,
            dup=ack == sender.unacknowledged and not segment.payload and not opened,
        )
        if sender.fin_sent and sender.unacknowledged >= sender.next:
            self._on_fin_acknowledged(now)
        return self.state is not TcpState.CLOSED

    def _on_fin_acknowledged(self, now: int) -> None:
        if self.state is TcpState.FIN_WAIT_1:
            self.state = TcpState.FIN_WAIT_2
        elif self.state is TcpState.CLOSING:
            self._wait(now)
        elif self.state is TcpState.LAST_ACK:
            self._end("")

    def _on_peer_finished(self, now: int) -> None:
        if self.state is TcpState.ESTABLISHED:
            self.state = TcpState.CLOSE_WAIT
        elif self.state is TcpState.FIN_WAIT_1:
            self.state = TcpState.CLOSING
        elif self.state is TcpState.FIN_WAIT_2:
            self._wait(now)

    def _wait(self, now: int) -> None:
        self.state = TcpState.TIME_WAIT
        self._closes_at_ns = now + TIME_WAIT_NS

    # --- segments go -------------------------------------------------------------------------------------

    @property
    def urgent(self) -> bool:
        """Tell whether something is to be sent that no window holds back: of the handshake, or an acknowledgement."""
        if self.state is TcpState.CLOSED:
            return self._reset_wanted
        return self._handshake_wanted or self.receiver.ack_now or self.sender.probe_wanted

    def next_segment(self, now: int) -> TcpSegment | None:
        """Return the next segment to be sent; None: there is none for now."""
        if self._reset_wanted:
            self._reset_wanted = False
            return self._segment(self.sender.next, RST | ACK)
        if self._handshake_wanted:
            return self._handshake(now)
        if self.state <= TcpState.SYN_RECEIVED:
            return None
        sender = self.sender
        if sender.failed:
            self._end("timed out")
            return None
        sent = sender.next_segment(now) if self.state is not TcpState.TIME_WAIT else None
        if sent is not None:
            return self._data(sent, now)
        if self.receiver.ack_now:
            return self._acknowledgement(now, self.sender.next)
        if sender.probe_wanted:
            sender.probe_wanted = False
            return self._acknowledgement(now, sender.unacknowledged - 1)
        return None

    def _handshake(self, now: int) -> TcpSegment:
        self._handshake_wanted = False
        if not self._handshakes or self.state is TcpState.SYN_SENT:
            self._handshake_ns = now
        if self._handshake_due_ns < 0 or self._handshake_due_ns <= now:
            self._handshakes += 1
            wait_ns = min(INITIAL_RTO_NS << (self._handshakes - 1), MAX_RTO_NS)
            self._handshake_due_ns = now + wait_ns
        flags, answer = SYN, self.state is not TcpState.SYN_SENT
        if answer:
            flags |= ACK | (ECE if self.ecn else 0)
        elif self.control.wants_ecn:
            flags |= ECE | CWR
        segment = TcpSegment(self.port, self.remote_port, self._first % WORD, 0, flags, 0)
        segment.window = min(self.receiver.window_bytes, 0xFFFF)
        segment.mss = self._own_mss
        if self._timestamps:
            segment.has_timestamps = True
            segment.tsval, segment.tsecr = now // MS % WORD, self._peer_tsval if answer else 0
        segment.sack_permitted = self._sack
        segment.window_scale = WINDOW_SCALE if self._scaled else -1
        if answer:
            segment.ack = self.receiver.next % WORD
        return segment

    def _segment(self, sequence: int, flags: int) -> TcpSegment:
        receiver = self.receiver
        window = receiver.advertise()
        if not self._scaled:
            window = min(window << WINDOW_SCALE, 0xFFFF)
        return TcpSegment(self.port, self.remote_port, sequence % WORD, receiver.next % WORD, flags & 0xFF, window)

    def _finish(self, segment: TcpSegment, now: int) -> None:
        """Add to a segment what each one has."""
        receiver = self.receiver
        if self._timestamps:
            segment.has_timestamps = True
            segment.tsval, segment.tsecr = now // MS % WORD, self._peer_tsval
        if self._sack:
            blocks = receiver.sack_blocks()
            if blocks:
                segment.sack = tuple((first % WORD, end % WORD) for first, end in blocks)
        if self.ecn and receiver.ece:
            segment.flags |= ECE

    def _data(self, sent: SentSegment, now: int) -> TcpSegment:
        segment = self._segment(sent.first, ACK | sent.flags)
        segment.payload = sent.payload
        self._finish(segment, now)
        self.receiver.on_sent(now, with_data=True)
        return segment

    def _acknowledgement(self, now: int, sequence: int) -> TcpSegment:
        segment = self._segment(sequence, ACK)
        self._finish(segment, now)
        self.receiver.on_sent(now, with_data=False)
        return segment

    # --- time --------------------------------------------------------------------------------------------

    def due_ns(self) -> int:
        """Return when `on_timer` is to be called; -1: not at all."""
        due = self._handshake_due_ns
        for other in (self.sender.due_ns(), self.receiver.ack_due_ns, self._closes_at_ns):
            if other >= 0 and (due < 0 or other < due):
                due = other
        return due if self.state is not TcpState.CLOSED else -1

    def on_timer(self, now: int) -> None:
        """Do what is due."""
        if self.state is TcpState.CLOSED:
            return
        if 0 <= self._handshake_due_ns <= now:
            if self._handshakes > MOST_HANDSHAKES:
                self._end("timed out")
                return
            self._handshake_wanted = True
            self._handshake_due_ns = -1
        if 0 <= self._closes_at_ns <= now:
            self._end("")
            return
        self.receiver.on_timer(now)
        self.sender.on_timer(now)
        if self.sender.failed:
            self._end("timed out")
