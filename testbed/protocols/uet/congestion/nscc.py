"""NSCC, the network-signalled congestion control of the source: a window moved by queueing delay and ECN marks.

Source: UE Specification 1.0, section 3.6.13 (tables 3-76 and 3-77, and the pseudo-code of 3.6.13.5/6). What the text
leaves to the implementation follows the UEC simulator; each such choice is named where it is made.
"""

from __future__ import annotations

from typing import Final

from testbed.protocols.uet.congestion.controller import ContextController, with_window
from testbed.protocols.uet.congestion.nscc_config import MAX_WND_BDPS, NsccConfig
from testbed.protocols.uet.congestion.window import CongestionWindow
from testbed.protocols.uet.packets.codes import NackCode

UNMARKED_SAMPLE_RTTS: Final = 0.25
"""An unmarked delay above the target adds this to the average instead of itself, in base RTTs (simulator)."""
LEAST_BASE_RTT: Final = 1 / 8
"""The least share of config_base_rtt that a round trip is taken to last."""
GAMMA: Final = 0.8
MAX_MD_JUMP: Final = 0.5
"""No single decrease goes below this share of the window."""
QA_GATE: Final = 3
"""Quick adapt acts if less than max_wnd / 2**QA_GATE was achieved."""
EWMA_GAIN: Final = 0.0125
"""Weight of one sample in the average delay, which the specification leaves open (simulator)."""


class Nscc(CongestionWindow):
    """State of one source (table 3-77) and its reactions. Times in ns, sizes in bytes.

    `window_bytes` stays within one packet and `max_wnd`; the specification applies the upper bound where it increases
    the window, this also where `max_wnd` shrinks with the base RTT, as the simulator does.
    """

    def __init__(self, config: NsccConfig, now: int) -> None:
        super().__init__(config.max_wnd_bytes, config.mtu_bytes)
        self.config = config
        self.base_rtt: int = config.base_rtt_ns
        """Windows and periods follow this: it is never below the time that a full packet takes."""
        self._idle_rtt: int = config.base_rtt_ns
        """The shortest round trip so far, which queueing delay is measured from."""
        self.avg_delay: float = 0.0
        self._target: float = config.target_qdelay_ns
        self._zero_delay: float = config.zero_delay_ns
        self._alpha: float = config.alpha
        self._fi: float = config.fi
        self._fi_scale: float = config.fi_scale
        self._eta: float = config.eta
        self._adjust_bytes: int = config.adjust_bytes
        self._adjust_period: int = config.base_rtt_ns
        self._qa_threshold: float = config.qa_threshold_ns
        self._last_adjust_time: int = now
        self._last_dec_time: int = now
        self._inc_bytes: float = 0.0
        self._received_bytes: int = 0
        self._fi_count: int = 0
        self._increase: bool = False
        self._achieved_bytes: int = 0
        self._bytes_to_ignore: int = 0
        self._bytes_ignored: int = 0
        self._trigger_qa: bool = False
        self._qa_endtime: float = 0.0

    def ack_request(self) -> bool:
        """Tell whether the packet just counted as sent must ask for an ACK (AR): none may be due in time."""
        return self.window_bytes - self.inflight < self._mtu or self.window_bytes < self.config.ack_gen_trigger_bytes

    def on_ack(self, now: int, acked_bytes: int, marked: bool, rtt_ns: int) -> None:
        """An ACK arrived.

        `acked_bytes` is how far Rcvd_Bytes has moved, `marked` its M bit. `rtt_ns` = arrival - (transmission +
        Service_Time), valid if the packet was sent once and the ACK is not of a retransmission, or was retransmitted
        once and the ACK is of that; else -1. Then only the counters act, as the specification has it (the simulator
        goes on with its average delay). Rcv_Cwnd_Pend and Restore_Cwnd (table 3-74) are not looked at: no destination
        here sets them.
        """
        self.inflight -= acked_bytes
        self._bytes_ignored += acked_bytes
        self._received_bytes += acked_bytes
        self._achieved_bytes += acked_bytes
        if rtt_ns <= 0:
            return
        if rtt_ns < self._idle_rtt:
            self._update_base_rtt(rtt_ns)
        delay = max(rtt_ns - self._idle_rtt, 0)  # it has a floor
        target = self._target
        sample = UNMARKED_SAMPLE_RTTS * self.base_rtt if not marked and delay > target else delay
        self.avg_delay += EWMA_GAIN * (sample - self.avg_delay)
        if self._quick_adapt(now, False, marked, delay):
            return
        if marked:
            if delay >= target:
                self._multiplicative_decrease(now)
        elif delay >= target:
            self._inc_bytes += self._fi * acked_bytes
        else:
            self._fast_increase(acked_bytes, delay)
            if not self._increase:
                self._inc_bytes += self._alpha * acked_bytes * (target - delay)
        if now - self._last_adjust_time >= self._adjust_period or self._received_bytes > self._adjust_bytes:
            self._fulfill_adjustment(now)

    def on_nack(self, now: int, code: NackCode, size: int, rtt_ns: int, rccc_enabled: bool) -> None:
        """A NACK for a packet of `size` bytes arrived; `rtt_ns` as for an ACK, with a service time of 0.

        A trimmed packet says that the queue was at its trimming threshold, about one base BDP. The notes on the text
        leave open whether NACKs for other reasons count as ignored bytes; here they do not.
        """
        self.inflight -= size
        if 0 < rtt_ns < self._idle_rtt:
            self._update_base_rtt(rtt_ns)
        if code in (NackCode.TRIMMED, NackCode.TRIMMED_LASTHOP):
            self.avg_delay += EWMA_GAIN * (self.config.base_rtt_ns - self.avg_delay)
            self._bytes_ignored += size
            if code == NackCode.TRIMMED or not rccc_enabled:
                self._trigger_qa = True
                if not self._quick_adapt(now, True, True, 0):
                    self._shrink(size)

    def on_loss(self, now: int, size: int) -> None:
        """A packet of `size` bytes is taken for lost without a word of the receiver. `now` is not used by NSCC."""
        self._shrink(size)
        self._bytes_ignored += size
        self.inflight -= size

    def on_probe_ack(self, rtt_ns: int) -> None:
        """The round trip of a probe on the control class."""
        if 0 < rtt_ns < self._idle_rtt:
            self._update_base_rtt(rtt_ns)

    def state(self) -> dict[str, float]:
        """Return the average queueing delay and the base RTT that it goes by."""
        return {"avg_delay_ns": self.avg_delay, "base_rtt_ns": float(self.base_rtt)}

    def _shrink(self, size: int) -> None:
        self.window_bytes = max(self.window_bytes - size, float(self._mtu))

    def _update_base_rtt(self, rtt_ns: int) -> None:
        """A shorter round trip than all before: the window's bound follows it, down to what a full packet takes.

        The floors are ours: without them one sample that a stalled clock made tiny would be taken for queueing ever
        after, and hold the window at one packet.
        """
        config = self.config
        self._idle_rtt = max(rtt_ns, int(config.base_rtt_ns * LEAST_BASE_RTT))
        rtt_ns = max(self._idle_rtt, config.least_base_rtt_ns)
        if rtt_ns >= self.base_rtt:
            return
        self.base_rtt = rtt_ns
        self.max_wnd = max(MAX_WND_BDPS * config.link_rate_bps * rtt_ns / 8e9, float(self._mtu))
        self.window_bytes = min(self.window_bytes, self.max_wnd)

    def _fast_increase(self, acked_bytes: int, delay: int) -> None:
        if delay < self._zero_delay:
            self._fi_count += acked_bytes
            if self._increase or self._fi_count > self.window_bytes:
                self.window_bytes = min(self.window_bytes + acked_bytes * self._fi_scale, self.max_wnd)
                self._increase = True
                return
        else:
            self._fi_count = 0
        self._increase = False

    def _multiplicative_decrease(self, now: int) -> None:
        self._increase = False
        self._fi_count = 0
        average = self.avg_delay
        if average > self._target and now - self._last_dec_time > self.base_rtt:
            factor = 1.0 - GAMMA * (average - self._target) / average
            self.window_bytes = max(self.window_bytes * max(factor, MAX_MD_JUMP), float(self._mtu))
            self._last_dec_time = now

    def _fulfill_adjustment(self, now: int) -> None:
        cwnd = self.window_bytes + self._inc_bytes / self.window_bytes
        if now - self._last_adjust_time >= self._adjust_period:
            self._last_adjust_time = now
            cwnd += self._eta
        self.window_bytes = min(cwnd, self.max_wnd)
        self._inc_bytes = 0.0
        self._received_bytes = 0

    def _quick_adapt(self, now: int, is_loss: bool, marked: bool, delay: int) -> bool:
        """Falls at once to what got through, when that was little; then ignores the marks of what was in flight."""
        done = False
        if marked and self._bytes_ignored < self._bytes_to_ignore:
            done = True
        elif now >= self._qa_endtime:
            if (
                self._qa_endtime != 0
                and (self._trigger_qa or is_loss or delay > self._qa_threshold)
                and self._achieved_bytes < self.max_wnd / (1 << QA_GATE)
            ):
                self.window_bytes = float(max(self._achieved_bytes, self._mtu))
                self._bytes_to_ignore = self.inflight
                self._bytes_ignored = 0
                self._trigger_qa = False
                done = True
            self._achieved_bytes = 0
            self._qa_endtime = now + self.base_rtt + self._target
        if done:
            self._inc_bytes = 0.0
            self._received_bytes = 0
        return done


CONTROLLER: Final[ContextController] = ContextController(
    name="nscc",
    description="network-signalled: the source moves a window by queueing delay and ECN marks",
    make=with_window(Nscc),
)
