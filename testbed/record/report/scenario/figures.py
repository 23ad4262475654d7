"""Numbers as a report prints them: by the unit the record gives, never by guessing from the value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from testbed.record.record import ExpectationResult, MetricSummary, PointResult, PredictedMetric, Record, RunResult

MISSING = "–"
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_FAVOURITES = (
    "busbw_share", "busbw", "tail_fct_ratio", "jct_ratio", "aggregate_share", "slowest_share", "jain_flows",
    "p99_ttft_network", "p99_ttft", "p99_tpot", "request_goodput_share",
    "iops", "io_bandwidth", "io_latency_p99",
    "rdma_latency_p50", "rdma_latency_p99", "rdma_latency_p99_9", "rdma_latency_ratio",
    "mmr_uplinks", "fct_slowdown_p99", "goodput_share", "recovery_time", "detection_time",
    "blackhole_time_loss", "blackhole_time_rate", "wrong", "ecn_mark_ratio",
    "pause_fraction", "queue_p99", "retransmit_ratio", "reordered_ratio", "tail_fct", "jct",
)  # fmt: skip
"""What one looks at first, where nothing was expected."""


def format_value(value: float | None, unit: str) -> str:
    """A metric's value. A unit this version does not know is printed beside a plain number."""
    if value is None:
        return MISSING
    match unit:
        case "share":
            return f"{value:.1%}" if abs(value) >= 0.0995 or value == 0 else f"{value:.2%}"
        case "bit/s":
            return format_rate(value)
        case "byte/s":
            return f"{_scaled(value)}B/s"
        case "byte":
            return format_bytes(value)
        case "s":
            return format_time(value)
        case "ratio":
            return f"{value:.3f}" if abs(value) < 100 else f"{value:.1f}" if abs(value) < 1000 else f"{value:,.0f}"
        case "count" | "packet":
            return f"{value:,.0f}" if value == round(value) or abs(value) >= 100 else f"{value:,.1f}"
    return f"{value:.4g} {unit}".rstrip()


def format_rate(bps: float | None) -> str:
    """Three significant digits, with thousands staying with their prefix: 400 Gbit/s, 98.5 Mbit/s."""
    return MISSING if bps is None else f"{_scaled(bps)}bit/s"


def format_bytes(count: float | None) -> str:
    return MISSING if count is None else f"{_scaled(count)}B"


def format_time(seconds: float | None) -> str:
    """1.25 s, 340 ms, 12.3 µs."""
    if seconds is None:
        return MISSING
    for size, word in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(seconds) >= size:
            return f"{_digits(seconds / size)} {word}"
    return f"{_digits(seconds * 1e9)} ns" if seconds else "0 s"


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
    return MISSING if high is None else f"at most {format_value(high, unit)}"


def format_ratio(metric: MetricSummary) -> str:
    """Measured over ideal, where that means something."""
    if metric.median is None or not metric.ideal:
        return MISSING
    return format_value(metric.median / metric.ideal, "ratio")


def format_spread(metric: MetricSummary) -> str:
    """Least and greatest of the runs; nothing for one run."""
    if len(metric.values) < 2 or metric.minimum is None:
        return ""
    return f"{format_value(metric.minimum, metric.unit)} to {format_value(metric.maximum, metric.unit)}"


def format_prediction(prediction: PredictedMetric | None, unit: str) -> str:
    """`62.5% ± 4.1%`: mean and standard deviation over the oracle's seeds."""
    if prediction is None:
        return MISSING
    mean = format_value(prediction.mean, unit)
    if not prediction.stdev:
        return mean
    spread = f"{prediction.stdev * 100:.1f}" if unit == "share" else format_value(prediction.stdev, unit)
    return f"{mean} ± {spread}"


def predictions_of(point: PointResult) -> dict[str, PredictedMetric]:
    """Return the predictions by metric; of several oracles the first."""
    return {item.metric: item for item in reversed(point.predictions)}


def every_run(record: Record) -> list[tuple[PointResult, RunResult]]:
    return [(point, run) for point in record.points for run in point.runs]


def unit_of(record: Record, metric: str) -> str:
    return next((item.unit for item in _metrics(record) if item.name == metric), "")


def title_of(record: Record, metric: str) -> str:
    """Return what a metric is called; an expectation's name may compare it with that of another point."""
    name, over, point = metric.partition(" over that of ")
    return next((item.title for item in _metrics(record) if item.name == name), name) + over + point


def point_label(point: PointResult) -> str:
    return point.name or "all"


def foremost_metrics(record: Record, most: int) -> list[str]:
    """Names of the metrics to show first: those that something is expected of, then those one looks at anyway."""
    measured = {item.name for item in _metrics(record) if item.median is not None}
    headline = {item.name for item in _metrics(record) if item.headline}
    order = [*(item.metric for item in record.expectations), *_FAVOURITES, *(item.name for item in _metrics(record))]
    expected = {item.metric for item in record.expectations}
    names = [name for name in dict.fromkeys(order) if name in measured and (name in headline or name in expected)]
    return names[:most]


def typical_run(point: PointResult) -> RunResult | None:
    """The complete run in the middle of the point's leading metric: the one to draw. Lower middle of an even number."""
    complete = [run for run in point.runs if run.complete] or list(point.runs)
    name = _leading(complete)
    ranked = sorted(complete, key=lambda run: run.metrics.get(name) or 0.0)
    return ranked[(len(ranked) - 1) // 2] if ranked else None


def _leading(runs: Sequence[RunResult]) -> str:
    names = ("busbw", "tail_fct_ratio", "jct_ratio", "aggregate_share", "rdma_latency_p50", "jct", "tail_fct")
    return next((name for name in names if any(run.metrics.get(name) is not None for run in runs)), "")


def _metrics(record: Record) -> Iterable[MetricSummary]:
    return (item for point in record.points for item in point.metrics)
