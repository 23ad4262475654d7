"""Runs of points, the jobs of a simulated sweep, and those who do them on this machine: in as many processes as there
are cores, forked from this one, so that nothing has to be read again.

A child does one run and sends what it measured through a pipe. It leaves signals to its parent, which ends it, and ends
with the pipe where its parent was killed. The run of a child that dies (the kernel ends the largest process where
memory is short) is done once more, after all others; if that one dies, too, the run is lost, and no other is.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from testbed.base.errors import ScenarioError, TestbedError
from testbed.base.interrupt import Interrupt
from testbed.record.record import MachinePart
from testbed.run.simulated.point import SimulatedPoint
from testbed.run.sweep.jobs import JobRunner
from testbed.run.sweep.point_runs import RunOutcome

LOOK_S = 0.2
"""The interval at which it is seen whether somebody has asked for an end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run of one point, by their numbers, both from 1."""

    point: int
    run: int


OnShare = Callable[[Job, float], None]
PointOf = Callable[[int], SimulatedPoint]
"""Gives a point by its number."""
RunnerOf = Callable[[PointOf, OnShare], JobRunner[Job, RunOutcome]]
"""Makes who runs the jobs of these points; it tells of each job how much of its bytes has arrived."""
TRIES = 2
"""The number of tries of a run whose process dies."""


@dataclass(frozen=True, slots=True)
class ForkedRuns:
    """Runs jobs in processes of this machine (`JobRunner`), as `run_jobs` does."""

    points: PointOf
    on_share: OnShare
    processes: int

    @property
    def machines(self) -> Sequence[MachinePart]:
        """Return none: it is this machine alone."""
        return ()

    def run(self, jobs: Sequence[Job], interrupt: Interrupt) -> Iterator[tuple[Job, RunOutcome]]:
        """Do all jobs."""
        return run_jobs(jobs, self.points, interrupt, processes=self.processes, on_share=self.on_share)


def run_jobs(
    jobs: Sequence[Job],
    points: PointOf,
    interrupt: Interrupt,
    *,
    processes: int,
    on_share: OnShare,
) -> Iterator[tuple[Job, RunOutcome]]:
    """Do all jobs, in their order as far as there are processes for them, and yield what came of each.

    `points` gives a point by its number. After a run that failed or was interrupted no other begins. An interrupt ends
    those that run: what they had measured so far is theirs to tell where they run in this process, and is lost where
    they run in others. Raises what a job raises.
    """
    if processes <= 1 or len(jobs) <= 1:
        for job in jobs:
            if interrupt.requested:
                return

            def watch(share: float, job: Job = job) -> bool:
                on_share(job, share)
                return interrupt.requested

            outcome = points(job.point).run(job.run, watch)
            yield job, outcome
            if not outcome.goes_on:
                return
        return
    with _children() as children:
        yield from _spread(list(jobs), points, interrupt, children, processes, on_share)


Children = dict[Connection, tuple[Job, BaseProcess]]


def _spread(
    waiting: list[Job],
    points: PointOf,
    interrupt: Interrupt,
    children: Children,
    processes: int,
    on_share: OnShare,
) -> Iterator[tuple[Job, RunOutcome]]:
    died: Counter[Job] = Counter()
    goes_on = True
    while (waiting or children) and not interrupt.requested:
        while waiting and len(children) < processes:
            job = waiting.pop(0)
            child, process = _start(points(job.point), job, list(children))
            children[child] = job, process
        for reader in [one for one in wait(list(children), LOOK_S) if isinstance(one, Connection)]:
            job, process = children[reader]
            message = _received(reader)
            if isinstance(message, float):
                on_share(job, message)
                continue
            del children[reader]
            process.join()
            reader.close()
            if isinstance(message, TestbedError):
                raise message
            if message is None:
                died[job] += 1
                if died[job] < TRIES:
                    waiting += [job] if goes_on else []
                    continue
                message = points(job.point).lost(job.run, how_it_died(process.exitcode))
            yield job, message
            if not message.goes_on:
                goes_on = False
                waiting.clear()


def _start(point: SimulatedPoint, job: Job, beside: Sequence[Connection]) -> tuple[Connection, BaseProcess]:
    """`beside` are the pipes of the other children, as this process reads them."""
    context = multiprocessing.get_context("fork")
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(point, job, writer, [reader, *beside]), daemon=True)
    with warnings.catch_warnings():
        # Only the display has another thread, and the child never draws.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    writer.close()
    return reader, process


def _work(point: SimulatedPoint, job: Job, writer: Connection, parents: Sequence[Connection]) -> None:
    """Do a job in a child: floats are its progress, then comes its outcome, or the error that it raised.

    `parents` are the ends of pipes that its parent reads, which it has from the fork: while it keeps them, no child
    that writes to one is told that nobody reads any more.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for reader in parents:
        reader.close()

    def tell(share: float) -> bool:
        writer.send(share)
        return False

    with suppress(BrokenPipeError):  # the parent is gone
        try:
            outcome = point.run(job.run, tell)
            failure = outcome.failure
            if failure is not None:
                plain = plain_error(failure)
                outcome = RunOutcome(result=outcome.result, failure=plain, interrupted=outcome.interrupted)
            writer.send(outcome)
        except TestbedError as error:
            writer.send(plain_error(error))
        writer.close()


def plain_error(error: TestbedError) -> ScenarioError:
    """Return the error without what does not go through a pipe."""
    plain = ScenarioError(error.message, hint=error.hint)
    plain.trace = error.trace
    return plain


def _received(reader: Connection) -> float | RunOutcome | TestbedError | None:
    """Return what a child says; None for one that has died."""
    try:
        message = reader.recv()
    except (EOFError, OSError):
        return None
    assert isinstance(message, float | RunOutcome | TestbedError)
    return message


def how_it_died(exit_code: int | None) -> str:
    """Say how the process of a run ended, `TRIES` times, by the exit code that `multiprocessing` has of it."""
    if exit_code is None or exit_code >= 0:
        return f"its process ended {TRIES} times without a word (exit code {exit_code})"
    name = signal.Signals(-exit_code).name
    memory = "; is there memory enough?" if name == "SIGKILL" else ""
    return f"its process was ended {TRIES} times by {name}{memory}"


@contextmanager
def _children() -> Iterator[Children]:
    """Gives a table of children none of which survives the context."""
    children: Children = {}
    try:
        yield children
    finally:
        for _, process in children.values():
            process.terminate()
        for reader, (_, process) in children.items():
            process.join()
            reader.close()


def cores() -> int:
    """Return the number of CPUs that this process may use."""
    return max(1, len(os.sched_getaffinity(0)))
