"""The verb `metrics`: what each metric is, for people and as JSON or CSV."""

from __future__ import annotations

import difflib

from testbed.cli.output import Format, emit_json, emit_rows
from testbed.errors import TestbedError
from testbed.workload.metrics import CATALOGUE, Metric

COLUMNS = ("name", "unit", "better", "formula", "source")


def metrics(name: str | None, form: Format) -> None:
    """Print one definition, or all. Raises `TestbedError` for a name that no metric has."""
    if name is None:
        emit_rows([metric.as_json() for metric in CATALOGUE.values()], COLUMNS, form)
        return
    metric = CATALOGUE.get(name)
    if metric is None:
        near = difflib.get_close_matches(name, CATALOGUE, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "`testbed metrics` lists them all"
        raise TestbedError(f"there is no metric {name!r}", hint=hint)
    match form:
        case Format.JSON:
            emit_json(metric.as_json())
        case Format.CSV:
            emit_rows([metric.as_json()], COLUMNS, form)
        case Format.TABLE:
            print(_in_full(metric))


def _in_full(metric: Metric) -> str:
    lines = (
        ("unit", metric.unit.value),
        ("better", metric.better.value),
        ("formula", metric.formula),
        ("source", metric.source),
        ("from", ", ".join(metric.samples)),
    )
    return "\n".join([f"{metric.name}: {metric.title}", *(f"  {key:<8} {value}" for key, value in lines)])
