"""The verb `compare`."""

import sys
from collections.abc import Sequence
from pathlib import Path

from testbed.base.errors import ExitCode, RecordError
from testbed.cli import options
from testbed.cli.command import PATH, argument, command, option


@command(
    "compare",
    codes={
        0: "the same or better",
        1: "significantly worse",
        2: "too few runs to tell, or records that are not comparable",
    },
)
@argument(
    "records",
    nargs=-1,
    required=True,
    metavar="BASE OTHER...",
    type=PATH,
    help="Records: others are compared with the first.",
)
@option("--metric", multiple=True, help="Judge this one (or all); default: what is expected of.")
@option("--alpha", type=float, default=0.05, help="Probability of seeing a difference where none is.")
@option("--min-change", type=float, default=0.01, help="Relative change that is worth a word.")
@option("--force", is_flag=True, help="Compare what is not comparable, or invalid.")
@option("--html", type=PATH, help="Write a page, too.")
@options.format_option
def compare(
    records: tuple[Path, ...],
    metric: tuple[str, ...],
    alpha: float,
    min_change: float,
    force: bool,
    html: Path | None,
    format: options.Format,
) -> None:
    """Compare records metric by metric."""
    from testbed.cli.output import console, emit_json, print_csv
    from testbed.record.report.comparison import (
        COLUMNS,
        compare_records,
        comparison_json,
        comparison_rows,
        print_comparison,
        render_comparison,
    )
    from testbed.record.store import load_record, write_result

    if len(records) < 2:
        raise RecordError("compare takes two records or more", hint="testbed compare BASE OTHER")
    if not 0 < alpha < 1 or not min_change >= 0:
        raise RecordError("--alpha is between 0 and 1, and --min-change not negative")
    contents = [load_record(path) for path in records]
    (base_name, base), *others = zip(_names(records), contents, strict=True)
    comparisons = [
        compare_records(
            base,
            other,
            names=(base_name, name),
            metrics=metric,
            alpha=alpha,
            min_change=min_change,
            force=force,
        )
        for name, other in others
    ]
    match format:
        case options.Format.TABLE:
            for comparison in comparisons:
                print_comparison(comparison, console())
        case options.Format.JSON:
            emit_json([comparison_json(comparison) for comparison in comparisons])
        case options.Format.CSV:
            rows = [row for comparison in comparisons for row in comparison_rows(comparison)]
            print_csv(COLUMNS, [[row[name] for name in COLUMNS] for row in rows])
    if html is not None:
        write_result(render_comparison(comparisons).encode(errors="replace"), html)
        if format is options.Format.TABLE:
            console().print(f"report {html}", highlight=False, soft_wrap=True)
    codes = {comparison.exit_code for comparison in comparisons}
    sys.exit(next((code for code in (ExitCode.FAIL, ExitCode.INVALID) if code in codes), ExitCode.PASS))


def _names(paths: Sequence[Path]) -> list[str]:
    """Name the records: by the directory's name, or as much of the path as tells them apart."""
    from testbed.record.store import RECORD_FILE

    places = [path.parent if path.name == RECORD_FILE and not path.is_dir() else path for path in paths]
    short = [place.name or str(place) for place in places]
    return short if len(set(short)) == len(short) else [str(path) for path in paths]
