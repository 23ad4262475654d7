"""The verbs `results list`, `show`, `merge`, `steady` and `backends`: what was measured, once it is written."""

import sys
from dataclasses import dataclass
from pathlib import Path

from testbed.base.rows import row_json
from testbed.cli import options
from testbed.cli.command import PATH, Group, argument, option


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedRow:
    """A record that was put together, for programs."""

    directory: str
    verdict: str
    points: int


results = Group("results", help="Look at what was measured.")


@results.command("list")
@argument("root", required=False, metavar="[DIR]", type=PATH, help="Default: results/.")
@options.format_option
def list_results(root: Path | None, format: options.Format) -> None:
    """One line for each run there is, newest first."""
    from testbed.cli.output import console, emit
    from testbed.record.listing import Listed
    from testbed.record.listing import list_results as listed
    from testbed.record.store import RESULTS_DIRECTORY

    rows = listed(root or RESULTS_DIRECTORY) if root or RESULTS_DIRECTORY.exists() else []  # nothing was measured yet
    if not rows and format is options.Format.TABLE:
        console().print(f"no results in {root or RESULTS_DIRECTORY}", highlight=False)
        return
    emit(rows, Listed, format)


@results.command("show")
@options.record
@options.record_format_option
def show(record: Path, format: options.RecordFormat) -> None:
    """Print a record as it was printed when it was measured."""
    from testbed.cli.output import console, emit_json
    from testbed.record.report import print_record
    from testbed.record.report.scenario.tables import metrics_csv, summary_json
    from testbed.record.store import REPORT_FILE, load_record

    content = load_record(record)
    match format:
        case options.RecordFormat.TABLE:
            print_record(content, console())
            page = (record if record.is_dir() else record.parent) / REPORT_FILE
            if page.is_file():
                console().print(f"report {page}", highlight=False, soft_wrap=True)
        case options.RecordFormat.JSON:
            emit_json(summary_json(content))
        case options.RecordFormat.CSV:
            print(metrics_csv(content), end="")
        case options.RecordFormat.CALABRIA:
            from testbed.record.report.benchmark import results_sheet

            print(results_sheet(content), end="")


@results.command("merge", codes=options.verdicts)
@argument(
    "records", nargs=-1, required=True, metavar="DIR...", type=PATH, help="Of `run --point`, or what they lie in."
)
@option("-o", "--results", "target", metavar="WHOLE", type=PATH, required=True, help="A new directory, for the record.")
@option("--report/--no-report", default=True, help="Write the HTML page and its files.")
@options.format_option
def merge(records: tuple[Path, ...], target: Path, report: bool, format: options.Format) -> None:
    """Put the records of single points together, and judge the whole."""
    from testbed.api.merging import merge_records
    from testbed.base.errors import RecordError
    from testbed.cli.output import console, emit
    from testbed.record.report import print_record, write_report_files
    from testbed.record.store import RECORD_FILE, keep_record, load_record

    if (target / RECORD_FILE).exists():
        raise RecordError(f"{target} has a record already", hint="name a directory that is not there yet")
    if target.resolve() in {path.resolve() for path in records}:
        raise RecordError(f"{target} has what is to be merged", hint="name a directory beside it")
    parts = _below(records)
    merged = merge_records({str(path): load_record(path) for path in parts})
    try:
        target.mkdir(parents=True, exist_ok=True)
        _copy_beside(parts, target)
    except OSError as error:  # that of several files has no word of the system's
        raise RecordError(f"cannot write {target}: {error.strerror or error}") from error
    keep_record(target / RECORD_FILE, [point.name for point in merged.points]).write(merged)
    page = write_report_files(merged, target) if report else None
    if format is options.Format.TABLE:
        print_record(merged, console())
        for word, path in (("record", target / RECORD_FILE), ("report", page)):
            if path is not None:
                console().print(f"{word} {path}", highlight=False, soft_wrap=True)
    else:
        row = MergedRow(directory=str(target), verdict=merged.verdict.outcome.value, points=len(merged.points))
        emit([row], MergedRow, format, document=row_json(row))
    sys.exit(merged.verdict.outcome.exit_code)


def _below(paths: tuple[Path, ...]) -> list[Path]:
    """Return the directories that have a record: these, or those right below them. Raises `RecordError`."""
    from testbed.base.errors import RecordError
    from testbed.record.store import RECORD_FILE

    found: list[Path] = []
    for path in paths:
        if path.is_file() or (path / RECORD_FILE).is_file():
            found.append(path.parent if path.is_file() else path)
            continue
        below = sorted(one.parent for one in path.glob(f"*/{RECORD_FILE}"))
        if not below:
            raise RecordError(f"there is no record in {path}", hint="name the directories that run --point has made")
        found += below
    return list(dict.fromkeys(found))


def _copy_beside(parts: list[Path], target: Path) -> None:
    """Copy what lies beside the records, by which runs are played back: labs, and samples of ports."""
    import shutil

    from testbed.record.port_samples import DIRECTORY
    from testbed.run.sweep.beside_record import LABS

    for part in parts:
        for name in (LABS, DIRECTORY):
            if (part / name).is_dir():
                shutil.copytree(part / name, target / name, symlinks=True, dirs_exist_ok=True)


@results.command("steady")
@argument("directories", nargs=-1, metavar="[DIR...]", type=PATH, help="Of `run --steady`; default: results/.")
@option("--page", metavar="PAGE.md", type=PATH, help="Put the table into a page, between its marks.")
@options.format_option
def steady(directories: tuple[Path, ...], page: Path | None, format: options.Format) -> None:
    """Show where the figures of scenarios lie in their bands, over the runs of `run --steady`."""
    from testbed.cli.scenarios.steady import show_steadiness, write_page
    from testbed.record.report.steadiness.page import steadiness_markdown
    from testbed.record.report.steadiness.rows import steady_rows
    from testbed.record.steady import find_steadiness
    from testbed.record.store import RESULTS_DIRECTORY

    found = find_steadiness(list(directories) or [RESULTS_DIRECTORY])
    show_steadiness(found, format)
    if page is not None:
        write_page(page, steadiness_markdown(found, steady_rows(found)), "steady")


@results.command("backends")
@argument("paths", nargs=-1, metavar="[RECORD|DIR...]", type=PATH, help="Or what they lie below; default: results/.")
@option("--metric", "metrics", multiple=True, metavar="METRIC", help="Compare this one; may be repeated.")
@option("--expected", is_flag=True, help="Compare what each scenario expects something of.")
@option("--page", metavar="PAGE.md", type=PATH, help="Put the ratios into a page, between its marks.")
@options.format_option
def backends(
    paths: tuple[Path, ...], metrics: tuple[str, ...], expected: bool, page: Path | None, format: options.Format
) -> None:
    """Show what was simulated beside what was emulated, for each metric of each point that both have."""
    from testbed.base.errors import RecordError
    from testbed.cli.output import console, emit
    from testbed.cli.scenarios.steady import write_page
    from testbed.record.catalogue import require_metric
    from testbed.record.report.comparison.backends import (
        METRICS,
        WITHIN,
        BackendRow,
        agreement,
        backend_rows,
        backends_markdown,
        records_below,
    )
    from testbed.record.report.comparison.expected import ExpectedRow, expected_markdown, expected_rows
    from testbed.record.store import RESULTS_DIRECTORY

    if expected and metrics:
        raise RecordError("--expected compares what scenarios expect, and --metric what it names", hint="leave one out")
    found = records_below(list(paths) or [RESULTS_DIRECTORY])
    if expected:
        judged = expected_rows(found)
        emit(judged, ExpectedRow, format)
        if page is not None:
            write_page(page, expected_markdown(judged), "expected")
        return
    for metric in metrics:
        require_metric(metric)
    rows = backend_rows(found, metrics or METRICS)
    emit(rows, BackendRow, format)
    if format is options.Format.TABLE:
        for one in agreement(rows):
            counts = ", ".join(f"{count} within {limit:.0%}" for count, limit in zip(one.within, WITHIN, strict=True))
            console().print(f"{one.metric}: of {one.points} points {counts}", highlight=False, soft_wrap=True)
    if page is not None:
        write_page(page, backends_markdown(rows), "backends")
