"""Trust in the figures of this machine now: what is used and stolen of its CPUs, and how late it wakes threads.

The limits are those of a run's trust checks (`testbed.run.trust.machine`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from testbed.api.console.failures import PartFailures
from testbed.run.machine.canary import Canary
from testbed.run.machine.cpu import MAX_CPU_BUSY, CpuTimes, cpu_use, read_cpu_times
from testbed.run.trust.machine import MAX_STEAL, MAX_WAKE_NS

EVERY_S = 1.0
_IDLE_EVERY_S = 5.0
_PART = "the trust in figures of this machine"
_CANARY_PERIOD_MS = 20
"""A tenth of what a run's canary wakes: it only tells, and must not take from what it tells of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """The machine in the last second. `busy` and `steal` are permille of all CPUs, `late_ms` the 99th percentile of how
    late a real-time thread woke, None where nobody could tell; `why` says what is not as it must be."""

    t: float
    busy: int
    steal: int
    late_ms: float | None
    cpus: int
    memory_free: int
    """Permille of all memory that is free or can be freed."""
    ok: bool
    why: tuple[str, ...]


def judge(t: float, busy: float, steal: float, late_ns: int | None, *, memory_free: float) -> Trust:
    """Judge the shares (0..1) of a moment. Pure."""
    late_ms = None if late_ns is None else round(late_ns / 1e6, 2)
    why = []
    if busy > MAX_CPU_BUSY:
        why.append(f"the machine is {busy:.0%} busy (limit {MAX_CPU_BUSY:.0%})")
    if steal > MAX_STEAL:
        why.append(f"{steal:.0%} of the CPU is given to other machines (limit {MAX_STEAL:.0%})")
    if late_ns is not None and late_ns > MAX_WAKE_NS:
        why.append(f"real-time threads wake {late_ms:g} ms late (limit {MAX_WAKE_NS / 1e6:g} ms)")
    return Trust(
        t=round(t, 3),
        busy=round(busy * 1000),
        steal=round(steal * 1000),
        late_ms=late_ms,
        cpus=os.cpu_count() or 1,
        memory_free=round(memory_free * 1000),
        ok=not why,
        why=tuple(why),
    )


class TrustWatch:
    """Looks at the machine in a thread of its own, seldom while nobody looks; calls `changed` with what it finds."""

    def __init__(self, changed: Callable[[Trust], None], looked_at: Callable[[], bool], failures: PartFailures) -> None:
        self._changed = changed
        self._looked_at = looked_at
        self._failures = failures
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trust", daemon=True)
        self.latest = judge(time.time(), 0.0, 0.0, None, memory_free=_memory_free())

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End the thread, and the canary with it."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._failures.run(_PART, self._watch):
            if self._stopped.wait(_IDLE_EVERY_S):
                return

    def _watch(self) -> None:
        before: CpuTimes = read_cpu_times()
        with Canary(_CANARY_PERIOD_MS) as canary:
            self._failures.clear(_PART)
            while not self._stopped.wait(EVERY_S if self._looked_at() else _IDLE_EVERY_S):
                now, late = read_cpu_times(), canary.read()
                use = cpu_use(before, now)
                before = now
                late_ns = None if late is None else late.p99_ns
                self.latest = judge(time.time(), use.busy, use.steal, late_ns, memory_free=_memory_free())
                self._changed(self.latest)


def _memory_free() -> float:
    """Return the share of memory that programs could have (proc(5), MemAvailable)."""
    found = {}
    with suppress(OSError, ValueError), open("/proc/meminfo", encoding="ascii") as lines:  # noqa: PTH123
        for line in lines:
            name, _, rest = line.partition(":")
            found[name] = int(rest.split()[0])
    return found.get("MemAvailable", 0) / max(1, found.get("MemTotal", 1))
