"""The verb `metrics`: what each metric is, for people and as JSON or CSV."""

import difflib
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.base.errors import TestbedError
from testbed.cli.options import FormatOption, parse_format
from testbed.cli.panels import SCENARIOS_AND_RESULTS

if TYPE_CHECKING:
    from testbed.workload.metrics import Metric

app = typer.Typer()
COLUMNS = ("name", "unit", "better", "formula", "source")


@app.command(rich_help_panel=SCENARIOS_AND_RESULTS)
def metrics(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One metric; default: all.")] = None,
    format: FormatOption = "table",
) -> None:
    """Define the metrics: unit, formula, source, and which way is better."""
    from testbed.cli.output import Format, emit_json, emit_rows
    from testbed.workload.metrics import CATALOGUE

    form = parse_format(format)
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


def _in_full(metric: "Metric") -> str:
    """Write a definition over several lines, for a person."""
    lines = (
        ("unit", metric.unit.value),
        ("better", metric.better.value),
        ("formula", metric.formula),
        ("source", metric.source),
        ("from", ", ".join(metric.samples)),
    )
    return "\n".join([f"{metric.name}: {metric.title}", *(f"  {key:<8} {value}" for key, value in lines)])
