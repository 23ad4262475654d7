"""Over time: goodput around faults, queues, windows, round trips, and whatever else was sampled."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from testbed.record.record import RunResult
from testbed.record.report.chart import XYChart, linear_axis
from testbed.record.report.scenario.plots.plot import Plot
from testbed.record.report.scenario.senders import Point, ReportedSender, senders_of, total_rate
from testbed.record.samples import RunEvent, Series

MAX_LINES = 24
MAX_QUEUES = 6
MAX_NAMED = 6
"""Lines that get a colour and a name each; more are drawn alike."""
MAX_OTHER = 4
MAX_EVENTS = 24
_NAMES = {
    "queue": "Queue depth",
    "ttft": "Time to first token",
    "utilisation": "Link utilisation",
    "cpu": "CPU of the machine",
    "pause": "Pausing",
    "probes": "Probes lost",
    "dark": "Streams in the dark",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _SenderQuantity:
    """A quantity that every sender has a curve of, and the words of its plot."""

    name: str
    title: str
    axis: str
    unit: str
    caption: str
    take: Callable[[ReportedSender], Sequence[Point]]


_CWND = _SenderQuantity(
    name="cwnd",
    title="Congestion window",
    axis="window",
    unit="byte",
    caption="What each sender may have under way. Saw teeth are losses or marks; a flat line at the top is a window"
    " that nothing limits.",
    take=lambda sender: sender.cwnd,
)
_RTT = _SenderQuantity(
    name="rtt",
    title="Round-trip time",
    axis="RTT (lab)",
    unit="s",
    caption="As each sender's transport sees it. What is above the lowest value is time in queues.",
    take=lambda sender: sender.rtt,
)


def plot_timelines(run: RunResult) -> list[Plot]:
    senders = senders_of(run)
    plots = [_goodput(run, senders), *_sampled(run)]
    plots += [_of_senders(run, senders, quantity) for quantity in (_CWND, _RTT)]
    return [plot for plot in plots if plot is not None]


_ARRIVED = "Payload that arrived."
_ACKNOWLEDGED = (
    "Payload that was acknowledged. What overtook a lost packet counts once that one is there, all at once: then a line"
    " may be above the ideal."
)


def _goodput(run: RunResult, senders: Sequence[ReportedSender]) -> Plot | None:
    """All senders together, and each; with the moments at which something happened."""
    given = next((_points(item) for item in run.series if item.name == "goodput"), [])
    total = given or total_rate(senders)
    if len(total) < 3:
        return None
    ideal = _ideal_total(senders)
    chart = XYChart(
        x=linear_axis("time (lab)", "s", [at for at, _ in total], tight=True),
        y=linear_axis("goodput (lab)", "bit/s", [rate for _, rate in total], least=(ideal or 0.0) * 1.08),
        height=320,
    )
    for sender in senders[:MAX_LINES]:
        chart.line(sender.rate, weight="thin", remark=sender.name)
    chart.line(total, weight="thick", remark="all together")
    if ideal:
        chart.ideal(ideal, "ideal")
    mark_events(chart, run.events)
    each = " Thin lines are single senders, the thick one is their sum." if len(senders) > 1 else ""
    numbers = " Numbers are the events below." if run.events else ""
    return Plot(
        name="goodput",
        title="Goodput over time",
        caption=f"{_ARRIVED if given else _ACKNOWLEDGED}{each}{numbers}",
        drawing=chart.draw("Goodput over time, with the ideal and the events"),
        wide=bool(run.events),
    )


def _ideal_total(senders: Sequence[ReportedSender]) -> float | None:
    """Sum of the ideals, NICs that several senders share counted once."""
    sources = {sender.source: sender.ideal_bps for sender in senders}
    destinations = {sender.destination: sender.ideal_bps for sender in senders}
    return min(sum(sources.values()), sum(destinations.values())) if senders else None


def mark_events(chart: XYChart, events: Sequence[RunEvent]) -> None:
    """Mark the moments of a run, numbered as in the table."""
    for number, event in enumerate(events[:MAX_EVENTS], start=1):
        if chart.x.low <= event.at_s <= chart.x.high:
            chart.mark(event.at_s, str(number), f"{number}: {event.kind} {event.target} {event.detail}".strip())


def _sampled(run: RunResult) -> list[Plot]:
    """Curves of the record by their kind: the word before the first colon."""
    kinds: dict[tuple[str, str], list[Series]] = {}
    for item in run.series:
        if item.name != "goodput" and len(_points(item)) > 1 and any(value for _, value in _points(item)):
            kinds.setdefault((item.name.partition(":")[0], item.unit), []).append(item)
    found = []
    for number, ((kind, unit), items) in enumerate(kinds.items()):
        if number >= MAX_OTHER + 1:
            break
        top = sorted(items, key=lambda item: -_highest(item))[:MAX_QUEUES]
        title = _NAMES.get(kind, top[0].title if len(items) == 1 else kind.capitalize())
        values = [value for item in top for _, value in _points(item)]
        chart = XYChart(
            x=linear_axis("time (lab)", "s", [at for item in top for at, _ in _points(item)], tight=True),
            y=linear_axis(title, unit, [*values, *map(_highest, top)], least=1.0 if kind == "utilisation" else None),
        )
        for series, item in enumerate(top):
            chart.band(_edge(item, item.least), _edge(item, item.most), series=series)
        for series, item in enumerate(top):
            for stretch in _stretches(item):
                chart.line(stretch, series=series, label=_line_name(item, kind))
        mark_events(chart, run.events)
        more = f" The {len(top)} highest of {len(items)}." if len(items) > len(top) else ""
        found.append(
            Plot(
                name=f"sampled-{number}",
                title=title,
                caption=f"{_explained(kind, means=any(item.most for item in top))}{more}",
                drawing=chart.draw(f"{title} over time"),
            )
        )
    return found


def _line_name(item: Series, kind: str) -> str:
    return item.name.removeprefix(f"{kind}:") if ":" in item.name else item.title


def _explained(kind: str, *, means: bool) -> str:
    match kind:
        case "queue" if means:
            return "Bytes waiting in a queue: the mean of each interval, in a band from its smallest to its largest."
        case "queue":
            return "Bytes waiting in a queue; each sample is the deepest of its interval."
        case "ttft":
            return "Of the requests that were due just then: the median and the longest."
        case "utilisation":
            return "What links between switches carried, of their rate."
        case "dark":
            return "Streams of probes that lost at least half of what they sent just then, of all streams."
        case "probes":
            return "Probes that never arrived, or far too late, by when they were sent: of the streams that lost most."
        case "cpu":
            return "An emulation on a machine without idle time measures the machine."
    return "As sampled while traffic ran."


def _of_senders(run: RunResult, senders: Sequence[ReportedSender], quantity: _SenderQuantity) -> Plot | None:
    lines = [(sender, quantity.take(sender)) for sender in senders]
    lines = [(sender, points) for sender, points in lines if len(points) > 2][:MAX_LINES]
    if not lines:
        return None
    values = [value for _, points in lines for _, value in points]
    chart = XYChart(
        x=linear_axis("time (lab)", "s", [at for _, points in lines for at, _ in points], tight=True),
        y=linear_axis(quantity.axis, quantity.unit, values),
    )
    named, caption = len(lines) <= MAX_NAMED, quantity.caption
    for series, (sender, points) in enumerate(lines):
        chart.line(
            points,
            series=series if named else 0,
            label=sender.name if named else "",
            weight="" if named else "thin",
            remark=sender.name,
        )
    if not named:
        chart.line(_middle([points for _, points in lines]), weight="thick", remark="median of all")
        caption += " The thick line is the median of all senders."
    mark_events(chart, run.events)
    drawing = chart.draw(f"{quantity.title} of each sender over time")
    return Plot(name=quantity.name, title=quantity.title, caption=caption, drawing=drawing)


def _middle(lines: Sequence[Sequence[Point]], most: int = 80) -> list[Point]:
    """The median over lines in stretches of time in which each of them has a point or two."""
    bins = max(1, min(most, int(statistics.median(len(points) for points in lines)) // 2))
    end = max(at for points in lines for at, _ in points)
    if end <= 0:
        return []
    values: list[list[float]] = [[] for _ in range(bins)]
    for points in lines:
        for at, value in points:
            values[min(bins - 1, max(0, int(at / end * bins)))].append(value)
    return [((index + 0.5) * end / bins, statistics.median(found)) for index, found in enumerate(values) if found]


def _highest(item: Series) -> float:
    return max([*item.most, *(value for _, value in _points(item))])


def _edge(item: Series, values: Sequence[float]) -> list[Point]:
    """An edge of the band that a series' means lie in; nothing where it has none."""
    return list(zip(item.at_s, values, strict=False))


def _points(item: Series) -> list[Point]:
    return [(at, value) for at, value in zip(item.at_s, item.values, strict=False) if value is not None]


def _stretches(item: Series) -> list[list[Point]]:
    """Return the points of a curve in stretches, between which nothing was measured."""
    found: list[list[Point]] = [[]]
    for at, value in zip(item.at_s, item.values, strict=False):
        if value is not None:
            found[-1].append((at, value))
        elif found[-1]:
            found.append([])
    return [stretch for stretch in found if stretch]
