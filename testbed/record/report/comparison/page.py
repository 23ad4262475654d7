"""Comparisons as one HTML file, in the dress of a record's report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from testbed.record.report.chart import Drawing, Row, draw_rows, linear_axis, style_sheet
from testbed.record.report.comparison.compare import Comparison, MetricChange, Shift
from testbed.record.report.scenario.figures import MISSING, format_value

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


MAX_PICTURES = 12
_MOST_ROWS = 24
_TONES = {Shift.WORSE: "fail", Shift.BETTER: "pass", Shift.SAME: "same", Shift.UNSURE: "invalid"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    title: str
    drawing: Drawing


def render_comparison(comparisons: Sequence[Comparison]) -> str:
    """The page of one record against others."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    here, dress = files(__package__), files("testbed.record.report.scenario")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["svg"] = Markup
    template = environment.from_string((here / "page.html.j2").read_text(encoding="utf-8"))
    return template.render(
        css=Markup(style_sheet() + (dress / "page.css").read_text(encoding="utf-8")),
        comparisons=comparisons,
        tones=_TONES,
        ordered=ordered,
        pictures=_pictures,
        remarks=remarks,
        sentence=sentence,
        change=format_change,
        probability=format_p,
        outcome=outcome_word,
        value=format_value,
    )


def _pictures(comparison: Comparison) -> list[Picture]:
    """Both sides' runs of each judged metric."""
    by_metric: dict[str, list[MetricChange]] = {}
    for change in ordered(comparison.changes):
        if change.judged:
            by_metric.setdefault(change.metric, []).append(change)
    return [_picture(comparison, changes) for changes in list(by_metric.values())[:MAX_PICTURES]]


def _picture(comparison: Comparison, changes: Sequence[MetricChange]) -> Picture:
    first = changes[0]
    rows = []
    for change in changes[: _MOST_ROWS // 2]:
        sides = (
            (comparison.base, change.base, change.base_median),
            (comparison.other, change.other, change.other_median),
        )
        for series, (name, values, median) in enumerate(sides):
            rows.append(
                Row(
                    label=f"{change.point}: {name}" if change.point else name,
                    value=median,
                    written=format_value(median, change.unit),
                    dots=values,
                    series=series,
                    remark=", ".join(format_value(value, change.unit) for value in values),
                )
            )
    axis = linear_axis("", first.unit, [value for change in changes for value in (*change.base, *change.other)])
    described = f"{first.title}: runs of {comparison.base} and {comparison.other}"
    return Picture(title=first.title, drawing=draw_rows(rows, axis, described=described))


MAX_ROWS = 40
COLUMNS = (
    "base", "other", "point", "metric", "unit", "base_median", "other_median", "change", "p", "adjusted_p", "judged",
    "outcome", "base_runs", "other_runs",
)  # fmt: skip
_STYLES = {
    Shift.WORSE: "bold red",
    Shift.BETTER: "bold green",
    Shift.DIFFERENT: "bold cyan",
    Shift.UNSURE: "yellow",
    Shift.SAME: "",
}
_ORDER = (Shift.WORSE, Shift.BETTER, Shift.UNSURE, Shift.DIFFERENT, Shift.SAME)


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print what was judged first, the worst on top; what was not only where it differs."""
    from rich import box
    from rich.table import Table

    table = Table(
        title=_plain(f"{comparison.base} → {comparison.other}"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    several = any(change.point for change in comparison.changes)
    names = ["Point"] if several else []
    for index, name in enumerate((*names, "Metric", "base", "other", "change", "p (Holm)", "outcome")):
        table.add_column(name, justify="right" if len(names) < index < len(names) + 5 else "left")
    rows = [change for change in ordered(comparison.changes) if change.judged or change.change is not Shift.SAME]
    for change in rows[:MAX_ROWS]:
        head = [_plain(change.point)] if several else []
        table.add_row(
            *head,
            _plain(change.title),
            _plain(format_value(change.base_median, change.unit)),
            _plain(format_value(change.other_median, change.unit)),
            _plain(format_change(change)),
            format_p(change),
            _plain(outcome_word(change), _STYLES[change.change] if change.judged else "dim"),
            style="" if change.judged else "dim",
        )
    if len(rows) > MAX_ROWS:
        table.add_row(f"and {len(rows) - MAX_ROWS} more", style="dim")
    console.print(table)
    same = len(comparison.changes) - len(rows)
    if same:
        console.print(_plain(f"{same} others that are not judged and do not differ", "dim"))
    for line in remarks(comparison):
        console.print(_plain(line, "yellow"), soft_wrap=True)
    console.print(_plain(sentence(comparison), _STYLES[comparison.verdict]), soft_wrap=True)


def ordered(changes: Sequence[MetricChange]) -> list[MetricChange]:
    return sorted(changes, key=lambda change: (not change.judged, _ORDER.index(change.change)))


def remarks(comparison: Comparison) -> list[str]:
    """Return what a reader has to know beside the numbers."""
    lines = [
        f"{'they measured different things,' if key in comparison.incomparable else 'compared:'} {key}: {a!r} and {b!r}"
        for key, (a, b) in comparison.differing.items()
    ]
    if comparison.only_base:
        lines.append(f"only in {comparison.base}: {', '.join(comparison.only_base)}")
    if comparison.only_other:
        lines.append(f"only in {comparison.other}: {', '.join(comparison.only_other)}")
    return [*lines, *comparison.notes]


def sentence(comparison: Comparison) -> str:
    """The whole in a line."""
    judged = [change for change in comparison.changes if change.judged]
    counts = {kind: sum(change.change is kind for change in judged) for kind in Shift}
    match comparison.verdict:
        case Shift.WORSE:
            return f"WORSE: {counts[Shift.WORSE]} of {len(judged)} judged metrics are significantly worse"
        case Shift.UNSURE:
            return (
                f"CANNOT SAY: {counts[Shift.UNSURE]} of {len(judged)} judged metrics differ, with too few runs to tell"
            )
        case Shift.BETTER:
            return f"BETTER: {counts[Shift.BETTER]} of {len(judged)} judged metrics are better, none is worse"
    return f"SAME: none of {len(judged)} judged metrics differs significantly"


def outcome_word(change: MetricChange) -> str:
    return change.change.value if change.judged else f"({change.change.value})"


def format_change(change: MetricChange) -> str:
    """`+4.2%`; for shares in points, because a percentage of a percentage misleads."""
    a, b = change.base_median, change.other_median
    if a is None or b is None:
        return MISSING
    if change.unit == "share":
        return f"{(b - a) * 100:+.1f} points"
    if change.relative is None or abs(change.relative) > 99:
        return f"{'+' if b >= a else '-'}{format_value(abs(b - a), change.unit)}"
    return f"{change.relative:+.1%}"


def format_p(change: MetricChange) -> str:
    if change.adjusted_p is None:
        return f"({change.p:.3f})"
    return f"{change.adjusted_p:.3f}" if change.adjusted_p >= 0.001 else "< 0.001"


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    return {
        "base": comparison.base,
        "other": comparison.other,
        "verdict": comparison.verdict.value,
        "differing": {key: list(pair) for key, pair in comparison.differing.items()},
        "incomparable": list(comparison.incomparable),
        "only_base": list(comparison.only_base),
        "only_other": list(comparison.only_other),
        "notes": list(comparison.notes),
        "changes": [
            {**row, "base_values": list(change.base), "other_values": list(change.other)}
            for row, change in zip(comparison_rows(comparison), comparison.changes, strict=True)
        ],
    }


def comparison_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """A row for each metric of each point, in `COLUMNS`; `change` is relative."""
    return [
        {
            "base": comparison.base,
            "other": comparison.other,
            "point": change.point,
            "metric": change.metric,
            "unit": change.unit,
            "base_median": change.base_median,
            "other_median": change.other_median,
            "change": change.relative,
            "p": change.p,
            "adjusted_p": change.adjusted_p,
            "judged": change.judged,
            "outcome": change.change.value,
            "base_runs": len(change.base),
            "other_runs": len(change.other),
        }
        for change in comparison.changes
    ]


def _plain(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text("".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text), style=style)
