"""Metrics of the emulation itself, and not of the fabric: how busy the machine was."""

from __future__ import annotations

from testbed.workload.metrics.metric import Better, Metric, MetricFamily, MetricUnit
from testbed.workload.metrics.run_samples import CpuShares

EMULATION = MetricFamily()


def cpu_share(part_s: float, all_s: float) -> float | None:
    """CPU time of a kind over all CPU time."""
    return part_s / all_s if all_s > 0 else None


EMULATION.add(
    Metric(
        compute=cpu_share,
        name="cpu_busy",
        title="Machine CPU busy",
        unit=MetricUnit.SHARE,
        better=Better.LESS,
        emulation=True,
        formula="CPU time that was not idle / all CPU time while traffic ran, stolen time included",
        source="proc(5), /proc/stat",
        measure=lambda run: run[CpuShares].busy,
    )
)


EMULATION.add(
    Metric(
        compute=cpu_share,
        name="cpu_steal",
        title="Machine CPU stolen",
        unit=MetricUnit.SHARE,
        better=Better.LESS,
        emulation=True,
        formula="CPU time that a hypervisor gave to others / all CPU time while traffic ran",
        source="proc(5), /proc/stat",
        measure=lambda run: run[CpuShares].steal,
    )
)
