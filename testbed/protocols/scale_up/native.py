"""The link layer's native side: C from `native/`, which the C of a domain (`protocols.scale_up.domain`) is compiled
with.

It does CBFC (`credits`) and LLR (`retry`) for a process that has a microsecond for each frame: no allocation, and the
memory is the caller's. The headers say what each function does; the structures here are twins of theirs.
"""

from __future__ import annotations

import ctypes
from ctypes import c_uint32, c_uint64

from testbed.protocols.scale_up.retry import RetryConfig


class NativeRetryConfig(ctypes.Structure):
    """`struct retry_config` (retry.h)."""

    _fields_ = [
        *(
            (name, c_uint32)
            for name in (
                "outstanding_frames_max",
                "outstanding_bytes_max",
                "replay_count_max",
                "init_action",
                "flush_action",
                "re_init_on_flush",
            )
        ),
        *(
            (name, c_uint64)
            for name in ("replay_timer_ns", "pcs_lost_timeout_ns", "data_age_timeout_ns", "ack_spacing_ns")
        ),
    ]

    @classmethod
    def of(cls, config: RetryConfig) -> NativeRetryConfig:
        return cls(**{name: int(getattr(config, name)) for name, *_ in cls._fields_})


class NativeRetrySenderCounters(ctypes.Structure):
    """`struct retry_sender_counters` (retry.h)."""

    _fields_ = [
        (name, c_uint64)
        for name in (
            "tx_init_ctl_os",
            "rx_init_echo_ctl_os",
            "rx_ack_ctl_os",
            "rx_nack_ctl_os",
            "rx_ack_nack_seq_error",
            "tx_ok",
            "tx_poisoned",
            "tx_discard",
            "tx_replay",
            "tx_flushed",
        )
    ]


class NativeRetryReceiverCounters(ctypes.Structure):
    """`struct retry_receiver_counters` (retry.h)."""

    _fields_ = [
        (name, c_uint64)
        for name in (
            "rx_init_ctl_os",
            "tx_init_echo_ctl_os",
            "tx_ack_ctl_os",
            "tx_nack_ctl_os",
            "rx_ok",
            "rx_poisoned",
            "rx_bad",
            "rx_expected_seq_good",
            "rx_expected_seq_poisoned",
            "rx_expected_seq_bad",
            "rx_missing_seq",
            "rx_duplicate_seq",
            "rx_replay",
        )
    ]
