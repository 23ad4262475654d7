"""The metrics of single tenants of a workload side by side, as the texts of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.record.record import MetricSummary, PointResult
from testbed.record.report.scenario.figures import format_value
from testbed.workload.metrics import definition_of, selected_words

_TENANT = "tenant="


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantFigures:
    """A column for each tenant, a row for each metric that one of them has: its title, and a text for each tenant, ""
    where it has none."""

    tenants: Sequence[str] = ()
    rows: Sequence[tuple[str, Sequence[str]]] = ()


def tenant_figures(point: PointResult) -> TenantFigures:
    """Return the medians of those metrics that stand in a report's first table; nothing without tenants."""
    found: dict[str, dict[str, MetricSummary]] = {}
    for metric in point.metrics:
        words, definition = selected_words(metric.name), definition_of(metric.name)
        if words.startswith(_TENANT) and definition is not None and definition.headline and metric.median is not None:
            found.setdefault(definition.title, {})[words.removeprefix(_TENANT)] = metric
    tenants = list(dict.fromkeys(tenant for by_tenant in found.values() for tenant in by_tenant))
    rows = [
        (
            title,
            [
                format_value(by_tenant[tenant].median, by_tenant[tenant].unit) if tenant in by_tenant else ""
                for tenant in tenants
            ],
        )
        for title, by_tenant in found.items()
    ]
    return TenantFigures(tenants=tenants, rows=rows)
