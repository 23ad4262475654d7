"""The quantities that pages show of each port, as columns of small integers.

A column has a value for each port of a lab, in the order of its shape; `UNKNOWN` stands where nothing is measured.
Values are of the direction that the port sends in: of its own queues, and of its wire, which is counted at the other
end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.int32]
QUANTITIES = ("use", "queue", "marks", "pauses", "losses", "errors")
"""Use, marks and pauses in permille, the queue in bytes, losses and errors in packets/s."""
FOLDED_BY_MAXIMUM = frozenset({"queue"})
"""Quantities of which the largest value of a span is kept, and not the mean: a queue is told by its peaks."""
UNKNOWN = -1
_MOST = 2**31 - 1
_DIGITS = 1000


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Totals:
    """The counts of a lab's ports since the deploy; all but `queue_bytes` only grow. A negative value means
    that a port does not count this.

    `time_ns` (CLOCK_MONOTONIC) is when each port was read: a machine that is busy reads some of them a good while later
    than others, and a rate is what was counted over the time between its own two readings.
    """

    time_ns: NDArray[np.int64]
    sent_bytes: NDArray[np.int64]
    queue_bytes: NDArray[np.int64]
    marked_packets: NDArray[np.int64]
    markable_packets: NDArray[np.int64]
    """The packets among which marks are counted."""
    paused_ns: NDArray[np.int64]
    """Since the first reading; of each time between two, the class that was paused longest counts."""
    lost_packets: NDArray[np.int64]
    corrupted_packets: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PortFrame:
    """The columns at one moment: `t` is seconds since the epoch, `dt` the seconds that they are of."""

    t: float
    dt: float
    columns: Mapping[str, Column] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return what the page gets of it."""
        return {"t": round(self.t, 9), "columns": dict(self.columns)}


def nothing_known(t: float, ports: int) -> PortFrame:
    """Return the frame of a lab before it was read twice."""
    return PortFrame(t=t, dt=0.0, columns={name: np.full(ports, UNKNOWN, np.int32) for name in QUANTITIES})


def quantities(before: Totals, after: Totals, rate_bps: NDArray[np.int64], t: float) -> PortFrame:
    """Return what two readings say of the time between them. `rate_bps` is what each port may send, in the lab."""
    seconds = np.maximum((after.time_ns - before.time_ns) / 1e9, 1e-3)
    sent_bits = _grown(before.sent_bytes, after.sent_bytes) * 8.0
    markable = _grown(before.markable_packets, after.markable_packets)
    marked = _grown(before.marked_packets, after.marked_packets)
    paused = _grown(before.paused_ns, after.paused_ns)
    columns = {
        "use": _known(_permille(sent_bits, rate_bps * seconds), after.sent_bytes),
        "queue": _known(rounded(after.queue_bytes), after.queue_bytes),
        "marks": _known(_permille(marked, markable), after.marked_packets),
        "pauses": _known(np.minimum(_permille(paused, seconds * 1e9), 1000), after.paused_ns),
        "losses": _known(_rate(before.lost_packets, after.lost_packets, seconds), after.lost_packets),
        "errors": _known(_rate(before.corrupted_packets, after.corrupted_packets, seconds), after.corrupted_packets),
    }
    return PortFrame(t=t, dt=float(np.median(seconds)) if len(seconds) else 0.0, columns=columns)


def _grown(before: NDArray[np.int64], after: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return how much counters grew; those that began anew, or were not read before, count nothing."""
    return np.asarray(np.where(before < 0, 0, np.maximum(after - before, 0)), np.float64)


def _permille(part: NDArray[np.float64], whole: Any) -> NDArray[np.float64]:
    whole = np.broadcast_to(np.asarray(whole, np.float64), part.shape)
    shares = np.divide(part * 1000.0, whole, out=np.zeros(part.shape), where=whole > 0)
    return np.asarray(np.where((shares > 0) & (shares < 1), 1.0, shares))  # a little is not nothing


def _rate(before: NDArray[np.int64], after: NDArray[np.int64], seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(rounded(np.ceil(_grown(before, after) / seconds)))


def _known(values: NDArray[Any], counted: NDArray[np.int64]) -> Column:
    """Return values as a column, `UNKNOWN` where the port does not count what they are made of."""
    column = np.minimum(np.rint(values), _MOST)
    return np.where(counted < 0, UNKNOWN, column).astype(np.int32)


def rounded(values: NDArray[Any]) -> NDArray[Any]:
    """Return values with three significant digits: what changes less is no change to a page."""
    sizes = np.maximum(np.abs(values), 1).astype(np.float64)
    steps = np.power(10.0, np.maximum(np.floor(np.log10(sizes)) - 2, 0))
    return np.asarray(np.rint(values / steps) * steps)


def differences(before: PortFrame, after: PortFrame) -> dict[str, tuple[list[int], list[int]]]:
    """Return the ports whose values changed, and their new ones, by quantity; a quantity without any is left out."""
    found = {}
    for name, column in after.columns.items():
        changed = np.flatnonzero(column != before.columns[name])
        if len(changed):
            found[name] = changed.tolist(), column[changed].tolist()
    return found
