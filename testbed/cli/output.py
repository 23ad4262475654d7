"""Printing rows as a table, JSON or CSV, and messages for people on standard error."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from testbed.cli.options import Format

if TYPE_CHECKING:
    from rich.console import Console


PIPE_WIDTH = 200
"""Columns of a table that goes into a file or a pipe, where nobody has to wrap it."""


def console() -> Console:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)


def error_console() -> Console:
    from rich.console import Console

    return Console(stderr=True)


def emit_rows(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    form: Format,
    *,
    title: str | None = None,
    json_document: Any = None,
) -> None:
    """Print `rows`; `columns` are keys of a row and headings at once. JSON prints `json_document` if given."""
    match form:
        case Format.JSON:
            emit_json(list(rows) if json_document is None else json_document)
        case Format.CSV:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows([_cell(row.get(column)) for column in columns] for row in rows)
        case Format.TABLE:
            _print_table(rows, columns, title)


def emit_json(document: Any) -> None:
    json.dump(document, sys.stdout, indent=2, default=str)
    sys.stdout.write("\n")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " ".join(str(item) for item in value)
    return str(value)


_STATE_STYLES = {
    "running": "green",
    "Established": "green",
    "up": "green",
    "ok": "green",
    "pass": "green",
    "degraded": "yellow",
    "failed": "red",
    "fail": "red",
    "missing": "red",
    "gone": "red",
    "off": "red",
    "down": "red",
    "unknown": "yellow",
    "unhealthy": "red",
    "exited": "red",
    "current": "green",
    "outdated": "yellow",
}


def _print_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], title: str | None) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for column in columns:
        numeric = bool(rows) and all(isinstance(row.get(column), int | float | None) for row in rows)
        table.add_column(column.replace("_", " "), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=_STATE_STYLES.get(cell, "")) for cell in (_cell(row.get(c)) for c in columns)))
    console().print(table)
