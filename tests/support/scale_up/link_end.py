"""One end of a scale-up link: the C of credits and retry (`native_parts`) over frames, without I/O.

Who owns the port drives it. A frame to be sent is offered (`offer`): it goes out now, it has to wait (no credits, a
full replay window, a replay), or it is dropped. What arrives goes into `receive`, and a frame that is to be stored
comes out; when it has left the buffer, `free` gives its credits back. Two kinds of frames are the link's own: `poll`
returns control frames, which pass all others by, and `next_frame` what goes in line with data and before new data,
replays and CC_Updates: ask it whenever the port is free, before anything is offered. `next_timer` says when to ask
again if nothing happens.

CC_Update is numbered like data under LLR, for it must neither pass the frames that it counts nor be passed by them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from encoded_frames import encode_frame, numbered
from native_link import NativeCreditConfig, Verdict
from native_parts import CreditReceiver, CreditSender, RetryReceiver, RetrySender

from testbed.protocols.errors import DecodeError
from testbed.protocols.scale_up.credits import NEVER
from testbed.protocols.scale_up.ctlos import Ack, CfUpdate, Ctlos, Init, InitEcho, Nack
from testbed.protocols.scale_up.frames import (
    CC_UPDATE_BYTES,
    CC_UPDATE_COUNTS,
    CTLOS_SLOTS,
    CcUpdateFrame,
    ControlFrame,
    DataFrame,
    FrameCheck,
    check_frame,
    decode_frame,
    decode_prefix,
    is_control,
)
from testbed.protocols.scale_up.headers import Data
from testbed.protocols.scale_up.retry import RetryConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkConfig:
    """One end of a link."""

    address: bytes
    """The Ethernet address of this end, 6 bytes."""
    peer: bytes
    """That of the other end."""
    sending: NativeCreditConfig | None = None
    """Credits that the peer grants; None: frames are sent without."""
    receiving: NativeCreditConfig | None = None
    """Credits that are granted to the peer."""
    retry: RetryConfig | None = None
    """None: without LLR, both ways."""
    library: Any = None
    """The C; None: as domains run it."""


class Offered(enum.Enum):
    """The fate of a frame that was offered."""

    SENT = "sent"
    NO_CREDITS = "no credits"
    BLOCKED = "blocked"
    """By LLR: its window is full, it replays, or it is not ready."""
    DISCARDED = "discarded"


class Outcome(NamedTuple):
    """The fate of a frame that was offered, and its bytes where they are to be sent."""

    offered: Offered
    data: bytes | None


@dataclass(slots=True)
class LinkCounters:
    """Counters beside those of credits and retry."""

    malformed: int = 0
    """Frames that are none of a scale-up link, or cannot be understood."""
    bad_control: int = 0
    """Control frames whose FCS is wrong."""
    bad_unnumbered: int = 0
    """Unnumbered frames whose FCS is wrong: they are lost."""
    no_room: int = 0
    """Frames for which the buffer had no room."""


@dataclass(slots=True)
class ScaleUpLink:
    """One end of a link. Times are in ns of any clock that does not go back."""

    config: LinkConfig
    sender: CreditSender | None = None
    receiver: CreditReceiver | None = None
    retry_sender: RetrySender | None = None
    retry_receiver: RetryReceiver | None = None
    counters: LinkCounters = field(default_factory=LinkCounters)
    _cc_vcs: list[int] = field(default_factory=list)
    """VCs of CC_Updates that are yet to be sent; their counters are read when they are."""

    def __post_init__(self) -> None:
        config, library = self.config, self.config.library
        self.sender = CreditSender(config.sending, library) if config.sending else None
        self.receiver = CreditReceiver(config.receiving, library) if config.receiving else None
        if config.retry is not None:
            self.retry_sender = RetrySender(config.retry, library)
            self.retry_receiver = RetryReceiver(config.retry, library)

    def start(self, now: int) -> None:
        """Begin LLR; without it a link needs no beginning."""
        if self.retry_sender is not None:
            self.retry_sender.start(now)

    def offer(self, frame: DataFrame, now: int) -> Outcome:
        """Ask to send a frame; `sequence` of it is replaced. Raises `UsageError` for fields that do not fit."""
        data = encode_frame(frame._replace(sequence=None))
        if self.sender is not None and not self.sender.may_send(frame.vc, len(data)):
            return Outcome(Offered.NO_CREDITS, None)
        outcome = self._number(data, now, poisoned=frame.check is FrameCheck.POISONED)
        if outcome.offered is Offered.SENT and self.sender is not None:
            self.sender.on_sent(frame.vc, len(data))
        return outcome

    def next_frame(self, now: int) -> bytes | None:
        """Return what the link itself has to send in line with data; None: new data may be offered."""
        if self.retry_sender is not None and (replayed := self.retry_sender.replay(now)) is not None:
            sequence, data = replayed
            return numbered(data, sequence)
        if self.sender is None:
            return None
        self._cc_vcs = self._cc_vcs or self.sender.poll(now)
        if not self._cc_vcs:
            return None
        if self.retry_sender is not None and self.retry_sender.verdict(CC_UPDATE_BYTES) is Verdict.BLOCKED:
            return None
        vcs, self._cc_vcs = self._cc_vcs[:CC_UPDATE_COUNTS], self._cc_vcs[CC_UPDATE_COUNTS:]
        counts = tuple((vc, self.sender.consumed[vc]) for vc in vcs)
        frame = CcUpdateFrame(self.config.peer, self.config.address, counts)
        return self._number(encode_frame(frame), now, poisoned=False).data

    def poll(self, now: int) -> list[bytes]:
        """The control frames that are to be sent now, past all others. Timers expire here, too."""
        items: list[Ctlos] = []
        sources = [part.poll for part in (self.retry_sender, self.retry_receiver, self.receiver) if part is not None]
        for source in sources:
            while (item := source(now)) is not None:
                items.append(item)
                if not self._goes_on(item):
                    break
        if self.retry_sender is not None:
            self.retry_sender.collect()
        frames = [items[at : at + CTLOS_SLOTS] for at in range(0, len(items), CTLOS_SLOTS)]
        config = self.config
        return [encode_frame(ControlFrame(config.peer, config.address, tuple(part), now)) for part in frames]

    def receive(self, data: Data, now: int) -> DataFrame | None:
        """Take what has arrived; a frame comes out that is to be stored, which may be poisoned."""
        try:
            if is_control(data):
                self._on_control(decode_frame(data), now)
                return None
            prefix = decode_prefix(data)
        except DecodeError:
            self._on_malformed(check_frame(data))
            return None
        check = check_frame(data)
        if prefix.sequence is not None and self.retry_receiver is not None:
            if not self.retry_receiver.on_frame(prefix.sequence, check):
                return None
        elif check is FrameCheck.BAD:
            self.counters.bad_unnumbered += 1
            return None
        try:
            frame = decode_frame(data)
        except DecodeError:
            self.counters.malformed += 1
            return None
        match frame:
            case CcUpdateFrame(counts=counts):
                if self.receiver is not None and check is FrameCheck.GOOD:
                    self.receiver.on_cc_update(counts)
                return None
            case DataFrame(vc=vc):
                if self.receiver is not None and not self.receiver.on_stored(vc, len(data)):
                    self.counters.no_room += 1
                    return None
                return frame
            case _:
                return None

    def free(self, vc: int, frame_bytes: int) -> None:
        """A frame of this size that `receive` returned has left the buffer."""
        if self.receiver is not None:
            self.receiver.on_freed(vc, frame_bytes)

    def set_pcs(self, up: bool, now: int) -> None:
        """Tell whether the link below can carry anything."""
        if self.retry_sender is not None:
            self.retry_sender.set_pcs(up, now)

    def next_timer(self) -> int:
        """When `poll` and `next_frame` will have something; `NEVER`: not by time alone.

        A CC_Update that LLR holds back waits for LLR, and a time that has passed for the port.
        """
        sender = None if self._cc_vcs else self.sender
        parts = (sender, self.receiver, self.retry_sender, self.retry_receiver)
        return min((part.next_timer() for part in parts if part is not None), default=NEVER)

    def _goes_on(self, item: Ctlos) -> bool:
        """Tell whether the same source may have another one at once."""
        if isinstance(item, InitEcho):
            return True
        spaced = self.config.receiving is None or self.config.receiving.cf_min_ns
        return isinstance(item, CfUpdate) and not spaced

    def _number(self, unnumbered: bytes, now: int, *, poisoned: bool) -> Outcome:
        if self.retry_sender is None:
            return Outcome(Offered.SENT, unnumbered)
        verdict, sequence = self.retry_sender.offer(unnumbered, len(unnumbered), now, poisoned=poisoned)
        match verdict:
            case Verdict.SENT:
                return Outcome(Offered.SENT, numbered(unnumbered, sequence))
            case Verdict.BEST_EFFORT:
                return Outcome(Offered.SENT, unnumbered)
            case Verdict.BLOCKED:
                return Outcome(Offered.BLOCKED, None)
            case Verdict.DISCARDED:
                return Outcome(Offered.DISCARDED, None)

    def _on_malformed(self, check: FrameCheck) -> None:
        """Damage may have hit the prefix: under LLR that is a damaged frame like another."""
        if check is FrameCheck.BAD and self.retry_receiver is not None:
            self.retry_receiver.on_frame(None, check)
        else:
            self.counters.malformed += 1

    def _on_control(self, frame: object, now: int) -> None:
        if not isinstance(frame, ControlFrame) or frame.check is not FrameCheck.GOOD:
            self.counters.bad_control += 1
            return
        for item in frame.items:
            match item:
                case CfUpdate() if self.sender is not None:
                    self.sender.on_cf_update(item)
                case Init(sequence, data) if self.retry_receiver is not None:
                    self.retry_receiver.on_init(sequence, data)
                case Ack(sequence) if self.retry_sender is not None:
                    self.retry_sender.on_ack(sequence, now)
                case Nack(sequence) if self.retry_sender is not None:
                    self.retry_sender.on_nack(sequence, now)
                case InitEcho(sequence, data) if self.retry_sender is not None:
                    self.retry_sender.on_init_echo(sequence, data)
