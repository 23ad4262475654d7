"""The verb `metrics`: what each metric is, for people and as JSON or CSV."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.cli import options
from testbed.cli.command import argument, command

if TYPE_CHECKING:
    from testbed.base.metric import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """The definition of a metric in a line."""

    name: str
    unit: str
    better: str
    formula: str
    source: str


@command("metrics")
@argument("name", required=False, metavar="[NAME]", help="One metric; default: all.")
@options.format_option
def metrics(name: str | None, format: options.Format) -> None:
    """Define the metrics: unit, formula, source, and which way is better."""
    from testbed.cli.output import emit, emit_json
    from testbed.record.catalogue import CATALOGUE, require_metric

    if name is None:
        emit(
            list(map(_row, CATALOGUE.values())),
            MetricRow,
            format,
            document=[one.as_json() for one in CATALOGUE.values()],
        )
        return
    metric = require_metric(name)
    match format:
        case options.Format.JSON:
            emit_json(metric.as_json())
        case options.Format.CSV:
            emit([_row(metric)], MetricRow, format)
        case options.Format.TABLE:
            print(_in_full(metric))


def _in_full(metric: "Metric") -> str:
    """Write a definition over several lines, for a person."""
    lines = (
        ("unit", metric.unit.value),
        ("better", metric.better.value),
        ("formula", metric.formula),
        ("source", metric.source),
        ("from", ", ".join(metric.samples)),
        ("runs", "measure it" if metric.takes else "do not measure it: it is for samples of your own, from Python"),
    )
    return "\n".join([f"{metric.name}: {metric.title}", *(f"  {key:<8} {value}" for key, value in lines)])


def _row(metric: "Metric") -> MetricRow:
    return MetricRow(
        name=metric.name,
        unit=metric.unit.value,
        better=metric.better.value,
        formula=metric.formula,
        source=metric.source,
    )
