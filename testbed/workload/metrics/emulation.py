"""Metrics of the emulation itself, and not of the fabric: how busy the machine was."""

from __future__ import annotations

from testbed.base.metric import Better, MetricFamily, MetricUnit, as_measured
from testbed.workload.metrics.run_samples import CpuShares

EMULATION = MetricFamily()

EMULATION.metric(
    name="cpu_busy",
    title="Machine CPU busy",
    unit=MetricUnit.SHARE,
    better=Better.LESS,
    emulation=True,
    formula="CPU time that was not idle / all CPU time while traffic ran, stolen time included",
    source="proc(5), /proc/stat",
    takes=lambda run: (run[CpuShares].busy,),
)(as_measured)
EMULATION.metric(
    name="cpu_steal",
    title="Machine CPU stolen",
    unit=MetricUnit.SHARE,
    better=Better.LESS,
    emulation=True,
    formula="CPU time that a hypervisor gave to others / all CPU time while traffic ran",
    source="proc(5), /proc/stat",
    takes=lambda run: (run[CpuShares].steal,),
)(as_measured)
