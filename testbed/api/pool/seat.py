"""The process beside a worker that does its runs: it has read the sweep, and forks a process for each run.

It is asked over a socket, a line of JSON for each job, and answers with lines: shares of what has arrived, and at last
the answer (`testbed.api.pool.answers`). When its worker is gone it ends what runs: a simulation at
once, a lab in order.

One seat of a machine emulates (`testbed.api.pool.emulating`).
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.api.pool.answers import RunAnswer, SeatAnswer, Tell, ToldError, encode_answer
from testbed.api.pool.children import die_with
from testbed.api.pool.parcel import SweepOrder, read_order
from testbed.base.errors import TestbedError
from testbed.run.simulated.point import SimulatedPoint
from testbed.run.sweep.points import Sweep

if TYPE_CHECKING:
    from testbed.api.pool.emulating import LabClaim

EMULATION = "emulation"
SHARE = b'{"share": '
"""The begin of a line that tells how much of a job is done; any other line is its answer."""
MOST_SWEEPS, MOST_POINTS = 2, 4
"""Sweeps that are kept read, and points that are kept planned."""
LOOK_S = 0.5
SHARE_EVERY_S = 1.0
"""A share passes a worker, a scheduler and a client on its way, and a pool has many runs."""
Do = Callable[[Tell], SeatAnswer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A seat: the kind of its runs, the socket over which it is asked, and where parcels are unpacked."""

    kind: str
    connection: socket.socket
    parcels: Path


class WorkerGone(Exception):
    """The worker of this seat has ended."""


def serve_seat(seat: Seat) -> None:
    """Do what is asked for until the worker is gone."""
    _Service(seat).serve()


class _Service:
    """A seat at work."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._sweeps: OrderedDict[str, Sweep] = OrderedDict()
        self._points: OrderedDict[tuple[str, int], SimulatedPoint] = OrderedDict()
        self._lab: LabClaim | None = None
        if seat.kind == EMULATION:
            from testbed.api.pool.emulating import LabClaim
            from testbed.lab.core.deploy.records.state import StateDirectory

            self._lab = LabClaim(StateDirectory())

    def serve(self) -> None:
        with suppress(WorkerGone, OSError), self._seat.connection.makefile("rb") as requests:
            for line in requests:
                self._seat.connection.sendall(self._answer(json.loads(line)) + b"\n")
        if self._lab is not None:
            self._lab.let_go()

    def _answer(self, asked: Mapping[str, Any]) -> bytes:
        try:
            return self._forked(self._job(asked))
        except WorkerGone:
            raise
        except Exception as error:
            return encode_answer(SeatAnswer(raised=told_error(error)))

    def _job(self, asked: Mapping[str, Any]) -> Do:
        """Return what a process of its own is to do. What many runs need is read and planned here, once for all."""
        key, sweep = self._sweep(SweepOrder(**asked["order"]))
        match asked["what"]:
            case "simulate":
                point = self._point(key, sweep, int(asked["point"]))
                return lambda tell: simulate(point, int(asked["run"]), tell)
            case "emulate":
                from testbed.api.pool.emulating import at_scale, emulate

                alone = at_scale(sweep, int(asked["point"]), asked["k"])
                assert self._lab is not None
                self._lab.claim(alone, self._look_for_worker)
                timeout_s = float(asked["timeout_s"])
                return lambda tell: emulate(alone, timeout_s, tell)
            case _:
                from testbed.api.pool.emulating import scales

                return lambda tell: scales(sweep)

    def _look_for_worker(self) -> None:
        """Wait a moment, in which nothing is asked. Raises `WorkerGone` where the worker has ended."""
        ready, _, _ = select.select([self._seat.connection], [], [], LOOK_S)
        if ready and not self._seat.connection.recv(1, socket.MSG_PEEK):
            raise WorkerGone

    def _sweep(self, order: SweepOrder) -> tuple[str, Sweep]:
        """Return a sweep, and what it is known by: two of one parcel differ by what they override."""
        key = json.dumps([order.parcel, order.file, order.overrides, order.only], sort_keys=True, default=str)
        if key not in self._sweeps:
            self._sweeps[key] = read_order(order, self._seat.parcels)
            while len(self._sweeps) > MOST_SWEEPS:
                self._sweeps.popitem(last=False)
            self._points.clear()
        return key, self._sweeps[key]

    def _point(self, of_sweep: str, sweep: Sweep, number: int) -> SimulatedPoint:
        key = of_sweep, number
        if key not in self._points:
            point = sweep.only(number).points[0]
            self._points[key] = found = SimulatedPoint(point, sweep.lab_of(point))
            _ = found.ideals  # of all runs of it, which are forked from here
            while len(self._points) > MOST_POINTS:
                self._points.popitem(last=False)
        return self._points[key]

    def _forked(self, do: Do) -> bytes:
        """Do it in a process of its own, and return its answer; on the way pass on what it tells."""
        reader, writer = os.pipe()
        seat, pid = os.getpid(), os.fork()
        if not pid:
            os.close(reader)
            _be_forked(do, writer, self._seat.kind, seat)
        os.close(writer)
        try:
            answer = self._relayed(reader)
        except BaseException:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT if self._seat.kind == EMULATION else signal.SIGKILL)
            raise
        finally:
            os.close(reader)
            _, status = os.waitpid(pid, 0)
        return answer or encode_answer(SeatAnswer(died=os.waitstatus_to_exitcode(status)))

    def _relayed(self, reader: int) -> bytes:
        """Pass shares on, and return the last line. Raises `WorkerGone`."""
        connection, kept = self._seat.connection, bytearray()
        watched: list[Any] = [reader, connection]
        while True:
            ready, _, _ = select.select(watched, [], [])
            if connection in ready and not connection.recv(1, socket.MSG_PEEK):
                raise WorkerGone
            if reader not in ready:
                continue
            content = os.read(reader, 1 << 20)
            if not content:
                return bytes(kept[:-1]) if kept.endswith(b"\n") else b""
            kept += content
            while kept.startswith(SHARE) and b"\n" in kept:
                end = kept.index(b"\n") + 1
                connection.sendall(kept[:end])
                del kept[:end]


def _be_forked(do: Do, writer: int, kind: str, seat: int) -> None:
    """Be the process that does a job of a seat: write what it tells, and its answer, and end."""
    try:
        os.setpgid(0, 0)  # an interrupt comes from the seat, and once
        emulates = kind == EMULATION
        signal.signal(signal.SIGINT, signal.default_int_handler if emulates else signal.SIG_IGN)
        die_with(seat, signal.SIGINT if emulates else signal.SIGKILL)
        with os.fdopen(writer, "wb") as stream:
            due = time.monotonic() + SHARE_EVERY_S

            def tell(share: float) -> bool:
                nonlocal due
                if time.monotonic() >= due:
                    due = time.monotonic() + SHARE_EVERY_S
                    stream.write(SHARE + b"%.4f}\n" % share)
                    stream.flush()
                return False

            try:
                answer = do(tell)
            except Exception as error:
                answer = SeatAnswer(raised=told_error(error))
            stream.write(encode_answer(answer) + b"\n")
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def told_error(error: Exception) -> ToldError:
    """Return an error as it goes to the other machine; one that nobody foresaw, with its traceback."""
    if isinstance(error, TestbedError):
        return ToldError(message=error.message, hint=error.hint, trace=error.trace)
    return ToldError(
        message=f"{type(error).__name__}: {error}",
        hint="this is a mistake in the program, not in the scenario: its traceback stands above",
        trace="".join(traceback.format_exception(error)),
    )


# --- jobs ------------------------------------------------------------------------------------------------


def simulate(point: SimulatedPoint, run: int, tell: Tell) -> RunAnswer:
    """Simulate a run of a point."""
    outcome = point.run(run, tell)
    return RunAnswer(result=outcome.result, failure=ToldError.of(outcome.failure), interrupted=outcome.interrupted)
