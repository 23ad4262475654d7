"""`python -m testbed.api.console.tethered WORDS`: a command line of this program that ends with the console.

Its standard input is a pipe that the console holds. When that ends, even by a SIGKILL of the console, the process group
is ended, with all that the command has started. PR_SET_PDEATHSIG would not do: it is about the thread that has started
a process (prctl(2)), and reaches no process below it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence

GRACE_S = 3.0
"""The time after SIGTERM until SIGKILL, for what has not ended and has not ended us."""


def tethered_words(words: Sequence[str]) -> list[str]:
    """Return the argument list that runs a command line so.

    It is to be started in a process group of its own, with a pipe as its standard input that nobody writes to. `-P`: no
    module of the working directory stands for one of ours.
    """
    return [sys.executable, "-P", "-m", "testbed.api.console.tethered", *words]


def end_with(descriptor: int) -> None:
    """Wait until a pipe ends, and then end our process group."""
    while os.read(descriptor, 4096):
        pass
    os.killpg(0, signal.SIGTERM)
    time.sleep(GRACE_S)
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Run the command line of this process until it, or standard input, ends."""
    tether = os.dup(0)  # close-on-exec, as all descriptors of Python
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    threading.Thread(target=end_with, args=(tether,), name="tether", daemon=True).start()
    import runpy

    runpy.run_module("testbed", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
