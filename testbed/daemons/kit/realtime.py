"""A short reaction on a busy machine: real-time priority, locked memory, and no garbage collector."""

from __future__ import annotations

import ctypes
import gc
import os

AGENT_PRIORITY = 50
KICKER_PRIORITY = AGENT_PRIORITY
"""The priority of the pause agent's thread that makes opened queues run. It is in the network stack most of the time,
where nobody can take the CPU from it: the agent, waking with the same priority, goes to another CPU; with a higher one
it would wait."""
GUARD_PRIORITY = 49
_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4
_libc = ctypes.CDLL(None, use_errno=True)


def become_realtime(priority: int) -> str:
    """SCHED_FIFO for this process, not for its children; why not, or ""."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(priority))
    except OSError as error:
        return f"no real-time priority: {error.strerror}"
    return ""


def lock_memory() -> str:
    """Keep every page in memory once it was touched; why not, or "".

    What is mapped and never used, two thirds of it, stays out (MCL_ONFAULT, mlockall(2)).
    """
    if _libc.mlockall(_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT) != 0:
        return f"memory is not locked: {os.strerror(ctypes.get_errno())}"
    return ""


def become_undisturbed() -> list[str]:
    """Take real-time priority, keep memory, and stop collecting garbage; what of it could not be had comes back."""
    weaknesses = [why for why in (become_realtime(AGENT_PRIORITY), lock_memory()) if why]
    stop_collecting()
    return weaknesses


def stop_collecting() -> None:
    """Collect once, then never look at what there is now again, nor at anything on our own."""
    gc.collect()
    gc.freeze()
    gc.disable()
