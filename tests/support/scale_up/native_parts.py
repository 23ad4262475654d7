"""The native link layer behind the methods of the model, and both side by side.

What they return, count and wait for must be the same after every call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_uint32
from dataclasses import fields
from typing import Any

import native_link as native
from credit_model import CreditConfig, CreditReceiver, CreditReceiverCounters, CreditSender, CreditSenderCounters
from link_model import ScaleUpLink
from retry_model import (
    ReceiverState,
    Released,
    Replayed,
    RetryReceiver,
    RetryReceiverCounters,
    RetrySender,
    RetrySenderCounters,
    SenderState,
    Verdict,
)

from testbed.protocols.scale_up.ctlos import CfUpdate, Ctlos
from testbed.protocols.scale_up.cyclic import distance
from testbed.protocols.scale_up.frames import FrameCheck
from testbed.protocols.scale_up.retry import RetryConfig


def counted(kind: type, counters: ctypes.Structure) -> Any:
    """Native counters as the model has them, each field of which must be there."""
    return kind(**{item.name: getattr(counters, item.name) for item in fields(kind)})


class NativeSenderOfCredits:
    def __init__(self, library: Any, config: CreditConfig) -> None:
        self._library, self._config = library, config
        self._state = native.NativeCreditSender()
        assert library.credit_sender_init(self._state, native.NativeCreditConfig.of(config)) == 0

    consumed = property(lambda self: list(self._state.consumed))
    freed = property(lambda self: list(self._state.freed))
    port_in_use = property(lambda self: self._state.port_in_use)
    counters = property(lambda self: counted(CreditSenderCounters, self._state.counters))

    def in_use(self, vc: int) -> int:
        return distance(self._state.freed[vc], self._state.consumed[vc])

    def may_send(self, vc: int, frame_bytes: int) -> bool:
        return bool(self._library.credit_may_send(self._state, vc, frame_bytes))

    def on_sent(self, vc: int, frame_bytes: int) -> None:
        self._library.credit_sent(self._state, vc, frame_bytes)

    def on_cf_update(self, update: CfUpdate) -> None:
        self._library.credit_on_cf_update(self._state, native.NativeCtlos.of(update))

    def poll(self, now: int) -> list[tuple[int, int]]:
        due = self._library.credit_sender_poll(self._state, now)
        return [(vc, self._state.consumed[vc]) for vc in range(32) if due >> vc & 1]

    def next_timer(self) -> int:
        return int(self._library.credit_sender_timer(self._state))


class NativeReceiverOfCredits:
    def __init__(self, library: Any, config: CreditConfig) -> None:
        self._library = library
        self._state = native.NativeCreditReceiver()
        assert library.credit_receiver_init(self._state, native.NativeCreditConfig.of(config)) == 0

    consumed = property(lambda self: list(self._state.consumed))
    freed = property(lambda self: list(self._state.freed))
    port_held = property(lambda self: self._state.port_held)
    counters = property(lambda self: counted(CreditReceiverCounters, self._state.counters))

    def held(self, vc: int) -> int:
        return distance(self._state.freed[vc], self._state.consumed[vc])

    def on_stored(self, vc: int, frame_bytes: int) -> bool:
        return bool(self._library.credit_stored(self._state, vc, frame_bytes))

    def on_freed(self, vc: int, frame_bytes: int) -> None:
        self._library.credit_freed(self._state, vc, frame_bytes)

    def on_cc_update(self, counts: tuple[tuple[int, int], ...]) -> None:
        array = (native.NativeCount * len(counts))(*counts)
        self._library.credit_on_cc_update(self._state, array, len(counts))

    def poll(self, now: int) -> Ctlos | None:
        item = native.NativeCtlos()
        return item.value() if self._library.credit_receiver_poll(self._state, now, item) else None

    def next_timer(self) -> int:
        return int(self._library.credit_receiver_timer(self._state))


class NativeSenderOfRetry:
    """Frames are kept by the number of a slot of this class's own."""

    def __init__(self, library: Any, config: RetryConfig) -> None:
        self._library = library
        count = 1 << (config.outstanding_frames_max - 1).bit_length()
        self._slots = (native.NativeSlot * count)()
        self._state = native.NativeRetrySender()
        self._kept: dict[int, Any] = {}
        self._handle = 0
        wrong = library.retry_sender_init(self._state, native.NativeRetryConfig.of(config), self._slots, count)
        assert not wrong
        self._released: list[Released[Any]] = []

    state = property(lambda self: SenderState(self._state.state))
    outstanding = property(lambda self: self._library.retry_outstanding(self._state))
    outstanding_bytes = property(lambda self: self._state.outstanding_bytes)
    replays_in_a_row = property(lambda self: self._state.replays_in_a_row)
    next_sequence = property(lambda self: self._state.next)
    counters = property(lambda self: counted(RetrySenderCounters, self._state.counters))

    def start(self, now: int, sequence: int | None = None) -> None:
        self._library.retry_start(self._state, now, native.NO_SEQUENCE if sequence is None else sequence)
        self._take()

    def stop(self) -> None:
        self._library.retry_stop(self._state)
        self._take()

    def set_pcs(self, up: bool, now: int) -> None:
        self._library.retry_set_pcs(self._state, up, now)

    def verdict(self, frame_bytes: int) -> Verdict:
        return Verdict(self._library.retry_verdict(self._state, frame_bytes))

    def offer(self, frame: Any, frame_bytes: int, now: int, *, poisoned: bool = False) -> tuple[Verdict, int]:
        sequence = c_uint32(0)
        self._handle = (self._handle + 1) & 0xFFFF_FFFF
        verdict = self._library.retry_offer(self._state, self._handle, frame_bytes, poisoned, now, byref(sequence))
        if verdict == Verdict.SENT:
            self._kept[self._handle] = frame
        return Verdict(verdict), sequence.value

    def on_ack(self, sequence: int, now: int) -> None:
        self._library.retry_on_ack(self._state, sequence, now)
        self._take()

    def on_nack(self, sequence: int, now: int) -> None:
        self._library.retry_on_nack(self._state, sequence, now)
        self._take()

    def on_init_echo(self, sequence: int, data: int) -> None:
        self._library.retry_on_init_echo(self._state, sequence, data)

    def poll(self, now: int) -> Ctlos | None:
        item = native.NativeCtlos()
        found = item.value() if self._library.retry_sender_poll(self._state, now, item) else None
        self._take()
        return found

    def replay(self, now: int) -> Replayed[Any] | None:
        handle, sequence = c_uint32(0), c_uint32(0)
        if not self._library.retry_replay(self._state, now, byref(handle), byref(sequence)):
            return None
        return Replayed(sequence.value, self._kept[handle.value])

    def collect(self) -> list[Released[Any]]:
        released, self._released = self._released, []
        return released

    def next_timer(self) -> int:
        return int(self._library.retry_sender_timer(self._state))

    def _take(self) -> None:
        room = (native.NativeReleased * 7)()
        while count := self._library.retry_collect(self._state, room, len(room)):
            for item in room[:count]:
                self._released.append(Released(self._kept.pop(item.handle), bool(item.acknowledged)))


class NativeReceiverOfRetry:
    def __init__(self, library: Any, config: RetryConfig) -> None:
        self._library = library
        self._state = native.NativeRetryReceiver()
        library.retry_receiver_init(self._state, native.NativeRetryConfig.of(config))

    state = property(lambda self: ReceiverState(self._state.state))
    expected = property(lambda self: self._state.expected)
    counters = property(lambda self: counted(RetryReceiverCounters, self._state.counters))

    def stop(self) -> None:
        self._library.retry_receiver_stop(self._state)

    def on_init(self, sequence: int, data: int) -> None:
        self._library.retry_on_init(self._state, sequence, data)

    def on_frame(self, sequence: int | None, check: FrameCheck) -> bool:
        number = native.NO_SEQUENCE if sequence is None else sequence
        return bool(self._library.retry_on_frame(self._state, number, check))

    def poll(self, now: int) -> Ctlos | None:
        item = native.NativeCtlos()
        return item.value() if self._library.retry_receiver_poll(self._state, now, item) else None

    def next_timer(self) -> int:
        return int(self._library.retry_receiver_timer(self._state))


class SideBySide:
    """Calls a method of both, and has both agree on what it returned, on all counters and on the next timer."""

    def __init__(self, model: Any, other: Any, *compared: str) -> None:
        self._model, self._other = model, other
        self._compared = ("counters", *compared)

    def __getattr__(self, name: str) -> Any:
        mine, theirs = getattr(self._model, name), getattr(self._other, name)
        if not callable(mine):
            assert mine == theirs, name
            return mine
        return self._both(name, mine, theirs)

    def _both(self, name: str, mine: Callable[..., Any], theirs: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            result, other = mine(*arguments, **named), theirs(*arguments, **named)
            assert result == other, (name, arguments)
            for compared in self._compared:
                assert getattr(self._model, compared) == getattr(self._other, compared), (name, arguments, compared)
            assert self._model.next_timer() == self._other.next_timer(), (name, arguments)
            return result

        return call


def senders_of_credits(library: Any, config: CreditConfig) -> SideBySide:
    pair = CreditSender(config), NativeSenderOfCredits(library, config)
    return SideBySide(*pair, "consumed", "freed", "port_in_use")


def receivers_of_credits(library: Any, config: CreditConfig) -> SideBySide:
    pair = CreditReceiver(config), NativeReceiverOfCredits(library, config)
    return SideBySide(*pair, "consumed", "freed", "port_held")


def senders_of_retry(library: Any, config: RetryConfig) -> SideBySide:
    model: RetrySender[Any] = RetrySender(config)
    compared = ("state", "outstanding", "outstanding_bytes", "replays_in_a_row", "next_sequence")
    return SideBySide(model, NativeSenderOfRetry(library, config), *compared)


def receivers_of_retry(library: Any, config: RetryConfig) -> SideBySide:
    return SideBySide(RetryReceiver(config), NativeReceiverOfRetry(library, config), "state", "expected")


def accompany(link: ScaleUpLink, library: Any) -> None:
    """Have the native parts do all that those of a link do."""
    config = link.config
    if config.sending is not None:
        link.sender = senders_of_credits(library, config.sending)  # type: ignore[assignment]
    if config.receiving is not None:
        link.receiver = receivers_of_credits(library, config.receiving)  # type: ignore[assignment]
    if config.retry is not None:
        link.retry_sender = senders_of_retry(library, config.retry)  # type: ignore[assignment]
        link.retry_receiver = receivers_of_retry(library, config.retry)  # type: ignore[assignment]
