"""The results that the draft on inference fabrics asks for, where requests were served (tables 3 to 6, and 10)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from testbed.record.record import PointResult, Record
from testbed.record.report.benchmark import sections
from testbed.record.report.benchmark.drafts import NOT_MEASURED, ObservationPoint
from testbed.record.report.benchmark.tables import (
    FIGURE_COLUMNS,
    Figure,
    figure,
    figure_rows,
    heading,
    median,
    number,
    per_second,
    real_rate,
    real_time,
    table,
    times,
    transport_name,
)
from testbed.record.report.scenario.configuration import written
from testbed.record.report.scenario.figures import every_run
from testbed.record.report.scenario.nccl_table import whole_runs
from testbed.workload.metrics import percentile

DUT, ENDPOINT = ObservationPoint.DUT, ObservationPoint.ENDPOINT
_EXPERTS = "all_to_all"


def serves_inference(record: Record) -> bool:
    """Tell whether a record has requests for inference, which the draft on inference is for."""
    return any(run.requests.number for _, run in every_run(record))


def system_configuration(record: Record) -> Iterator[str]:
    """The system: what of it is modelled, and what there is not."""
    workload = record.scenario.workload
    accelerators = "; ".join(
        f"{point.name or 'the only point'}: {point.lab.nics} NICs in {point.lab.hosts} hosts" for point in record.points
    )
    rows = [
        ("Model name and parameter count", str(workload.get("model", NOT_MEASURED))),
        ("Parallelism strategy", written(workload.get("parallelism", "none: requests and answers over HTTP"))),
        ("xPyD ratio", str(workload.get("xpyd", NOT_MEASURED))),
        ("Inference serving framework", f"testbed {record.environment.testbed}, which computes nothing"),
        ("KV cache transfer library", f"testbed {record.environment.testbed}"),
        ("Accelerator type and count", f"modelled; {accelerators}"),
        ("NIC type and firmware version", ", ".join(dict.fromkeys(map(transport_name, record.points)))),
        ("Fabric topology", ", ".join(dict.fromkeys(sections.reference_topology(p.lab) for p in record.points))),
        ("Host", sections.host(record)),
        ("DUT/SUT configuration", "SUT-E for requests and tokens; DUT-F for the fabric's own figures"),
    ]
    yield from table(("Parameter", "Value"), rows)


def workload_parameters(record: Record) -> Iterator[str]:
    """The requests of each point, as they were measured."""
    columns = (
        "Point", "Requests", "Prompt tokens mean", "Prompt P50", "Prompt P99", "Output tokens mean", "Output P50",
        "Output P99", "Arrival rate (req/s)", "Workload", "Prefix sharing",
    )  # fmt: skip
    yield from table(columns, (_requests(point) for point in record.points))


def _requests(point: PointResult) -> tuple[object, ...]:
    runs = whole_runs(point)
    prompts = [float(count) for run in runs for count in run.requests.prompt_tokens]
    outputs = [float(count) for run in runs for count in run.requests.output_tokens]
    arrivals = [max(run.requests.start_s) - min(run.requests.start_s) for run in runs if len(run.requests.start_s) > 1]
    seconds = sum(arrivals) / point.lab.k if point.lab.k > 0 else 0.0
    rate = sum(len(run.requests.start_s) - 1 for run in runs) / seconds if seconds > 0 else None
    return (
        point.name or "-", len(prompts), *_tokens(prompts), *_tokens(outputs), number(rate), written(point.workload),
        NOT_MEASURED,
    )  # fmt: skip


def _tokens(counts: Sequence[float]) -> tuple[str, str, str]:
    mean = sum(counts) / len(counts) if counts else None
    return number(mean), number(percentile(counts, 0.5)), number(percentile(counts, 0.99))


def kpi_tables(points: Sequence[PointResult]) -> Iterator[str]:
    """Yield tables 3 to 6 of the draft for each point."""
    for point in points:
        yield from heading(point, len(points))
        for title, figures in (
            ("Primary Latency KPIs (table 3)", latencies(point)),
            ("Primary Throughput and Efficiency KPIs (table 4)", throughput(point)),
            ("Fabric-Level KPIs (table 5)", fabric(point)),
            ("Fabric Health Indicators (table 6)", health()),
        ):
            yield f"**{title}**"
            yield ""
            yield from table(FIGURE_COLUMNS, figure_rows(figures))


def latencies(point: PointResult) -> list[Figure]:
    """Latencies of requests and tokens, in milliseconds of the real fabric: median and P99."""

    def both(kpi: str, name: str, suffix: str, remark: str = "") -> Iterator[Figure]:
        for statistic, word in (("median", "P50"), ("p99", "P99")):
            value = times(real_time(point, f"{statistic}_{name}{suffix}"), 1e3)
            yield figure(f"{kpi} {word}", "ms", value, ENDPOINT, remark)

    less = "less the time that the server was to compute"
    return [
        *both("TTFT", "ttft", ""),
        *both("ITL", "itl", ""),
        *both("TTFT_fabric", "ttft", "_network", less),
        *both("ITL_fabric", "itl", "_network", less),
        *both("E2E_latency", "e2el", ""),
    ]


def throughput(point: PointResult) -> list[Figure]:
    """Rates of tokens and requests, for each second of the real fabric."""
    prompts: list[float | None] = [float(sum(run.requests.prompt_tokens)) for run in whole_runs(point)]
    return [
        figure("TPS_input", "tokens/s", per_second(point, prompts), ENDPOINT),
        figure("TPS_output", "tokens/s", real_rate(point, "output_throughput"), ENDPOINT),
        Figure(kpi="TPS_per_GPU", unit="tokens/s/GPU"),
        figure("Goodput", "req/s", real_rate(point, "request_goodput"), ENDPOINT, "requests within both limits"),
        figure("Request_Rate", "req/s", real_rate(point, "request_throughput"), ENDPOINT, "as offered, not a maximum"),
        Figure(kpi="Prefix_cache_hit_rate", unit="%"),
        Figure(kpi="JFI_decode", unit="dimensionless"),
    ]


def fabric(point: PointResult) -> list[Figure]:
    """Figures of the fabric itself."""
    pauses = per_second(point, (run.metrics.get("pause_frames") for run in whole_runs(point)))
    return [
        figure("KV_xfer_latency", "us", times(real_time(point, "rdma_latency_p50"), 1e6), ENDPOINT),
        Figure(kpi="KV_xfer_bandwidth", unit="GB/s"),
        Figure(kpi="EP_alltoall_latency", unit="us"),
        figure("EP_alltoall_bandwidth", "GB/s", _experts(point), ENDPOINT, "bus bandwidth of an all-to-all"),
        figure("Fabric_FCT", "us", times(real_time(point, "tail_fct"), 1e6), ENDPOINT, "of the slowest flow"),
        Figure(kpi="Buffer_utilization", unit="%"),
        figure("ECN_marking_rate", "%", times(median(point, "ecn_mark_ratio"), 100), DUT),
        figure("PFC_frame_count", "frames/s", pauses, DUT, "over all ports and priorities"),
        figure("Link_utilization", "%", times(median(point, "link_utilisation"), 100), DUT, "the mean of uplinks"),
        Figure(kpi="Packet_drop_rate", unit="ppm"),
    ]


def _experts(point: PointResult) -> float | None:
    if not any(item.kind == _EXPERTS for run in point.runs for item in run.collectives):
        return None
    return times(real_rate(point, "busbw"), 1e-9)


def health() -> list[Figure]:
    """The health of hardware, which a lab does not have."""
    return [
        Figure(kpi=kpi, unit=unit)
        for kpi, unit in (
            ("CPU Utilization (switch)", "%"),
            ("Memory Usage (switch)", "%"),
            ("FEC Error Rate", "BER"),
            ("CRC Error Count", "errors"),
            ("BGP/OSPF Stability", "flaps"),
            ("NIC QP State", "%"),
            ("GPU-NIC PCIe BW", "%"),
        )
    ]
