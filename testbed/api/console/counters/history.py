"""The last quarter of an hour of a lab's columns, in memory of a fixed size.

The newest two minutes are kept as they were read; what is older is folded, four readings into one: means, and of queues
the largest value.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from testbed.api.console.counters.quantities import FOLDED_BY_MAXIMUM, QUANTITIES, UNKNOWN, Column, PortFrame

TICK_S = 0.5
KEPT_S = 900.0
FINE_S = 120.0
FOLD = 4
_FINE, _COARSE = int(FINE_S / TICK_S), int(KEPT_S / TICK_S / FOLD)
_MOST_SHORT = 2**16 - 2
_SCALE = {"queue": 64.0, "losses": 16.0, "errors": 16.0}
"""The steps in which larger quantities are kept, in two bytes: bytes of a queue, packets a second."""


class _Rows:
    """Rows of columns in a circle. Values are kept in two bytes, one more than they are: 0 is unknown."""

    def __init__(self, rows: int, ports: int) -> None:
        self.times = np.zeros(rows, np.float64)
        self.values = {name: np.zeros((rows, ports), np.uint16) for name in QUANTITIES}
        self.written = 0

    def append(self, t: float, columns: Mapping[str, NDArray[np.float64]]) -> None:
        at = self.written % len(self.times)
        self.times[at] = t
        for name, column in columns.items():
            self.values[name][at] = _packed(name, column)
        self.written += 1

    def order(self) -> NDArray[np.int64]:
        """Return the places of all rows, oldest first."""
        rows = len(self.times)
        return np.arange(max(0, self.written - rows), self.written) % rows


def _packed(name: str, column: NDArray[np.float64]) -> NDArray[np.uint16]:
    steps = np.minimum(np.ceil(column / _SCALE.get(name, 1.0)) + 1, _MOST_SHORT)
    return np.where(column < 0, 0, steps).astype(np.uint16)


def _unpacked(name: str, values: NDArray[np.uint16]) -> NDArray[np.int64]:
    return np.where(values == 0, UNKNOWN, (values.astype(np.int64) - 1) * int(_SCALE.get(name, 1.0)))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PortSeries:
    """Values over time: `values[name]` has the shape (times, ports)."""

    times: NDArray[np.float64]
    values: Mapping[str, NDArray[np.int64]]


class History:
    """Keeps frames of a number of ports. One thread appends; others read."""

    def __init__(self, ports: int) -> None:
        self.ports = ports
        self._fine, self._coarse = _Rows(_FINE, ports), _Rows(_COARSE, ports)
        self._folding: list[PortFrame] = []
        self._lock = threading.Lock()

    @property
    def memory_bytes(self) -> int:
        """The memory of all values, however many are written."""
        return sum(values.nbytes for rows in (self._fine, self._coarse) for values in rows.values.values())

    def append(self, frame: PortFrame) -> None:
        """Keep a frame, which is later than all before."""
        with self._lock:
            self._fine.append(frame.t, {name: column.astype(np.float64) for name, column in frame.columns.items()})
            self._folding.append(frame)
            if len(self._folding) == FOLD:
                self._coarse.append(self._folding[-1].t, _folded(self._folding))
                self._folding.clear()

    @property
    def span(self) -> tuple[float, float] | None:
        """The times of the oldest and the newest row; None where there is none."""
        with self._lock:
            times = self._times()
            return None if not len(times) else (float(times[0]), float(times[-1]))

    def _parts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The places of coarse rows that are older than all fine ones, and of the fine ones."""
        fine, coarse = self._fine.order(), self._coarse.order()
        if len(fine):
            coarse = coarse[self._coarse.times[coarse] < self._fine.times[fine[0]]]
        return coarse, fine

    def _times(self) -> NDArray[np.float64]:
        coarse, fine = self._parts()
        return np.concatenate((self._coarse.times[coarse], self._fine.times[fine]))

    def moment(self, t: float) -> PortFrame | None:
        """Return what was known at a time: the latest row that is no later; None before all of them."""
        with self._lock:
            coarse, fine = self._parts()
            times = self._times()
            at = int(np.searchsorted(times, t + 1e-3, side="right")) - 1
            if at < 0:
                return None
            rows, place = (self._coarse, coarse[at]) if at < len(coarse) else (self._fine, fine[at - len(coarse)])
            columns: dict[str, Column] = {
                name: _unpacked(name, values[place]).astype(np.int32) for name, values in rows.values.items()
            }
            return PortFrame(t=float(times[at]), dt=TICK_S if rows is self._fine else TICK_S * FOLD, columns=columns)

    def series(self, names: Sequence[str], ports: Sequence[int], begin: float, end: float) -> PortSeries:
        """Return the values of some ports between two times."""
        with self._lock:
            coarse, fine = self._parts()
            times = self._times()
            wanted = (times >= begin) & (times <= end)
            chosen = np.asarray(ports, np.int64)
            values = {
                name: _unpacked(
                    name,
                    np.concatenate(
                        (
                            self._coarse.values[name][np.ix_(coarse, chosen)],
                            self._fine.values[name][np.ix_(fine, chosen)],
                        )
                    )[wanted],
                )
                for name in names
            }
            return PortSeries(times=times[wanted], values=values)

    def total(self, name: str, chosen: NDArray[np.bool_], begin: float, end: float) -> PortSeries:
        """Return one series of a quantity over all ports that are chosen (`summary`)."""
        with self._lock:
            coarse, fine = self._parts()
            times = self._times()
            wanted = (times >= begin) & (times <= end)
            found = np.full(len(times), UNKNOWN, np.int64)
            for start, rows, places in ((0, self._coarse, coarse), (len(coarse), self._fine, fine)):
                for number, place in enumerate(places):
                    values = _unpacked(name, rows.values[name][place][chosen])
                    found[start + number] = summary(name, values)
            return PortSeries(times=times[wanted], values={name: found[wanted][:, None]})


def summary(name: str, values: NDArray[np.int64]) -> int:
    """Return one value for several ports: the sum of losses and errors, and the highest of all else.

    A mean would hide the one port that is at its limit among thousands that idle.
    """
    known = values[values >= 0]
    if not len(known):
        return UNKNOWN
    return int(known.sum() if name in ("losses", "errors") else known.max())


def _folded(frames: Sequence[PortFrame]) -> dict[str, NDArray[np.float64]]:
    found = {}
    for name in QUANTITIES:
        values = np.stack([frame.columns[name] for frame in frames]).astype(np.float64)
        if name in FOLDED_BY_MAXIMUM:
            found[name] = values.max(axis=0)
        else:
            known = values >= 0
            count = known.sum(axis=0)
            mean = np.divide((values * known).sum(axis=0), count, out=np.zeros(len(count)), where=count > 0)
            found[name] = np.where(count > 0, mean, UNKNOWN)
    return found


def thinned(series: PortSeries, points: int) -> PortSeries:
    """Return a series of at most so many points: of each stretch the largest value, so that no peak is lost."""
    rows = len(series.times)
    if rows <= points:
        return series
    starts = np.linspace(0, rows, points, endpoint=False).astype(np.int64)
    return PortSeries(
        times=series.times[starts],
        values={name: np.maximum.reduceat(values, starts, axis=0) for name, values in series.values.items()},
    )
