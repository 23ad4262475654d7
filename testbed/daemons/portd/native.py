"""The pause agent's native side: C from `native/`, compiled at first use, called through ctypes.

What must happen within a millisecond is C: reading events, the pause machine, frames, gates, timers. What owns files,
sockets of clients and processes is Python, and calls it from one thread. The headers say what each function does; the
structures here are twins of theirs.
"""

from __future__ import annotations

import ctypes
import enum
import functools
from ctypes import POINTER, c_bool, c_char_p, c_double, c_int, c_int32, c_int64, c_uint16, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from testbed.base.datapath.abi import CLASSES
from testbed.base.datapath.build import compiled, load_library, source_texts

NEVER = 2**64 - 1
GATE_MESSAGE_BYTES = 256
STEPS = 1056
SHARED_SOURCES = ("types.h", "histogram.c", "histogram.h", "pfc.c", "pfc.h")
"""Sources in `testbed/native` that other packages' C uses, too."""
_FLAGS = ("-std=gnu11", "-O2", "-g", "-Wall", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread")


class ActionKind(enum.IntEnum):
    """`enum action_kind` (core.h)."""

    CLOSE_GATES = 1
    SEND_XOFF = 2
    SEND_XON = 3
    OPEN_GATES = 4


class NoteKind(enum.IntEnum):
    """`enum note_kind` (notes.h)."""

    WATCHDOG_FREED = 1
    WATCHDOG_RESTORED = 2
    STORM_BEGAN = 3
    STORM_ENDED = 4
    MALFORMED = 5
    FAILED_FRAME = 6
    FAILED_GATE = 7
    FAILED_KICK = 8


class AttachedPort(ctypes.Structure):
    """`struct attached_port` (core.h)."""

    _fields_ = [
        ("number", c_uint32),
        ("peer", c_uint32),
        ("lossless", c_uint32),
        ("ifindex", c_uint32),
        ("rate_bps", c_uint64),
        ("watchdog_detect_ns", c_uint64),
        ("watchdog_restore_ns", c_uint64),
        ("namespace", c_uint32),
        ("gates", c_uint32),
        ("mac", ctypes.c_uint8 * 6),
        ("pad", ctypes.c_uint8 * 2),
    ]


class Action(ctypes.Structure):
    """`struct action` (core.h)."""

    _fields_ = [("kind", c_uint32), ("port", c_uint32), ("vector", c_uint32), ("quanta", c_uint16 * CLASSES)]


class Note(ctypes.Structure):
    """`struct note` (notes.h)."""

    _fields_ = [("kind", c_uint32), ("port", c_uint32), ("priority", c_uint32), ("error", c_int32), ("value", c_uint64)]


class StrayCounters(ctypes.Structure):
    """`struct strays` (core.h)."""

    _fields_ = [("unknown", c_uint64), ("lossy", c_uint64), ("healed", c_uint64)]


class Steps(ctypes.Structure):
    """`struct histogram` (testbed/native/histogram.h)."""

    _fields_ = [("count", c_uint64), ("max_ns", c_uint64), ("steps", c_uint32 * STEPS)]


class GateMessages(ctypes.Structure):
    """`struct gate_messages` (port_io.h)."""

    _fields_ = [("bytes", c_uint32 * 2), ("message", (ctypes.c_uint8 * GATE_MESSAGE_BYTES) * 2)]


_QUANTA = c_uint16 * CLASSES
_FUNCTIONS: tuple[tuple[str, Any, tuple[Any, ...]], ...] = (
    ("pfc_encode", None, (c_char_p, c_char_p, c_uint32, _QUANTA)),
    ("pfc_pause_ns", c_uint64, (c_uint32, c_uint64)),
    ("histogram_record", None, (POINTER(Steps), c_int64)),
    ("histogram_merge", None, (POINTER(Steps), POINTER(Steps))),
    ("histogram_quantile", c_uint64, (POINTER(Steps), c_double)),
    ("timers_new", c_void_p, (c_uint32,)),
    ("timers_free", None, (c_void_p,)),
    ("timers_set", None, (c_void_p, c_uint32, c_uint64)),
    ("timers_cancel", None, (c_void_p, c_uint32)),
    ("timers_clear", None, (c_void_p,)),
    ("timers_count", c_uint32, (c_void_p,)),
    ("timers_next", c_uint64, (c_void_p,)),
    ("timers_pop", c_int64, (c_void_p, c_uint64)),
    ("core_new", c_void_p, (POINTER(AttachedPort), c_uint32, c_void_p, c_void_p, c_uint32)),
    ("core_free", None, (c_void_p,)),
    ("core_on_xoff", None, (c_void_p, c_uint32, c_uint32, c_uint64)),
    ("core_on_xon", None, (c_void_p, c_uint32, c_uint32)),
    ("core_on_pfc", None, (c_void_p, c_uint32, c_uint32, _QUANTA, c_uint64, c_uint64)),
    ("core_on_timer", None, (c_void_p, c_uint64)),
    ("core_storm", c_int, (c_void_p, c_uint32, c_uint32, c_uint64, c_uint64)),
    ("core_compare", None, (c_void_p, c_uint32, c_uint32)),
    ("core_take_over", None, (c_void_p, c_uint64)),
    ("core_stop", None, (c_void_p,)),
    ("core_next", c_bool, (c_void_p, c_uint64, POINTER(Action))),
    ("core_sent", None, (c_void_p, POINTER(Action), c_uint64)),
    ("core_closed", None, (c_void_p, POINTER(Action), c_uint64)),
    ("core_opened", None, (c_void_p, POINTER(Action), c_uint64)),
    ("core_next_timer", c_uint64, (c_void_p,)),
    ("core_reset", None, (c_void_p,)),
    ("core_reactions", POINTER(Steps), (c_void_p, c_uint32)),
    ("core_event_to_frame", POINTER(Steps), (c_void_p,)),
    ("core_frame_to_gate", POINTER(Steps), (c_void_p,)),
    ("core_strays", POINTER(StrayCounters), (c_void_p,)),
    ("core_notes", c_void_p, (c_void_p,)),
    ("notes_take", c_bool, (c_void_p, POINTER(Note))),
    ("notes_lost", c_uint64, (c_void_p,)),
    (
        "port_io_new",
        c_void_p,
        (POINTER(AttachedPort), c_uint32, c_uint32, POINTER(c_char_p), c_uint32, POINTER(GateMessages), c_uint32),
    ),
    ("port_io_close", None, (c_void_p,)),
    ("port_io_free", None, (c_void_p,)),
    ("port_io_send_frame", c_int, (c_void_p, c_uint32, c_uint32, _QUANTA)),
    ("port_io_change_gates", c_int, (c_void_p, c_uint32, c_uint32, c_bool)),
    ("port_io_kick", c_int, (c_void_p, c_uint32)),
    ("lab_new", c_void_p, (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_uint64)),
    ("lab_free", None, (c_void_p,)),
    ("lab_work", c_bool, (c_void_p,)),
    ("lab_perform", None, (c_void_p,)),
    ("lab_failures", c_uint64, (c_void_p,)),
    ("lab_broken_events", c_uint64, (c_void_p,)),
    ("loop_new", c_void_p, (c_int, c_int)),
    ("loop_free", None, (c_void_p,)),
    ("loop_add", c_int, (c_void_p, c_void_p, c_int)),
    ("loop_remove", None, (c_void_p, c_void_p)),
    ("loop_run", None, (c_void_p,)),
)


def build(cache: Path | None = None) -> Path:
    """The compiled library, from the cache where this source was compiled before.

    Raises `CapabilityError` where clang or the headers are missing.
    """
    sources = source_texts("testbed.daemons.portd", "native")
    sources |= source_texts("testbed", "native", SHARED_SOURCES)
    sources |= source_texts("testbed.base.datapath", "programs", ("layout.h",))
    return compiled("portd", ".so", sources, _FLAGS, cache, what="the pause agent")


@functools.cache
def library() -> Any:
    """The library's functions. Raises as `build`."""
    return bound(build())


def bound(path: Path) -> Any:
    """The functions of a compiled library with their types."""
    return load_library(path, _FUNCTIONS)
