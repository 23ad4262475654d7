"""QEMU's threads taking turns: on one CPU, each until it waits, so that who comes first is never the host's choice.

In virtual time QEMU has a race. Its main loop skips idle time: if the virtual CPU is halted, it adds what is left
until the next timer to the clock. The CPU's thread says that it is halted before it has said how many instructions
it executed until then, and it does not hold a lock meanwhile; a main loop that looks in between takes the clock of
some hundred instructions ago, and the clock ends up ahead by them. Whether it looks depends on how the host schedules
two threads. Under the real-time policy "first in, first out" of one CPU, a thread runs until it waits for the other.
Source: QEMU 10.0, `rr_cpu_thread_fn`, `icount_start_warp_timer`, `icount_process_data`; sched(7).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from testbed.vm import cache

PRIORITY = 1
"""The lowest of the real-time priorities: above everything else, below everything that is in a hurry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """`prefix` begins the command line of who is to take turns; `lacks` is why that cannot be had, else ""."""

    prefix: tuple[str, ...]
    lacks: str = ""


@contextlib.contextmanager
def taking_turns() -> Iterator[Turns]:
    """A CPU for one machine, as long as the context lasts; who comes when all are taken shares the first."""
    policy = ("chrt", "--fifo", str(PRIORITY))
    if lacks := "this machine has one CPU" if len(os.sched_getaffinity(0)) == 1 else _refused(policy):
        yield Turns(prefix=(), lacks=lacks)
        return
    with _cpu() as number:
        yield Turns(prefix=(*policy, "taskset", "--cpu-list", str(number)))


def _refused(policy: tuple[str, ...]) -> str:
    """Why this machine does not schedule so: containers and users without CAP_SYS_NICE may not."""
    try:
        done = subprocess.run([*policy, "true"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "chrt is not installed"
    return "" if done.returncode == 0 else done.stderr.strip() or f"chrt ended with status {done.returncode}"


@contextlib.contextmanager
def _cpu() -> Iterator[int]:
    """The last CPU of ours that no other machine has taken: the first ones have the interrupts."""
    directory = cache.cache_directory()
    directory.mkdir(parents=True, exist_ok=True)
    numbers = sorted(os.sched_getaffinity(0))
    for number in reversed(numbers):
        with (directory / f"cpu-{number}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield number
            return
    yield numbers[0]
