"""The native side of an InfiniBand fabric in virtual time: C from `native/`, called through ctypes.

The headers say what each function does; the structures here are twins of theirs.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, c_bool, c_char_p, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Final

from testbed.base.datapath.build import compiled, load_library, source_texts

FLAGS: Final = ("-std=gnu11", "-O2", "-g", "-Wall", "-shared", "-fPIC", "-fvisibility=hidden")
DATA_VLS: Final = 15
ALL_VLS: Final = 16
SLS: Final = 16
BLOCK_BYTES: Final = 64
"""The bytes that a credit stands for."""
MOST_BLOCKS: Final = 2048
"""The most credits of a VL (InfiniBand volume 1, section 7.9.4.4)."""
HEADER_BYTES: Final = 60
NO_PORT: Final = 255
NEVER: Final = (1 << 64) - 1
DELIVERED, SENT, LOST, LEAVES, COMES = 1, 2, 3, 4, 5
"""`enum notice_kind` (fabric.h)."""
_DOMAIN_SOURCES = ("frame_pool.c", "frame_pool.h")
_LINK_SOURCES = ("api.h", "credits.c", "credits.h", "wire.h")
_SHARED_SOURCES = ("types.h",)


class FabricConfig(ctypes.Structure):
    """`struct fabric_config` (fabric.h)."""

    _fields_ = [(name, c_uint32) for name in ("nodes", "links", "vls", "voq", "lids", "management_frames")]


class NodeConfig(ctypes.Structure):
    """`struct node_config` (fabric.h)."""

    _fields_ = [(name, c_uint32) for name in ("ports", "is_switch", "lid")]


class FabricLink(ctypes.Structure):
    """`struct fabric_link` (fabric.h)."""

    _fields_ = [
        *((name, c_uint32) for name in ("node_a", "port_a", "node_b", "port_b")),
        *((name, c_uint64) for name in ("rate_bps", "delay_ns", "spacing_ns")),
        *((name, c_uint32) for name in ("blocks", "pad")),
    ]


class Entry(ctypes.Structure):
    """`struct entry` (fabric.h)."""

    _fields_ = [("vl", c_uint8), ("weight", c_uint8)]


class NativeNotice(ctypes.Structure):
    """`struct notice` (fabric.h)."""

    _fields_ = [
        ("at_ns", c_uint64),
        ("token", c_uint64),
        *((name, c_uint32) for name in ("node", "kind", "fecn", "cause", "port", "vl")),
    ]


class NativeChannel(ctypes.Structure):
    """`struct channel` (fabric.h)."""

    _fields_ = [(name, c_uint32) for name in ("node", "port", "vl")]


ERRORS: Final = (
    "xmit_discards",
    "rcv_errors",
    "rcv_switch_relay_errors",
    "xmit_constraint_errors",
    "rcv_constraint_errors",
    "vl15_dropped",
)
"""The counters of frames that went nowhere which `perfquery` has, too."""
LOSSES: Final = (*ERRORS, "buffer_overruns", "bad_pkey", "misrouted", "lost_on_link")
"""The counters of frames that went nowhere: each such frame is in one of them."""


class NativePortCounters(ctypes.Structure):
    """`struct port_counters` (fabric.h)."""

    _fields_ = [
        (name, c_uint64)
        for name in ("xmit_data", "rcv_data", "xmit_pkts", "rcv_pkts", "xmit_wait_ns", *LOSSES, "link_downed")
    ]


class LaneCounters(ctypes.Structure):
    """`struct lane_counters` (fabric.h)."""

    _fields_ = [
        (name, c_uint64)
        for name in ("xmit_bytes", "xmit_pkts", "rcv_bytes", "rcv_pkts", "xmit_wait_ns", "deepest", "marked")
    ]


COUNTERS: Final = tuple(item[0] for item in NativePortCounters._fields_)
LANE_COUNTERS: Final = tuple(item[0] for item in LaneCounters._fields_)

_WHERE = (c_void_p, c_uint32, c_uint32)
_FUNCTIONS: tuple[tuple[str, Any, tuple[Any, ...]], ...] = (
    ("ib_fabric_new", c_void_p, (POINTER(FabricConfig), POINTER(NodeConfig), POINTER(FabricLink))),
    ("ib_fabric_free", None, (c_void_p,)),
    ("ib_fabric_set_lft", c_bool, (c_void_p, c_uint32, c_char_p, c_uint32)),
    ("ib_fabric_set_sl2vl", c_bool, (*_WHERE, c_uint32, c_char_p)),
    ("ib_fabric_set_arbitration", c_bool, (*_WHERE, POINTER(Entry), c_uint32, POINTER(Entry), c_uint32, c_uint32)),
    ("ib_fabric_set_pkeys", c_bool, (*_WHERE, POINTER(c_uint16), c_uint32)),
    ("ib_fabric_set_congestion", c_bool, (*_WHERE, c_uint32, c_uint32)),
    ("ib_fabric_set_up_ports", c_bool, (c_void_p, c_uint32, POINTER(c_uint64))),
    ("ib_fabric_set_link", c_bool, (*_WHERE, c_bool)),
    ("ib_fabric_set_leak", c_bool, (*_WHERE, c_uint32, c_uint32)),
    ("ib_fabric_watch", c_bool, (*_WHERE, c_bool)),
    ("ib_fabric_offer", c_bool, (c_void_p, c_uint32, c_char_p, c_uint32, c_uint32, c_uint64, c_bool, c_uint64)),
    ("ib_fabric_inject", c_bool, (*_WHERE, c_char_p, c_uint32, c_uint32, c_uint64, c_uint64)),
    ("ib_fabric_run", c_uint64, (c_void_p, c_uint64, c_bool)),
    ("ib_fabric_pass", None, (c_void_p, c_uint64)),
    ("ib_fabric_notices", POINTER(NativeNotice), (c_void_p,)),
    ("ib_fabric_notice_count", c_uint32, (c_void_p,)),
    ("ib_fabric_forget_notices", None, (c_void_p,)),
    ("ib_fabric_deadlock", c_uint32, (c_void_p, POINTER(NativeChannel), c_uint32)),
    ("ib_fabric_counters", POINTER(NativePortCounters), _WHERE),
    ("ib_fabric_lane", POINTER(LaneCounters), (*_WHERE, c_uint32)),
    ("ib_fabric_forget_peaks", None, (c_void_p,)),
    ("ib_fabric_in_flight", c_uint64, (c_void_p,)),
    ("ib_fabric_hops", c_uint64, (c_void_p,)),
    ("ib_fabric_is_broken", c_bool, (c_void_p,)),
    ("ib_vcrc", c_uint32, (c_char_p, c_uint32)),
)


def build(cache: Path | None = None, *flags: str) -> Path:
    """Return the compiled library, from the cache where this source was compiled before; `flags` are added to those of
    the compiler.

    Raises `CapabilityError` where clang or the headers are missing.
    """
    sources = source_texts("testbed", "native", _SHARED_SOURCES)
    sources |= source_texts("testbed.protocols.scale_up", "native", _LINK_SOURCES)
    sources |= source_texts("testbed.protocols.scale_up.domain", "native", _DOMAIN_SOURCES)
    sources |= source_texts("testbed.protocols.infiniband", "native")
    return compiled("infiniband-fabric", ".so", sources, (*FLAGS, *flags), cache, what="the InfiniBand fabric")


@functools.cache
def load(path: Path) -> Any:
    """Return the functions of a compiled library with their types."""
    return load_library(path, _FUNCTIONS)


def library() -> Any:
    """Return the library's functions. Raises as `build`."""
    return load(build())


def vcrc(data: bytes) -> int:
    """Return the VCRC of a frame, LRH to ICRC: what `local_routing.compute_vcrc` does, in a thirtieth of the time."""
    return int(library().ib_vcrc(data, len(data)))
