"""The half of a connection that sends: bytes of the application, segments on their way, and its timers.

One timer is armed at a time, as in Linux (tcp_rearm_rto, tcp_schedule_loss_probe): the retransmission time-out, the
tail loss probe that comes before it (RFC 8985, section 7), or RACK's, at which a segment that was only late would have
arrived. A fourth probes a window that is closed (RFC 9293, section 3.8.6.1).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from testbed.protocols.tcp.congestion.control import INITIAL_WINDOW, TcpControl
from testbed.protocols.tcp.flight import Flight, SentSegment
from testbed.protocols.tcp.rack import Rack
from testbed.protocols.tcp.recovery import AckNews, WindowRecovery, WindowState
from testbed.protocols.tcp.rto import INITIAL_RTO_NS, MAX_RTO_NS, MS, RttEstimator
from testbed.protocols.tcp.segment import FIN, PSH

LEAST_SEND_BUFFER: Final = 87_380
MOST_SEND_BUFFER: Final = 4 << 20
"""The second and third number of tcp_wmem, about."""
MOST_TIMEOUTS: Final = 15
"""A connection is given up after so many time-outs in a row (tcp_retries2)."""
LEAST_PROBE_NS: Final = 2 * MS
"""TCP_TIMEOUT_MIN: two ticks of the kernel's clock, of 1 ms."""

RTO_TIMER: Final = 0
LOSS_PROBE_TIMER: Final = 1
RACK_TIMER: Final = 2
WINDOW_PROBE_TIMER: Final = 3
NO_TIMER: Final = -1


class TcpSender:
    """Sequence numbers are of 64 bits: `unacknowledged` is SND.UNA and `next` SND.NXT of RFC 9293."""

    def __init__(self, first: int, mss: int, control: TcpControl, rtt: RttEstimator) -> None:
        self.unacknowledged = first
        self.next = first
        self.mss = mss
        self.control = control
        self.rtt = rtt
        self.flight = Flight()
        self.rack = Rack()
        self.recovery = WindowRecovery(control, self.flight, self.rack)
        self.window_end = first
        """The peer takes nothing from this sequence number on."""
        self.failed = False
        """The peer has been silent for too long."""
        self.fin_wanted = False
        self.fin_sent = False
        self.probe_wanted = False
        """A segment without bytes is to be sent, to have the peer say its window."""
        self.sent_segments = 0
        """Segments with bytes, those that were sent again as well."""
        self.retransmitted_segments = 0
        self.timeouts = 0
        self.probes = 0
        self.marked_segments = 0
        """Segments whose acknowledgement said that packets were marked."""
        self.duplicate_sacks = 0
        self.acked_bytes = 0
        self.busy_ns = 0
        self.receive_limited_ns = 0
        self._since_ns = 0
        self._kind = 0
        """The reason that holds it back since then: 0 nothing to send, 1 the network, 2 the peer's window."""
        self._waiting: deque[bytes] = deque()
        self.waiting_bytes = 0
        """Bytes that were not sent yet."""
        self._timeouts_in_row = 0
        self._window_probes = 0
        """Probes of a closed window since something new was last sent."""
        self._timer = NO_TIMER
        self._due_ns = -1
        self._base_ns = 0
        """When the retransmission timer was set to begin."""
        self._probe_high = -1
        """The number that was next to be sent at a tail loss probe; -1: none is out."""
        self._probe_again = False
        """The probe sent something again, rather than something new."""
        self._probe_now = False
        self._limited = False
        self._most_sent = 0
        self._usage_end = first
        self._last_sent_ns = -1

    # --- the application ---------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """Return how many more bytes the buffer takes: it has twice the window (tcp_sndbuf_expand)."""
        window_bytes: int = self.control.window * self.mss
        return min(max(LEAST_SEND_BUFFER, 2 * window_bytes), MOST_SEND_BUFFER) - self.buffered

    @property
    def buffered(self) -> int:
        """Return how many bytes it has that are not acknowledged, sent or not."""
        return self.waiting_bytes + self.next - self.unacknowledged

    def write(self, data: bytes) -> None:
        """Take bytes to be sent; how many there is room for is the caller's affair."""
        if data:
            self._waiting.append(data)
            self.waiting_bytes += len(data)

    # --- segments go -------------------------------------------------------------------------------------

    def next_segment(self, now: int) -> SentSegment | None:
        """Return what is to be sent now: what is lost, then what is new, as far as both windows go; None: nothing."""
        flight, control = self.flight, self.control
        if self._probe_now:
            self._probe_now = False
            probe = self._probe(now)
            if probe is not None:
                return probe
        if flight.lost and flight.in_flight < control.window:
            lost = flight.next_lost()
            if lost is not None:
                return self._again(lost, now)
        if not self.waiting_bytes and not (self.fin_wanted and not self.fin_sent):
            self._note_use()
            self._note_limit(now, 1 if flight.sent else 0)
            return None
        if not flight.sent and self._last_sent_ns >= 0:
            self._restart_after_idle(now)
        if flight.in_flight >= control.window:
            self._note_use()
            return None
        segment = self._fresh(now)
        if segment is None and not flight.sent and self._timer != WINDOW_PROBE_TIMER:
            self._set_timer(WINDOW_PROBE_TIMER, now + self._window_wait_ns())
        return segment

    def _fresh(self, now: int) -> SentSegment | None:
        """Return a segment of what was not sent yet, if the peer's window has room for it."""
        size = min(self.mss, self.waiting_bytes)
        space = self.window_end - self.next
        if size > space:
            size = space if not self.flight.sent else 0
            if size <= 0:
                self._note_limit(now, 2)
                return None
        payload = self._take(size)
        flags = PSH if not self.waiting_bytes else 0
        end = self.next + len(payload)
        if self.fin_wanted and not self.fin_sent and not self.waiting_bytes and end < self.window_end + 1:
            flags |= FIN
            end += 1
            self.fin_sent = True
        if end == self.next:
            return None
        segment = SentSegment(self.next, end, payload, flags, now)
        begins = not self.flight.sent
        self.flight.add(segment)
        self.next = end
        self._window_probes = 0
        self.sent_segments += 1
        self.recovery.on_sent(1)
        self._last_sent_ns = now
        self._note_limit(now, 1)
        if begins or self._timer in (NO_TIMER, WINDOW_PROBE_TIMER):
            self._base_ns = now
        if self._timer != RACK_TIMER:
            self._rearm(now)
        self._note_use()
        return segment

    def _take(self, size: int) -> bytes:
        """Take the next bytes of the buffer."""
        waiting = self._waiting
        self.waiting_bytes -= size
        if not size:
            return b""
        first = waiting[0]
        if len(first) == size:
            return waiting.popleft()
        if len(first) > size:
            waiting[0] = first[size:]
            return first[:size]
        pieces: list[bytes] = []
        while size:
            first = waiting[0]
            if len(first) <= size:
                pieces.append(waiting.popleft())
                size -= len(first)
            else:
                pieces.append(first[:size])
                waiting[0] = first[size:]
                size = 0
        return b"".join(pieces)

    def _again(self, segment: SentSegment, now: int) -> SentSegment:
        """Send a segment again."""
        if not self.flight.retransmitted and segment.first == self.unacknowledged:
            self._base_ns = now
        self.flight.on_retransmitted(segment, now)
        self.recovery.on_retransmitted(now)
        self.sent_segments += 1
        self.retransmitted_segments += 1
        self._last_sent_ns = now
        if self._timer != RACK_TIMER:
            self._set_timer(RTO_TIMER, max(self._base_ns + self.rtt.rto_ns, now))
        return segment

    def _restart_after_idle(self, now: int) -> None:
        """Halve the window for each time-out that nothing was sent in (RFC 5681, section 4.1; tcp_cwnd_restart)."""
        idle_ns, control = now - self._last_sent_ns, self.control
        self._last_sent_ns = now
        control.on_idle_over(idle_ns)
        if idle_ns <= self.rtt.rto_ns:
            return
        restart = min(INITIAL_WINDOW, control.window)
        control.threshold = max(control.threshold, (control.window >> 1) + (control.window >> 2))
        while idle_ns > self.rtt.rto_ns and control.window > restart:
            idle_ns -= self.rtt.rto_ns
            control.window >>= 1
        control.window = max(control.window, restart)
        self._limited = False

    def _note_use(self) -> None:
        """Remember whether the window was what held the sender back (tcp_cwnd_validate)."""
        flight = self.flight
        limited = flight.in_flight >= self.control.window
        if limited or self.unacknowledged >= self._usage_end or (not self._limited and flight.sent > self._most_sent):
            self._limited = limited
            self._most_sent = flight.sent
            self._usage_end = self.next

    def _note_limit(self, now: int, kind: int) -> None:
        """Account the time for what held the sender back (tcp_chrono_set)."""
        if kind != self._kind:
            self.settle_times(now)
            self._kind = kind

    def settle_times(self, now: int) -> None:
        """Account the time up to now."""
        passed = now - self._since_ns
        self._since_ns = now
        if self._kind:
            self.busy_ns += passed
        if self._kind == 2:
            self.receive_limited_ns += passed

    # --- acknowledgements come ---------------------------------------------------------------------------

    def on_ack(
        self, ack: int, sacks: tuple[tuple[int, int], ...], now: int, *, marked: bool, echoed_ns: int, dup: bool
    ) -> None:
        """Take an acknowledgement of all below `ack`, which is at most `next`, and of the blocks `sacks` beside.

        `marked`: it tells of a mark; `dup`: it brings neither bytes nor another window. One that a later one has
        overtaken has an `ack` below `unacknowledged`.
        """
        flight, before, told = self.flight, self.unacknowledged, ack
        ack = max(ack, before)
        news = AckNews()
        news.marked, news.echoed_ns = marked, echoed_ns
        rtt_ns = latest_ns = self._take_blocks(told, sacks, news, now) if sacks else -1
        if ack > before:
            of_first, of_last = self._take_acknowledged(ack, news, now)
            if of_first >= 0:
                rtt_ns, latest_ns = of_first, of_last
            elif rtt_ns < 0 and echoed_ns >= 0:
                rtt_ns = latest_ns = max(now - echoed_ns, MS)  # what was sent again: its timestamp tells (RFC 7323)
            self.acked_bytes += ack - before
            self.unacknowledged = ack
            news.advanced = True
            self._timeouts_in_row = 0
            self._base_ns = now
        if rtt_ns >= 0:
            self.rtt.sample(rtt_ns, self.unacknowledged, self.next)
        if news.delivered or news.advanced:
            self.control.on_delivered(news.delivered, marked, self.unacknowledged, self.next)
            if marked:
                self.marked_segments += news.delivered
        self._take_probe(ack, news, dup)
        self._find_losses(news, now)
        self.recovery.on_ack(news, self.unacknowledged, self.next)
        if latest_ns >= 0:
            self.control.on_rtt(now, latest_ns, self.unacknowledged, self.next)
        if not self.recovery.reducing and news.advanced and news.delivered and self._may_grow():
            self.control.on_ack(now, news.delivered, self.unacknowledged, self.next)
        if news.advanced or news.sacked:
            self._rearm(now)
        if not flight.sent:
            self._timeouts_in_row = 0  # a peer that answers is there, whatever it takes (RFC 9293, section 3.8.6.1)
            self._set_timer(NO_TIMER, -1)

    def _may_grow(self) -> bool:
        """Tell whether the window is what holds the sender back (tcp_is_cwnd_limited)."""
        if self._limited:
            return True
        return self.control.in_slow_start and self.control.window < 2 * self._most_sent

    def _take_blocks(self, told: int, sacks: tuple[tuple[int, int], ...], news: AckNews, now: int) -> int:
        """Note the segments in blocks that have arrived. The round trip of the latest; -1: there is none.

        `told` is what the acknowledgement itself acknowledges: only a block below that came twice (RFC 2883, 4.1).
        """
        first, end = sacks[0]
        ack = max(told, self.unacknowledged)
        if end <= told or (len(sacks) > 1 and sacks[1][0] <= first and end <= sacks[1][1]):
            news.duplicates += 1
            self.duplicate_sacks += 1
            self.rack.on_reordered()
        rtt_ns, least_ns = -1, self.rtt.least_ns
        flight, rack = self.flight, self.rack
        for first, end in sacks:
            if end <= ack or end <= first or end > self.next:
                continue
            for segment in flight.segments:
                if segment.first >= end:
                    break
                if segment.sacked or segment.first < first or segment.end > end:
                    continue
                if not segment.ever_retransmitted:
                    rtt_ns = now - segment.sent_ns
                    if segment.end <= self.recovery.high:
                        news.first_time = True
                rack.on_arrived(segment, now, least_ns)
                rack.on_sacked(segment)
                flight.on_sacked(segment)
                news.sacked += 1
        return rtt_ns

    def _take_acknowledged(self, ack: int, news: AckNews, now: int) -> tuple[int, int]:
        """Let go of what was acknowledged. The round trips of the first and of the last segment of it; -1 where any was
        sent again."""
        first_ns, last_ns, again = -1, -1, False
        rack, least_ns = self.rack, self.rtt.least_ns
        for segment in self.flight.acknowledge(ack):
            if segment.ever_retransmitted:
                again = True
            elif not segment.sacked:
                last_ns = now - segment.sent_ns
                if first_ns < 0:
                    first_ns = last_ns
                if segment.end <= self.recovery.high:
                    news.first_time = True
            if not segment.sacked:
                news.acked += 1
                rack.on_arrived(segment, now, least_ns)
                if segment.end < rack.highest_sacked and not segment.ever_retransmitted:
                    rack.on_reordered()
        return (-1, -1) if again else (first_ns, last_ns)

    def on_window(self, end: int) -> None:
        """The peer takes what lies below `end`."""
        self.window_end = end

    def _find_losses(self, news: AckNews, now: int) -> None:
        flight = self.flight
        if not flight.sacked and not flight.lost and not flight.retransmitted:
            if self._timer == RACK_TIMER:
                self._set_timer(NO_TIMER, -1)
            return
        recovering = self.recovery.state >= WindowState.RECOVERY
        window_ns = self.rack.window_ns(
            flight, recovering=recovering, least_rtt_ns=self.rtt.least_ns, srtt_ns=self.rtt.srtt_ns
        )
        news.lost, again_ns = self.rack.find_losses(flight, now, window_ns)
        if again_ns >= 0:
            self._set_timer(RACK_TIMER, again_ns)
        elif self._timer == RACK_TIMER:
            self._set_timer(NO_TIMER, -1)
            self._rearm(now)

    # --- timers ------------------------------------------------------------------------------------------

    def due_ns(self) -> int:
        """Return when `on_timer` is to be called; -1: not at all."""
        return self._due_ns

    def _set_timer(self, timer: int, due_ns: int) -> None:
        self._timer, self._due_ns = timer, due_ns

    def _rearm(self, now: int) -> None:
        """Set the time-out from the last progress on, or a tail loss probe where that comes first."""
        if self._timer == RACK_TIMER:
            return
        flight = self.flight
        if not flight.sent:
            self._set_timer(NO_TIMER, -1)
            return
        timeout_ns = max(self._base_ns + self.rtt.rto_ns, now)
        quiet = self.recovery.state in (WindowState.OPEN, WindowState.CWR) and not flight.sacked
        if not quiet or self._probe_high >= 0 or self._timeouts_in_row:
            self._set_timer(RTO_TIMER, timeout_ns)
            return
        srtt_ns = self.rtt.srtt_ns
        wait_ns = 2 * srtt_ns if srtt_ns else INITIAL_RTO_NS
        wait_ns += self.rtt.min_rto_ns if flight.sent == 1 else LEAST_PROBE_NS
        self._set_timer(LOSS_PROBE_TIMER, min(now + wait_ns, timeout_ns))

    def on_timer(self, now: int) -> None:
        """Do what is due, if anything is."""
        if self._due_ns < 0 or now < self._due_ns:
            return
        timer = self._timer
        self._set_timer(NO_TIMER, -1)
        if timer == RACK_TIMER:
            self._on_rack_timer(now)
        elif timer == LOSS_PROBE_TIMER:
            self._probe_now = True
            self._probe_high = self.next
            self._set_timer(RTO_TIMER, now + self.rtt.rto_ns)
        elif timer == WINDOW_PROBE_TIMER:
            self._on_window_timer(now)
        elif timer == RTO_TIMER:
            self._on_timeout(now)

    def _on_rack_timer(self, now: int) -> None:
        news = AckNews()
        self._find_losses(news, now)
        if news.lost:
            if self.recovery.state is not WindowState.LOSS:
                news.sacked = 1  # so that the window lets one segment go (tcp_rack_reo_timeout)
            self.recovery.on_ack(news, self.unacknowledged, self.next)
        self._rearm(now)

    def _on_timeout(self, now: int) -> None:
        if not self.flight.sent:
            return
        self.timeouts += 1
        self._timeouts_in_row += 1
        if self._timeouts_in_row > MOST_TIMEOUTS:
            self.failed = True
            return
        self._probe_high = -1
        self._probe_now = False
        self.recovery.enter_loss(self.unacknowledged, self.next)
        self.rtt.on_timeout()
        self._base_ns = now
        self._set_timer(RTO_TIMER, now + self.rtt.rto_ns)

    def _on_window_timer(self, now: int) -> None:
        """Ask for the window of a peer that has closed it."""
        if self.flight.sent or not (self.waiting_bytes or (self.fin_wanted and not self.fin_sent)):
            return
        self._timeouts_in_row += 1
        if self._timeouts_in_row > MOST_TIMEOUTS:
            self.failed = True
            return
        self.probe_wanted = True
        self._window_probes += 1
        self._set_timer(WINDOW_PROBE_TIMER, now + self._window_wait_ns())

    def _window_wait_ns(self) -> int:
        """Return the time until the window is asked for: that of a time-out, doubled by each probe before."""
        wait_ns: int = self.rtt.rto_ns << min(self._window_probes, MOST_TIMEOUTS)
        return min(wait_ns, MAX_RTO_NS)

    # --- tail loss probes --------------------------------------------------------------------------------

    def _probe(self, now: int) -> SentSegment | None:
        """Send something new if the peer's window has room, else the last segment again (RFC 8985, section 7.3)."""
        self.probes += 1
        self._probe_high = self.next
        if self.waiting_bytes and min(self.mss, self.waiting_bytes) <= self.window_end - self.next:
            self._probe_again = False
            found = self._fresh(now)
            if found is not None:
                self._probe_high = self.next
                self._set_timer(RTO_TIMER, now + self.rtt.rto_ns)
                return found
        segments = self.flight.segments
        if not segments:
            self._probe_high = -1
            return None
        last = segments[-1]
        if last.sacked or last.retransmitted:
            self._probe_high = -1
            return None
        self._probe_again = True
        last.sent_ns = now
        last.ever_retransmitted = True
        self.sent_segments += 1
        self.retransmitted_segments += 1
        self._last_sent_ns = now
        return last

    def _take_probe(self, ack: int, news: AckNews, dup: bool) -> None:
        """Find out whether the probe has repaired a loss, to which the window then answers (section 7.4.2)."""
        if self._probe_high < 0 or ack < self._probe_high:
            return
        if not self._probe_again or news.duplicates:
            self._probe_high = -1
        elif ack > self._probe_high:
            self._probe_high = -1
            self.recovery.reduce_at_once(self.next)
        elif dup and not news.sacked:
            self._probe_high = -1  # both copies have arrived
