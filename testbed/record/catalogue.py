"""The catalogue of metrics: every one by name, in the order in which they are printed, and of whom a metric is.

A metric of the family `networks` is of one network, and may be of one tenant of the topology in it:
`network_drops[network=frontend]`, `network_drops[network=frontend tenant=red]`. Any other is of all of the workload,
or of one of its tenants (`tenants:` of the kind `tenants`): `jct`, `jct[tenant=training]`. That is what records,
reports and CSV files call them."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from testbed.base.errors import TestbedError
from testbed.base.metric import Better, Metric, NotMeasured, RunSamples
from testbed.protocols.infiniband.metrics import INFINIBAND
from testbed.protocols.scale_up.metrics import SCALE_UP
from testbed.workload.metrics.collectives import COLLECTIVES
from testbed.workload.metrics.emulation import EMULATION
from testbed.workload.metrics.flows import FLOWS
from testbed.workload.metrics.latency import LATENCY
from testbed.workload.metrics.links import LINKS
from testbed.workload.metrics.networks import NETWORKS
from testbed.workload.metrics.programs import PROGRAMS
from testbed.workload.metrics.reordering import REORDERING
from testbed.workload.metrics.requests import REQUESTS
from testbed.workload.metrics.storage import IO, STORAGE
from testbed.workload.metrics.timeline import TIMELINE

FAMILIES = (
    COLLECTIVES,
    PROGRAMS,
    FLOWS,
    LATENCY,
    REQUESTS,
    STORAGE,
    IO,
    LINKS,
    NETWORKS,
    SCALE_UP,
    INFINIBAND,
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
    metric.name
    for family in FAMILIES
    if family not in (PROGRAMS, LINKS, NETWORKS, SCALE_UP, EMULATION)
    for metric in family
)
"""The metrics that one tenant of a workload may have by itself: links, queues and the machine carry all of them, and a
program is no tenant."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """One network, one tenant, or one in the other; "" for all."""

    network: str = ""
    tenant: str = ""

    def name(self, metric: str) -> str:
        """Return what a metric of this selection is called."""
        words = [f"{key}={value}" for key, value in (("network", self.network), ("tenant", self.tenant)) if value]
        return f"{metric}[{' '.join(words)}]" if words else metric


def definition_of(name: str) -> Metric | None:
    """Return the metric that this is the name of, whatever it selects; None for one that is not in the catalogue."""
    metric, selected, rest = name.partition("[")
    return CATALOGUE.get(metric if not selected or rest.endswith("]") else name)


def require_metric(name: str) -> Metric:
    """Return the metric that this is the name of. Raises `TestbedError` with those that may be meant."""
    found = definition_of(name)
    if found is None:
        near = [one for one in CATALOGUE if name and name in one][:3] or difflib.get_close_matches(name, CATALOGUE, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "`testbed metrics` lists them all"
        raise TestbedError(f"there is no metric {name!r}", hint=hint)
    return found


def selected_words(name: str) -> str:
    """Return what a name selects, as it stands behind a metric's title; "" for all."""
    return name.partition("[")[2].removesuffix("]")


def binding_limits(metric: str, low: float | None, high: float | None) -> tuple[float | None, float | None]:
    """Return the limits that a figure can miss: one at the metric's ideal itself is none from its better side.

    What is beyond its ideal is no question of the fabric. Either it is so by what a port may be ahead of its rate, and
    meets the expectation, or by more, and the trust check `ideal` has made the run invalid. `metric` may be what an
    expectation is called that divides figures by those of another point: it has no ideal.
    """
    definition = definition_of(metric)
    if definition is None or definition.ideal is None:
        return low, high
    if definition.better is Better.LESS and low == definition.ideal:
        return None, high
    if definition.better is Better.MORE and high == definition.ideal:
        return low, None
    return low, high
