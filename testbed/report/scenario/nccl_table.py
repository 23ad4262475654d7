"""Collectives in the columns of nccl-tests, in lab time and as the real fabric would have them.

The columns are those of nccl-tests' src/common.cu: size (B), count (elements), type, redop, root, time (us), algbw and
busbw (GB/s, 10^9 bytes), #wrong. Several operations of one kind and size are one row with the median of their times;
the bandwidths follow from it.
"""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass

from testbed.results import CollectiveResult, PointResult

_TURN = re.compile(r"\[\d+\]")
_NCCL_TYPES = {"float32": "float", "float64": "double", "float16": "half"}
"""Where nccl-tests has another name (src/common.cu, test_typenames)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRow:
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
    def real_us(self) -> float:
        return self.seconds / self.k * 1e6 if self.k > 0 else 0.0

    @property
    def real_algbw(self) -> float:
        return self.algbw * self.k

    @property
    def real_busbw(self) -> float:
        return self.busbw * self.k


def collective_rows(point: PointResult) -> list[CollectiveRow]:
    """Return the rows of all complete runs of a point (of all, where none is), by kind, then size."""
    runs = [run for run in point.runs if run.complete] or point.runs
    groups: dict[tuple[object, ...], list[CollectiveResult]] = {}
    for run in runs:
        for item in run.collectives:
            groups.setdefault(_key(item), []).append(item)
    rows = [_row(point, group) for group in groups.values()]
    return sorted(rows, key=lambda row: (row.kind, row.algorithm, row.label, row.ranks, row.size_bytes))


def _key(item: CollectiveResult) -> tuple[object, ...]:
    return item.kind, item.algorithm, _label(item), item.ranks, item.size_bytes, item.datatype, item.redop, item.root


def _label(item: CollectiveResult) -> str:
    """Return what tells it from others of its kind, without its turn's number: `group1` of `all_reduce[0].group1`."""
    return _TURN.sub("", item.label).removeprefix(item.kind).strip(".")


def _row(point: PointResult, group: list[CollectiveResult]) -> CollectiveRow:
    one = group[0]
    seconds = statistics.median(item.seconds for item in group)
    typical = min(group, key=lambda item: abs(item.seconds - seconds))
    stretch = typical.seconds / seconds if seconds > 0 else 1.0
    checked = [item.wrong for item in group if item.wrong is not None]
    ideals = [item.ideal_busbw_bps for item in group if item.ideal_busbw_bps is not None]
    return CollectiveRow(
        point=point.name,
        kind=one.kind,
        algorithm=one.algorithm,
        label=_label(one),
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
