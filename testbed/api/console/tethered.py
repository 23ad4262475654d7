"""`python -m testbed.api.console.tethered WORDS`: a command line of this program that ends with the console.

Its standard input is a pipe that the console holds. When that ends, even by a SIGKILL of the console, the process group
is ended, with all that the command has started. That is the work of a process beside the group, so that it is done also
where the command is the first to end. PR_SET_PDEATHSIG would not do: it is about the thread that has started a process
(prctl(2)), and reaches no process below it.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress

GRACE_S = 3.0
"""The time after SIGTERM until SIGKILL, for what has not ended."""


def tethered_words(words: Sequence[str]) -> list[str]:
    """Return the argument list that runs a command line so.

    It is to be started in a process group of its own, with a pipe as its standard input that nobody writes to. `-P`: no
    module of the working directory stands for one of ours.
    """
    return [sys.executable, "-P", "-m", "testbed.api.console.tethered", *words]


def guard(tether: int, group: int) -> None:
    """Wait until a pipe ends, and then end a process group; or until the first process of that group ends by itself."""
    with suppress(ProcessLookupError):
        leader = os.pidfd_open(group)
        poller = select.poll()
        poller.register(tether, select.POLLIN | select.POLLHUP)
        poller.register(leader, select.POLLIN)
        while (ready := {descriptor for descriptor, _ in poller.poll()}) and leader not in ready:
            if not os.read(tether, 4096):
                end_group(group)
                return


def end_group(group: int) -> None:
    """End a process group: by SIGTERM, and what is left of it after `GRACE_S` by SIGKILL."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGTERM)
        end_s = time.monotonic() + GRACE_S
        while (members := _members(group)) and (left_s := end_s - time.monotonic()) > 0:
            _await_an_end(members, left_s)
        if members:
            os.killpg(group, signal.SIGKILL)


def _members(group: int) -> list[int]:
    """Return the processes of a group that have not ended (proc_pid_stat(5))."""
    found = []
    for entry in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208  # pathlib takes longer to import than all else
        with suppress(OSError), open(f"/proc/{entry}/stat") as stream:  # noqa: PTH123
            state, _, own, *_ = stream.read().rpartition(")")[2].split()
            if int(own) == group and state not in "ZX":
                found.append(int(entry))
    return found


def _await_an_end(pids: Sequence[int], timeout_s: float) -> None:
    """Wait until one of some processes has ended."""
    with ExitStack() as opened:
        poller = select.poll()
        for pid in pids:
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                return
            opened.callback(os.close, descriptor)
            poller.register(descriptor, select.POLLIN)
        poller.poll(timeout_s * 1000)


def _start_guard(tether: int) -> None:
    """Start the process that guards our group, a child of nobody here: a command may wait for its own children."""
    group = os.getpgrp()
    if child := os.fork():
        os.waitpid(child, 0)
        return
    os.setpgid(0, 0)
    if not os.fork():
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(null, descriptor)
        guard(tether, group)
    os._exit(0)


def main() -> None:
    """Run the command line of this process until it, or standard input, ends."""
    tether = os.dup(0)  # close-on-exec, as all descriptors of Python
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    _start_guard(tether)
    os.close(tether)
    import runpy

    runpy.run_module("testbed", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
