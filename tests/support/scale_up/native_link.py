"""The C of a link's ends called by itself, for tests: its structures, and the library that has them."""

from __future__ import annotations

import ctypes
import enum
import functools
from ctypes import POINTER, c_bool, c_char_p, c_int, c_int32, c_uint32, c_uint64
from pathlib import Path
from typing import Any, Final

from testbed.base.datapath.build import load_library
from testbed.protocols.scale_up.ctlos import VCS, Ack, CfUpdate, Ctlos, CtlosType, Init, InitEcho, LinkSignal, Nack
from testbed.protocols.scale_up.domain.build import build
from testbed.protocols.scale_up.frames import CC_UPDATE_COUNTS, CTLOS_SLOTS
from testbed.protocols.scale_up.native import (
    NativeRetryConfig,
    NativeRetryReceiverCounters,
    NativeRetrySenderCounters,
)

NO_SEQUENCE: Final = (1 << 32) - 1
"""Where a sequence number may be missing."""


class SenderState(enum.IntEnum):
    """`enum sender_state` (retry.h)."""

    OFF = 0
    INIT = 1
    ADVANCE = 2
    REPLAY = 3
    FLUSH = 4


class ReceiverState(enum.IntEnum):
    """`enum receiver_state` (retry.h)."""

    OFF = 0
    SEND_ACKS = 1
    SEND_NACK = 2
    NACK_SENT = 3


class Verdict(enum.IntEnum):
    """`enum verdict` (retry.h): the fate of a frame that is offered."""

    SENT = 0
    BLOCKED = 1
    DISCARDED = 2
    BEST_EFFORT = 3


class NativeCtlos(ctypes.Structure):
    """`struct ctlos` (wire.h)."""

    _fields_ = [(name, c_uint32) for name in ("type", "sequence", "data", "vc1", "count1", "vc2", "count2")]

    @classmethod
    def of(cls, item: Ctlos) -> NativeCtlos:
        if isinstance(item, CfUpdate):
            return cls(CtlosType.CF_UPDATE, 0, 0, *item)
        return cls(next(kind for kind, made in _SETS.items() if made is type(item)), *item)

    def value(self) -> Ctlos:
        if self.type == CtlosType.CF_UPDATE:
            return CfUpdate(self.vc1, self.count1, self.vc2, self.count2)
        made = _SETS[CtlosType(self.type)]
        return made(*(self.sequence, self.data)[: len(made._fields)])


_SETS: Final[dict[CtlosType, Any]] = {
    CtlosType.LLR_ACK: Ack,
    CtlosType.LLR_NACK: Nack,
    CtlosType.LLR_INIT: Init,
    CtlosType.LLR_INIT_ECHO: InitEcho,
    CtlosType.LINK_SIGNAL: LinkSignal,
}
"""The ordered sets whose fields are a number of 20 bits, and for some one of 16."""


class NativeCount(ctypes.Structure):
    """`struct cc_count` (wire.h)."""

    _fields_ = [("vc", c_uint32), ("consumed", c_uint32)]


class NativeFrame(ctypes.Structure):
    """`struct wire_frame` (wire.h)."""

    _fields_ = [
        *(
            (name, c_uint32)
            for name in (
                "shape",
                "check",
                "kind",
                "vc",
                "eligible",
                "sequence",
                "destination",
                "payload_at",
                "payload_bytes",
                "count",
            )
        ),
        ("sent_ns", c_uint64),
        ("items", NativeCtlos * CTLOS_SLOTS),
        ("counts", NativeCount * CC_UPDATE_COUNTS),
    ]


class NativeCreditConfig(ctypes.Structure):
    """`struct credit_config` (credits.h)."""

    _fields_ = [
        ("limits", c_uint32 * VCS),
        ("unit_bytes", c_uint32),
        ("overhead_bytes", c_int32),
        ("port_limit", c_uint32),
        ("reserved", c_uint32),
        ("cf_min_ns", c_uint64),
        ("cf_max_ns", c_uint64),
        ("cc_period_ns", c_uint64),
    ]


def credit_config(*limits: int, unit_bytes: int = 128, **others: int) -> NativeCreditConfig:
    """The settings that both ends of a direction agree on: the credits of each VC from 0 on, and fields by name."""
    return NativeCreditConfig(limits=(c_uint32 * VCS)(*limits), unit_bytes=unit_bytes, **others)


class NativeCreditSenderCounters(ctypes.Structure):
    """`struct credit_sender_counters` (credits.h)."""

    _fields_ = [
        (name, c_uint64)
        for name in (
            "sender_credits_used_watermark",
            "num_cc_update_messages_tx",
            "num_cf_update_messages_rx",
            "cf_update_errors",
        )
    ]


class NativeCreditReceiverCounters(ctypes.Structure):
    """`struct credit_receiver_counters` (credits.h)."""

    _fields_ = [
        (name, c_uint64)
        for name in (
            "num_cc_update_messages_rx",
            "num_cf_update_messages_tx",
            "cc_update_errors",
            "leaked_credits",
            "over_limit_frames",
        )
    ]


class NativeCreditSender(ctypes.Structure):
    """`struct credit_sender` (credits.h)."""

    _fields_ = [
        ("config", NativeCreditConfig),
        ("consumed", c_uint32 * VCS),
        ("freed", c_uint32 * VCS),
        ("port_in_use", c_uint64),
        ("cc_due_ns", c_uint64),
        ("lossless", c_uint32),
        ("pad", c_uint32),
        ("counters", NativeCreditSenderCounters),
    ]


class NativeCreditReceiver(ctypes.Structure):
    """`struct credit_receiver` (credits.h)."""

    _fields_ = [
        ("config", NativeCreditConfig),
        ("consumed", c_uint32 * VCS),
        ("freed", c_uint32 * VCS),
        ("told", c_uint32 * VCS),
        ("told_ns", c_uint64 * VCS),
        ("port_held", c_uint64),
        ("earliest_ns", c_uint64),
        ("lossless", c_uint32),
        ("changed", c_uint32),
        ("next_vc", c_uint32),
        ("pad", c_uint32),
        ("counters", NativeCreditReceiverCounters),
    ]


class NativeSlot(ctypes.Structure):
    """`struct retry_slot` (retry.h)."""

    _fields_ = [
        ("sent_ns", c_uint64),
        *((name, c_uint32) for name in ("handle", "size", "poisoned", "acknowledged")),
    ]


class NativeReleased(ctypes.Structure):
    """`struct retry_released` (retry.h)."""

    _fields_ = [("handle", c_uint32), ("acknowledged", c_uint32)]


class NativeRetrySender(ctypes.Structure):
    """`struct retry_sender` (retry.h)."""

    _fields_ = [
        ("config", NativeRetryConfig),
        ("slots", POINTER(NativeSlot)),
        *(
            (name, c_uint32)
            for name in (
                "slots_mask",
                "state",
                "next",
                "collected",
                "oldest",
                "end",
                "cursor",
                "replays_in_a_row",
                "init_data",
                "pcs_down",
            )
        ),
        *((name, c_uint64) for name in ("pcs_down_ns", "outstanding_bytes", "timer_ns", "init_due_ns")),
        ("counters", NativeRetrySenderCounters),
    ]


class NativeRetryReceiver(ctypes.Structure):
    """`struct retry_receiver` (retry.h)."""

    _fields_ = [
        ("config", NativeRetryConfig),
        *(
            (name, c_uint32)
            for name in (
                "state",
                "expected",
                "acked",
                "seen",
                "ack_again",
                "owes_echo",
                "echo_sequence",
                "echo_data",
            )
        ),
        ("earliest_ns", c_uint64),
        ("counters", NativeRetryReceiverCounters),
    ]


_CREDIT_SENDER, _CREDIT_RECEIVER = POINTER(NativeCreditSender), POINTER(NativeCreditReceiver)
_RETRY_SENDER, _RETRY_RECEIVER = POINTER(NativeRetrySender), POINTER(NativeRetryReceiver)
_NUMBER = POINTER(c_uint32)
_FUNCTIONS: tuple[tuple[str, Any, tuple[Any, ...]], ...] = (
    ("fcs_of", c_uint32, (c_char_p, c_uint64)),
    ("ctlos_encode", c_int, (c_char_p, POINTER(NativeCtlos))),
    ("wire_decode", c_int, (c_char_p, c_uint32, POINTER(NativeFrame))),
    ("wire_seal", None, (c_char_p, c_uint32, c_bool)),
    ("wire_start", None, (c_char_p, c_char_p, c_char_p, c_uint32, c_uint32)),
    ("wire_number", c_int, (c_char_p, c_uint32, c_uint32, c_bool)),
    ("wire_control", c_int, (c_char_p, c_char_p, c_char_p, POINTER(NativeCtlos), c_uint32, c_uint64)),
    ("wire_cc_update", c_int, (c_char_p, c_char_p, c_char_p, POINTER(NativeCount), c_uint32)),
    ("credit_sender_init", c_int, (_CREDIT_SENDER, POINTER(NativeCreditConfig))),
    ("credit_may_send", c_bool, (_CREDIT_SENDER, c_uint32, c_uint32)),
    ("credit_sent", None, (_CREDIT_SENDER, c_uint32, c_uint32)),
    ("credit_on_cf_update", None, (_CREDIT_SENDER, POINTER(NativeCtlos))),
    ("credit_sender_poll", c_uint32, (_CREDIT_SENDER, c_uint64)),
    ("credit_sender_timer", c_uint64, (_CREDIT_SENDER,)),
    ("credit_receiver_init", c_int, (_CREDIT_RECEIVER, POINTER(NativeCreditConfig))),
    ("credit_stored", c_bool, (_CREDIT_RECEIVER, c_uint32, c_uint32)),
    ("credit_freed", None, (_CREDIT_RECEIVER, c_uint32, c_uint32)),
    ("credit_on_cc_update", None, (_CREDIT_RECEIVER, POINTER(NativeCount), c_uint32)),
    ("credit_receiver_poll", c_bool, (_CREDIT_RECEIVER, c_uint64, POINTER(NativeCtlos))),
    ("credit_receiver_timer", c_uint64, (_CREDIT_RECEIVER,)),
    ("retry_sender_init", c_int, (_RETRY_SENDER, POINTER(NativeRetryConfig), POINTER(NativeSlot), c_uint32)),
    ("retry_start", None, (_RETRY_SENDER, c_uint64, c_uint32)),
    ("retry_stop", None, (_RETRY_SENDER,)),
    ("retry_set_pcs", None, (_RETRY_SENDER, c_bool, c_uint64)),
    ("retry_verdict", c_int, (_RETRY_SENDER, c_uint32)),
    ("retry_offer", c_int, (_RETRY_SENDER, c_uint32, c_uint32, c_bool, c_uint64, _NUMBER)),
    ("retry_on_ack", None, (_RETRY_SENDER, c_uint32, c_uint64)),
    ("retry_on_nack", None, (_RETRY_SENDER, c_uint32, c_uint64)),
    ("retry_on_init_echo", None, (_RETRY_SENDER, c_uint32, c_uint32)),
    ("retry_outstanding", c_uint32, (_RETRY_SENDER,)),
    ("retry_sender_poll", c_bool, (_RETRY_SENDER, c_uint64, POINTER(NativeCtlos))),
    ("retry_replay", c_bool, (_RETRY_SENDER, c_uint64, _NUMBER, _NUMBER)),
    ("retry_collect", c_uint32, (_RETRY_SENDER, POINTER(NativeReleased), c_uint32)),
    ("retry_sender_timer", c_uint64, (_RETRY_SENDER,)),
    ("retry_receiver_init", None, (_RETRY_RECEIVER, POINTER(NativeRetryConfig))),
    ("retry_receiver_stop", None, (_RETRY_RECEIVER,)),
    ("retry_on_init", None, (_RETRY_RECEIVER, c_uint32, c_uint32)),
    ("retry_on_frame", c_bool, (_RETRY_RECEIVER, c_uint32, c_uint32)),
    ("retry_receiver_poll", c_bool, (_RETRY_RECEIVER, c_uint64, POINTER(NativeCtlos))),
    ("retry_receiver_timer", c_uint64, (_RETRY_RECEIVER,)),
)


def bound(path: Path) -> Any:
    """The functions of a compiled library with their types."""
    return load_library(path, _FUNCTIONS)


@functools.cache
def library() -> Any:
    """The functions of the library that scale-up domains run. Raises as `build`."""
    return bound(build())
