"""The process on a machine of a pool that starts its workers, and ends them: `python -m testbed.api.pool.station`.

It reads a line, which says where the scheduler is and how many runs there are to be at once. For each of these it
forks a worker and, beside it, a seat (`testbed.api.pool.seat`): the worker talks to the scheduler, and the seat does
the runs. All of them have been forked from this process, which has imported what they need, and has no thread. A pair
of which one dies is ended and started once more. When its input ends, or at SIGINT or SIGTERM, it ends all, and itself,
and removes its files. When it is killed all die with it, but for a seat with a lab, which removes that first.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.api.pool.answers import prepare_answers
from testbed.api.pool.engine import WorkerOrder, work
from testbed.api.pool.seat import EMULATION, Seat, die_with, serve_seat

MOST_DEATHS = 20
"""Workers of this station that may die before it gives up: something is wrong with the machine then."""
PARCELS, WORKERS = "parcels", "workers"
"""The directories of a station, below that in which it is started."""
PATIENCE_S = 130.0
"""The time that seats have to end what they do, labs included, before they are killed."""
_PR_SET_CHILD_SUBREAPER = 36


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


class _Station:
    """The pairs of this machine. `order` is what it was told, `wake` is readable when a signal has come."""

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
            _as_child(lambda: serve_seat(told), dies_with=None if kind == EMULATION else station)
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
            _as_child(lambda: work(order, of_worker), dies_with=station)
        of_worker.close()
        return _Pair(kind=kind, number=number, worker=worker, seat=seat)

    def _restart_dead(self) -> None:
        """Reap who has ended; end the other of its pair, and start both anew."""
        dead = set(_reaped())
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


def _as_child(do: Any, *, dies_with: int | None = None) -> None:
    """Do it as a child, and end: interrupts are for the station, which ends its children. `dies_with` is the station
    where it is not to outlive that.
    """
    code = 1
    try:
        if dies_with is not None:
            die_with(dies_with)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        descriptor = os.open(os.devnull, os.O_RDONLY)
        os.dup2(descriptor, 0)
        do()
        code = 0
    except BaseException as error:  # it must not go on as the station
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(code)


def _reaped() -> Iterator[int]:
    with suppress(ChildProcessError):
        while True:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            yield pid


@contextmanager
def _signals_told() -> Iterator[int]:
    """Have signals write their numbers into a pipe, whose reading end this gives."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    yield reader


def main() -> int:
    """Run the station of this machine."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with _signals_told() as wake:
        order = json.loads(_first_line())
        prepare_answers()
        gc.freeze()  # what is forked from here shares it, and need not look through it
        try:
            return _Station(order, wake).run()
        finally:
            _remove_files()


def _remove_files() -> None:
    """Remove what is left of parcels and workers, and the directory itself if there is nothing else in it: whoever
    started this may have been killed.
    """
    for name in (PARCELS, WORKERS):
        shutil.rmtree(name, ignore_errors=True)
    with suppress(OSError):
        Path.cwd().rmdir()


def _first_line() -> bytes:
    """Read the first line of the input, and no more."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            raise SystemExit(0)
        line += byte
    return line


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # to take all that was imported apart would take longer than to end what ran
