"""The states of a connection's window: Open, Disorder, CWR, LossRecovery and Loss, and how it moves between them.

As Linux has them (net/ipv4/tcp_input.c, tcp_fastretrans_alert): in CWR and LossRecovery the window comes down to the
threshold by proportional rate reduction (RFC 6937); in Loss it begins with one segment again, and F-RTO (RFC 5682)
finds out whether the time-out was a mistake. A reduction is undone where all that was sent again had arrived the first
time, as duplicate SACKs (RFC 3708) and timestamps (Eifel, RFC 3522) tell.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from testbed.protocols.tcp.congestion.control import NO_THRESHOLD, TcpControl
from testbed.protocols.tcp.flight import Flight

if TYPE_CHECKING:
    from testbed.protocols.tcp.rack import Rack


class WindowState(IntEnum):
    """The states of Linux' tcp_ca_state, in its order."""

    OPEN = 0
    DISORDER = 1
    CWR = 2
    RECOVERY = 3
    LOSS = 4


class AckNews:
    """The news that one acknowledgement has brought."""

    def __init__(self) -> None:
        self.acked = 0
        """Segments acknowledged that were not selectively acknowledged before."""
        self.sacked = 0
        self.lost = 0
        """Segments found lost."""
        self.advanced = False
        self.marked = False
        self.duplicates = 0
        """Blocks that had arrived before (duplicate SACKs)."""
        self.first_time = False
        """A segment that was never sent again is among those that arrived."""
        self.echoed_ns = -1
        """The timestamp that is echoed, in ns; -1: there is none."""

    @property
    def delivered(self) -> int:
        return self.acked + self.sacked


class WindowRecovery:
    """`high` is the next sequence number to be sent when the present state began: it ends where all before it has
    arrived."""

    def __init__(self, control: TcpControl, flight: Flight, rack: Rack) -> None:
        self.state = WindowState.OPEN
        self.high = 0
        self._control = control
        self._flight = flight
        self._rack = rack
        self._prior_window = 0
        self._prior_threshold = 0
        """The threshold to go back to where there was no loss after all; 0: the reduction stays, as marks ask for."""
        self._delivered = 0
        self._out = 0
        """Segments sent since the reduction began."""
        self._undo_from = -1
        """The first segment that was not acknowledged as the state began; -1: there is nothing to be undone."""
        self._undo_left = -1
        """Segments sent again of which it is not known that they had arrived before."""
        self._first_again_ns = -1
        self._frto = False

    @property
    def reducing(self) -> bool:
        """Tell whether the window is coming down."""
        return self.state in (WindowState.CWR, WindowState.RECOVERY)

    # --- what happens ------------------------------------------------------------------------------------

    def on_sent(self, segments: int) -> None:
        self._out += segments

    def on_retransmitted(self, now: int) -> None:
        if self._first_again_ns < 0:
            self._first_again_ns = now
        self._undo_left = max(self._undo_left, 0)
        self._undo_left += 1
        self._out += 1

    def on_ack(self, news: AckNews, unacknowledged: int, following: int) -> None:
        """Move on, and set the window where the state does so by itself."""
        if news.duplicates and self._undo_from >= 0 and self._undo_left > 0:
            self._undo_left = max(0, self._undo_left - news.duplicates)
        if news.marked:
            self._prior_threshold = 0
        if self.state != WindowState.OPEN and self._leaves(news, unacknowledged, following):
            return
        match self.state:
            case WindowState.RECOVERY:
                if news.advanced and self._may_undo(news):
                    self._undo(unmark=True)
                    self._settle(unacknowledged, following)
            case WindowState.LOSS:
                self._on_ack_in_loss(news, following)
            case _:
                if self._flight.lost:
                    self._enter_recovery(unacknowledged, following, marked=news.marked)
                elif self.state != WindowState.CWR:
                    self._settle(unacknowledged, following)
        if news.marked and self.state < WindowState.CWR:
            self.enter_cwr(following)
        if self.reducing:
            self._reduce(news)

    def _leaves(self, news: AckNews, unacknowledged: int, following: int) -> bool:
        """Leave a state that is over. Whether the acknowledgement is dealt with."""
        if unacknowledged < self.high:
            return False
        match self.state:
            case WindowState.CWR:
                if unacknowledged != self.high:
                    self._end_reduction()
                    self.state = WindowState.OPEN
            case WindowState.RECOVERY | WindowState.LOSS:
                if self._may_undo(news):
                    self._undo(unmark=self.state is WindowState.LOSS)
                elif self.state is WindowState.RECOVERY:
                    self._end_reduction()
                self._forget()
                self.state = WindowState.OPEN
            case WindowState.DISORDER:
                self._settle(unacknowledged, following)
            case _:
                pass
        return False

    def _on_ack_in_loss(self, news: AckNews, following: int) -> None:
        if self._frto:
            if news.first_time:
                self._undo(unmark=True)  # what was never sent again arrives: the time-out was too short
                self._forget()
                self.state = WindowState.OPEN
                return
            if following > self.high and news.sacked:
                self._frto = False
            elif news.advanced:
                self.high = following
                self._frto = False
        if news.advanced and self._may_undo(news):
            self._undo(unmark=True)
            self._forget()
            self.state = WindowState.OPEN

    def _settle(self, unacknowledged: int, following: int) -> None:
        disordered = bool(self._flight.sacked or self._flight.lost)
        state = WindowState.DISORDER if disordered else WindowState.OPEN
        if state != self.state:
            self.state = state
            self.high = following

    # --- entering ----------------------------------------------------------------------------------------

    def _enter_recovery(self, unacknowledged: int, following: int, *, marked: bool) -> None:
        """Begin a fast recovery (RFC 6675, section 5)."""
        control = self._control
        self._prior_threshold = 0
        if self.state < WindowState.CWR:
            if not marked:
                self._prior_threshold = control.threshold
            self._begin_reduction(following, control.threshold_after_loss())
        else:
            control.threshold = control.threshold_after_loss()  # marks alone reduce by less (RFC 8257, section 3.5)
        self._undo_from = unacknowledged
        self._undo_left = -1
        self._first_again_ns = -1
        self.high = following
        self.state = WindowState.RECOVERY

    def enter_cwr(self, following: int) -> None:
        """Reduce the window once a round trip, since packets were marked."""
        if self.state >= WindowState.CWR:
            return
        self._prior_threshold = 0
        self._undo_from = -1
        self._begin_reduction(following, self._control.threshold_after_marks())
        self.state = WindowState.CWR

    def reduce_at_once(self, following: int) -> None:
        """Bring the window down to the threshold, since a probe has repaired a loss."""
        self.enter_cwr(following)
        if self.state is WindowState.CWR:
            self._end_reduction()
            self.state = WindowState.OPEN

    def _begin_reduction(self, following: int, threshold: int) -> None:
        control = self._control
        self.high = following
        self._prior_window = control.window
        self._delivered = self._out = 0
        control.threshold = threshold

    def enter_loss(self, unacknowledged: int, following: int) -> None:
        """The retransmission timer has fired (RFC 5681, section 3.1; RFC 6298, section 5)."""
        control, flight = self._control, self._flight
        again = self.state is WindowState.LOSS
        anew = self.state < WindowState.RECOVERY
        if self.state <= WindowState.DISORDER or unacknowledged >= self.high:
            self._prior_threshold = control.threshold
            self._prior_window = control.window
            control.threshold = control.threshold_after_loss()
            self._undo_from = unacknowledged
            self._undo_left = -1
            self._first_again_ns = -1
        control.on_timeout()
        for segment in flight.segments:
            if not segment.sacked:
                flight.on_lost(segment)
        control.window = flight.in_flight + 1
        self.state = WindowState.LOSS
        self.high = following
        self._frto = anew or again

    # --- leaving -----------------------------------------------------------------------------------------

    def _reduce(self, news: AckNews) -> None:
        """Send as much less than arrives as the window is to shrink (RFC 6937, with Linux' slow start bound)."""
        if not news.delivered or not self._prior_window:
            return
        control, in_flight = self._control, self._flight.in_flight
        self._delivered += news.delivered
        room = control.threshold - in_flight
        if room < 0:
            share = control.threshold * self._delivered + self._prior_window - 1
            count = share // self._prior_window - self._out
        else:
            count = max(self._delivered - self._out, news.delivered)
            if news.advanced and not news.lost:
                count += 1
            count = min(room, count)
        count = max(count, 0 if self._out else 1)
        control.window = max(1, in_flight + count)

    def _end_reduction(self) -> None:
        control = self._control
        if control.threshold < NO_THRESHOLD and (self.state is WindowState.CWR or self._undo_from >= 0):
            control.window = control.threshold

    def _may_undo(self, news: AckNews) -> bool:
        if self._undo_from < 0:
            return False
        if self._undo_left == 0 and self._first_again_ns >= 0:
            return True
        return 0 <= news.echoed_ns < self._first_again_ns - 1_000_000  # a tick of the timestamps' clock

    def _undo(self, *, unmark: bool) -> None:
        control = self._control
        if unmark:
            self._flight.forget_losses()
        if self._prior_threshold:
            control.window = control.window_before(self._prior_window)
            control.threshold = max(control.threshold, self._prior_threshold)
        self._undo_from = -1
        self._rack.reordering_seen = True

    def _forget(self) -> None:
        self._undo_from = -1
        self._undo_left = -1
        self._first_again_ns = -1
        self._frto = False
