"""Designs beside each other: one table with a column for each topology, as `validate` prints it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.cli import output
from testbed.cli.options import Format
from testbed.lab.core.fabric.figures.design import DesignFigures, FigureRow, figure_rows
from testbed.lab.core.fabric.figures.prices import PriceList

_Place = tuple[str, str]
"""The network and the name of a figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignColumn:
    """A file with the figures of its networks, and the same as JSON data."""

    file: str
    figures: Sequence[DesignFigures]
    document: Mapping[str, Any]

    @property
    def rows(self) -> dict[_Place, FigureRow]:
        """Every figure by its place."""
        return {(row.network, row.what): row for one in self.figures for row in figure_rows(one)}


def emit_designs(columns: Sequence[DesignColumn], form: Format, *, several: bool) -> None:
    """Print a column for each design. JSON is a list of documents where `several` were asked for, else a document."""
    if form is Format.JSON:
        documents = [column.document for column in columns]
        output.emit_json(documents if several else documents[0])
        return
    figures = [column.rows for column in columns]
    places = _in_order([list(rows) for rows in figures])
    headings = ["network", "what", *_headings([column.file for column in columns], form)]
    lines = [[*place, *(_shown(rows.get(place), form) for rows in figures)] for place in places]
    if form is Format.CSV:
        output.print_csv(headings, lines)
        return
    if len({network for network, _ in places}) < 2:
        headings, lines = headings[1:], [line[1:] for line in lines]
    output.print_table(headings, lines)


def warn_of_missing_prices(columns: Sequence[DesignColumn], prices: PriceList) -> None:
    """Say on standard error what designs need that the price list has no price for: their cost is unknown."""
    for column in columns:
        for one in column.figures:
            if one.bill is not None and one.bill.missing:
                output.warn(
                    f"{column.file}: its cost is unknown: {prices.source} has no {', no '.join(one.bill.missing)}"
                )


def _shown(row: FigureRow | None, form: Format) -> float | str:
    if row is None:
        return ""
    if form is Format.TABLE:
        return row.text
    return "" if row.value is None else row.value


def _headings(files: Sequence[str], form: Format) -> list[str]:
    """The names of files: short ones in a table, where these are different."""
    short = [Path(file).stem for file in files]
    if form is Format.CSV or max(Counter(short).values(), default=0) > 1:
        return list(files)
    return short


def _in_order(lists: Sequence[Sequence[_Place]]) -> list[_Place]:
    """All places once, network by network: those that a list has besides stand behind the one before them in it."""
    networks = dict.fromkeys(network for places in lists for network, _ in places)
    return [
        (network, what)
        for network in networks
        for what in _merged([[what for one, what in places if one == network] for places in lists])
    ]


def _merged(lists: Sequence[Sequence[str]]) -> list[str]:
    merged: list[str] = []
    for names in lists:
        at = 0
        for name in names:
            if name in merged:
                at = merged.index(name) + 1
            else:
                merged.insert(at, name)
                at += 1
    return merged
