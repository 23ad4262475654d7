"""The process beside a worker that does its runs: it has read the sweep, and forks a process for each run.

It is asked over a socket, a line of JSON for each job, and answers with lines: shares of what has arrived, and at last
the answer (`testbed.api.pool.answers`). When its worker is gone it ends what runs: a simulation at
once, a lab in order.

One seat of a machine emulates. A file says which lab it has up, and is locked while it may be there; whoever finds it
unlocked with a lab in it, after a machine was switched off for instance, removes that lab first, unless another has its
name by now.
"""

from __future__ import annotations

import base64
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import tempfile
import traceback
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from testbed.api.pool.answers import RunAnswer, ScalesAnswer, ScaleTold, SeatAnswer, ToldError, TryAnswer, encode_answer
from testbed.api.pool.parcel import SweepOrder, read_order
from testbed.base.errors import LabNotFound, TestbedError
from testbed.lab.core.deploy.lifecycle import destroy_lab
from testbed.lab.core.deploy.records.journal import boot_id
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.record.port_samples import DIRECTORY as SAMPLES
from testbed.run.emulated.sweep import run_on_own_labs
from testbed.run.measuring.measured import TimeLimitReached
from testbed.run.placed.lab import lab_of_runs
from testbed.run.simulated.point import SimulatedPoint
from testbed.run.sweep.labs import LabOptions
from testbed.run.sweep.points import Sweep, topology_key
from testbed.run.sweep.progress import Phase, Progress
from testbed.run.sweep.runner import RecordOptions
from testbed.run.sweep.scale_proof import scaled_to
from testbed.run.sweep.scales import ScenarioScales

EMULATION = "emulation"
SHARE = b'{"share": '
"""The begin of a line that tells how much of a job is done; any other line is its answer."""
MOST_SWEEPS, MOST_POINTS = 2, 4
"""Sweeps that are kept read, and points that are kept planned."""
MOST_SAMPLE_BYTES = 64 * 2**20
LAB_FILE = "pool-lab"
MOST_NOTE_BYTES = 16384
LOOK_S = 0.5
_PR_SET_PDEATHSIG = 1
Tell = Callable[[float], bool]
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
        self._lab = LabClaim(StateDirectory()) if seat.kind == EMULATION else None

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
                alone = at_scale(sweep, int(asked["point"]), asked["k"])
                assert self._lab is not None
                self._lab.claim(alone, self._look_for_worker)
                timeout_s = float(asked["timeout_s"])
                return lambda tell: emulate(alone, timeout_s, tell)
            case _:
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


def die_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when its parent ends (prctl(2)); end now where it has ended."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _be_forked(do: Do, writer: int, kind: str, seat: int) -> None:
    """Be the process that does a job of a seat: write what it tells, and its answer, and end."""
    try:
        os.setpgid(0, 0)  # an interrupt comes from the seat, and once
        emulates = kind == EMULATION
        signal.signal(signal.SIGINT, signal.default_int_handler if emulates else signal.SIG_IGN)
        die_with(seat, signal.SIGINT if emulates else signal.SIGKILL)
        with os.fdopen(writer, "wb") as stream:

            def tell(share: float) -> bool:
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


def at_scale(sweep: Sweep, number: int, k: float | None) -> Sweep:
    """Return the sweep of one point, which is tried once, at the time scale `k` if that is given."""
    alone = sweep.only(number)
    point, scenario = alone.points[0], replace(alone.scenario, repeat=replace(alone.scenario.repeat, retries=0))
    one = replace(point.scenario, repeat=replace(point.scenario.repeat, retries=0))
    labs = alone.labs
    if k is not None:
        one = scaled_to(one, k)
        labs = {topology_key(one.topology): lab_of_runs(alone.reader.load_topology(one.topology))}
    return replace(alone, scenario=scenario, points=(replace(point, scenario=one),), labs=labs)


def emulate(alone: Sweep, timeout_s: float, tell: Tell) -> TryAnswer:
    """Run a point on its lab, which stays up: the next point may need the same. Its routing has `timeout_s` (s)."""
    warnings: list[str] = []
    runs = alone.runs

    def on_progress(event: Progress) -> None:
        if event.phase is Phase.TRAFFIC and event.total:
            tell((event.run - 1 + min(1.0, event.done / event.total)) / runs)

    with tempfile.TemporaryDirectory(dir=".", prefix="results-") as directory:
        outcome = run_on_own_labs(
            alone,
            StateDirectory(),
            LabOptions(timeout_s=timeout_s, keep=True, warn=warnings.append),
            RecordOptions(directory=Path(directory)),
            on_progress,
        )
        samples = _samples(Path(directory) / SAMPLES)
    record, failure = outcome.record, outcome.failure
    return TryAnswer(
        result=record.points[0] if record.points else None,
        failure=ToldError.of(failure),
        out_of_time=failure is not None and isinstance(failure.__cause__, TimeLimitReached),
        interrupted=record.incomplete.startswith("interrupted"),
        approximations=record.environment.approximations,
        warnings=warnings,
        samples=samples,
    )


def _samples(directory: Path) -> dict[str, str]:
    """Return the samples of ports that a record has beside it, as long as they are not too much for a connection."""
    found, left = dict[str, str](), MOST_SAMPLE_BYTES
    for path in sorted(directory.glob("*.npz")):
        left -= path.stat().st_size
        if left >= 0:
            found[path.name] = base64.b64encode(path.read_bytes()).decode()
    return found


def scales(sweep: Sweep) -> ScalesAnswer:
    """Return the time scales that this machine would choose, which is measured for that if it never was."""
    state = StateDirectory()
    chosen = ScenarioScales(sweep.points, sweep.labs, state)
    told: dict[str, ScaleTold] = {}
    for point in sweep.points:
        lab = sweep.lab_of(point)
        if lab.scale.time is None:
            told[str(point.index)] = ScaleTold(k=chosen(point.topology, lab).k, largest=chosen.largest_k(lab))
    return ScalesAnswer(scales=told)


# --- the lab of this machine -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedLab:
    """A lab that a seat has brought up, or was about to.

    `source` is the file that it was read from, which lies in a parcel and so has a name that no other lab's has; `boot`
    tells one start of the machine from the next.
    """

    name: str
    source: str
    boot: str

    @classmethod
    def read(cls, content: bytes) -> NotedLab | None:
        """Return the lab that is noted; None for none, and for a note of an earlier version."""
        try:
            return cls(**{field: str(value) for field, value in json.loads(content).items()})
        except (ValueError, TypeError, AttributeError):
            return None

    def is_there(self, state: StateDirectory) -> bool:
        """Tell whether the lab is there, and not another one of that name.

        One of which nothing but its name is known was being made: it is ours if the machine was not started since.
        """
        if not state.exists(self.name):
            return False
        try:
            return state.read(self.name).source == self.source
        except LabNotFound:
            return self.boot == boot_id()


class LabClaim:
    """The right to have a lab up on this machine for a pool, which one seat has at a time; others wait for it."""

    def __init__(self, state: StateDirectory) -> None:
        self._state = state
        state.prepare(run=False)
        self._file = os.open(state.state / LAB_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._key = ""
        self._ours: NotedLab | None = None
        self._held = False

    def claim(self, alone: Sweep, wait: Callable[[], None]) -> None:
        """Get ready for a lab: one that another seat has left, and ours if it is another, are removed.

        `wait` is called as long as another seat has a lab.
        """
        [(key, lab)] = alone.labs.items()
        while not self._held and not self._take():
            wait()
        if self._key and self._key != key:
            self._remove_ours()
        if not self._key:
            self._key = key
            if not self._state.exists(lab.name):
                self._ours = NotedLab(name=lab.name, source=lab.source, boot=boot_id())
                self._note(self._ours)

    def let_go(self) -> None:
        """Remove the lab that is up, and one that a seat has left that was killed; then let others have one."""
        if self._held or self._take():
            self._remove_ours()
            fcntl.flock(self._file, fcntl.LOCK_UN)
            self._held = False

    def _take(self) -> bool:
        """Take the right if nobody has it, and remove the lab that was left; whether it is ours now."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self._held = True
        if left := NotedLab.read(os.pread(self._file, MOST_NOTE_BYTES, 0)):
            self._remove(left)
        return True

    def _remove_ours(self) -> None:
        if self._ours is not None:
            self._remove(self._ours)
        self._key, self._ours = "", None

    def _remove(self, lab: NotedLab) -> None:
        if lab.is_there(self._state):
            destroy_lab(lab.name, self._state)
        self._note(None)

    def _note(self, lab: NotedLab | None) -> None:
        os.ftruncate(self._file, 0)
        if lab is not None:
            os.pwrite(self._file, json.dumps(asdict(lab)).encode(), 0)
        os.fsync(self._file)
