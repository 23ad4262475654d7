"""Numbers as a report prints them, by the unit the record gives, and the rows of its smallest tables.

These are trust checks by name, figures of the workload's tenants side by side, and what befell packets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from testbed.record.catalogue import definition_of, selected_words
from testbed.record.record import (
    Check,
    ExpectationResult,
    MetricSummary,
    PointResult,
    PredictedMetric,
    Record,
    RunResult,
)
from testbed.record.samples import Channel

MISSING = "–"
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_FAVOURITES = (
    "program_ratio", "program_step_p50", "program_step_p99", "program_exit",
    "busbw_share", "busbw", "tail_fct_ratio", "jct_ratio", "aggregate_share", "slowest_share", "jain_flows",
    "p99_ttft_network", "p99_ttft", "p99_tpot", "request_goodput_share",
    "iops", "io_bandwidth", "io_latency_p99",
    "rdma_latency_p50", "rdma_latency_p99", "rdma_latency_p99_9", "rdma_latency_ratio",
    "mmr_uplinks", "fct_slowdown_p99", "goodput_share", "recovery_time", "detection_time",
    "blackhole_time_loss", "blackhole_time_rate", "wrong", "ecn_mark_ratio",
    "pause_fraction", "queue_p99", "retransmit_ratio", "reordered_ratio", "tail_fct", "jct",
)  # fmt: skip
"""The metrics that one looks at first, where nothing was expected."""


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


def format_measured(expectation: ExpectationResult, unit: str) -> str:
    """`92.1%`, and of flows with what packets would measure: `92.1% (90.0% to 93.5%)`."""
    measured = format_value(expectation.measured, unit)
    if expectation.low is None or expectation.high is None:
        return measured
    return f"{measured} ({format_value(expectation.low, unit)} to {format_value(expectation.high, unit)})"


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
    """Return the unit of a metric, also of one that no run has measured; "" where it is a ratio of two points."""
    found = next((item.unit for item in _metrics(record) if item.name == metric), None)
    if found is None:
        definition = definition_of(metric)
        return "" if definition is None else definition.unit.value
    return found


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
    names = (
        "program_step_p50",
        "busbw",
        "tail_fct_ratio",
        "jct_ratio",
        "aggregate_share",
        "rdma_latency_p50",
        "jct",
        "tail_fct",
    )
    return next((name for name in names if any(run.metrics.get(name) is not None for run in runs)), "")


def _metrics(record: Record) -> Iterable[MetricSummary]:
    return (item for point in record.points for item in point.metrics)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRow:
    """One check by name. `said` is what it said where it was nearest to its limit, or beyond."""

    name: str
    title: str
    worst: Check
    where: str
    """Point and run of `worst`."""
    runs: int
    broken: int


def trust_rows(record: Record) -> list[TrustRow]:
    """Return the rows in the order of their first appearance, broken ones first."""
    found: dict[str, list[tuple[PointResult, RunResult, Check]]] = {}
    for point, run in every_run(record):
        for check in run.checks:
            found.setdefault(check.name, []).append((point, run, check))
    rows = []
    for name, checks in found.items():
        point, run, worst = max(checks, key=lambda item: (not item[2].ok, _strain(item[2])))
        where = f"{point_label(point)}, run {run.index}" if len(record.points) > 1 else f"run {run.index}"
        rows.append(
            TrustRow(
                name=name,
                title=worst.title,
                worst=worst,
                where=where,
                runs=len(checks),
                broken=sum(not check.ok for _, _, check in checks),
            )
        )
    return sorted(rows, key=lambda row: row.broken == 0)


def _strain(check: Check) -> float:
    """Return how far into its limit a value is: 1 is at it."""
    return abs(check.value / check.limit) if check.limit else abs(check.value)


_TENANT = "tenant="


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantFigures:
    """A column for each tenant, a row for each metric that one of them has: its title, and a text for each tenant, ""
    where it has none."""

    tenants: Sequence[str] = ()
    rows: Sequence[tuple[str, Sequence[str]]] = ()


def tenant_figures(point: PointResult) -> TenantFigures:
    """Return the medians of those metrics that stand in a report's first table; nothing without tenants."""
    found: dict[str, dict[str, MetricSummary]] = {}
    for metric in point.metrics:
        words, definition = selected_words(metric.name), definition_of(metric.name)
        if words.startswith(_TENANT) and definition is not None and definition.headline and metric.median is not None:
            found.setdefault(definition.title, {})[words.removeprefix(_TENANT)] = metric
    tenants = list(dict.fromkeys(tenant for by_tenant in found.values() for tenant in by_tenant))
    rows = [
        (
            title,
            [
                format_value(by_tenant[tenant].median, by_tenant[tenant].unit) if tenant in by_tenant else ""
                for tenant in tenants
            ],
        )
        for title, by_tenant in found.items()
    ]
    return TenantFigures(tenants=tenants, rows=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketFate:
    """`names` are those of `Channel.counters`, of whatever transport; a channel's figure is their sum."""

    title: str
    names: tuple[str, ...]

    def of(self, counters: Mapping[str, float]) -> int:
        return int(sum(counters.get(name, 0) for name in self.names))


FATES = (
    PacketFate(title="Time-outs", names=("timeout",)),
    PacketFate(title="Inferred lost", names=("inferred_loss",)),
    PacketFate(title="Trimmed", names=("trimmed",)),
    PacketFate(title="CE-marked", names=("ce_marked", "delivered_ce")),
    PacketFate(title="Out of order", names=("out_of_order",)),
    PacketFate(title="Duplicates", names=("duplicate", "duplicate_sacks")),
    PacketFate(title="Gone back for", names=("rewound",)),
    PacketFate(title="Refused", names=("refused", "out_of_window", "rod_out_of_order", "no_room_for_responses")),
)
"""The graver first. Time-outs, losses, trimming and going back are why packets are sent again."""


def fates_of(counted: Iterable[Mapping[str, float]]) -> Sequence[PacketFate]:
    """Return those that befell any packet of these channels."""
    counted = list(counted)
    return [fate for fate in FATES if any(fate.of(counters) for counters in counted)]


def total(channels: Iterable[Channel]) -> Counter[str]:
    found: Counter[str] = Counter()
    for channel in channels:
        found.update(channel.counters)
    return found
