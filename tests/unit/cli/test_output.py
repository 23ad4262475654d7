"""A table that fits is printed as Rich would print it, without Rich; rows follow from the fields of their class."""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from testbed.base.rows import column, for_programs, if_known
from testbed.cli.options import Format
from testbed.cli.output import PIPE_WIDTH, emit, print_table


def by_rich(headings: Sequence[str], lines: Sequence[Sequence[str]], right: Sequence[bool], title: str | None) -> str:
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for heading, at_right in zip(headings, right, strict=True):
        table.add_column(heading, justify="right" if at_right else "left", overflow="fold")
    for line in lines:
        table.add_row(*map(Text, line))
    out = io.StringIO()
    Console(file=out, width=PIPE_WIDTH).print(table)
    return out.getvalue()


@pytest.mark.parametrize("title", [None, "lab"])
@pytest.mark.parametrize("lines", [[], [["a", 1, "x y"], ["longer", 22, ""]], [["[a]", None, "b"]]])
def test_a_table_looks_like_richs(
    lines: list[list[Any]], title: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    headings = ["name", "how many", "c"]
    print_table(headings, lines, title)
    cells = [["" if value is None else str(value) for value in line] for line in lines]
    assert capsys.readouterr().out == by_rich(headings, cells, [False, bool(lines), False], title)


def test_what_is_too_wide_is_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["a", "b"], [["word " * 50, "x"]])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= PIPE_WIDTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    name: str
    rate: int = column("rate bit/s", text=lambda row: f"{row.rate} bps")
    declared: str = column(in_table=False)
    pids: tuple[int, ...] = for_programs()
    missing: str = column(sparse=True, default="")
    image: str | None = if_known()


def test_columns_follow_from_the_fields(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [Row(name="a", rate=5, declared="d", pids=(1, 2)), Row(name="b", rate=6, declared="e", pids=(), image="i")]
    emit(rows, Row, Format.TABLE)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["name", "rate", "bit/s", "image"],
        ["a", "5", "bps"],
        ["b", "6", "bps", "i"],
    ]
    emit(rows, Row, Format.CSV)
    assert capsys.readouterr().out == "name,rate bit/s,declared,image\na,5,d,\nb,6,e,i\n"
    emit(rows, Row, Format.JSON)
    first, second = json.loads(capsys.readouterr().out)
    assert first == {"name": "a", "rate bit/s": 5, "declared": "d", "pids": [1, 2], "missing": ""}
    assert second["image"] == "i"
