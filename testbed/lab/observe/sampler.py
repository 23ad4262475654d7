"""Counters over time: a thread that copies chosen columns of chosen queues every millisecond or slower into a ring.

Ticks are due at absolute times, so that a late one does not shift the rest; a tick whose time has passed when the next
is due is missed, and counted. The ring has a fixed size: what is not read in time is overwritten, and the reader is
told. The thread runs under SCHED_OTHER: measuring must not take CPU time from what is measured.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from testbed.base.datapath.abi import CLASSES
from testbed.base.datapath.maps import MAPS, LabMaps
from testbed.base.errors import TestbedError
from testbed.lab.observe.port_table import PortTable
from testbed.lab.observe.telemetry import columns, words

SHORTEST_INTERVAL_NS = 1_000_000
MOST_QUEUES = 4_096
"""As many take a few hundred microseconds to copy: a fair part of the shortest interval."""
MEMORY_BYTES = 64 * 2**20
DEFAULT_COLUMNS = ("queues.bytes", "queues.out_bytes")


class SamplerError(TestbedError):
    """The sampler cannot do what was asked, or stopped by itself."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Samples:
    """Rows in the order of time. `times_ns` is CLOCK_MONOTONIC; each column has the shape (times, queues).

    `queues` names the columns of an array: (port, priority). `complete`: no row asked for was overwritten before.
    """

    times_ns: NDArray[np.int64]
    columns: Mapping[str, NDArray[np.uint64]]
    queues: tuple[tuple[int, int], ...]
    complete: bool

    def of(self, column: str, port: int, priority: int) -> NDArray[np.uint64]:
        """One queue's values over time. `KeyError` if it was not sampled."""
        if (port, priority) not in self.queues:
            raise KeyError(f"port {port} priority {priority} was not sampled")
        return self.columns[column][:, self.queues.index((port, priority))]

    def __len__(self) -> int:
        return len(self.times_ns)


class TickSchedule:
    """Ticks at `start + n * interval`. Pure: times come in, due times go out."""

    def __init__(self, start_ns: int, interval_ns: int) -> None:
        self.due_ns = start_ns
        self.missed = 0
        self._interval_ns = interval_ns

    def take(self, now_ns: int) -> None:
        """Take the tick that is due, at `now_ns`; those whose time has passed already are missed."""
        behind = max(0, now_ns - self.due_ns) // self._interval_ns
        self.missed += behind
        self.due_ns += (behind + 1) * self._interval_ns


class RowRing:
    """Rows of words in memory of a fixed size. One thread writes, others read without holding it up."""

    def __init__(self, rows: int, width: int) -> None:
        self.times_ns = np.zeros(rows, np.int64)
        self.values = np.zeros((rows, width), np.uint64)
        self.written = 0

    def append(self, time_ns: int, fill: Callable[[NDArray[np.uint64]], None]) -> None:
        """Let `fill` write the next row; it is visible once it is whole."""
        at = self.written % len(self.times_ns)
        self.times_ns[at] = time_ns
        fill(self.values[at])
        self.written += 1

    def since(self, time_ns: int) -> tuple[NDArray[np.int64], NDArray[np.uint64], bool]:
        """Copies of the times and rows after `time_ns`, and whether none of those is gone already."""
        rows, end = len(self.times_ns), self.written
        order = np.arange(max(0, end - rows), end)
        times, values = self.times_ns[order % rows], self.values[order % rows]
        # a row whose place the writer may have begun to reuse while it was copied is of two times
        whole = order > self.written - rows
        order, times, values = order[whole], times[whole], values[whole]
        complete = end == 0 or bool(len(order) and (order[0] == 0 or times[0] <= time_ns))
        wanted = times > time_ns
        return times[wanted], values[wanted], complete


class Sampler:
    """Samples while it is entered as a context. `missed` and `latest_ns` say how well it kept its time."""

    def __init__(
        self,
        maps: LabMaps,
        table: PortTable,
        *,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        chosen: NDArray[np.bool_] | None = None,
        interval_ns: int = SHORTEST_INTERVAL_NS,
        memory_bytes: int = MEMORY_BYTES,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`columns` are "map.field" of queues, ingress and pauses; `chosen` (of `PortTable.select`) defaults to every
        class of every port. Raises `SamplerError` for more than `MOST_QUEUES`, an unknown column, a short interval."""
        if interval_ns < SHORTEST_INTERVAL_NS:
            raise SamplerError(f"a sample every {interval_ns} ns is too often", hint="1 ms or more")
        queues = np.flatnonzero((table.present if chosen is None else chosen & table.present).ravel())
        if not len(queues):
            raise SamplerError("no queue is chosen to be sampled")
        if len(queues) > MOST_QUEUES:
            raise SamplerError(
                f"{len(queues)} queues are too many to sample (at most {MOST_QUEUES})", hint="choose ports or a class"
            )
        self.interval_ns = interval_ns
        self.queues = tuple(divmod(int(queue), CLASSES) for queue in queues)
        self.columns = tuple(columns)
        self._sources = [_column(maps, name) for name in self.columns]
        self._index = queues
        width = len(queues) * len(self._sources)
        rows = memory_bytes // (8 * (width + 1))
        if rows < 2:
            raise SamplerError(f"{memory_bytes} bytes do not hold two samples of {width} values")
        self._ring = RowRing(rows, width)
        self._clock_ns = clock_ns
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._schedule = TickSchedule(0, interval_ns)
        self.latest_ns = 0
        """The lateness of the latest tick, of those taken."""

    @property
    def missed(self) -> int:
        """Ticks that were not taken because the thread came too late."""
        return self._schedule.missed

    @property
    def taken(self) -> int:
        return self._ring.written

    def tick(self) -> None:
        """Take one sample now."""
        self._ring.append(self._clock_ns(), self._fill)

    def _fill(self, row: NDArray[np.uint64]) -> None:
        width = len(self._index)
        for number, source in enumerate(self._sources):
            row[number * width : (number + 1) * width] = source[self._index]

    def since(self, time_ns: int = -1) -> Samples:
        """Return what was sampled after `time_ns` (default: all that is there). Raises `SamplerError` if the thread
        failed."""
        if self._error is not None:
            raise SamplerError(f"the sampler stopped: {self._error}") from self._error
        times, values, complete = self._ring.since(time_ns)
        width = len(self._index)
        return Samples(
            times_ns=times,
            columns={name: values[:, at * width : (at + 1) * width] for at, name in enumerate(self.columns)},
            queues=self.queues,
            complete=complete,
        )

    def __enter__(self) -> Self:
        self._schedule = TickSchedule(self._clock_ns(), self.interval_ns)
        # a daemon: an interpreter that ends without leaving this context must not wait for it
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the thread; the samples stay. May be called twice."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        try:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))  # 0: this thread
            self.run_until(self._stop.wait)
        except BaseException as error:  # told to whoever reads; a thread has nobody to raise to
            self._error = error

    def run_until(self, wait: Callable[[float], bool]) -> None:
        """Tick on schedule until `wait`, given the seconds until the next tick, says to stop."""
        while True:
            if wait(max(0, self._schedule.due_ns - self._clock_ns()) / 1e9):
                return
            now = self._clock_ns()
            self.latest_ns = max(self.latest_ns, now - self._schedule.due_ns)
            self._schedule.take(now)
            self.tick()


def _column(maps: LabMaps, name: str) -> NDArray[np.uint64]:
    kind, _, field = name.partition(".")
    fields: Any = MAPS[kind].fields if kind in ("queues", "ingress", "pauses") else {}
    if field not in fields or fields[field][0] != np.dtype("<u8"):
        raise SamplerError(f"there is no column {name!r}", hint="for example queues.bytes, ingress.bytes")
    records = {"queues": maps.queues, "ingress": maps.ingress, "pauses": maps.pauses}[kind]
    return np.asarray(words(records)[:, columns(MAPS[kind], field)[0]])
