"""The verb `compare`."""

from pathlib import Path
from typing import Annotated

import typer

from testbed.base.errors import RecordError
from testbed.cli.options import FormatOption, parse_format
from testbed.cli.panels import SCENARIOS_AND_RESULTS

app = typer.Typer()


@app.command(rich_help_panel=SCENARIOS_AND_RESULTS)
def compare(
    records: Annotated[
        list[Path], typer.Argument(metavar="BASE OTHER...", help="Records: others are compared with the first.")
    ],
    metric: Annotated[
        list[str] | None, typer.Option("--metric", help="Judge this one (or all); default: what is expected of.")
    ] = None,
    alpha: Annotated[float, typer.Option("--alpha", help="Probability of seeing a difference where none is.")] = 0.05,
    min_change: Annotated[float, typer.Option("--min-change", help="Relative change that is worth a word.")] = 0.01,
    force: Annotated[bool, typer.Option("--force", help="Compare what is not comparable, or invalid.")] = False,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page, too.")] = None,
    format: FormatOption = "table",
) -> None:
    """Compare records metric by metric. Exit 0 same or better, 1 significantly worse, 2 cannot say."""
    from testbed.cli.output import Format, console, emit_json, emit_rows
    from testbed.record.report.comparison import (
        COLUMNS,
        compare_records,
        comparison_json,
        comparison_rows,
        print_comparison,
        render_comparison,
    )
    from testbed.record.store import load_record, write_result

    form = parse_format(format)
    if len(records) < 2:
        raise RecordError("compare takes two records or more", hint="testbed compare BASE OTHER")
    if not 0 < alpha < 1 or not min_change >= 0:
        raise RecordError("--alpha is between 0 and 1, and --min-change not negative")
    contents = [load_record(path) for path in records]
    (base_name, base), *others = zip(_names(records), contents, strict=True)
    comparisons = [
        compare_records(
            base,
            other,
            names=(base_name, name),
            metrics=metric or [],
            alpha=alpha,
            min_change=min_change,
            force=force,
        )
        for name, other in others
    ]
    match form:
        case Format.TABLE:
            for comparison in comparisons:
                print_comparison(comparison, console())
        case Format.JSON:
            emit_json([comparison_json(comparison) for comparison in comparisons])
        case Format.CSV:
            emit_rows([row for comparison in comparisons for row in comparison_rows(comparison)], COLUMNS, form)
    if html is not None:
        write_result(render_comparison(comparisons).encode(errors="replace"), html)
        if form is Format.TABLE:
            console().print(f"report {html}", highlight=False, soft_wrap=True)
    codes = {comparison.exit_code for comparison in comparisons}
    raise typer.Exit(next((code for code in (1, 2) if code in codes), 0))


def _names(paths: list[Path]) -> list[str]:
    """Name the records: by the directory's name, or as much of the path as tells them apart."""
    from testbed.record.store import RECORD_FILE

    places = [path.parent if path.name == RECORD_FILE and not path.is_dir() else path for path in paths]
    short = [place.name or str(place) for place in places]
    return short if len(set(short)) == len(short) else [str(path) for path in paths]
