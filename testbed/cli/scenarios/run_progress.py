"""A scenario's progress in the words of the step display."""

from __future__ import annotations

import time
from collections.abc import Callable

from testbed.cli.output import duration
from testbed.lab.core.deploy.steps import StepCallback, StepEvent
from testbed.run.sweep.progress import Phase, Progress


class SweepSteps:
    """Tells the display how far a scenario is, and how long the rest will take.

    What is left is judged by what the runs so far took, labs included; nothing is said before the first has ended.
    """

    def __init__(self, *, runs: int, show: StepCallback, clock: Callable[[], float] = time.monotonic) -> None:
        self._runs = runs
        self._done = 0
        self._show = show
        self._clock = clock
        self._begin = clock()

    def __call__(self, event: Progress) -> None:
        at = f"point {event.point}/{event.points} " if event.points > 1 else ""
        if event.phase is Phase.LAB:
            self._show(StepEvent(step=f"{at}{event.message}", phase="stop", done=0, total=0, detail="lab"))
            return
        if event.phase is Phase.RUN:
            self._done += 1
        whole = event.total == 1.0 and event.phase is Phase.TRAFFIC
        self._show(
            StepEvent(
                step=f"{at}run {event.run}/{event.runs}",
                phase="stop" if event.phase is Phase.RUN else "progress",
                done=round(event.done * 100) if whole else round(event.done),
                total=100 if whole else round(event.total),
                detail=event.phase.value + self._left(),
            )
        )

    def _left(self) -> str:
        left = self._runs - self._done
        if left <= 0 or not self._done:
            return ""
        return f", about {duration((self._clock() - self._begin) / self._done * left)} left"
