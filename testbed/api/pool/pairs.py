"""The workers of a station, and the seats that do their runs, in pairs: started, started anew, and ended together."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Container, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.api.pool.children import PARCELS, WORKERS, as_child, reaped
from testbed.api.pool.engine import WorkerOrder, work
from testbed.api.pool.seat import EMULATION, Seat, serve_seat

MOST_DEATHS = 20
"""Workers of this station that may die before it gives up: something is wrong with the machine then."""
PATIENCE_S = 130.0
"""The time that seats have to end what they do, labs included, before they are killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """A worker and its seat; they talk over a pair of sockets."""

    kind: str
    number: int
    worker: int
    seat: int

    def end(self, *, but: Container[int] = ()) -> None:
        """End those of the two that are not in `but`, which were reaped. A seat with a lab sees the end of its worker,
        and undoes what it does; another has nothing to undo, and may be planning a point for a while.
        """
        for number in (self.worker,) if self.kind == EMULATION else (self.worker, self.seat):
            if number not in but:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)


class Pairs:
    """The workers and seats of this machine. `order` is what the station was told, `wake` is readable when a signal has
    come.
    """

    def __init__(self, order: Mapping[str, Any], wake: int) -> None:
        self._order = order
        self._wake = wake
        self._pairs: list[_Pair] = []
        self._deaths = 0

    def run(self) -> int:
        """Run until the input ends; the exit code."""
        for kind, count in self._order["seats"].items():
            for number in range(int(count)):
                self._pairs.append(self._start(kind, number))
        try:
            while self._deaths <= MOST_DEATHS:
                ready, _, _ = select.select([0, self._wake], [], [])
                if 0 in ready and not os.read(0, 4096):
                    return 0
                if self._wake in ready:
                    if any(number != signal.SIGCHLD for number in os.read(self._wake, 64)):
                        return 0
                    self._restart_dead()
            print(f"{self._deaths} workers have died here", file=sys.stderr)
            return 1
        finally:
            self._end()

    def _start(self, kind: str, number: int) -> _Pair:
        of_worker, of_seat = socket.socketpair()
        station, seat = os.getpid(), os.fork()
        if not seat:
            of_worker.close()
            told = Seat(kind=kind, connection=of_seat, parcels=Path(PARCELS).absolute())
            as_child(lambda: serve_seat(told), dies_with=None if kind == EMULATION else station)
        of_seat.close()
        worker = os.fork()
        if not worker:
            order = WorkerOrder(
                name=f"{self._order['name']} {kind} {number}",
                machine=str(self._order["name"]),
                kind=kind,
                port=int(self._order["port"]),
                certificate=str(self._order["certificate"]),
                key=str(self._order["key"]),
                directory=str(Path(WORKERS).absolute()),
            )
            as_child(lambda: work(order, of_worker), dies_with=station)
        of_worker.close()
        return _Pair(kind=kind, number=number, worker=worker, seat=seat)

    def _restart_dead(self) -> None:
        """Reap who has ended; end the other of its pair, and start both anew."""
        dead = set(reaped())
        for place, pair in enumerate(self._pairs):
            if not dead & {pair.worker, pair.seat}:
                continue
            self._deaths += 1
            pair.end(but=dead)
            if self._deaths <= MOST_DEATHS:
                self._pairs[place] = self._start(pair.kind, pair.number)

    def _end(self) -> None:
        """End all pairs, and wait until they have undone what they do, orphans included."""
        for pair in self._pairs:
            pair.end()
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                select.select([self._wake], [], [], 0.2)
                with suppress(BlockingIOError):
                    os.read(self._wake, 64)
        for pair in self._pairs:
            with suppress(ProcessLookupError):
                os.kill(pair.seat, signal.SIGKILL)
