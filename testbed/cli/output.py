"""Printing rows as a table, JSON or CSV, and messages for people on standard error."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from testbed.base.rows import column_of
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


def emit(rows: Sequence[Any], kind: type, form: Format, *, title: str | None = None, document: Any = None) -> None:
    """Print `rows`, which are data classes of one `kind`. JSON prints `document` if given."""
    shown = [(item, column_of(item)) for item in dataclasses.fields(kind)]
    match form:
        case Format.JSON:
            emit_json(list(map(row_document, rows)) if document is None else document)
        case Format.CSV:
            kept = [(item.name, how.title or item.name) for item, how in shown if how.in_csv]
            print_csv([heading for _, heading in kept], [[getattr(row, name) for name, _ in kept] for row in rows])
        case Format.TABLE:
            columns = [(item.name, how) for item, how in shown if how.in_table]
            columns = [
                (name, how) for name, how in columns if not how.sparse or any(getattr(row, name) for row in rows)
            ]
            table = [
                [
                    value if how.as_text is None else how.as_text(value)
                    for name, how in columns
                    for value in (getattr(row, name),)
                ]
                for row in rows
            ]
            print_table([how.title or name.replace("_", " ") for name, how in columns], table, title)


def row_document(row: Any) -> dict[str, Any]:
    """Put a row into JSON data. What is None by default is left out where it is None."""
    return {
        column_of(item).title or item.name: value
        for item in dataclasses.fields(row)
        if (value := getattr(row, item.name)) is not None or item.default is not None
    }


def emit_rows(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    form: Format,
    *,
    title: str | None = None,
    json_document: Any = None,
) -> None:
    """Print `rows`; `columns` are keys of a row and headings at once. JSON prints `json_document` if given."""
    lines = [[row.get(column) for column in columns] for row in rows]
    match form:
        case Format.JSON:
            emit_json(list(rows) if json_document is None else json_document)
        case Format.CSV:
            print_csv(columns, lines)
        case Format.TABLE:
            print_table([column.replace("_", " ") for column in columns], lines, title)


def emit_json(document: Any) -> None:
    import json

    json.dump(document, sys.stdout, indent=2, default=str)
    sys.stdout.write("\n")


def print_csv(columns: Sequence[str], lines: Sequence[Sequence[Any]]) -> None:
    """Print the names of columns, and a line for each row."""
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in line] for line in lines)


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


def print_table(headings: Sequence[str], lines: Sequence[Sequence[Any]], title: str | None = None) -> None:
    """Print a table without lines between cells; numbers stand at the right."""
    numeric = [
        bool(lines) and all(isinstance(value, int | float | None) for value in column)
        for column in zip(*lines, strict=True)
    ]
    cells = [[_cell(value) for value in line] for line in lines]
    if _print_plainly(headings, cells, numeric, title):
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for heading, right in zip_longest(headings, numeric, fillvalue=False):
        table.add_column(str(heading), justify="right" if right else "left", overflow="fold")
    for line in cells:
        table.add_row(*(Text(cell, style=_STATE_STYLES.get(cell, "")) for cell in line))
    console().print(table)


_CODES = {"bold": "1", "italic": "3", "red": "31", "green": "32", "yellow": "33"}


def _print_plainly(
    headings: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool], title: str | None
) -> bool:
    """Print what Rich would, without the time that importing it takes; False where words would have to be wrapped."""
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_WIDTH
    every = [title or "", *headings, *(cell for line in cells for cell in line)]
    whole = sum(widths) + 2 * (len(widths) - 1)
    if whole > room or len(title or "") > whole or not all(text.isascii() and text.isprintable() for text in every):
        return False
    colored = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM", "dumb") != "dumb"

    def line(texts: Sequence[str], style: str = "") -> str:
        padded = (
            (text.rjust(width) if right else text.ljust(width), style or _STATE_STYLES.get(text, ""))
            for text, width, right in zip(texts, widths, [*numeric, *[False] * len(widths)], strict=False)
        )
        return "  ".join(f"\x1b[{_CODES[name]}m{text}\x1b[0m" if colored and name else text for text, name in padded)

    if title:
        sys.stdout.write((f"\x1b[3m{title.ljust(whole)}\x1b[0m" if colored else title.ljust(whole)) + "\n")
    sys.stdout.write("".join(f"{text}\n" for text in (line(headings, "bold"), *map(line, cells))))
    return True
