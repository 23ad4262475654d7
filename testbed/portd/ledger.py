"""What the pause agent reads and writes in the maps, as plain memory: the accounts `ingress` and `pauses`.

Memory views of machine words are read in 40 ns where a field of a numpy record takes 300; to look at all queues at
once, numpy takes 50 us where a loop takes milliseconds. The offsets come from `datapath.layout`. Queues are indexed
`port * 8 + priority`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.datapath.abi import CLASSES
from testbed.datapath.layout import INGRESS, PAUSE
from testbed.datapath.maps import LabMaps, Records


def _words(record: np.dtype[np.void], field: str, word_bytes: int) -> int:
    """The place of a field in its record, in words."""
    assert record.fields is not None
    return int(record.fields[field][1]) // word_bytes


_PAUSE_LONGS = PAUSE.itemsize // 8
_PAUSE_INTS = PAUSE.itemsize // 4
_INGRESS_INTS = INGRESS.itemsize // 4

_XOFF_SENT = _words(PAUSE, "xoff_sent", 8)
_XON_SENT = _words(PAUSE, "xon_sent", 8)
_XOFF_RECEIVED = _words(PAUSE, "xoff_received", 8)
_XON_RECEIVED = _words(PAUSE, "xon_received", 8)
_PAUSED_NS = _words(PAUSE, "paused_ns", 8)
_PAUSED_SINCE = _words(PAUSE, "paused_since", 8)
_ASKED_NS = _words(PAUSE, "asked_ns", 8)
_ASKED_SINCE = _words(PAUSE, "asked_since", 8)
_WATCHDOG_EVENTS = _words(PAUSE, "watchdog_events", 8)
_CLOSED = _words(PAUSE, "closed", 4)
_STORM = _words(PAUSE, "storm", 4)
_IGNORED = _words(PAUSE, "ignored", 4)
_OVER = _words(INGRESS, "xoff", 4)


class Ledger:
    """Each method is one thing that happened to a queue. Times are CLOCK_MONOTONIC in ns."""

    __slots__ = ("_ingress", "_ingress_ints", "_pause_ints", "_pause_longs", "_pauses", "queues")

    def __init__(self, maps: LabMaps) -> None:
        """`maps` must be writable."""
        self._pauses = maps.pauses
        self._ingress = maps.ingress
        self._pause_longs = _memory(maps.pauses).cast("Q")
        self._pause_ints = _memory(maps.pauses).cast("I")
        self._ingress_ints = _memory(maps.ingress).cast("I")
        self.queues = len(maps.pauses)

    def is_over(self, queue: int) -> bool:
        """Whether the ingress account is above XOFF, or has not come down to XON since."""
        return self._ingress_ints[queue * _INGRESS_INTS + _OVER] != 0

    def all_over(self) -> list[int]:
        return _set(self._ingress["xoff"])

    def all_closed(self) -> list[int]:
        return _set(self._pauses["closed"])

    def all_asking(self) -> list[int]:
        """The ingress accounts whose peer was told to pause."""
        return _set(self._pauses["asked_since"])

    def malformed_frames(self) -> NDArray[np.uint64]:
        """MAC control frames that were no PFC frames, by port."""
        return np.array(self._ingress["malformed_frames"][::CLASSES])

    def clear_states(self) -> None:
        """Forget the storms and the freed queues of an agent that is no more."""
        for field in ("storm", "ignored"):
            self._pauses[field][:] = 0

    def xoff_sent(self, queue: int, now_ns: int) -> None:
        base = queue * _PAUSE_LONGS
        self._pause_longs[base + _XOFF_SENT] += 1
        if not self._pause_longs[base + _ASKED_SINCE]:
            self._pause_longs[base + _ASKED_SINCE] = now_ns

    def xon_sent(self, queue: int, now_ns: int) -> None:
        base = queue * _PAUSE_LONGS
        self._pause_longs[base + _XON_SENT] += 1
        self._close_interval(base + _ASKED_NS, base + _ASKED_SINCE, now_ns)

    def xoff_received(self, queue: int) -> None:
        self._pause_longs[queue * _PAUSE_LONGS + _XOFF_RECEIVED] += 1

    def xon_received(self, queue: int) -> None:
        self._pause_longs[queue * _PAUSE_LONGS + _XON_RECEIVED] += 1

    def gate_closes(self, queue: int, now_ns: int) -> None:
        """Said before the gate closes: after a crash the map may name an open gate, never miss a closed one."""
        self._pause_ints[queue * _PAUSE_INTS + _CLOSED] = 1
        base = queue * _PAUSE_LONGS
        if not self._pause_longs[base + _PAUSED_SINCE]:
            self._pause_longs[base + _PAUSED_SINCE] = now_ns

    def gate_opened(self, queue: int, now_ns: int) -> None:
        """Said after the gate has opened."""
        base = queue * _PAUSE_LONGS
        self._close_interval(base + _PAUSED_NS, base + _PAUSED_SINCE, now_ns)
        self._pause_ints[queue * _PAUSE_INTS + _CLOSED] = 0

    def watchdog_frees(self, queue: int) -> None:
        self._pause_longs[queue * _PAUSE_LONGS + _WATCHDOG_EVENTS] += 1
        self._pause_ints[queue * _PAUSE_INTS + _IGNORED] = 1

    def watchdog_restores(self, queue: int) -> None:
        self._pause_ints[queue * _PAUSE_INTS + _IGNORED] = 0

    def storm(self, queue: int, raging: bool) -> None:
        self._pause_ints[queue * _PAUSE_INTS + _STORM] = int(raging)

    def _close_interval(self, total: int, since: int, now_ns: int) -> None:
        began = self._pause_longs[since]
        if began:
            self._pause_longs[total] += max(0, now_ns - began)
            self._pause_longs[since] = 0


def _memory(records: Records) -> memoryview:
    return memoryview(records.view("u1").data)


def _set(column: NDArray[Any]) -> list[int]:
    found: list[int] = np.flatnonzero(column).tolist()
    return found
