"""The results that the draft on training fabrics asks for: its KPIs (chapter 4) and the tables of its tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from testbed.record.record import PointResult, Record
from testbed.record.report.benchmark.drafts import NOT_MEASURED, ObservationPoint
from testbed.record.report.benchmark.tables import (
    FIGURE_COLUMNS,
    Figure,
    counted,
    figure,
    figure_rows,
    heading,
    median,
    number,
    per_second,
    real_rate,
    real_time,
    strategy,
    table,
    times,
    transport_name,
)
from testbed.record.report.scenario.configuration import written
from testbed.record.report.scenario.nccl_table import whole_runs
from testbed.record.samples import CollectiveResult
from testbed.workload.metrics import busbw_factor, percentile

DUT, ENDPOINT, BOUNDARY = ObservationPoint.DUT, ObservationPoint.ENDPOINT, ObservationPoint.BOUNDARY
_COLLECTIVES = {"all_reduce": "AllReduce", "all_to_all": "AllToAll", "all_gather": "AllGather"}
_SECTIONS = {"all_reduce": "9.1", "all_to_all": "9.2", "all_gather": "9.3"}
_HASHED, _GAPS, _SPRAYED = ("flow", "kernel"), ("flowlet", "adaptive"), ("spray",)
_ROCE = ("RoCEv2 RC", "RoCEv2 RC (soft-RoCE)")


def kpi_tables(points: Sequence[PointResult]) -> Iterator[str]:
    """Yield tables 7, 8 and 9 of the draft for each point: primary and secondary KPIs, and the fabric's health."""
    for point in points:
        yield from heading(point, len(points))
        for title, figures in (
            ("Primary KPIs (table 7)", primary(point)),
            ("Secondary KPIs (table 8)", secondary(point)),
            ("Fabric Health Indicators (table 9)", health(point)),
        ):
            yield f"**{title}**"
            yield ""
            yield from table(FIGURE_COLUMNS, figure_rows(figures))


def primary(point: PointResult) -> list[Figure]:
    """The primary KPIs, in the draft's units."""
    latencies = [times(real_time(point, f"rdma_latency_{name}"), 1e6) for name in ("p99", "p99_9")]
    said = "half of a message's round trip, or all of it for reads and atomics"
    return [
        figure("Job Completion Time (JCT)", "seconds", real_time(point, "jct"), ENDPOINT),
        figure("JCT Ratio", "dimensionless", median(point, "jct_ratio"), ENDPOINT),
        figure("Bus Bandwidth (BusBW)", "Gbps/accelerator", times(real_rate(point, "busbw"), 8e-9), ENDPOINT),
        figure("Aggregate Throughput", "Tbps", times(real_rate(point, "aggregate_goodput"), 1e-12), ENDPOINT),
        figure("Packet Drop Rate", "ppm", _lost(point), ENDPOINT, "all that was sent arrived"),
        figure("Tail Latency P99", "us", latencies[0], ENDPOINT, said),
        figure("Tail Latency P99.9", "us", latencies[1], ENDPOINT, said),
    ]


def _lost(point: PointResult) -> float | None:
    """Return 0 where every transfer of every run arrived whole; None where that is not known."""
    ends = [end for run in whole_runs(point) for end in run.transfers.end_s]
    return 0.0 if ends and None not in ends else None


def secondary(point: PointResult) -> list[Figure]:
    """The secondary KPIs, in the draft's units."""
    runs = whole_runs(point)
    every_port = "over all ports and priorities"
    return [
        figure("ECN Marking Ratio", "%", times(median(point, "ecn_mark_ratio"), 100), DUT, "of all egress queues"),
        figure(
            "PFC Pause Count",
            "events/sec",
            per_second(point, (run.metrics.get("pause_frames") for run in runs)),
            DUT,
            every_port,
        ),
        figure("PFC Pause Duration", "us", times(real_time(point, "pause_time"), 1e6), DUT, every_port),
        figure(
            "RDMA Retransmission Rate",
            "retx/sec",
            per_second(point, (run.metrics.get("retransmits") for run in runs)),
            ENDPOINT,
            f"of {transport_name(point)}",
        ),
        figure("ECMP Imbalance (MMR)", "dimensionless", median(point, "mmr_uplinks"), DUT, "of bytes, not of flows"),
        figure("Jain's Fairness Index (JFI)", "1/N-1.0", median(point, "jain_links"), DUT, "over uplinks"),
        Figure(kpi="Queue Depth P95", unit="bytes"),
        figure("Queue Depth Max", "bytes", median(point, "queue_max"), DUT, "the deepest egress queue of all ports"),
        figure("Congestion Control Convergence", "us", times(real_time(point, "convergence_time"), 1e6), ENDPOINT),
        figure("Out-of-Order Packet Rate", "pkt/sec", per_second(point, counted(point, "out_of_order")), ENDPOINT),
    ]


def health(point: PointResult) -> list[Figure]:
    """The health of the fabric. Most of it is of hardware that a lab does not have."""
    return [
        Figure(kpi="Switch CPU Utilization", unit="%"),
        Figure(kpi="Switch Memory Utilization", unit="%"),
        figure(
            "FIB / Route Convergence Time",
            "ms",
            times(median(point, "detection_time"), 1e3),
            DUT,
            "detection of the fault, in the time of the lab's routing daemons",
        ),
        Figure(kpi="Link Flap Count", unit="events"),
        Figure(kpi="CRC/FCS Error Rate", unit="errors/sec"),
        Figure(kpi="Power Consumption", unit="Watts"),
    ]


# --- tables of tests ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveLine:
    """All operations of one kind, size and algorithm of a point. Bus bandwidths are in Gbit/s for each accelerator."""

    point: PointResult
    kind: str
    algorithm: str
    ranks: int
    size_bytes: int
    busbw_gbps: Sequence[float]
    seconds: Sequence[float]
    line_gbps: float

    @property
    def average(self) -> float:
        return sum(self.busbw_gbps) / len(self.busbw_gbps)

    def tail(self, share: float) -> float | None:
        """Return the bus bandwidth that this share of operations reached, for each."""
        return percentile(self.busbw_gbps, 1 - share)


def collective_lines(points: Sequence[PointResult], kinds: Iterable[str]) -> list[CollectiveLine]:
    """Return the collectives of the complete runs of points, by kind, size and ranks."""
    wanted = set(kinds)
    lines = []
    for point in points:
        groups: dict[tuple[str, str, int, int], list[CollectiveResult]] = {}
        for run in whole_runs(point):
            for item in run.collectives:
                if item.kind in wanted:
                    groups.setdefault((item.kind, item.algorithm, item.ranks, item.size_bytes), []).append(item)
        for (kind, algorithm, ranks, size), items in sorted(groups.items()):
            k = point.lab.k
            lines.append(
                CollectiveLine(
                    point=point,
                    kind=kind,
                    algorithm=algorithm,
                    ranks=ranks,
                    size_bytes=size,
                    busbw_gbps=[item.busbw_bps * k / 1e9 for item in items],
                    seconds=[item.seconds / k for item in items],
                    line_gbps=(items[0].line_bps or point.lab.nic_bps) * k / 1e9,
                )
            )
    return lines


def collective_table(lines: Sequence[CollectiveLine]) -> list[str]:
    """The table of a collective benchmark (9.1 to 9.3): a line for each size, N, strategy and algorithm."""
    columns = (
        "Message size S (bytes)", "N", "LB strategy", "Algorithm (verified)", "algo_factor", "Iterations",
        "BusBW avg (Gbps/accel)", "BusBW P50", "BusBW P95", "BusBW P99", "BusBW efficiency", "JCT per iteration (s)",
        "ECN marking ratio", "PFC pause count", "Link utilization", "S_fabric of the run (bytes, all participants)",
        "Point",
    )  # fmt: skip
    return table(columns, map(_collective_row, lines))


def _collective_row(line: CollectiveLine) -> tuple[object, ...]:
    point = line.point
    average = line.average
    return (
        line.size_bytes, line.ranks, strategy(point), line.algorithm, busbw_factor(line.kind, line.ranks),
        len(line.busbw_gbps), average, *(number(line.tail(share)) for share in (0.5, 0.95, 0.99)),
        number(average / line.line_gbps) if line.line_gbps > 0 else NOT_MEASURED,
        percentile(line.seconds, 0.5) or 0.0,
        *(number(median(point, name)) for name in ("ecn_mark_ratio", "pause_frames", "link_utilisation", "s_fabric")),
        point.name or "-",
    )  # fmt: skip


Compared = tuple[str, int, int, str, str]
"""All that two bars of a comparison have in common: collective, size, ranks, algorithm, and what is not compared."""


def _side_by_side(
    lines: Iterable[CollectiveLine], column: Callable[[PointResult], str], same: Callable[[PointResult], str]
) -> dict[Compared, dict[str, list[float]]]:
    """Put the average bus bandwidths of points that differ in a column alone into one row, by that column."""
    found: dict[Compared, dict[str, list[float]]] = {}
    for line in lines:
        key = (line.kind, line.size_bytes, line.ranks, line.algorithm, same(line.point))
        found.setdefault(key, {}).setdefault(column(line.point), []).append(line.average)
    return found


def _span(values: Mapping[str, Sequence[float]], names: Sequence[str]) -> str:
    """Return the figure of a cell; where points that differ in something else share it, the least and the most."""
    found = [value for name in names for value in values.get(name, ())]
    if len(found) < 2:
        return number(next(iter(found), None))
    return f"{number(min(found))} to {number(max(found))} ({len(found)} points)"


def busbw_summary(lines: Sequence[CollectiveLine]) -> list[str]:
    """Table 13 of the draft: the average bus bandwidth of each collective by load balancing strategy."""
    columns = (
        "Collective", "Msg Size", "N Accels", "ECMP BusBW (Gbps/accel)", "DLB BusBW (Gbps/accel)",
        "Spray BusBW (Gbps/accel)", "Algorithm", "Transport",
    )  # fmt: skip
    return table(
        columns,
        (
            (
                _COLLECTIVES[kind], size, ranks, *(_span(values, modes) for modes in (_HASHED, _GAPS, _SPRAYED)),
                algorithm, transport,
            )
            for (kind, size, ranks, algorithm, transport), values in _side_by_side(
                lines, lambda point: point.lab.load_balancing, transport_name
            ).items()
        ),
    )  # fmt: skip


def transport_summary(lines: Sequence[CollectiveLine]) -> list[str]:
    """Table 12 of the draft: the average bus bandwidth of each collective by transport; nothing without UET."""
    found = _side_by_side(lines, transport_name, strategy)
    if not any(name.startswith("UET") for values in found.values() for name in values):
        return []
    rows = []
    for (kind, size, ranks, algorithm, balanced), values in found.items():
        ruds = values.get("UET RUD", [])
        roces = [value for name in _ROCE for value in values.get(name, ())]
        delta = f"{(ruds[0] / roces[0] - 1) * 100:+.1f} %" if len(ruds) == len(roces) == 1 else NOT_MEASURED
        spans = (_span(values, names) for names in (("UET RUD",), ("UET ROD",), _ROCE))
        rows.append((_COLLECTIVES[kind], size, ranks, *spans, delta, algorithm, balanced))
    columns = (
        "Collective", "Msg Size", "N Accels", "UET RUD BusBW", "UET ROD BusBW", "RoCEv2 RC BusBW", "Delta UET/RoCEv2",
        "Algorithm", "LB strategy",
    )  # fmt: skip
    return table(columns, rows)


def result_tables(record: Record) -> Iterator[str]:
    """Yield the tables of the draft's tests that runs of the record have figures for, each with its number."""
    points = record.points
    for number_of, title, lines in (
        ("5.1", "Baseline Throughput", _throughput(points)),
        ("5.2", "Latency Characterization", _latency(points)),
        ("6.6", "UET Collective Communication Performance", transport_summary(collective_lines(points, _COLLECTIVES))),
        ("7.1", "ECN Marking Accuracy and Threshold", _marking(points)),
        ("8", "Load Balancing Efficacy", _balancing(points)),
        *(
            (_SECTIONS[kind], f"{title} Benchmark", _if_any(collective_lines(points, [kind])))
            for kind, title in _COLLECTIVES.items()
        ),
        ("9.4", "Collective Communication Library Bus Bandwidth Summary", _summary(points)),
        ("10.1", "Synthetic JCT Under Controlled Conditions", _jct(points)),
        ("11.2", "Link Failure Convergence", _failure(points)),
    ):
        if lines:
            yield f"### {number_of} {title}"
            yield ""
            yield from lines


def _if_any(lines: Sequence[CollectiveLine]) -> list[str]:
    return collective_table(lines) if lines else []


def _summary(points: Sequence[PointResult]) -> list[str]:
    lines = collective_lines(points, _COLLECTIVES)
    return busbw_summary(lines) if lines else []


def _rows(points: Sequence[PointResult], *metrics: str) -> list[PointResult]:
    """Return the points that have a figure for the first of these metrics."""
    return [point for point in points if median(point, metrics[0]) is not None]


def _named(point: PointResult) -> tuple[str, str, str]:
    return point.name or "-", transport_name(point), strategy(point)


def _throughput(points: Sequence[PointResult]) -> list[str]:
    found = [point for point in _rows(points, "aggregate_goodput") if median(point, "busbw") is None]
    columns = ("Point", "Transport", "LB strategy", "Aggregate throughput (Tbps)", "Throughput efficiency")
    return table(
        columns,
        (
            (*_named(point), number(times(real_rate(point, "aggregate_goodput"), 1e-12)),
             number(median(point, "aggregate_share")))
            for point in found
        ),
    ) if found else []  # fmt: skip


def _latency(points: Sequence[PointResult]) -> list[str]:
    rows = []
    for point in points:
        samples: dict[int, list[float]] = {}
        for run in whole_runs(point):
            for channel in run.channels:
                if channel.latency is not None:
                    samples.setdefault(channel.latency.size_bytes, []).extend(channel.latency.samples_us)
        for size, measured in sorted(samples.items()):
            real = [us / point.lab.k for us in measured]
            if real:
                statistics = [percentile(real, share) for share in (0.0, 0.5, 0.95, 0.99, 0.999, 1.0)]
                rows.append(
                    (*_named(point), size, len(real), number(statistics[0]), sum(real) / len(real),
                     *map(number, statistics[1:]))
                )  # fmt: skip
    columns = (
        "Point", "Transport", "LB strategy", "Message size (bytes)", "Samples", "min (us)", "mean (us)", "P50 (us)",
        "P95 (us)", "P99 (us)", "P99.9 (us)", "max (us)",
    )  # fmt: skip
    return table(columns, rows) if rows else []


def _marking(points: Sequence[PointResult]) -> list[str]:
    rows = [
        (*_named(point), curve.class_name, curve.kmin_bytes, curve.kmax_bytes, curve.pmax,
         sum(curve.packets), sum(curve.marked), number(median(point, "marking_error")))
        for point in points
        for run in whole_runs(point)[:1]
        for curve in run.marking
    ]  # fmt: skip
    columns = (
        "Point", "Transport", "LB strategy", "Traffic class", "Threshold min (bytes)", "Threshold max (bytes)",
        "Pmax", "ECN-capable packets", "Marked", "Threshold deviation",
    )  # fmt: skip
    return table(columns, rows) if rows else []


def _balancing(points: Sequence[PointResult]) -> list[str]:
    found = _rows(points, "mmr_uplinks")
    columns = (
        "Point", "Transport", "LB strategy", "MMR", "JFI", "Link utilization", "Out-of-order degree", "Goodput share",
    )  # fmt: skip
    names = ("mmr_uplinks", "jain_links", "link_utilisation", "reordered_ratio", "aggregate_share")
    rows = ((*_named(point), *(number(median(point, name)) for name in names)) for point in found)
    return table(columns, rows) if found else []


def _jct(points: Sequence[PointResult]) -> list[str]:
    found = _rows(points, "jct_ratio")
    columns = ("Point", "Transport", "LB strategy", "N", "Workload", "JCT (s)", "JCT Ratio", "Step P99 (s)")
    return table(
        columns,
        (
            (*_named(point), _ranks(point), written(point.workload),
             number(real_time(point, "jct")), number(median(point, "jct_ratio")),
             number(real_time(point, "step_p99")))
            for point in found
        ),
    ) if found else []  # fmt: skip


def _ranks(point: PointResult) -> str:
    """Return how many accelerators took part."""
    groups = {item.ranks for run in point.runs for item in run.collectives}
    if groups:
        return str(max(groups))
    ranks = {rank for run in point.runs for one in run.channels for rank in (one.source_rank, one.destination_rank)} - {
        None
    }
    return str(len(ranks)) if ranks else "not recorded"


def _failure(points: Sequence[PointResult]) -> list[str]:
    names = ("blackhole_time_loss", "recovery_time", "redistribution_time", "failure_overhead")
    found = [point for point in points if any(median(point, name) is not None for name in names)]
    columns = (
        "Point", "Transport", "LB strategy", "Duration of packet loss (s)", "Recovery of the rate (s)",
        "Redistribution (s)", "JCT overhead (s)", "Rate lost to the fault",
    )  # fmt: skip
    rows = (
        (*_named(point), *(number(median(point, name)) for name in names), number(median(point, "fault_rate_loss")))
        for point in found
    )
    if not found:
        return []
    return [*table(columns, rows), "Times are those of the lab: its routing daemons' timers are not scaled.", ""]


TESTS = (
    ("Throughput Rate", "5.1", ("aggregate_goodput",)),
    ("Latency (P99)", "5.2", ("rdma_latency_p99",)),
    ("Burst Absorption", "5.3", ()),
    ("ECN Accuracy", "7.1", ("marking_error",)),
    ("PFC Behavior", "7.2", ("pause_frames",)),
    ("DCQCN Convergence", "7.3", ("convergence_time",)),
    ("PFC Deadlock", "7.4", ()),
    ("ECMP Imbalance", "8.1", ("mmr_uplinks",)),
    ("DLB Efficacy", "8.2", ()),
    ("Spray Efficacy", "8.3", ()),
    ("AllReduce BusBW", "9.1", ("busbw:all_reduce",)),
    ("AllToAll JCT", "9.2", ("busbw:all_to_all",)),
    ("AllGather BusBW", "9.3", ("busbw:all_gather",)),
    ("Synthetic JCT Ratio", "10.1", ("jct_ratio",)),
    ("MLPerf JCT", "10.2", ()),
    ("Multi-Tenant Impact", "10.3", ("interference",)),
    ("Scale Limit", "11.1", ()),
    ("Failover Time", "11.2", ("blackhole_time_loss", "recovery_time")),
    ("24h Stability", "12.1", ()),
    ("UET Throughput (RUD)", "6.1", ("uet:aggregate_goodput",)),
    ("UET First-Packet Latency", "6.2", ()),
    ("UET Spray Efficacy", "6.3", ("uet:mmr_uplinks",)),
    ("UET PFC-Free Loss Rate", "6.4", ()),
    ("LLR Retry Latency", "6.5", ()),
    ("Packet Trimming Savings", "6.5", ()),
    ("CBFC vs PFC HOL Blocking", "6.5", ()),
    ("UET Collective BusBW", "6.6", ("uet:busbw",)),
    ("PDC Establishment Rate", "6.7", ()),
    ("Max Concurrent PDCs", "6.7", ()),
)
"""Table 15 of the draft: each KPI, the test that it is of, and the metrics that tell it. "uet:" is of that transport
alone, and what follows "busbw:" is the collective."""


def kpi_map(points: Sequence[PointResult]) -> list[str]:
    """Table 15 of the draft, with whether a run has a figure of each."""
    rows = [
        (title, f"Section {section}", "a figure, above" if any(_has(points, name) for name in names) else NOT_MEASURED)
        for title, section, names in TESTS
    ]
    return table(("KPI", "Test Section", "In this sheet"), rows)


def _has(points: Sequence[PointResult], name: str) -> bool:
    wanted = points
    if name.startswith("uet:"):
        wanted, name = [point for point in points if point.transport.get("kind") == "uet"], name.removeprefix("uet:")
    metric, _, kind = name.partition(":")
    if kind:
        wanted = [point for point in wanted if any(item.kind == kind for run in point.runs for item in run.collectives)]
    return any(median(point, metric) is not None for point in wanted)
