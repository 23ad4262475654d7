"""The verbs `report`, `compare` and `results`: what is done with records once they are written."""

from __future__ import annotations

from pathlib import Path

from testbed.cli.output import Format, console, emit_json, emit_rows
from testbed.errors import RecordError
from testbed.results import RECORD_FILE, Record, list_results, load_record, write_result

RESULTS = Path("results")
"""Where runs write below the current directory, unless told otherwise."""
_LISTED = ("directory", "scenario", "when", "verdict", "points", "runs", "took_s", "remark")


def report(path: Path, output: Path | None) -> None:
    """Write the report of a record anew, and the files for other programs, beside it or into `output`."""
    from testbed.report import write_report_files

    record = load_record(path)
    directory = output or (path if path.is_dir() else path.parent)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"cannot create {directory}: {error.strerror}") from error
    print(write_report_files(record, directory))


def list_(root: Path | None, form: Format) -> None:
    """One line for each results directory, newest first."""
    found = list_results(root or RESULTS)
    rows = [
        {
            "directory": str(item.directory),
            "scenario": item.scenario,
            "when": item.started[:19].replace("T", " "),
            "verdict": item.verdict,
            "points": item.points,
            "runs": item.runs,
            "took_s": None if item.wall_s is None else round(item.wall_s, 1),
            "remark": item.problem or (f"partial: {item.incomplete}" if item.incomplete else ""),
        }
        for item in found
    ]
    if not rows and form is Format.TABLE:
        console().print(f"no results in {root or RESULTS}", highlight=False)
        return
    emit_rows(rows, _LISTED, form)


def show(path: Path, form: Format) -> None:
    """A record as it was printed when it was measured; JSON is its summary, CSV every metric of every run."""
    from testbed.report import print_record
    from testbed.report.scenario.tables import metrics_csv, summary_json

    record = load_record(path)
    match form:
        case Format.TABLE:
            print_record(record, console())
            _say_where(path)
        case Format.JSON:
            emit_json(summary_json(record))
        case Format.CSV:
            print(metrics_csv(record), end="")


def compare(
    paths: list[Path],
    *,
    metrics: list[str],
    alpha: float,
    min_change: float,
    force: bool,
    html: Path | None,
    form: Format,
) -> int:
    """The first record against each of the others; the worst answer is the exit code."""
    from testbed.report.comparison import (
        COLUMNS,
        compare_records,
        comparison_json,
        comparison_rows,
        print_comparison,
        render_comparison,
    )

    if len(paths) < 2:
        raise RecordError("compare takes two records or more", hint="testbed compare BASE OTHER")
    if not 0 < alpha < 1 or not min_change >= 0:
        raise RecordError("--alpha is between 0 and 1, and --min-change not negative")
    records: list[tuple[str, Record]] = list(zip(_names(paths), (load_record(path) for path in paths), strict=True))
    base_name, base = records[0]
    comparisons = [
        compare_records(
            base, other, names=(base_name, name), metrics=metrics, alpha=alpha, min_change=min_change, force=force
        )
        for name, other in records[1:]
    ]
    match form:
        case Format.TABLE:
            for comparison in comparisons:
                print_comparison(comparison, console())
        case Format.JSON:
            emit_json([comparison_json(comparison) for comparison in comparisons])
        case Format.CSV:
            emit_rows([row for comparison in comparisons for row in comparison_rows(comparison)], COLUMNS, form)
    if html is not None:
        write_result(render_comparison(comparisons).encode(errors="replace"), html)
        if form is Format.TABLE:
            console().print(f"report {html}", highlight=False, soft_wrap=True)
    codes = {comparison.exit_code for comparison in comparisons}
    return next((code for code in (1, 2) if code in codes), 0)


def _names(paths: list[Path]) -> list[str]:
    """What the records are called: the directory's name, or as much of the path as tells them apart."""
    places = [path.parent if path.name == RECORD_FILE and not path.is_dir() else path for path in paths]
    short = [place.name or str(place) for place in places]
    return short if len(set(short)) == len(short) else [str(path) for path in paths]


def _say_where(path: Path) -> None:
    from testbed.results import REPORT_FILE

    page = (path if path.is_dir() else path.parent) / REPORT_FILE
    if page.is_file():
        console().print(f"report {page}", highlight=False, soft_wrap=True)
