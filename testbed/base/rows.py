"""Rows for people and programs: a field of a data class is a column of a table and of CSV, and a key of JSON.

`column` says what else is to be known of a field. Whoever prints rows, `testbed.cli.output`, needs to know no more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """How a field is shown.

    `title` is its heading, and its key, where that is not its name. `in_table` and `in_csv` say where it is; `sparse`
    leaves it out of a table where no row has a value; `as_text` writes a value for people.
    """

    title: str = ""
    in_table: bool = True
    in_csv: bool = True
    sparse: bool = False
    as_text: Callable[[Any], str] | None = None


PLAIN = Column()


def column(
    title: str = "",
    *,
    in_table: bool = True,
    in_csv: bool = True,
    sparse: bool = False,
    as_text: Callable[[Any], str] | None = None,
    default: Any = MISSING,
) -> Any:
    """Declare a field of a row. One that is None by default is left out of JSON where it is None."""
    shown = Column(title=title, in_table=in_table, in_csv=in_csv, sparse=sparse, as_text=as_text)
    return field(default=default, metadata={"column": shown})


def for_programs(*, default: Any = MISSING) -> Any:
    """Declare a field that is in JSON alone."""
    return column(in_table=False, in_csv=False, default=default)


def column_of(item: Field[Any]) -> Column:
    """How a field is shown."""
    found: Column = item.metadata.get("column", PLAIN)
    return found
