"""The native side of a scale-up domain: C from `native/`, called through ctypes.

Who runs it compiles it first (`testbed.protocols.scale_up.domain.build`), for a host need not have a compiler, and
names the library to whoever is to load it. The headers say what each function does; the structures here are twins of
theirs.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, c_bool, c_char_p, c_double, c_int, c_int32, c_uint8, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Final

from testbed.base.datapath.build import load_library
from testbed.protocols.scale_up.native import NativeRetryConfig, NativeRetryReceiverCounters, NativeRetrySenderCounters

FLAGS: Final = ("-std=gnu11", "-O2", "-g", "-Wall", "-shared", "-fPIC", "-fvisibility=hidden")
LINK_VCS: Final = 8
PLANES: Final = 64
STEPS: Final = 1056
STEP_BITS: Final = 5
TAGS: Final = 2048
RESPONSES: Final = 16
MOST_RESPONSES: Final = 8208
"""Answers of an end that wait on a plane at a time: the default, and the most (endpoint.h)."""
REGION_BYTES: Final = 256
LINE_BYTES: Final = 64
"""The smallest load or store that memory is asked for: a line of a cache."""
MOST_GPUS: Final = 1024
OPERATIONS: Final = 1024
"""The most operations of an endpoint at a time, those whose completion was not collected among them."""
SWITCH_ID: Final = 1023
"""The switch of a domain, where it asks its GPUs for something (transactions.h)."""
GROUPS: Final = 16
"""Groups that a switch serves (switch_groups.h)."""
WINDOWS: Final = 64
VC_OF_REQUESTS: Final = (1 << 32) - 1
"""That of the endpoint, where a VC is asked for."""
OVERHEAD_BYTES: Final = 38
"""The bytes of a request beyond its payload: Ethernet header, prefix, request, FCS."""


_LINK_TIMES = ("rate_bps", "delay_ns", "cf_min_ns", "cf_max_ns", "idle_ns", "cc_ns", "silence_ns")


class LineFormat(ctypes.Structure):
    """`struct line_format` (link_port.h)."""

    _fields_ = [(name, c_uint32) for name in ("packet", "header", "grain", "wide", "narrow")]


class LinkConfig(ctypes.Structure):
    """`struct link_config` (link_port.h)."""

    _fields_ = [
        *((name, c_uint64) for name in _LINK_TIMES),
        ("flow_control", c_uint32),
        ("vcs", c_uint32),
        ("unit", c_uint32),
        ("overhead", c_int32),
        *((name, c_uint32 * LINK_VCS) for name in ("capacity", "granted", "xoff", "xon")),
        ("mac", c_uint8 * 6),
        ("peer", c_uint8 * 6),
        ("retry", NativeRetryConfig),
        ("epoch", c_uint32),
        ("line", LineFormat),
    ]


class VcCounters(ctypes.Structure):
    """`struct vc_counters` (link_port.h)."""

    _fields_ = [
        (name, c_uint64)
        for name in (
            "tx_frames",
            "tx_bytes",
            "rx_frames",
            "rx_bytes",
            "dropped_frames",
            "dropped_bytes",
            "deepest",
            "s_cc",
            "s_cf",
            "r_cc",
            "r_cf",
            "tx_line_bytes",
            "xmit_wait_ns",
        )
    ]


class LinkCounters(ctypes.Structure):
    """`struct link_counters` (link_port.h)."""

    _fields_ = [
        (name, c_uint64)
        for name in (
            "cbfc_num_cf_update_messages_tx",
            "cbfc_num_cf_update_messages_rx",
            "cbfc_num_cc_update_messages_tx",
            "cbfc_num_cc_update_messages_rx",
            "cf_update_errors",
            "cc_update_errors",
            "leaked_credits",
            "xoff_tx",
            "xon_tx",
            "pfc_rx",
            "control_tx",
            "control_rx",
            "malformed",
            "bad_control",
            "bad_frames",
            "poisoned",
            "send_failures",
            "refused",
            "stale",
            "wire_lost_rx",
            "wire_lost_tx",
            "wire_damaged_rx",
            "wire_damaged_tx",
            "downs",
            "undelivered",
            "returned",
        )
    ]


class WireErrors(ctypes.Structure):
    """`struct wire_errors` (wire_errors.h)."""

    _fields_ = [
        *((name, c_double) for name in ("loss", "burst", "corrupt")),
        ("rate_bps", c_uint64),
        ("seed", c_uint64),
        *((name, c_uint32) for name in ("every", "silent", "down", "pad")),
    ]


class SwitchConfig(ctypes.Structure):
    """`struct switch_config` (switch.h)."""

    _fields_ = [(name, c_uint32) for name in ("gpus", "planes", "voq", "frames", "frame_bytes")]


class EndpointConfig(ctypes.Structure):
    """`struct endpoint_config` (endpoint.h)."""

    _fields_ = [
        ("timeout_ns", c_uint64),
        *(
            (name, c_uint32)
            for name in (
                "gpu",
                "gpus",
                "planes",
                "request_vc",
                "response_vc",
                "coarse",
                "outstanding",
                "frames",
                "frame_bytes",
                "spray",
                "peer_window",
                "responses",
            )
        ),
        ("media_bps", c_uint64),
        ("media_ns", c_uint64),
    ]


class Completion(ctypes.Structure):
    """`struct completion` (endpoint.h)."""

    _fields_ = [
        *((name, c_uint64) for name in ("handle", "result", "begun_ns", "ended_ns", "bytes")),
        ("outcome", c_uint32),
        ("kind", c_uint32),
    ]


class EndpointCounters(ctypes.Structure):
    """`struct endpoint_counters` (endpoint.h)."""

    _fields_ = [
        (name, c_uint64)
        for name in (
            "requests",
            "responses",
            "served",
            "refused",
            "strays",
            "lost_tags",
            "messages",
            "inbox_full",
            "moved",
            "unreachable",
            "payload_bytes",
        )
    ]


class Steps(ctypes.Structure):
    """`struct histogram` (testbed/native/histogram.h)."""

    _fields_ = [("count", c_uint64), ("max_ns", c_uint64), ("steps", c_uint32 * STEPS)]


_LINKS, _BYTES, _PORTS = POINTER(LinkConfig), c_char_p, POINTER(c_int)
_FUNCTIONS: tuple[tuple[str, Any, tuple[Any, ...]], ...] = (
    ("monotonic_ns", c_uint64, ()),
    ("histogram_quantile", c_uint64, (POINTER(Steps), c_double)),
    ("switch_new", c_void_p, (POINTER(SwitchConfig), _LINKS, c_uint64)),
    ("switch_free", None, (c_void_p,)),
    ("switch_set_errors", c_bool, (c_void_p, c_uint32, POINTER(WireErrors), c_uint64)),
    ("switch_set_peer", None, (c_void_p, c_uint32, c_bool, c_uint64)),
    ("switch_work", None, (c_void_p, c_uint64)),
    ("switch_next_timer", c_uint64, (c_void_p,)),
    ("switch_put", c_bool, (c_void_p, c_uint32, _BYTES, c_uint32, c_uint64)),
    ("switch_get", c_uint32, (c_void_p, c_uint32, c_void_p, c_uint32, c_uint64)),
    ("switch_held", c_uint32, (c_void_p, c_uint32, c_uint32)),
    ("switch_link_counters", POINTER(LinkCounters), (c_void_p, c_uint32)),
    ("switch_vc_counters", POINTER(VcCounters), (c_void_p, c_uint32, c_uint32)),
    ("switch_retry_sender", POINTER(NativeRetrySenderCounters), (c_void_p, c_uint32)),
    ("switch_retry_receiver", POINTER(NativeRetryReceiverCounters), (c_void_p, c_uint32)),
    ("switch_passes", POINTER(Steps), (c_void_p,)),
    ("switch_lateness", POINTER(Steps), (c_void_p,)),
    ("switch_frames", c_uint64, (c_void_p,)),
    ("switch_forget_peaks", None, (c_void_p,)),
    ("switch_loop_new", c_void_p, (c_void_p, c_int, c_void_p, c_int, _PORTS, c_int, c_uint64)),
    ("switch_loop_free", None, (c_void_p,)),
    ("switch_loop_run", None, (c_void_p,)),
    ("switch_loop_asleep_ns", c_uint64, (c_void_p,)),
    ("endpoint_new", c_void_p, (POINTER(EndpointConfig), _LINKS, c_uint64)),
    ("endpoint_free", None, (c_void_p,)),
    ("endpoint_export", c_int, (c_void_p, c_void_p, c_uint64, c_uint32, c_uint32)),
    ("endpoint_export_at", c_int, (c_void_p, c_uint32, c_void_p, c_uint64, c_uint32, c_uint32)),
    ("endpoint_authorise", c_int, (c_void_p, c_uint32, c_uint32, c_bool)),
    ("endpoint_withdraw", None, (c_void_p, c_uint32)),
    ("endpoint_await", c_bool, (c_void_p, c_uint32, c_uint64)),
    (
        "endpoint_begin",
        c_uint64,
        (c_void_p, c_uint32, c_uint32, c_uint64, c_void_p, c_uint64, c_uint32, POINTER(c_uint64), c_uint32, c_uint64),
    ),
    ("endpoint_completion", c_bool, (c_void_p, POINTER(Completion))),
    ("endpoint_cancel", None, (c_void_p, c_uint64)),
    ("endpoint_message", c_int, (c_void_p, c_void_p, c_uint32, POINTER(c_uint32))),
    ("endpoint_work", None, (c_void_p, c_uint64)),
    ("endpoint_next_timer", c_uint64, (c_void_p,)),
    ("endpoint_put", c_bool, (c_void_p, c_uint32, _BYTES, c_uint32, c_uint64)),
    ("endpoint_get", c_uint32, (c_void_p, c_uint32, c_void_p, c_uint32)),
    ("endpoint_plane_is_down", c_bool, (c_void_p, c_uint32)),
    ("endpoint_is_known", c_bool, (c_void_p,)),
    ("endpoint_counted", POINTER(EndpointCounters), (c_void_p,)),
    ("endpoint_times", POINTER(Steps), (c_void_p,)),
    ("endpoint_link_counters", POINTER(LinkCounters), (c_void_p, c_uint32)),
    ("endpoint_vc_counters", POINTER(VcCounters), (c_void_p, c_uint32, c_uint32)),
    ("endpoint_retry_sender", POINTER(NativeRetrySenderCounters), (c_void_p, c_uint32)),
    ("endpoint_retry_receiver", POINTER(NativeRetryReceiverCounters), (c_void_p, c_uint32)),
    ("endpoint_loop_new", c_void_p, ()),
    ("endpoint_loop_free", None, (c_void_p,)),
    ("packet_ring_new", c_void_p, (c_int, c_uint32, c_uint32)),
    ("packet_ring_free", None, (c_void_p,)),
    ("endpoint_loop_add", c_int, (c_void_p, c_void_p, _PORTS, POINTER(c_void_p), _PORTS)),
    ("endpoint_loop_remove", None, (c_void_p, c_void_p)),
    ("endpoint_loop_watch", c_int, (c_void_p, c_int)),
    ("endpoint_loop_run", None, (c_void_p, c_uint64)),
    ("endpoint_loop_run_known", c_bool, (c_void_p, c_void_p, c_uint64)),
    ("virtual_loop_new", c_void_p, (c_uint32, c_uint32)),
    ("virtual_loop_free", None, (c_void_p,)),
    ("virtual_loop_set_switch", None, (c_void_p, c_void_p)),
    ("virtual_loop_set_endpoint", None, (c_void_p, c_uint32, c_void_p)),
    ("virtual_loop_run", c_uint64, (c_void_p, c_uint64, c_uint64)),
    ("virtual_loop_lost", c_uint64, (c_void_p,)),
)


@functools.cache
def load(path: Path) -> Any:
    """The functions of a compiled library with their types."""
    return load_library(path, _FUNCTIONS)


def retry_counters(sender: Any, receiver: Any) -> dict[str, dict[str, int]]:
    """LLR's counters, with SAI's names."""
    return {"retry": {**as_dict(sender.contents), **as_dict(receiver.contents)}}


def counts_by_ns(histogram: Steps) -> dict[int, int]:
    """The records of a histogram by the upper end of their step, in ns (`upper_end` in histogram.c)."""
    found: dict[int, int] = {}
    for step, count in enumerate(histogram.steps):
        if count:
            shift = (step >> STEP_BITS) - 1
            low = ((step & (1 << STEP_BITS) - 1) + (1 << STEP_BITS) + 1 << shift) - 1 if shift > 0 else step
            found[low] = int(count)
    return found


def as_dict(counters: ctypes.Structure) -> dict[str, int]:
    """The counters of a structure by name."""
    return {item[0]: int(getattr(counters, item[0])) for item in counters._fields_}
