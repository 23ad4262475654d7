"""Which signals a command still obeys."""

from __future__ import annotations

import signal


def stand_by_the_outcome() -> None:
    """Ignore SIGINT and SIGTERM from here to the end of the process.

    What was asked for is done. A signal now could only make the exit status say that it was not: Python puts
    SIGINT back to the default action before it ends, and would die of it.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
