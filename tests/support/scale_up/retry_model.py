"""LLR once more in Python, held against the C that links run: the engines of both ends, without I/O."""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from testbed.protocols.scale_up.credits import NEVER
from testbed.protocols.scale_up.ctlos import Ack, Init, InitEcho, Nack
from testbed.protocols.scale_up.cyclic import CYCLE_MASK, HALF_CYCLE, advance, distance
from testbed.protocols.scale_up.frames import FrameCheck
from testbed.protocols.scale_up.retry import UNLIMITED_REPLAYS, FrameAction, RetryConfig

Kept = TypeVar("Kept")
"""A frame in the replay buffer."""


class SenderState(enum.IntEnum):
    OFF = 0
    INIT = 1
    ADVANCE = 2
    REPLAY = 3
    FLUSH = 4


class ReceiverState(enum.IntEnum):
    OFF = 0
    SEND_ACKS = 1
    SEND_NACK = 2
    NACK_SENT = 3


class Verdict(enum.IntEnum):
    """The fate of a frame that is offered."""

    SENT = 0
    """It is numbered and to be sent now."""
    BLOCKED = 1
    """It has to wait: offer it again."""
    DISCARDED = 2
    BEST_EFFORT = 3
    """It is to be sent now, without a number."""


@dataclass(slots=True)
class RetrySenderCounters:
    """Names are those of SAI's port statistics without `SAI_PORT_STAT_LLR_`."""

    tx_init_ctl_os: int = 0
    rx_init_echo_ctl_os: int = 0
    rx_ack_ctl_os: int = 0
    rx_nack_ctl_os: int = 0
    rx_ack_nack_seq_error: int = 0
    """ACKs and NACKs of frames that are not outstanding."""
    tx_ok: int = 0
    """Numbered frames that were sent, again for each replay."""
    tx_poisoned: int = 0
    tx_discard: int = 0
    tx_replay: int = 0
    """Replays that were completed."""
    tx_flushed: int = 0
    """Frames that were given up unacknowledged. Not in SAI."""


@dataclass(slots=True)
class RetryReceiverCounters:
    """Names are those of SAI's port statistics without `SAI_PORT_STAT_LLR_`."""

    rx_init_ctl_os: int = 0
    tx_init_echo_ctl_os: int = 0
    tx_ack_ctl_os: int = 0
    tx_nack_ctl_os: int = 0
    rx_ok: int = 0
    rx_poisoned: int = 0
    rx_bad: int = 0
    rx_expected_seq_good: int = 0
    rx_expected_seq_poisoned: int = 0
    rx_expected_seq_bad: int = 0
    rx_missing_seq: int = 0
    """Frames before which one is missing, whatever their FCS."""
    rx_duplicate_seq: int = 0
    """Frames that have arrived before, whatever their FCS."""
    rx_replay: int = 0
    """Replays whose start was seen: a frame whose number is not beyond that of the frame before it."""


class Released(NamedTuple, Generic[Kept]):
    """A frame that the replay buffer holds no longer."""

    frame: Kept
    acknowledged: bool
    """False: it was given up, and nobody knows whether it has arrived."""


class Replayed(NamedTuple, Generic[Kept]):
    """A frame to send again."""

    sequence: int
    frame: Kept


@dataclass(slots=True)
class _Slot(Generic[Kept]):
    frame: Kept
    size: int
    sent_ns: int
    poisoned: bool


@dataclass(slots=True)
class RetrySender(Generic[Kept]):
    """The end of a link that sends frames and keeps them for a replay."""

    config: RetryConfig
    state: SenderState = SenderState.OFF
    counters: RetrySenderCounters = field(default_factory=RetrySenderCounters)
    replays_in_a_row: int = 0
    """Without progress."""
    outstanding_bytes: int = 0
    _next: int = 0
    """The number of the next new frame; those before it are in `_slots`."""
    _slots: deque[_Slot[Kept]] = field(default_factory=deque)
    _cursor: int = 0
    """In REPLAY: the slot to be sent next."""
    _released: list[Released[Kept]] = field(default_factory=list)
    _timer_ns: int = NEVER
    _pcs_down_ns: int | None = None
    _init_data: int = 0
    _init_due_ns: int = NEVER

    @property
    def outstanding(self) -> int:
        """Frames that were sent and are not acknowledged."""
        return len(self._slots)

    @property
    def next_sequence(self) -> int:
        """The number that the next new frame will have."""
        return self._next

    def start(self, now: int, sequence: int | None = None) -> None:
        """Begin with LLR_INIT, from any state; what is outstanding is given up.

        `sequence`: the number of the first frame; None: the next in turn.
        """
        self._give_up()
        self.state = SenderState.INIT
        self._next = self._next if sequence is None else sequence & CYCLE_MASK
        self._init_data = (self._init_data + 1) & 0xFFFF
        self._init_due_ns = now

    def stop(self) -> None:
        """Use LLR no longer."""
        self._give_up()
        self.state = SenderState.OFF

    def set_pcs(self, up: bool, now: int) -> None:
        """Tell whether the link below can carry anything."""
        if up and self._pcs_down_ns is not None:
            self._pcs_down_ns = None
            if self.state is SenderState.ADVANCE and self._slots:
                self._timer_ns = now + self.config.replay_timer_ns
        elif not up and self._pcs_down_ns is None:
            self._pcs_down_ns = now

    def verdict(self, frame_bytes: int) -> Verdict:
        """Return the fate that a frame of that size would have."""
        match self.state:
            case SenderState.OFF:
                verdict = Verdict.BEST_EFFORT
            case SenderState.ADVANCE:
                fits = len(self._slots) < self.config.outstanding_frames_max and (
                    not self._slots or self.outstanding_bytes + frame_bytes <= self.config.outstanding_bytes_max
                )
                verdict = Verdict.SENT if fits else Verdict.BLOCKED
            case SenderState.REPLAY:
                verdict = Verdict.BLOCKED
            case state:
                action = self.config.init_action if state is SenderState.INIT else self.config.flush_action
                verdict = _VERDICTS[action]
        if self._pcs_down_ns is not None and verdict is not Verdict.DISCARDED:
            return Verdict.BLOCKED
        return verdict

    def offer(self, frame: Kept, frame_bytes: int, now: int, *, poisoned: bool = False) -> tuple[Verdict, int]:
        """A new frame is to be sent: what becomes of it, and its number where it has one (else 0)."""
        verdict = self.verdict(frame_bytes)
        if verdict is Verdict.DISCARDED:
            self.counters.tx_discard += 1
        if verdict is not Verdict.SENT:
            return verdict, 0
        if not self._slots:
            self._timer_ns = now + self.config.replay_timer_ns
        self._slots.append(_Slot(frame, frame_bytes, now, poisoned))
        self.outstanding_bytes += frame_bytes
        sequence, self._next = self._next, advance(self._next)
        self._count_sent(poisoned)
        return verdict, sequence

    def on_ack(self, sequence: int, now: int) -> None:
        """All frames up to this number have arrived."""
        self.counters.rx_ack_ctl_os += 1
        self._acknowledge(sequence, now)

    def on_nack(self, sequence: int, now: int) -> None:
        """All frames up to this number have arrived, and the next one has not."""
        self.counters.rx_nack_ctl_os += 1
        if self._acknowledge(sequence, now) and self._slots:
            self._begin_replay(now)

    def on_init_echo(self, sequence: int, data: int) -> None:
        """The receiver has taken over what LLR_INIT said."""
        self.counters.rx_init_echo_ctl_os += 1
        if self.state is SenderState.INIT and (sequence, data) == (self._next, self._init_data):
            self.state = SenderState.ADVANCE
            self._init_due_ns = NEVER

    def poll(self, now: int) -> Init | None:
        """Let timers expire, and say which LLR_INIT is to be sent."""
        if self.state in (SenderState.ADVANCE, SenderState.REPLAY):
            if now >= self._give_up_ns():
                self._flush(now)
            elif now >= self._timer_ns and self._pcs_down_ns is None:
                self._begin_replay(now)
        if self.state is SenderState.INIT and self._pcs_down_ns is None and now >= self._init_due_ns:
            self._init_due_ns = now + self.config.replay_timer_ns
            self.counters.tx_init_ctl_os += 1
            return Init(self._next, self._init_data)
        return None

    def replay(self, now: int) -> Replayed[Kept] | None:
        """The next frame to be sent again; None: none is, and new ones may be offered."""
        if self.state is not SenderState.REPLAY or self._pcs_down_ns is not None:
            return None
        slot = self._slots[self._cursor]
        sequence = advance(self._next, self._cursor - len(self._slots))
        self._cursor += 1
        self._count_sent(slot.poisoned)
        if self._cursor == len(self._slots):
            self._end_replay()
            self._timer_ns = now + self.config.replay_timer_ns
        return Replayed(sequence, slot.frame)

    def collect(self) -> list[Released[Kept]]:
        """The frames that were released since the last call, in their order."""
        released, self._released = self._released, []
        return released

    def next_timer(self) -> int:
        """When `poll` is to be called next at the latest; `NEVER`: not by time alone."""
        if self.state is SenderState.INIT:
            return NEVER if self._pcs_down_ns is not None else self._init_due_ns
        if self.state not in (SenderState.ADVANCE, SenderState.REPLAY):
            return NEVER
        return min(self._give_up_ns(), NEVER if self._pcs_down_ns is not None else self._timer_ns)

    def _give_up_ns(self) -> int:
        when = NEVER
        if self._pcs_down_ns is not None and self.config.pcs_lost_timeout_ns:
            when = self._pcs_down_ns + self.config.pcs_lost_timeout_ns
        if self._slots and self.config.data_age_timeout_ns:
            when = min(when, self._slots[0].sent_ns + self.config.data_age_timeout_ns)
        return when

    def _acknowledge(self, sequence: int, now: int) -> bool:
        """Release the frames up to `sequence`; False: that is none which may be acknowledged."""
        if self.state not in (SenderState.ADVANCE, SenderState.REPLAY):
            return False
        newly = len(self._slots) - distance(advance(sequence), self._next)
        if newly < 0:
            self.counters.rx_ack_nack_seq_error += 1
            return False
        if not newly:
            return True
        for _ in range(newly):
            slot = self._slots.popleft()
            self.outstanding_bytes -= slot.size
            self._released.append(Released(slot.frame, True))
        self.replays_in_a_row = 0
        self._cursor = max(0, self._cursor - newly)
        if not self._slots:
            self._timer_ns = NEVER
            if self.state is SenderState.REPLAY:
                self._end_replay()
        elif self.state is SenderState.ADVANCE:
            self._timer_ns = now + self.config.replay_timer_ns
        return True

    def _begin_replay(self, now: int) -> None:
        self.replays_in_a_row += 1
        if self.config.replay_count_max != UNLIMITED_REPLAYS and self.replays_in_a_row > self.config.replay_count_max:
            self._flush(now)
            return
        self.state = SenderState.REPLAY
        self._cursor = 0
        self._timer_ns = NEVER

    def _end_replay(self) -> None:
        self.state = SenderState.ADVANCE
        self._cursor = 0
        self.counters.tx_replay += 1

    def _flush(self, now: int) -> None:
        self._give_up()
        self.state = SenderState.FLUSH
        if self.config.re_init_on_flush:
            self.start(now)

    def _give_up(self) -> None:
        self.counters.tx_flushed += len(self._slots)
        self._released.extend(Released(slot.frame, False) for slot in self._slots)
        self._slots.clear()
        self.outstanding_bytes = self.replays_in_a_row = self._cursor = 0
        self._timer_ns = self._init_due_ns = NEVER

    def _count_sent(self, poisoned: bool) -> None:
        if poisoned:
            self.counters.tx_poisoned += 1
        else:
            self.counters.tx_ok += 1


_VERDICTS: Final = {
    FrameAction.DISCARD: Verdict.DISCARDED,
    FrameAction.BLOCK: Verdict.BLOCKED,
    FrameAction.BEST_EFFORT: Verdict.BEST_EFFORT,
}


@dataclass(slots=True)
class RetryReceiver:
    """The end of a link that takes numbered frames in their order."""

    config: RetryConfig
    state: ReceiverState = ReceiverState.OFF
    counters: RetryReceiverCounters = field(default_factory=RetryReceiverCounters)
    expected: int = 0
    """The number of the frame that is taken next."""
    _acked: int = CYCLE_MASK
    """The last ACK or NACK."""
    _ack_again: bool = False
    """A frame has come again: the ACK of it may have been lost."""
    _echo: InitEcho | None = None
    _seen: int = CYCLE_MASK
    """The number of the last frame that was not damaged."""
    _earliest_ns: int = 0
    """When the next ACK may be sent."""

    def stop(self) -> None:
        """Use LLR no longer, until LLR_INIT comes."""
        self.state = ReceiverState.OFF
        self._echo = None

    def on_init(self, sequence: int, data: int) -> None:
        """The sender begins: its first frame has this number."""
        self.counters.rx_init_ctl_os += 1
        self.state = ReceiverState.SEND_ACKS
        self.expected = sequence
        self._acked = self._seen = advance(sequence, -1)
        self._ack_again = False
        self._echo = InitEcho(sequence, data)

    def on_frame(self, sequence: int | None, check: FrameCheck) -> bool:
        """A numbered frame has arrived: whether it is to be taken, poisoned or not.

        `sequence`: None where the frame is so damaged that it has none.
        """
        match check:
            case FrameCheck.GOOD:
                self.counters.rx_ok += 1
            case FrameCheck.POISONED:
                self.counters.rx_poisoned += 1
            case FrameCheck.BAD:
                self.counters.rx_bad += 1
        if self.state is ReceiverState.OFF:
            return False
        ahead = None if sequence is None else distance(self.expected, sequence)
        if sequence is not None and check is not FrameCheck.BAD:
            step = distance(self._seen, sequence)
            self.counters.rx_replay += step == 0 or step >= HALF_CYCLE
            self._seen = sequence
        if ahead == 0:
            return self._on_expected(check)
        if ahead is not None and ahead < HALF_CYCLE:
            self.counters.rx_missing_seq += 1
        elif ahead is not None:
            self.counters.rx_duplicate_seq += 1
        if self.state is ReceiverState.SEND_ACKS:
            if check is FrameCheck.BAD or (ahead is not None and ahead < HALF_CYCLE):
                self.state = ReceiverState.SEND_NACK
            else:
                self._ack_again = True
        return False

    def poll(self, now: int) -> InitEcho | Nack | Ack | None:
        """The control ordered set that is to be sent."""
        if self._echo is not None:
            echo, self._echo = self._echo, None
            self.counters.tx_init_echo_ctl_os += 1
            return echo
        last = advance(self.expected, -1)
        if self.state is ReceiverState.SEND_NACK:
            self.state = ReceiverState.NACK_SENT
            self.counters.tx_nack_ctl_os += 1
            self._said(last, now)
            return Nack(last)
        if self._owes_ack() and now >= self._earliest_ns:
            self.counters.tx_ack_ctl_os += 1
            self._said(last, now)
            return Ack(last)
        return None

    def next_timer(self) -> int:
        """When `poll` will have something; `NEVER`: not by time alone."""
        if self._echo is not None or self.state is ReceiverState.SEND_NACK:
            return 0
        return self._earliest_ns if self._owes_ack() else NEVER

    def _on_expected(self, check: FrameCheck) -> bool:
        if check is FrameCheck.BAD:
            self.counters.rx_expected_seq_bad += 1
            if self.state is ReceiverState.SEND_ACKS:
                self.state = ReceiverState.SEND_NACK
            return False
        if check is FrameCheck.POISONED:
            self.counters.rx_expected_seq_poisoned += 1
        else:
            self.counters.rx_expected_seq_good += 1
        self.expected = advance(self.expected)
        self.state = ReceiverState.SEND_ACKS
        return True

    def _owes_ack(self) -> bool:
        unsaid = self._ack_again or self._acked != advance(self.expected, -1)
        return self.state is ReceiverState.SEND_ACKS and unsaid

    def _said(self, last: int, now: int) -> None:
        self._acked = last
        self._ack_again = False
        self._earliest_ns = now + self.config.ack_spacing_ns
