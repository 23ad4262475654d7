"""The catalogue of metrics: every one by name, in the order in which they are printed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from testbed.workload.metrics.collectives import COLLECTIVES
from testbed.workload.metrics.emulation import EMULATION
from testbed.workload.metrics.flows import FLOWS
from testbed.workload.metrics.io_jobs import IO
from testbed.workload.metrics.latency import LATENCY
from testbed.workload.metrics.links import LINKS
from testbed.workload.metrics.metric import Metric
from testbed.workload.metrics.networks import NETWORKS
from testbed.workload.metrics.reordering import REORDERING
from testbed.workload.metrics.requests import REQUESTS
from testbed.workload.metrics.run_samples import NotMeasured, RunSamples
from testbed.workload.metrics.scale_up import SCALE_UP
from testbed.workload.metrics.storage import STORAGE
from testbed.workload.metrics.timeline import TIMELINE

FAMILIES = (
    COLLECTIVES,
    FLOWS,
    LATENCY,
    REQUESTS,
    STORAGE,
    IO,
    LINKS,
    NETWORKS,
    SCALE_UP,
    REORDERING,
    TIMELINE,
    EMULATION,
)


def _by_name() -> dict[str, Metric]:
    found: dict[str, Metric] = {}
    for metric in (metric for family in FAMILIES for metric in family):
        if found.setdefault(metric.name, metric) is not metric:
            raise ValueError(f"there are two metrics {metric.name}")
    return found


CATALOGUE: Mapping[str, Metric] = MappingProxyType(_by_name())
"""Every metric by name."""
BY_TENANT = frozenset(
    metric.name for family in FAMILIES if family not in (LINKS, NETWORKS, SCALE_UP, EMULATION) for metric in family
)
"""Those that one tenant of a workload may have by itself: links, queues and the machine carry all of them."""


def measure_metrics(run: RunSamples) -> dict[str, float | None]:
    """Computes every metric that the run has samples for, in the order of the catalogue.

    A metric whose samples the run lacks is missing; one that has no meaning for it (no flow ended, nothing was sent, or
    the value is beyond all numbers) is None.
    """
    found: dict[str, float | None] = {}
    for metric in CATALOGUE.values():
        try:
            value = metric.measure(run)
        except NotMeasured:
            continue
        found[metric.name] = value if value is not None and math.isfinite(value) else None
    return found
