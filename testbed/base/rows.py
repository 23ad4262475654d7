"""Rows for people and programs: a field of a data class is a column of a table and of CSV, and a key of JSON.

`column` says what else is to be known of a field. Whoever prints rows, `testbed.cli.output`, needs to know no more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The way in which a field is shown.

    `title` is its key and heading where that is not its name, and `heading` that of a table alone. `in_table` and
    `in_csv` say where it is beside JSON, `hidden` that it is nowhere. `sparse` leaves it out of tables and CSV where no
    row has a value, `optional` out of JSON where this row has none. `value` makes its value of the row, and `text` what
    a table has in its place. `unit` is that of a number, for pages, which scale it.
    """

    title: str = ""
    heading: str = ""
    in_table: bool = True
    in_csv: bool = True
    hidden: bool = False
    sparse: bool = False
    optional: bool = False
    value: Callable[[Any], Any] | None = None
    text: Callable[[Any], str] | None = None
    unit: str = ""


PLAIN = Column()


def column(title: str = "", *, default: Any = MISSING, default_factory: Any = MISSING, **shown: Any) -> Any:
    """Declare a field of a row; `shown` are fields of `Column`."""
    how = {"column": Column(title=title, **shown)}
    if default_factory is not MISSING:
        return field(default_factory=default_factory, metadata=how)
    return field(default=default, metadata=how)


def for_programs(**settings: Any) -> Any:
    """Declare a field that is in JSON alone."""
    return column(in_table=False, in_csv=False, **settings)


def if_known() -> Any:
    """Declare a field that is None where nothing is known of it, and then left out of JSON."""
    return column(optional=True, default=None)


def measured(unit: str, **shown: Any) -> Any:
    """Declare a column of numbers that have a unit; None: nobody has measured it."""
    return column(default=None, unit=unit, **shown)


def column_of(item: Field[Any]) -> Column:
    """Declare the way in which a field is shown."""
    found: Column = item.metadata.get("column", PLAIN)
    return found


def value_of(row: Any, item: Field[Any]) -> Any:
    """The value that a row has for a field."""
    how = column_of(item)
    return getattr(row, item.name) if how.value is None else how.value(row)


def text_of(row: Any, item: Field[Any]) -> Any:
    """The text of a field of a row in a table."""
    how = column_of(item)
    return value_of(row, item) if how.text is None else how.text(row)


def row_json(row: Any) -> dict[str, Any]:
    """Put a row into JSON data."""
    shown = ((item, column_of(item)) for item in fields(row))
    return {
        how.title or item.name: value_of(row, item)
        for item, how in shown
        if not how.hidden and not (how.optional and getattr(row, item.name) is None)
    }


def short(value: float, unit: str = "", *, base_prefixes: str = " kMGTP") -> str:
    """Write a value with three significant digits: 1234567 bytes are "1.23 MB"; whole numbers below 1000 stay whole."""
    size, prefix = float(value), 0
    while abs(size) >= 999.5 and prefix < len(base_prefixes) - 1:
        size, prefix = size / 1000, prefix + 1
    digits = 0 if prefix == 0 and size == int(size) else max(0, 2 - (len(str(int(abs(size)))) - 1))
    mark = base_prefixes[prefix].strip() + unit
    return f"{size:.{digits}f} {mark}".rstrip()
