"""The C of a link's ends as objects: credits and retry, with the methods that a port calls and the state to look at."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_uint32
from typing import Any, NamedTuple

import native_link as native

from testbed.protocols.scale_up.ctlos import CfUpdate, Ctlos
from testbed.protocols.scale_up.cyclic import distance
from testbed.protocols.scale_up.frames import FrameCheck
from testbed.protocols.scale_up.retry import RetryConfig


class _Part:
    """A structure of the C, whose fields are attributes, and the library whose functions work on it."""

    def __init__(self, library: Any, part: ctypes.Structure) -> None:
        self.library = native.library() if library is None else library
        self.part = part

    def __getattr__(self, name: str) -> Any:
        return getattr(self.part, name)

    def _polled(self, poll: Any, now: int) -> Ctlos | None:
        item = native.NativeCtlos()
        return item.value() if poll(self.part, now, item) else None


class CreditSender(_Part):
    """The end of a link that sends frames. Raises `ValueError` for a configuration that is out of range."""

    def __init__(self, config: native.NativeCreditConfig, library: Any = None) -> None:
        super().__init__(library, native.NativeCreditSender())
        if self.library.credit_sender_init(self.part, config):
            raise ValueError("out of range")

    def in_use(self, vc: int) -> int:
        return distance(self.freed[vc], self.consumed[vc])

    def may_send(self, vc: int, frame_bytes: int) -> bool:
        return bool(self.library.credit_may_send(self.part, vc, frame_bytes))

    def on_sent(self, vc: int, frame_bytes: int) -> None:
        self.library.credit_sent(self.part, vc, frame_bytes)

    def on_cf_update(self, update: CfUpdate) -> None:
        self.library.credit_on_cf_update(self.part, native.NativeCtlos.of(update))

    def poll(self, now: int) -> list[int]:
        """The VCs of a CC_Update that is due."""
        due = self.library.credit_sender_poll(self.part, now)
        return [vc for vc in range(native.VCS) if due >> vc & 1]

    def next_timer(self) -> int:
        return int(self.library.credit_sender_timer(self.part))


class CreditReceiver(_Part):
    """The end of a link that stores frames."""

    def __init__(self, config: native.NativeCreditConfig, library: Any = None) -> None:
        super().__init__(library, native.NativeCreditReceiver())
        assert self.library.credit_receiver_init(self.part, config) == 0

    def held(self, vc: int) -> int:
        return distance(self.freed[vc], self.consumed[vc])

    def on_stored(self, vc: int, frame_bytes: int) -> bool:
        return bool(self.library.credit_stored(self.part, vc, frame_bytes))

    def on_freed(self, vc: int, frame_bytes: int) -> None:
        self.library.credit_freed(self.part, vc, frame_bytes)

    def on_cc_update(self, counts: tuple[tuple[int, int], ...]) -> None:
        self.library.credit_on_cc_update(self.part, (native.NativeCount * len(counts))(*counts), len(counts))

    def poll(self, now: int) -> Ctlos | None:
        return self._polled(self.library.credit_receiver_poll, now)

    def next_timer(self) -> int:
        return int(self.library.credit_receiver_timer(self.part))


class Released(NamedTuple):
    """A frame that the replay buffer holds no longer; given up, where it is not acknowledged."""

    frame: Any
    acknowledged: bool


class RetrySender(_Part):
    """The end of a link that sends frames and keeps them for a replay: whatever its caller offers as a frame."""

    def __init__(self, config: RetryConfig, library: Any = None) -> None:
        super().__init__(library, native.NativeRetrySender())
        count = 1 << (config.outstanding_frames_max - 1).bit_length()
        self._slots = (native.NativeSlot * count)()
        settings = native.NativeRetryConfig.of(config)
        assert not self.library.retry_sender_init(self.part, settings, self._slots, count)
        self._kept: dict[int, Any] = {}
        self._released: list[Released] = []
        self._handle = 0

    @property
    def state(self) -> native.SenderState:
        return native.SenderState(self.part.state)

    @property
    def outstanding(self) -> int:
        return int(self.library.retry_outstanding(self.part))

    def start(self, now: int, sequence: int = native.NO_SEQUENCE) -> None:
        self.library.retry_start(self.part, now, sequence)
        self._take()

    def stop(self) -> None:
        self.library.retry_stop(self.part)
        self._take()

    def set_pcs(self, up: bool, now: int) -> None:
        self.library.retry_set_pcs(self.part, up, now)

    def verdict(self, frame_bytes: int) -> native.Verdict:
        return native.Verdict(self.library.retry_verdict(self.part, frame_bytes))

    def offer(self, frame: Any, frame_bytes: int, now: int, *, poisoned: bool = False) -> tuple[native.Verdict, int]:
        sequence = c_uint32(0)
        self._handle += 1
        verdict = self.library.retry_offer(self.part, self._handle, frame_bytes, poisoned, now, byref(sequence))
        if verdict == native.Verdict.SENT:
            self._kept[self._handle] = frame
        return native.Verdict(verdict), sequence.value

    def on_ack(self, sequence: int, now: int) -> None:
        self.library.retry_on_ack(self.part, sequence, now)
        self._take()

    def on_nack(self, sequence: int, now: int) -> None:
        self.library.retry_on_nack(self.part, sequence, now)
        self._take()

    def on_init_echo(self, sequence: int, data: int) -> None:
        self.library.retry_on_init_echo(self.part, sequence, data)

    def poll(self, now: int) -> Any:
        item = self._polled(self.library.retry_sender_poll, now)
        self._take()
        return item

    def replay(self, now: int) -> tuple[int, Any] | None:
        """Return the number of the next frame that is sent again, and the frame."""
        handle, sequence = c_uint32(0), c_uint32(0)
        if not self.library.retry_replay(self.part, now, byref(handle), byref(sequence)):
            return None
        return sequence.value, self._kept[handle.value]

    def collect(self) -> list[Released]:
        released, self._released = self._released, []
        return released

    def _take(self) -> None:
        """Take what was released, which makes room for more."""
        room = (native.NativeReleased * 7)()
        while count := self.library.retry_collect(self.part, room, len(room)):
            self._released += [Released(self._kept.pop(item.handle), bool(item.acknowledged)) for item in room[:count]]

    def next_timer(self) -> int:
        return int(self.library.retry_sender_timer(self.part))


class RetryReceiver(_Part):
    """The end of a link that takes numbered frames in their order."""

    def __init__(self, config: RetryConfig, library: Any = None) -> None:
        super().__init__(library, native.NativeRetryReceiver())
        self.library.retry_receiver_init(self.part, native.NativeRetryConfig.of(config))

    @property
    def state(self) -> native.ReceiverState:
        return native.ReceiverState(self.part.state)

    def stop(self) -> None:
        self.library.retry_receiver_stop(self.part)

    def on_init(self, sequence: int, data: int) -> None:
        self.library.retry_on_init(self.part, sequence, data)

    def on_frame(self, sequence: int | None, check: FrameCheck) -> bool:
        number = native.NO_SEQUENCE if sequence is None else sequence
        return bool(self.library.retry_on_frame(self.part, number, check))

    def poll(self, now: int) -> Ctlos | None:
        return self._polled(self.library.retry_receiver_poll, now)

    def next_timer(self) -> int:
        return int(self.library.retry_receiver_timer(self.part))
