"""Collectives in the columns of nccl-tests, in lab time and as the real fabric would have them.

The columns are those of nccl-tests (src/common.cu, since 2.16 src/util.cu): size (B), count (elements), type, redop,
root, time (us), algbw and busbw (GB/s, 10^9 bytes), #wrong. Several operations of one kind and size are one row with
the median of their times; the bandwidths follow from it.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.record.record import PointResult, RunResult
from testbed.record.samples import CollectiveResult

NCCL_FILE = "nccl-tests.txt"
_TURN = re.compile(r"\[\d+\]")
_NCCL_TYPES = {"float32": "float", "float64": "double", "float16": "half"}
"""The names that nccl-tests has otherwise (src/common.cu, test_typenames)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclRow:
    """Times in lab seconds, bandwidths in lab byte/s; those of the real fabric are `k` times as much."""

    point: str
    kind: str
    algorithm: str
    label: str
    ranks: int
    size_bytes: int
    elements: int
    datatype: str
    redop: str
    root: int | None
    operations: int
    seconds: float
    slowest_s: float
    algbw: float
    busbw: float
    ideal_busbw: float | None
    wrong: int | None
    k: float

    @property
    def share(self) -> float | None:
        """busbw over its ideal."""
        return self.busbw / self.ideal_busbw if self.ideal_busbw else None

    @property
    def time_text(self) -> str:
        """Microseconds of the lab, as nccl-tests writes them."""
        return nccl_number(self.seconds * 1e6, 7)

    @property
    def real_time_text(self) -> str:
        """Microseconds of the real fabric, as nccl-tests writes them."""
        return nccl_number(self.real_us, 7)

    @property
    def real_us(self) -> float:
        return self.seconds / self.k * 1e6 if self.k > 0 else 0.0

    @property
    def real_algbw(self) -> float:
        return self.algbw * self.k

    @property
    def real_busbw(self) -> float:
        return self.busbw * self.k


def nccl_number(value: float, width: int) -> str:
    """A number as nccl-tests fits it into `width` characters (getFloatStr): two decimals as long as there is room."""
    digits = len(str(int(value))) if value >= 1 else 0
    if digits > width:
        return f"{value:.{1 if width >= 7 else 0}e}"
    return f"{value:.{max(0, min(2, width - 1 - digits))}f}"


def nccl_tests_text(points: Sequence[PointResult]) -> str:
    """All collectives of a record as nccl-tests prints them, in times and rates of the real fabric, for programs that
    read its output: a table for each kind, algorithm and number of ranks of each point.

    A rank of the lab has one buffer, so that there is one measurement: it stands in the columns of out-of-place and of
    in-place. "": there are no collectives.
    """
    blocks = []
    for point in points:
        tables: dict[str, list[NcclRow]] = {}
        for row in collective_rows(point):
            title = f"{row.kind} {row.algorithm}, {row.ranks} ranks{f', {row.label}' if row.label else ''}"
            tables.setdefault(title, []).append(row)
        blocks += [
            _nccl_table(f"{point.name}: {title}" if point.name else title, rows) for title, rows in tables.items()
        ]
    return "\n".join(blocks)


_HEADINGS = (
    (10, "size", "(B)"),
    (12, "count", "(elements)"),
    (8, "type", ""),
    (6, "redop", ""),
    (6, "root", ""),
    *2 * ((7, "time", "(us)"), (6, "algbw", "(GB/s)"), (6, "busbw", "(GB/s)"), (6, "#wrong", "")),
)
"""Width, name and unit of each column."""
_BEFORE_OUT_OF_PLACE, _BEFORE_IN_PLACE = 60, 23
"""Spaces before the two words above the columns."""


def _nccl_table(title: str, rows: Sequence[NcclRow]) -> str:
    wrong = sum(row.wrong or 0 for row in rows)
    places = f"#{' ' * _BEFORE_OUT_OF_PLACE}out-of-place{' ' * _BEFORE_IN_PLACE}in-place"
    heads = ("# " + "  ".join(f"{column[at]:>{column[0]}}" for column in _HEADINGS) for at in (1, 2))
    average = sum(row.real_busbw for row in rows) / len(rows) / 1e9
    return "\n".join(
        (
            f"# {title}",
            f"# real fabric, of which the lab is {rows[0].k:g} times slower; one buffer, measured once",
            "#",
            places,
            *(head.rstrip() for head in heads),
            *map(_nccl_line, rows),
            f"# {'Out of bounds values':<20} : {wrong} {'FAILED' if wrong else 'OK'}",
            f"# {'Avg bus bandwidth':<20} : {average:g}",
            "#",
            "",
        )
    )


def _nccl_line(row: NcclRow) -> str:
    root = -1 if row.root is None else row.root
    rates = (nccl_number(value / 1e9, 6) for value in (row.real_algbw, row.real_busbw))
    measured = f"  {row.real_time_text:>7}  " + "  ".join(f"{rate:>6}" for rate in rates)
    measured += f"  {'N/A' if row.wrong is None else row.wrong:>6}"
    return f"{row.size_bytes:>12}  {row.elements:>12}  {row.datatype:>8}  {row.redop:>6}  {root:>6}" + 2 * measured


def collective_rows(point: PointResult) -> list[NcclRow]:
    """Return the rows of all complete runs of a point (of all, where none is), by kind, then size."""
    groups: dict[tuple[object, ...], list[CollectiveResult]] = {}
    for run in whole_runs(point):
        for item in run.collectives:
            groups.setdefault(_key(item), []).append(item)
    rows = [_row(point, group) for group in groups.values()]
    return sorted(rows, key=lambda row: (row.kind, row.algorithm, row.label, row.ranks, row.size_bytes))


def whole_runs(point: PointResult) -> Sequence[RunResult]:
    """Return the runs of a point that ended; all of them, where none did."""
    return [run for run in point.runs if run.complete] or point.runs


def _key(item: CollectiveResult) -> tuple[object, ...]:
    label = collective_label(item)
    return item.kind, item.algorithm, label, item.ranks, item.size_bytes, item.datatype, item.redop, item.root


def collective_label(item: CollectiveResult) -> str:
    """Return what tells it from others of its kind, without its turn's number: `group1` of `all_reduce[0].group1`."""
    return _TURN.sub("", item.label).removeprefix(item.kind).strip(".")


def _row(point: PointResult, group: list[CollectiveResult]) -> NcclRow:
    one = group[0]
    seconds = statistics.median(item.seconds for item in group)
    typical = min(group, key=lambda item: abs(item.seconds - seconds))
    stretch = typical.seconds / seconds if seconds > 0 else 1.0
    checked = [item.wrong for item in group if item.wrong is not None]
    ideals = [item.ideal_busbw_bps for item in group if item.ideal_busbw_bps is not None]
    return NcclRow(
        point=point.name,
        kind=one.kind,
        algorithm=one.algorithm,
        label=collective_label(one),
        ranks=one.ranks,
        size_bytes=one.size_bytes,
        elements=one.elements,
        datatype=_NCCL_TYPES.get(one.datatype, one.datatype),
        redop=one.redop,
        root=one.root,
        operations=len(group),
        seconds=seconds,
        slowest_s=max(item.seconds for item in group),
        algbw=typical.algbw_bps / 8 * stretch,
        busbw=typical.busbw_bps / 8 * stretch,
        ideal_busbw=ideals[0] / 8 if ideals else None,
        wrong=sum(checked) if checked else None,
        k=point.lab.k,
    )
