"""The curves of a record as one long table, for other programs: a row for each sample of each curve.

Times are those of the lab, from the begin of the run's workload; divided by the column `k` they are the real fabric's.
Cells that a spreadsheet would take for a formula get an apostrophe: a record may come from a stranger.
"""

from __future__ import annotations

import contextlib
import csv
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.base.errors import RecordError
from testbed.base.installation.extras import extra_missing
from testbed.base.names import known_names_hint
from testbed.base.rows import column
from testbed.record.record import PointResult, Record, RunResult
from testbed.record.report.scenario.figures import every_run
from testbed.record.report.scenario.senders import end_name, senders_of
from testbed.record.report.scenario.tables import safe_cell
from testbed.record.samples import Channel

SUFFIXES = (".csv", ".parquet")
_UNITS = {"bps": "bit/s", "bytes": "byte", "ns": "ns", "us": "us", "s": "s"}
"""By the last word of what a controller calls a quantity."""
_ROWS_AT_ONCE = 200_000
"""The rows of a group of a Parquet file, about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedCurve:
    """One curve of one run: `values` of `series` at `at_s`, of a queue, a channel or the like.

    `least` and `most` are the ends of what was sampled in the interval of each value, where a record has them.
    """

    point: PointResult
    run: RunResult
    series: str
    of: str
    unit: str
    at_s: Sequence[float]
    values: Sequence[float | None]
    least: Sequence[float] = ()
    most: Sequence[float] = ()


@dataclass(slots=True, kw_only=True)
class SeriesRow:
    """A series of a record: of how many queues, channels or the like it has a curve, and how many samples in all."""

    series: str
    unit: str
    curves: int
    samples: int
    of: str = column("for example")
    """The name of the first curve."""


def curves_of(record: Record, wanted: Collection[str] = ()) -> Iterator[ExportedCurve]:
    """Yield the curves of a record with these names, or all."""
    for point, run in every_run(record):
        for curve in _curves(point, run):
            if curve.at_s and (not wanted or curve.series in wanted):
                yield curve


def series_rows(record: Record) -> list[SeriesRow]:
    """Return the series that a record has, in the order in which they are written."""
    rows: dict[str, SeriesRow] = {}
    for curve in curves_of(record):
        none = SeriesRow(series=curve.series, unit=curve.unit, curves=0, samples=0, of=curve.of)
        row = rows.setdefault(curve.series, none)
        row.curves += 1
        row.samples += len(curve.at_s)
    return list(rows.values())


def write_series(record: Record, wanted: Sequence[str], path: Path) -> list[SeriesRow]:
    """Write the series of these names, or all, as CSV or Parquet, as the file's name ends; return what was written.

    Raises `RecordError` where the record has none of them, for another ending, and where the disk does not take it, and
    `CapabilityError` for Parquet without PyArrow.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise RecordError(f"cannot write {path}: no table ends in {suffix or 'nothing'}", hint="x.csv or x.parquet")
    known = series_rows(record)
    names = [row.series for row in known]
    written = [row for row in known if not wanted or row.series in wanted]
    if not written:
        asked = next(iter(wanted), "")
        hint = known_names_hint(asked, names) if names else "runs with a `duration` sample no channels"
        raise RecordError(f"this record has no curves of {', '.join(wanted) or 'anything'}", hint=hint)
    write = _write_csv if suffix == ".csv" else _write_parquet
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        write(record, [row.series for row in written], temporary)
        temporary.replace(path)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return written


# --- the curves --------------------------------------------------------------------------------------


def _curves(point: PointResult, run: RunResult) -> Iterator[ExportedCurve]:
    for item in run.series:
        kind, _, of = item.name.partition(":")
        yield ExportedCurve(
            point=point, run=run, series=kind, of=of, unit=item.unit, at_s=item.at_s, values=item.values,
            least=item.least, most=item.most,
        )  # fmt: skip
    for channel, sender in zip(run.channels, senders_of(run), strict=True):
        of = f"{end_name(channel.source, channel.source_rank)} → "
        of += end_name(channel.destination, channel.destination_rank)
        at_s, rates = [at for at, _ in sender.rate], [rate for _, rate in sender.rate]
        yield ExportedCurve(point=point, run=run, series="goodput", of=of, unit="bit/s", at_s=at_s, values=rates)
        for series, unit, values in _of_channel(channel):
            if any(value is not None for value in values):
                yield ExportedCurve(
                    point=point, run=run, series=series, of=of, unit=unit, at_s=channel.samples.at_s, values=values
                )


def _of_channel(channel: Channel) -> Iterator[tuple[str, str, Sequence[float | None]]]:
    """(series, unit, values) at the times of a channel's samples."""
    samples = channel.samples
    yield "cwnd", "byte", samples.cwnd_bytes
    yield "rate", "bit/s", samples.rate_bps
    yield "rtt", "s", [value / 1e6 if value > 0 else None for value in samples.rtt_us]
    yield "acked", "byte", samples.acked_bytes
    yield "retransmits", "count", samples.retransmits
    for name, values in samples.control.items():
        yield name, _UNITS.get(name.rpartition("_")[2], ""), values


# --- the table ---------------------------------------------------------------------------------------

_BEFORE = ("run", "seed", "k", "series", "of", "unit")
_NUMBERS = ("time_s", "value", "least", "most")


def _keys(record: Record) -> list[str]:
    """The keys of the matrix, which are columns of their own."""
    return list(dict.fromkeys(key for point in record.points for key in point.values))


def _said(curve: ExportedCurve, keys: Sequence[str]) -> list[Any]:
    """Return what is the same in all rows of a curve."""
    values = [curve.point.values.get(key) for key in keys]
    return [
        curve.point.name, *values, curve.run.index, curve.run.seed, curve.point.lab.k, curve.series, curve.of,
        curve.unit,
    ]  # fmt: skip


def _columns(curve: ExportedCurve) -> tuple[Sequence[float | None], ...]:
    """The numbers of a curve, a column each, all as long as its times."""
    count = len(curve.at_s)
    columns = (curve.at_s, curve.values, curve.least, curve.most)
    return tuple([*column[:count], *[None] * (count - len(column))] for column in columns)


def _write_csv(record: Record, names: Sequence[str], path: Path) -> None:
    keys = _keys(record)
    with path.open("w", encoding="utf-8", errors="replace", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(map(safe_cell, ("point", *keys, *_BEFORE, *_NUMBERS)))
        for curve in curves_of(record, names):
            said = list(map(safe_cell, _said(curve, keys)))
            writer.writerows([*said, *numbers] for numbers in zip(*_columns(curve), strict=True))


def _write_parquet(record: Record, names: Sequence[str], path: Path) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise extra_missing("data", "a table as Parquet", error) from error
    keys = _keys(record)
    words = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    types = dict.fromkeys(("point", *keys, "series", "of", "unit"), words)
    types |= {name: pyarrow.float64() for name in (*_numeric(record, keys), "k", *_NUMBERS)}
    types |= {"run": pyarrow.int64(), "seed": pyarrow.int64()}
    before = ("point", *keys, *_BEFORE)
    schema = pyarrow.schema([(name, types[name]) for name in (*before, *_NUMBERS)])
    with parquet.ParquetWriter(path, schema) as writer:
        batch: dict[str, list[Any]] = {name: [] for name in schema.names}
        for curve in curves_of(record, names):
            for name, value in zip(before, _said(curve, keys), strict=True):
                batch[name] += [_word(value) if types[name] == words else value] * len(curve.at_s)
            for name, numbers in zip(_NUMBERS, _columns(curve), strict=True):
                batch[name] += numbers
            if len(batch["run"]) >= _ROWS_AT_ONCE:
                writer.write_table(pyarrow.table(batch, schema=schema))
                batch = {name: [] for name in schema.names}
        writer.write_table(pyarrow.table(batch, schema=schema))


def _numeric(record: Record, keys: Sequence[str]) -> list[str]:
    """The keys of the matrix whose values are numbers at all points."""
    return [
        key
        for key in keys
        if all(
            isinstance(value := point.values.get(key), int | float) and not isinstance(value, bool)
            for point in record.points
        )
    ]


def _word(value: Any) -> str | None:
    """A value as text; halves of surrogate pairs, which no encoding can write, become question marks."""
    return None if value is None else str(value).encode(errors="replace").decode()
