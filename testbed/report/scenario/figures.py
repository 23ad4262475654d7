"""Numbers as a report prints them: by the unit the record gives, never by guessing from the value."""

from __future__ import annotations

from testbed.results import ExpectationResult, MetricSummary, PointResult, Record, RunResult

MISSING = "–"
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def format_value(value: float | None, unit: str) -> str:
    """A metric's value. A unit this version does not know is printed beside a plain number."""
    if value is None:
        return MISSING
    match unit:
        case "share":
            return f"{value:.1%}" if value >= 0.0995 or value == 0 else f"{value:.2%}"
        case "bit/s":
            return format_rate(value)
        case "ratio":
            return f"{value:.3f}"
        case "count":
            return f"{value:,.0f}"
    return f"{value:.4g} {unit}"


def format_rate(bps: float | None) -> str:
    """Three significant digits, with thousands staying with their prefix: 400 Gbit/s, 98.5 Mbit/s."""
    return MISSING if bps is None else f"{_scaled(bps)}bit/s"


def format_bytes(count: float | None) -> str:
    return MISSING if count is None else f"{_scaled(count)}B"


def _scaled(value: float) -> str:
    for size, prefix in _PREFIXES:
        if abs(value) >= size:
            return f"{_digits(value / size)} {prefix}"
    return f"{_digits(value)} "


def _digits(value: float) -> str:
    magnitude = abs(value)
    places = 0 if magnitude >= 100 else 1 if magnitude >= 10 else 2
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_band(expectation: ExpectationResult, unit: str) -> str:
    """`64.0% to 102.0%`, `at least 0.850`, `at most 4.000`."""
    low, high = expectation.minimum, expectation.maximum
    if low is not None and high is not None:
        return f"{format_value(low, unit)} to {format_value(high, unit)}"
    if low is not None:
        return f"at least {format_value(low, unit)}"
    return f"at most {format_value(high, unit)}"


def format_ratio(metric: MetricSummary) -> str:
    """Measured over ideal, where that means something."""
    if metric.median is None or not metric.ideal:
        return MISSING
    return f"{metric.median / metric.ideal:.3f}"


def format_spread(metric: MetricSummary) -> str:
    """Least and greatest of the runs; nothing for one run."""
    if len(metric.values) < 2 or metric.minimum is None:
        return ""
    return f"{format_value(metric.minimum, metric.unit)} to {format_value(metric.maximum, metric.unit)}"


def unit_of(record: Record, metric: str) -> str:
    return next((item.unit for point in record.points for item in point.metrics if item.name == metric), "")


def title_of(record: Record, metric: str) -> str:
    return next((item.title for point in record.points for item in point.metrics if item.name == metric), metric)


def typical_run(point: PointResult) -> RunResult | None:
    """The complete run whose aggregate share is the median: the one to draw. Lower middle of an even number."""
    complete = [run for run in point.runs if run.complete] or list(point.runs)
    ranked = sorted(complete, key=lambda run: run.metrics.get("aggregate_share") or 0.0)
    return ranked[(len(ranked) - 1) // 2] if ranked else None
