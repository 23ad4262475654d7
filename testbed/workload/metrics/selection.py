"""Of whom a metric is: of all that a run did, or of one network of its lab, or of one tenant alone.

A metric of the family `networks` is of one network, and may be of one tenant of the topology in it:
`network_drops[network=frontend]`, `network_drops[network=frontend tenant=red]`. Any other is of all of the workload,
or of one of its tenants (`tenants:` of the kind `tenants`): `jct`, `jct[tenant=training]`. That is what records,
reports and CSV files call them.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.workload.metrics.catalogue import CATALOGUE
from testbed.workload.metrics.metric import Better, Metric


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
