"""Real-time priority for a thread while it sends requests and tokens, or is the end of scale-up links, so that other
programs do not make it late.

A nice value would not do: where each session is a group of its own (autogroup, sched(7)), it counts inside of that
alone. The priority is the least of all, below the pause agent's, and the kernel leaves a twentieth of the time to
others (sched_rt_runtime_us). Without the privilege (CAP_SYS_NICE) nothing changes, and the lateness tells.
"""

from __future__ import annotations

import contextlib
import os

PRIORITY = 1


class RealTime:
    """Counts who needs it in this process: hosts share one, and the last that has enough ends it."""

    def __init__(self) -> None:
        self._users = 0

    def begin(self) -> None:
        """Have real-time priority from now on."""
        self._users += 1
        if self._users == 1:
            with contextlib.suppress(OSError):
                os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(PRIORITY))

    def end(self) -> None:
        """Need it no longer."""
        self._users -= 1
        if self._users == 0:
            with contextlib.suppress(OSError):
                os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


REAL_TIME = RealTime()
"""That of this process."""
