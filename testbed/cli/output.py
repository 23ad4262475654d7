"""Printing rows as a table, JSON or CSV, and messages for people on standard error."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
from collections.abc import Collection, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from testbed.base.rows import column_of, row_json, text_of, value_of
from testbed.cli.options import Format

if TYPE_CHECKING:
    from rich.console import Console


PIPE_WIDTH = 200
"""Columns of a table that goes into a file or a pipe, where nobody has to wrap it."""


def console() -> Console:
    return _console(width=None if sys.stdout.isatty() else PIPE_WIDTH)


def error_console() -> Console:
    return _console(stderr=True)


def _console(**settings: Any) -> Console:
    from rich.console import Console

    class Ours(Console):
        def on_broken_pipe(self) -> None:
            """Leave it to the command line, which tells that nobody reads from a verdict; rich would end with 1."""
            raise BrokenPipeError

    return Ours(**settings)


def emit(
    rows: Sequence[Any],
    kind: type,
    form: Format,
    *,
    title: str | None = None,
    document: Any = None,
    without: Collection[str] = (),
    columns: Sequence[str] = (),
) -> None:
    """Print `rows`, which are data classes of one `kind`, but for their fields `without`, or the fields `columns` in
    this order. JSON prints `document` if given."""
    if form is Format.JSON:
        emit_json(list(map(row_json, rows)) if document is None else document)
        return
    shown = [
        (item, how)
        for item in dataclasses.fields(kind)
        if (how := column_of(item)).in_csv
        and not how.hidden
        and (how.in_table or form is Format.CSV)
        and item.name not in without
        and not (how.sparse and not any(getattr(row, item.name) for row in rows))
    ]
    if columns:
        shown = sorted((one for one in shown if one[0].name in columns), key=lambda one: columns.index(one[0].name))
    if form is Format.CSV:
        values = [[value_of(row, item) for item, _ in shown] for row in rows]
        print_csv([how.title or item.name for item, how in shown], values)
        return
    texts = [[text_of(row, item) for item, _ in shown] for row in rows]
    print_table([how.heading or (how.title or item.name).replace("_", " ") for item, how in shown], texts, title)


def warn(sentence: object) -> None:
    """Say on standard error what is allowed, and works less well than it looks."""
    print(f"warning: {sentence}", file=sys.stderr)


def duration(seconds: float) -> str:
    """Return a duration in words, rounded to what is worth saying: "40 s", "12 min"."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


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
    "made": "green",
    "changed": "yellow",
    "remade": "red",
    "restarted": "red",
    "removed": "red",
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
