"""The share of time that the machine was busy: `/proc/stat` before and after (proc(5)).

An emulation that runs out of CPU is slow for reasons the modelled fabric does not have, so this is
what decides whether a result can be trusted at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_PROC_STAT = Path("/proc/stat")
MAX_CPU_BUSY = 0.90
"""Above this share of all CPUs, what was measured is this machine and not the fabric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTimes:
    """Clock ticks of all CPUs together since boot. `idle` includes waiting for I/O."""

    total: int
    idle: int
    steal: int
    softirq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUse:
    """Shares (0..1) of all CPU time between two readings. `busy` is everything but idle, steal included."""

    busy: float
    steal: float
    softirq: float


def parse_cpu_times(text: str) -> CpuTimes:
    """Read the `cpu` line of `/proc/stat`. `ValueError` if there is none."""
    for line in text.splitlines():
        name, *fields = line.split()
        if name == "cpu":
            # guest time (fields 9 and 10) is already counted in user and nice
            ticks = [int(field) for field in fields[:8]]
            return CpuTimes(total=sum(ticks), idle=ticks[3] + ticks[4], softirq=ticks[6], steal=ticks[7])
    raise ValueError("no cpu line in /proc/stat")


def read_cpu_times() -> CpuTimes:
    return parse_cpu_times(_PROC_STAT.read_text())


def cpu_use(before: CpuTimes, after: CpuTimes) -> CpuUse:
    """Shares between two readings; all zero where no tick has passed."""
    total = after.total - before.total
    if total <= 0:
        return CpuUse(busy=0.0, steal=0.0, softirq=0.0)
    return CpuUse(
        busy=1 - (after.idle - before.idle) / total,
        steal=(after.steal - before.steal) / total,
        softirq=(after.softirq - before.softirq) / total,
    )


_SOFTNET_STAT = Path("/proc/net/softnet_stat")


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftnetCounts:
    """Counts of all CPUs: packets that did not fit into the backlog, and rounds that ended for lack of time."""

    dropped: int
    squeezed: int


def read_softnet() -> SoftnetCounts:
    """The kernel's count of what its softirqs could not do (`net/core/net-procfs.c`, softnet_seq_show)."""
    rows = [[int(word, 16) for word in line.split()] for line in _SOFTNET_STAT.read_text().splitlines()]
    return SoftnetCounts(dropped=sum(row[1] for row in rows), squeezed=sum(row[2] for row in rows))
