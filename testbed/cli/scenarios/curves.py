"""The curves of a record for `export`: listed, or written as one table for other programs."""

from pathlib import Path

from testbed.base.errors import RecordError
from testbed.cli import options


def export_curves(record: Path, series: str | None, output: Path | None, form: options.Format) -> None:
    """Write the series of these names, or all, into a file of CSV or Parquet, or say which there are.

    Raises `RecordError` where none of them is there, and where names are given and no file.
    """
    from testbed.cli.output import emit, warn
    from testbed.record.report.scenario.series import SeriesRow, series_rows, write_series
    from testbed.record.store import load_record

    wanted = [name.strip() for name in (series or "").split(",") if name.strip()]
    if wanted and output is None:
        raise RecordError("--series says what of a record is written, and -o is missing", hint="-o x.csv or x.parquet")
    content = load_record(record)
    if output is None:
        emit(series_rows(content), SeriesRow, form)
        return
    written = write_series(content, wanted, output)
    there = {row.series for row in written}
    missing = [name for name in wanted if name not in there]
    if missing:
        warn(f"this record has no curves of {', '.join(missing)}: `testbed export {record}` lists what it has")
    emit(written, SeriesRow, form, title=str(output))
