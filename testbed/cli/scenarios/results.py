"""The verbs `results list`, `results show` and `results steady`: what was measured, once it is written."""

from pathlib import Path
from typing import Annotated

import typer

from testbed.cli.options import FormatOption, RecordArgument, parse_format
from testbed.cli.panels import SCENARIOS_AND_RESULTS, verb_group

app = verb_group("results", SCENARIOS_AND_RESULTS, "Look at what was measured.")
COLUMNS = ("directory", "scenario", "when", "verdict", "points", "runs", "took_s", "remark")


@app.command("list")
def list_results(
    root: Annotated[Path | None, typer.Argument(metavar="[DIR]", help="Default: results/.")] = None,
    format: FormatOption = "table",
) -> None:
    """One line for each run there is, newest first."""
    from testbed.cli.output import Format, console, emit_rows
    from testbed.record.listing import list_results as listed
    from testbed.record.store import RESULTS_DIRECTORY

    form = parse_format(format)
    rows = [
        {
            "directory": str(item.directory),
            "scenario": item.scenario,
            "when": item.started[:19].replace("T", " "),
            "verdict": item.verdict,
            "points": item.points,
            "runs": item.runs,
            "took_s": None if item.wall_s is None else round(item.wall_s, 1),
            "remark": item.problem or (f"partial: {item.incomplete}" if item.incomplete else ""),
        }
        for item in listed(root or RESULTS_DIRECTORY)
    ]
    if not rows and form is Format.TABLE:
        console().print(f"no results in {root or RESULTS_DIRECTORY}", highlight=False)
        return
    emit_rows(rows, COLUMNS, form)


@app.command()
def show(record: RecordArgument, format: FormatOption = "table") -> None:
    """Print a record as it was printed when it was measured."""
    from testbed.cli.output import Format, console, emit_json
    from testbed.record.report import print_record
    from testbed.record.report.scenario.tables import metrics_csv, summary_json
    from testbed.record.store import REPORT_FILE, load_record

    form = parse_format(format)
    content = load_record(record)
    match form:
        case Format.TABLE:
            print_record(content, console())
            page = (record if record.is_dir() else record.parent) / REPORT_FILE
            if page.is_file():
                console().print(f"report {page}", highlight=False, soft_wrap=True)
        case Format.JSON:
            emit_json(summary_json(content))
        case Format.CSV:
            print(metrics_csv(content), end="")


@app.command()
def steady(
    directories: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[DIR...]", help="Of `run --steady`; default: results/."),
    ] = None,
    page: Annotated[
        Path | None, typer.Option("--page", metavar="PAGE.md", help="Put the table into a page, between its marks.")
    ] = None,
    format: FormatOption = "table",
) -> None:
    """How the figures of scenarios lie in their bands, over the runs of `run --steady`."""
    from testbed.cli.scenarios.steady import show_steadiness, write_page
    from testbed.record.steady import find_steadiness
    from testbed.record.store import RESULTS_DIRECTORY

    form = parse_format(format)
    found = find_steadiness(directories or [RESULTS_DIRECTORY])
    show_steadiness(found, form)
    if page is not None:
        write_page(found, page)
