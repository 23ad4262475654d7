"""The verb `compare`."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.base.errors import ExitCode, RecordError
from testbed.cli import options
from testbed.cli.command import PATH, argument, command, option

if TYPE_CHECKING:
    from testbed.record.record import PointResult, Record, Verdict

Named = tuple[str, "Record"]


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
    metavar="BASE [OTHER...]",
    type=PATH,
    help="Records: others are compared with the first; one alone: its points.",
)
@option(
    "--point",
    multiple=True,
    metavar="KEY=VALUE",
    help="Compare the points with this value: several of one record, or one of each record.",
)
@option("--metric", multiple=True, help="Judge this one (or all); default: what is expected of.")
@option("--alpha", type=float, default=0.05, help="Probability of seeing a difference where none is.")
@option("--min-change", type=float, default=0.01, help="Relative change that is worth a word.")
@option("--force", is_flag=True, help="Compare records that are invalid, too.")
@option("--strict", is_flag=True, help="Refuse records of different workloads or clocks.")
@option("--html", type=PATH, help="Write a page, too.")
@options.format_option
def compare(
    records: tuple[Path, ...],
    point: tuple[str, ...],
    metric: tuple[str, ...],
    alpha: float,
    min_change: float,
    force: bool,
    strict: bool,
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
        refuse_different_things,
        render_comparison,
    )
    from testbed.record.store import load_record, write_result

    if not 0 < alpha < 1 or not min_change >= 0:
        raise RecordError("--alpha is between 0 and 1, and --min-change not negative")
    contents = [load_record(path) for path in records]
    (base_name, base), *others = _sides(list(zip(_names(records), contents, strict=True)), point)
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
    for comparison in comparisons if strict else ():
        refuse_different_things(comparison)
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


# --- which points ------------------------------------------------------------------------------------


def _sides(records: list[Named], wanted: Sequence[str]) -> list[Named]:
    """Return what is compared, the base first: records, points of one, or one point of each.

    Raises `RecordError` where that is not at least two.
    """
    if len(records) == 1:
        [(_, record)] = records
        if not wanted and len(record.points) == 2:
            wanted = [point.name for point in record.points]
        if len(wanted) < 2:
            raise RecordError(
                "compare takes two records, or two points of one",
                hint=f"its points: {_listed(record)}. For example: --point {_example(record)}",
            )
        return [_of_point(record, text, text) for text in wanted]
    if not wanted:
        return records
    if len(wanted) not in (1, len(records)):
        raise RecordError(
            f"--point is given {len(wanted)} times for {len(records)} records",
            hint="say it once for all of them, or once for each",
        )
    texts = list(wanted) * len(records) if len(wanted) == 1 else wanted
    return [
        _of_point(record, text, f"{name} {text}" if len(wanted) > 1 else name)
        for (name, record), text in zip(records, texts, strict=True)
    ]


def _of_point(record: "Record", text: str, name: str) -> Named:
    """A record with the points of some values alone, which are called by the rest of their values."""
    from testbed.cli.lab_choice import parse_settings
    from testbed.run.schema.model import is_point_of, names_key
    from testbed.run.schema.point_names import short_keys

    exact = next((point.values for point in record.points if point.name == text), None)
    wanted: Mapping[str, object] = parse_settings(text.split()) if exact is None else exact
    labels = short_keys(dict.fromkeys(key for point in record.points for key in point.values))
    chosen: dict[str, PointResult] = {}
    for point in record.points:
        if is_point_of(point.values, wanted):
            words = _words(point, labels)
            rest = [word for key, word in words.items() if not any(names_key(one, key) for one in wanted)]
            chosen[point.name] = replace(point, name=" ".join(rest))
    if not chosen:
        raise RecordError(f"no point has {text}", hint=f"there are: {_listed(record)}")
    expectations = [
        replace(item, point=chosen[item.point].name) for item in record.expectations if item.point in chosen
    ]
    differing = {"point": {labels.get(key, key): value for key, value in wanted.items()}}
    cut = replace(
        record,
        points=list(chosen.values()),
        expectations=expectations,
        comparability=record.comparability and record.comparability | differing,
    )
    return name, replace(cut, verdict=_verdict_of(cut))


def _words(point: "PointResult", labels: Mapping[str, str]) -> dict[str, str]:
    """The words of a point's name by the keys that they give a value to: `mode=spray`, as the scenario writes it."""
    begins = [point.name.find(f"{labels[key]}=") for key in point.values]
    ends = [*begins[1:], len(point.name)]
    return {key: point.name[begin:end].strip() for key, begin, end in zip(point.values, begins, ends, strict=True)}


def _verdict_of(record: "Record") -> "Verdict":
    """The verdict as far as it is one on the points that are left: other points may be those that are invalid."""
    from testbed.record.record import Outcome, Verdict

    doubts = [check.message for point in record.points for run in point.runs for check in run.checks if not check.ok]
    missing = [
        f"{item.metric} could not be measured"
        for item in record.expectations
        if item.outcome is Outcome.INVALID and not item.left_out
    ]
    if record.verdict.outcome is Outcome.INVALID and not (doubts or missing or record.incomplete):
        return Verdict(outcome=Outcome.PASS, reasons=[])
    return Verdict(outcome=record.verdict.outcome, reasons=[*doubts, *missing] or record.verdict.reasons)


def _listed(record: "Record") -> str:
    return "; ".join(point.name or "(one)" for point in record.points) or "none"


def _example(record: "Record") -> str:
    names = [point.name for point in record.points][:2] or ["mode=flow", "mode=spray"]
    return " --point ".join(f"'{name}'" for name in names)
