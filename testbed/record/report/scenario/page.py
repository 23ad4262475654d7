"""A record as one HTML file that needs nothing else (no script, no network, plots inline), and its files beside.

A record may come from a stranger: everything in it is escaped, nothing in it is a link or a path.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from testbed.record.record import Check, MetricSummary, Outcome, PointResult, Record, RunResult
from testbed.record.report.chart import style_sheet
from testbed.record.report.scenario.configuration import command_line, facts, machine, scale_rows
from testbed.record.report.scenario.counters import BalanceLine, reconcile
from testbed.record.report.scenario.figures import (
    MISSING,
    TenantFigures,
    every_run,
    fates_of,
    foremost_metrics,
    format_band,
    format_bytes,
    format_measured,
    format_prediction,
    format_rate,
    format_ratio,
    format_spread,
    format_time,
    format_value,
    point_label,
    predictions_of,
    tenant_figures,
    title_of,
    trust_rows,
    typical_run,
    unit_of,
)
from testbed.record.report.scenario.labs import describe_lab, labs_of, named_labs
from testbed.record.report.scenario.latencies import latency_rows
from testbed.record.report.scenario.nccl_inspector import (
    INSPECTOR_FILE,
    PROMETHEUS_FILE,
    inspector_json,
    inspector_prometheus,
)
from testbed.record.report.scenario.nccl_table import NCCL_FILE, collective_rows, nccl_tests_text
from testbed.record.report.scenario.networks import (
    COLUMNS,
    SCALE_UP_COLUMNS,
    TENANT_COLUMNS,
    Cell,
    NetworkLine,
    latency_notes,
    network_rows,
    scale_up_rows,
    tenant_rows,
)
from testbed.record.report.scenario.plots import Plot, draw_overview, draw_run
from testbed.record.report.scenario.programs import ProgramView, program_view, status_text
from testbed.record.report.scenario.senders import ReportedSender, senders_of
from testbed.record.report.scenario.tables import (
    CHANNELS_FILE,
    JUNIT_FILE,
    METRICS_FILE,
    REQUESTS_FILE,
    SUMMARY_FILE,
    TRANSFERS_FILE,
    channels_csv,
    encode_summary,
    has_requests,
    junit_xml,
    metrics_csv,
    requests_csv,
    transfers_csv,
)
from testbed.record.store import RECORD_FILE, REPORT_FILE, write_result

MAX_FLOWS = 256
"""Rows of a flow table, slowest first; the record has them all."""
MAX_FLOW_ROWS = 1024
"""Rows of all flow tables; where there would be more, each point has that of its typical run alone, and shorter."""
MAX_CHECK_ROWS = 1000
"""Rows of the table of all checks of all runs."""
MAX_COLUMNS = 6
"""Metrics side by side in the table of points."""
MAX_ROWS = 200
"""Points, expectations, collectives and events in their tables."""
PLOT_BUDGET = 900_000
"""Bytes of drawings; points whose pictures do not fit any more have none, and the page says so."""
MAX_EMBEDDED = 200_000
"""Bytes of metrics.csv that are in the page itself."""
MOST_ON_ONE_LINE = 18
"""Characters of a cell that are never broken into lines, such as a point's name."""
_BREAKS = re.compile(r"([.=_:/\]](?=\w))")
"""Places in a name at which a line may end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    value: str
    title: str
    remark: str
    tone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointView:
    """One point as the page shows it."""

    point: PointResult
    label: str
    run: RunResult | None
    """The run that is shown: the typical one."""
    headline: Sequence[MetricSummary]
    plots: Sequence[Plot]
    cut: bool
    """Its pictures did not fit."""
    balances: Sequence[BalanceLine]
    networks: Sequence[NetworkLine]
    tenants: Sequence[Sequence[Cell]]
    scale_up: Sequence[Sequence[Cell]]
    """The planes of scale-up domains, where transfers inside them were frames."""
    scale_up_notes: Sequence[str]
    program: ProgramView | None
    """The user's own program that was the workload."""
    figures: TenantFigures
    """The figures of the workload's tenants."""
    outcome: str
    opened: bool


def write_report_files(record: Record, directory: Path) -> Path:
    """Write report.html and the files of `tables`; returns the report's path. The record itself is written before.

    Each is written whole or not at all. Raises `RecordError` where the disk does not take one.
    """
    # JSON can hold halves of surrogate pairs, which no encoding can write: a question mark stands for them
    collectives = {
        NCCL_FILE: nccl_tests_text(record.points),
        INSPECTOR_FILE: inspector_json(record),
        PROMETHEUS_FILE: inspector_prometheus(record),
    }
    contents = {
        SUMMARY_FILE: encode_summary(record),
        METRICS_FILE: metrics_csv(record).encode(errors="replace"),
        TRANSFERS_FILE: transfers_csv(record).encode(errors="replace"),
        CHANNELS_FILE: channels_csv(record).encode(errors="replace"),
        **({REQUESTS_FILE: requests_csv(record).encode(errors="replace")} if has_requests(record) else {}),
        **{name: text.encode(errors="replace") for name, text in collectives.items() if text},
        JUNIT_FILE: junit_xml(record),
        REPORT_FILE: render_report(record).encode(errors="replace"),
    }
    for name, content in contents.items():
        write_result(content, directory / name)
    return directory / REPORT_FILE


def _with_breaks(words: str, escaped: str) -> str:
    """Let lines end in words of a cell, unless they are few."""
    if len(words) <= MOST_ON_ONE_LINE:
        return f'<span class="one-line">{escaped}</span>'
    return _BREAKS.sub(r"\1<wbr>", escaped)


def render_report(record: Record) -> str:
    """Return the whole page, as HTML."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup, escape

    here = files(__package__)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["svg"] = Markup
    environment.filters["breaks"] = lambda words: Markup(_with_breaks(words, str(escape(words))))
    template = environment.from_string((here / "page.html.j2").read_text(encoding="utf-8"))
    overview, labs = draw_overview(record), labs_of(record)
    first = record.points[0] if record.points else None
    many = sum(min(MAX_FLOWS, len(run.channels)) for _, run in every_run(record)) > MAX_FLOW_ROWS
    table = metrics_csv(record).encode(errors="replace")
    return template.render(
        record=record,
        when=record.started[:16].replace("T", " ") + " UTC",
        css=Markup(style_sheet() + (here / "page.css").read_text(encoding="utf-8")),
        single=len(record.points) == 1,
        void=record.verdict.outcome is Outcome.INVALID,
        labs=labs,
        named_labs=named_labs(labs) if labs else "",
        described=describe_lab,
        first=first,
        runs=len(every_run(record)),
        tiles=_tiles(record),
        overview=overview,
        columns=foremost_metrics(record, MAX_COLUMNS),
        views=_views(record, PLOT_BUDGET - sum(len(plot.drawing.svg) for plot in overview)),
        collectives=[row for point in record.points for row in collective_rows(point)],
        trust=trust_rows(record),
        scale=scale_rows(record, first) if first else [],
        facts=facts(record, first) if first else [],
        machine=machine(record),
        approximations=_approximations(record),
        definitions=list({metric.name: metric for point in record.points for metric in point.metrics}.values()),
        command=command_line(record),
        metrics_table=base64.b64encode(table).decode() if len(table) <= MAX_EMBEDDED else "",
        files=(
            RECORD_FILE,
            SUMMARY_FILE,
            METRICS_FILE,
            TRANSFERS_FILE,
            CHANNELS_FILE,
            *([REQUESTS_FILE] if has_requests(record) else []),
            *([NCCL_FILE] if any(map(collective_rows, record.points)) else []),
        ),
        max_rows=MAX_ROWS,
        max_flows=min(MAX_FLOWS, max(8, MAX_FLOW_ROWS // max(1, len(record.points)))) if many else MAX_FLOWS,
        typical_alone=many,
        all_checks=_all_checks(record),
        value=format_value,
        band=format_band,
        measured=format_measured,
        ratio=format_ratio,
        spread=format_spread,
        prediction=format_prediction,
        predictions=predictions_of,
        label=point_label,
        rate=format_rate,
        size=format_bytes,
        time=format_time,
        flows=_slowest,
        latencies=latency_rows,
        ended=status_text,
        fates=lambda senders: fates_of(sender.counters for sender in senders),
        bullet=lambda item: Markup(draw_bullet(item.minimum, item.maximum, item.measured)),
        unit=lambda metric: unit_of(record, metric),
        title=lambda metric: title_of(record, metric),
        missing=MISSING,
        network_columns=COLUMNS,
        tenant_columns=TENANT_COLUMNS,
        scale_up_columns=SCALE_UP_COLUMNS,
    )


def draw_bullet(minimum: float | None, maximum: float | None, measured: float | None) -> str:
    """Return where the measured value lies against its band, in a line: the band in the middle, its value as a mark."""
    from testbed.record.report.chart.svg import element

    if measured is None or (minimum is None and maximum is None):
        return ""
    low, high = _reach(minimum, maximum, measured)
    if not high > low:
        return ""

    def x(value: float) -> float:
        return 4 + 112 * (value - low) / (high - low)

    begin = 4.0 if minimum is None else x(minimum)
    end = 116.0 if maximum is None else x(maximum)
    inside = (minimum is None or measured >= minimum) and (maximum is None or measured <= maximum)
    return element(
        "svg",
        element("rect", x=4, y=8, width=112, height=4, rx=2, cls="track"),
        element("rect", x=begin, y=5, width=max(2.0, end - begin), height=10, rx=2, cls="within"),
        element("circle", cx=x(measured), cy=10, r=5, cls="met" if inside else "missed"),
        viewBox="0 0 120 20",
        cls="bullet",
        aria_hidden="true",
    )


def _reach(minimum: float | None, maximum: float | None, measured: float) -> tuple[float, float]:
    """The ends of a bullet's line: the band and the value, with room at both sides."""
    known = [value for value in (minimum, maximum, measured) if value is not None]
    low, high = min(known), max(known)
    room = (high - low) * 0.35 or abs(high) * 0.2 or 1.0
    return low - room, high + room


def _tiles(record: Record) -> list[Tile]:
    """The numbers one wants first: four metrics of the only point, or the first metric of up to four points."""
    if len(record.points) == 1:
        point = record.points[0]
        found = {item.name: item for item in point.metrics}
        predicted = predictions_of(point)
        tiles = []
        for name in foremost_metrics(record, 4):
            metric = found[name]
            remarks = [] if metric.ideal is None else [f"ideal {format_value(metric.ideal, metric.unit)}"]
            if name in predicted:
                remarks.append(f"predicted {format_prediction(predicted[name], metric.unit)}")
            tiles.append(
                Tile(
                    value=format_value(metric.median, metric.unit),
                    title=metric.title,
                    remark=", ".join(remarks),
                    tone=_tone(record, name, ""),
                )
            )
        return tiles
    names = foremost_metrics(record, 1)
    if not names:
        return []
    tiles = []
    for point in record.points if len(record.points) <= 4 else []:
        one = next((item for item in point.metrics if item.name == names[0]), None)
        if one is not None:
            tiles.append(
                Tile(
                    value=format_value(one.median, one.unit),
                    title=point_label(point),
                    remark=one.title,
                    tone=_tone(record, names[0], point.name),
                )
            )
    return tiles


def _tone(record: Record, metric: str, point: str) -> str:
    """The worst outcome of what is expected of it; "" where nothing is."""
    outcomes = {item.outcome for item in record.expectations if item.metric == metric and item.point == point}
    worst = (Outcome.INVALID, Outcome.FAIL, Outcome.PASS)
    return next((outcome.value for outcome in worst if outcome in outcomes), "")


def _views(record: Record, budget: int) -> list[PointView]:
    single = len(record.points) == 1
    failed = {item.point for item in record.expectations if item.outcome is not Outcome.PASS and not item.left_out}
    views = []
    for number, point in enumerate(record.points):
        run = typical_run(point)
        plots = [] if run is None else draw_run(run)
        needed = sum(len(plot.drawing.svg) for plot in plots)
        cut = needed > budget
        budget -= 0 if cut else needed
        views.append(
            PointView(
                point=point,
                label=point.name or f"point {number + 1}",
                run=run,
                headline=[metric for metric in point.metrics if metric.headline and metric.median is not None],
                plots=[] if cut else plots,
                cut=cut,
                balances=[] if run is None else reconcile(run),
                networks=[] if run is None else network_rows(run),
                tenants=[] if run is None else tenant_rows(run),
                scale_up=[] if run is None else scale_up_rows(run),
                scale_up_notes=[] if run is None else latency_notes(run),
                program=None if run is None else program_view(run),
                figures=tenant_figures(point),
                outcome=_outcome(record, point),
                opened=single or (point.name in failed and number < 3),
            )
        )
    return views


def _outcome(record: Record, point: PointResult) -> str:
    """The worst outcome of what is expected of a point, which its runs may be no proof of; "" where nothing is."""
    found = {item.outcome for item in record.expectations if item.point == point.name and not item.left_out}
    if any(not check.ok for run in point.runs for check in run.checks):
        found.add(Outcome.INVALID)
    return next((one.value for one in (Outcome.INVALID, Outcome.FAIL, Outcome.PASS) if one in found), "")


def _all_checks(record: Record) -> list[tuple[str, int, Check]]:
    """(point, run, check), broken ones first if not all of them have room."""
    found = [(point_label(point), run.index, check) for point, run in every_run(record) for check in run.checks]
    if len(found) > MAX_CHECK_ROWS:
        found.sort(key=lambda item: item[2].ok)
    return found[:MAX_CHECK_ROWS]


def _slowest(run: RunResult) -> list[ReportedSender]:
    return sorted(senders_of(run), key=lambda sender: sender.share)


def _approximations(record: Record) -> list[str]:
    notes = [note for point in record.points for note in point.notes]
    return list(dict.fromkeys([*record.environment.approximations, *notes]))
