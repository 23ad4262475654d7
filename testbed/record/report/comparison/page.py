"""Comparisons as one HTML file, in the dress of a record's report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from testbed.record.report.chart import Drawing, Row, draw_rows, linear_axis, style_sheet
from testbed.record.report.comparison.compare import Change, Comparison, MetricChange
from testbed.record.report.comparison.present import format_change, format_p, ordered, outcome_word, remarks, sentence
from testbed.record.report.scenario.figures import format_value

MAX_PICTURES = 12
_MOST_ROWS = 24
_TONES = {Change.WORSE: "fail", Change.BETTER: "pass", Change.SAME: "same", Change.UNSURE: "invalid"}


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
