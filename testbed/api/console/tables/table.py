"""A table of a page: its rows, and the words by which some of them are chosen.

Words are those of the command line: `NODE` and `NODE:IF`, with wildcards, of which any may match; and `COLUMN=VALUE`,
with wildcards, all of which must.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import Field, dataclass, fields
from fnmatch import fnmatchcase
from typing import Any

from testbed.api.console.answers import RefusedRequest
from testbed.api.console.sources.source import Moment, Source
from testbed.base.names import choice_hint, known_names_hint
from testbed.base.rows import column_of, value_of

MOST_ROWS = 100_000
_LONGEST_WORDS = 2_000
_DIGITS = re.compile(r"([0-9]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQuery:
    """The rows that are wanted of a table, and their order. `moment` is None for those of now; `network` has a name, or
    several with commas, of which any may match.
    """

    words: str = ""
    network: str = ""
    class_name: str = ""
    sort: str = ""
    descending: bool = False
    offset: int = 0
    limit: int = 200
    moment: Moment | None = None


Nodes = Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTable:
    """A table. `kind` is the data class of its rows, whose fields are the columns; `rows` makes those of some nodes.

    `place` is what a row is of, `NODE` or `NODE:IF`, by which words choose it, and `key` what selecting it selects.
    """

    name: str
    title: str
    kind: type
    rows: Callable[[Source, TableQuery, Nodes], Iterable[Any]]
    place: Callable[[Any], str]
    key: Callable[[Any], str]
    of: Callable[[Source], bool] = lambda source: source.live
    places: Callable[[Any], Iterable[str]] | None = None
    """All that a row is of, where that is several nodes or ports, or something that has another name."""
    names: Callable[[Source], Iterable[str]] = lambda source: ()
    """The names of such other things, which words may have, too."""
    moments: bool = False
    """Its rows can be those of another moment; else they are of now, whatever is asked for."""

    def to_json(self) -> dict[str, str]:
        """Return what the page is told of it."""
        return {"name": self.name, "title": self.title}

    def is_of(self, row: Any, patterns: Sequence[str]) -> bool:
        """Tell whether a row is of what one of the patterns means."""
        places = (self.place(row),) if self.places is None else self.places(row)
        return any(matches(pattern, place) for place in places for pattern in patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The words that somebody wrote to choose rows: patterns of places, and values of columns."""

    places: tuple[str, ...] = ()
    values: tuple[tuple[str, str], ...] = ()


def read_words(text: str) -> Words:
    """Take words apart. Raises `RefusedRequest` for too many of them."""
    if len(text) > _LONGEST_WORDS:
        raise RefusedRequest(400, "these are too many words")
    words = text.split()
    values = [tuple(word.split("=", 1)) for word in words if "=" in word]
    return Words(
        places=tuple(word for word in words if "=" not in word),
        values=tuple((name, value) for name, value in values),
    )


def matches(pattern: str, place: str) -> bool:
    """Tell whether a pattern means a place: a node with all that is of it, or a port."""
    return fnmatchcase(place if ":" in pattern else place.partition(":")[0], pattern)


def check_places(source: Source, patterns: Sequence[str], names: Iterable[str] = ()) -> None:
    """Raise `RefusedRequest`, with what may have been meant, for a pattern that means nothing in the lab.

    `names` are those of other things than nodes that are meant, too.
    """
    shape = source.shape
    for pattern in patterns:
        known: Sequence[str] = list(shape.places if ":" in pattern else (*shape.nodes, *names))
        if not any(fnmatchcase(name, pattern) for name in known):
            hint = choice_hint(pattern, known, "NODE or NODE:IF, with wildcards")
            raise RefusedRequest(400, f"nothing in {source.name} matches {pattern!r}", hint=hint)


def table_page(table: PageTable, source: Source, query: TableQuery) -> dict[str, Any]:
    """Return the rows that are wanted of a table, as a page gets them.

    Raises `RefusedRequest` for words that mean nothing.
    """
    words = read_words(query.words)
    shown = [item for item in fields(table.kind) if column_of(item).in_csv and not column_of(item).hidden]
    by_name = {_name(item): item for item in shown}
    values = [*words.values]
    values += [("class", query.class_name)] if query.class_name else []
    networks = query.network.split(",") if query.network and "network" in by_name else []
    for name, _ in values:
        if name not in by_name:
            raise RefusedRequest(
                400, f"{table.title} have no column {name!r}", hint=known_names_hint(name, list(by_name))
            )
    check_places(source, words.places, table.names(source))
    nodes = _node_filter(words.places)
    every = list(table.rows(source, query, nodes))
    chosen = [
        row
        for row in every
        if (not words.places or table.is_of(row, words.places))
        and all(_has(value_of(row, by_name[name]), value) for name, value in values)
        and (not networks or any(_has(value_of(row, by_name["network"]), name) for name in networks))
    ]
    if query.sort:
        if query.sort not in by_name:
            raise RefusedRequest(
                400, f"{table.title} have no column {query.sort!r}", hint=known_names_hint(query.sort, list(by_name))
            )
        item = by_name[query.sort]
        chosen.sort(key=lambda row: _order(value_of(row, item)), reverse=query.descending)
    page = chosen[query.offset : query.offset + query.limit]
    shown = [item for item in shown if not column_of(item).sparse or any(getattr(row, item.name) for row in every)]
    cells = [[_cell(value_of(row, item)) for item in shown] for row in page]
    return {
        "columns": [_heading(item, [row[at] for row in cells]) for at, item in enumerate(shown)],
        "rows": cells,
        "keys": list(map(table.key, page)),
        "total": len(every),
        "matched": len(chosen),
        "t": (query.moment if query.moment and table.moments else source.now()).frame.t,
        "of_now": not table.moments,
    }


def _node_filter(patterns: Sequence[str]) -> Nodes:
    """Return what chooses the nodes that can have rows which are wanted, so that no others are asked."""
    if not patterns:
        return lambda _: True
    of_nodes = [pattern.partition(":")[0] for pattern in patterns]
    return lambda node: any(fnmatchcase(node, pattern) for pattern in of_nodes)


def _name(item: Field[Any]) -> str:
    return column_of(item).title or item.name


def _heading(item: Field[Any], values: Sequence[Any]) -> dict[str, Any]:
    how = column_of(item)
    known = [value for value in values if value is not None]
    return {
        "name": _name(item),
        "heading": how.heading or _name(item).replace("_", " "),
        "numeric": bool(known)
        and all(isinstance(value, int | float) and not isinstance(value, bool) for value in known),
        "unit": how.unit,
    }


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return " ".join(map(str, value))
    return str(value)


def _has(value: Any, pattern: str) -> bool:
    """Tell whether a value is, or has, what a pattern says."""
    values = value if isinstance(value, list | tuple) else [value]
    return any(fnmatchcase(_text(one), pattern) for one in values)


def _text(value: Any) -> str:
    return "" if value is None else "yes" if value is True else "no" if value is False else str(value)


def _order(value: Any) -> tuple[int, Any]:
    """Sort numbers as numbers, what is not known before them, and names with numbers in them as people count."""
    if value is None:
        return 0, 0
    if isinstance(value, int | float):
        return 1, value
    text = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return 2, _natural(text)


def _natural(text: str) -> list[tuple[int, int, str]]:
    parts = _DIGITS.split(text)  # text and numbers in turn
    return [(0, int(part), "") if place % 2 else (1, 0, part) for place, part in enumerate(parts) if part]
