"""Who runs the jobs of a sweep: this machine, or machines of a pool. A sweep knows no network.

A simulated job is a run of a point; an emulated one is a try of a point, with all its runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

from testbed.base.interrupt import Interrupt
from testbed.record.record import Backend, MachinePart
from testbed.run.sweep.points import Sweep
from testbed.run.sweep.progress import ProgressListener
from testbed.run.sweep.runner import RecordOptions, SweepOutcome

Job = TypeVar("Job")
Done_co = TypeVar("Done_co", covariant=True)


class JobRunner(Protocol[Job, Done_co]):
    """Runs jobs, wherever that is."""

    @property
    def machines(self) -> Sequence[MachinePart]:
        """Return the machines that have done something so far, where they are not this one alone."""

    def run(self, jobs: Sequence[Job], interrupt: Interrupt) -> Iterator[tuple[Job, Done_co]]:
        """Do all jobs and yield what came of each, as they end.

        After one that failed or was interrupted no other begins. Once an interrupt is requested, those that run are
        ended. Raises what a job raises.
        """


class SweepPool(Protocol):
    """Machines that run whole sweeps, by whoever knows how to reach them."""

    def run(
        self,
        sweep: Sweep,
        backend: Backend,
        options: RecordOptions,
        on_progress: ProgressListener,
        *,
        timeout_s: float,
    ) -> SweepOutcome:
        """Run every point of a sweep, and judge the whole; routing of labs has `timeout_s` (s) to converge."""
