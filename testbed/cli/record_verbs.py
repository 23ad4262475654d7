"""The verbs about records and their options: `report`, `compare`, `results`. Their work is in `cli.results`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from testbed.cli.format_option import Form, parse_format

record_app = typer.Typer()
"""Verbs of the top level."""
results_app = typer.Typer(help="Look at what was measured.", no_args_is_help=True, rich_markup_mode=None)


@record_app.command()
def report(
    record: Annotated[Path, typer.Argument(metavar="DIR|RECORD.json", help="A record, or the directory of its run.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Directory to write into.")] = None,
) -> None:
    """Write the report of a record anew: one HTML page, and JSON, CSV and JUnit beside it."""
    from testbed.cli import results

    results.report(record, output)


@record_app.command()
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
    format: Form = "table",
) -> None:
    """Compare records metric by metric. Exit 0 same or better, 1 significantly worse, 2 cannot say."""
    from testbed.cli import results

    raise typer.Exit(
        results.compare(
            records,
            metrics=metric or [],
            alpha=alpha,
            min_change=min_change,
            force=force,
            html=html,
            form=parse_format(format),
        )
    )


@results_app.command("list")
def results_list(
    root: Annotated[Path | None, typer.Argument(metavar="[DIR]", help="Default: results/.")] = None,
    format: Form = "table",
) -> None:
    """One line for each run there is, newest first."""
    from testbed.cli import results

    results.list_(root, parse_format(format))


@results_app.command("show")
def results_show(
    record: Annotated[Path, typer.Argument(metavar="DIR|RECORD.json", help="A record, or the directory of its run.")],
    format: Form = "table",
) -> None:
    """Print a record as it was printed when it was measured."""
    from testbed.cli import results

    results.show(record, parse_format(format))
