"""The results sheet of the IETF drafts on AI fabrics, read back as Markdown."""

import re
from dataclasses import replace

import pytest
from recorded import NAMES, load

from testbed.record.record import EarlierTry, Record
from testbed.record.report.benchmark import results_sheet
from testbed.record.report.benchmark.drafts import INFERENCE, NOT_MEASURED, TERMINOLOGY, TRAINING
from testbed.record.report.benchmark.training import TESTS
from testbed.record.samples import InferenceRequests

CHAPTER_13 = (
    "DUT Identification", "Test Topology", "Test Configuration", "Observation Points", "Host Configuration",
    "Test Results", "Anomalies", "Trial Accounting", "Repeatability Statement", "Comparability Statement",
)  # fmt: skip
"""The sections of the draft on training, in its order."""
TABLE_5 = (
    "Switch Vendor/Model", "Switch ASIC", "NOS Version", "Port Speed", "Buffer Architecture", "Optics/Cables",
    "NIC Vendor/Model", "NIC Firmware", "Host Config",
)  # fmt: skip
KPIS = (
    "Job Completion Time (JCT)", "JCT Ratio", "Bus Bandwidth (BusBW)", "Aggregate Throughput", "Packet Drop Rate",
    "Tail Latency P99", "Tail Latency P99.9", "ECN Marking Ratio", "PFC Pause Count", "PFC Pause Duration",
    "RDMA Retransmission Rate", "ECMP Imbalance (MMR)", "Jain's Fairness Index (JFI)", "Queue Depth P95",
    "Queue Depth Max", "Congestion Control Convergence", "Out-of-Order Packet Rate", "Switch CPU Utilization",
    "Switch Memory Utilization", "FIB / Route Convergence Time", "Link Flap Count", "CRC/FCS Error Rate",
    "Power Consumption",
)  # fmt: skip
"""Tables 7, 8 and 9."""
_CELLS = re.compile(r"(?<!\\)\|")


def chapters(text: str) -> dict[str, list[str]]:
    """The lines of each numbered section."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.splitlines():
        if match := re.fullmatch(r"## \d+\. (.*)", line):
            current = found.setdefault(match[1], [])
        else:
            current.append(line)
    return found


def rows(lines: list[str]) -> list[list[str]]:
    """The cells of all tables, each as wide as its heading; a line that is not ends the test."""
    found: list[list[str]] = []
    width = 0
    for line in lines:
        if not line.startswith("|"):
            width = 0
            continue
        cells = [cell.strip() for cell in _CELLS.split(line)[1:-1]]
        width = width or len(cells)
        assert len(cells) == width, line
        found.append(cells)
    return found


def values(text: str) -> dict[str, list[str]]:
    return {row[0]: row for row in rows(chapters(text)["Test Results"]) if len(row) == 5}


@pytest.mark.parametrize("name", NAMES)
def test_every_record_has_all_that_the_draft_asks_for(name: str) -> None:
    record = load(name)
    text = results_sheet(record)
    assert TRAINING in text.splitlines()[2] and TERMINOLOGY in text.splitlines()[2]
    assert tuple(chapters(text)) == CHAPTER_13
    assert [row[0] for row in rows(chapters(text)["DUT Identification"])[2:]] == list(TABLE_5)
    results = rows(chapters(text)["Test Results"])
    for kpi in KPIS:
        found = [row for row in results if row[0] == kpi]
        assert len(found) == len(record.points), kpi
        for row in found:
            assert (row[2] == NOT_MEASURED) == (row[3] == "-"), "what was measured says where, and nothing else does"
    mapped = results[-len(TESTS) :]
    assert [(row[0], row[1]) for row in mapped] == [(title, f"Section {section}") for title, section, _ in TESTS]


def test_figures_are_those_of_the_real_fabric() -> None:
    record = load("allreduce-rail")
    point = record.points[0]
    metrics = {metric.name: metric.median for metric in point.metrics}
    found = values(results_sheet(record))
    assert metrics["jct"] is not None and metrics["busbw"] is not None
    assert float(found["Job Completion Time (JCT)"][2]) == pytest.approx(metrics["jct"] / point.lab.k, rel=1e-3)
    busbw = float(found["Bus Bandwidth (BusBW)"][2])
    assert busbw == pytest.approx(metrics["busbw"] * point.lab.k * 8 / 1e9, rel=1e-3)
    assert busbw < point.lab.nic_real_bps / 1e9
    assert found["Switch CPU Utilization"][2] == NOT_MEASURED
    assert found["Power Consumption"][2] == NOT_MEASURED


def test_a_collective_has_its_table_with_the_algorithm() -> None:
    text = results_sheet(load("allreduce-rail"))
    table = rows(text.split("### 9.1")[1].split("###")[0].splitlines())
    heads = table[0]
    assert heads[:4] == ["Message size S (bytes)", "N", "LB strategy", "Algorithm (verified)"]
    for row in table[2:]:
        assert (row[heads.index("N")], row[heads.index("Algorithm (verified)")]) == ("8", "ring")
        assert float(row[heads.index("algo_factor")]) == pytest.approx(1.75)
        p99, p50 = (float(row[heads.index(name)]) for name in ("BusBW P99", "BusBW P50"))
        assert p99 <= p50, "the tail is the slow one"
    assert "### 9.2" not in text, "no all-to-all was run"
    mapped = {row[0]: row[2] for row in rows(chapters(text)["Test Results"]) if len(row) == 3}
    assert (mapped["AllReduce BusBW"], mapped["AllToAll JCT"]) == ("a figure, above", NOT_MEASURED)


def test_strategies_stand_side_by_side() -> None:
    """The summary of chapter 9.4: the same collective at three points, of which one sprays and one hashes."""
    record = load("allreduce-rail")
    (point,) = record.points
    points = [replace(point, name=mode, lab=replace(point.lab, load_balancing=mode)) for mode in ("flow", "spray")]
    text = results_sheet(replace(record, points=points))
    table = rows(text.split("### 9.4")[1].split("###")[0].splitlines())
    assert [cell.split(" ")[0] for cell in table[0][3:6]] == ["ECMP", "DLB", "Spray"]
    for row in table[2:]:
        assert row[3] == row[5] and row[4] == NOT_MEASURED


def test_points_that_a_table_cannot_tell_apart_do_not_hide_each_other() -> None:
    """Two points that differ in what has no column of its own, such as the MTU, and one of another transport."""
    record = load("allreduce-rail")
    (point,) = record.points
    faster = [
        replace(run, collectives=[replace(item, busbw_bps=item.busbw_bps * 2) for item in run.collectives])
        for run in point.runs
    ]
    hashed = replace(point.lab, load_balancing="flow")
    points = [
        replace(point, name="1500", lab=hashed, transport={"kind": "roce"}),
        replace(point, name="9000", lab=hashed, transport={"kind": "roce"}, runs=faster),
        replace(point, name="uet", lab=hashed, transport={"kind": "uet"}),
    ]
    text = results_sheet(replace(record, points=points))
    for title, place in (("### 9.4", 3), ("### 6.6", 5)):
        cells = [row[place] for row in rows(text.split(title)[1].split("\n#")[0].splitlines())[2:]]
        shared = [cell for cell in cells if cell.endswith("(2 points)")]
        assert shared, (title, cells)
        least, most = (float(word) for word in shared[0].removesuffix(" (2 points)").split(" to "))
        assert most == pytest.approx(2 * least, rel=1e-3)


def test_trials_that_do_not_count_are_told_with_their_reason() -> None:
    record = load("allreduce-rail")
    (point,) = record.points
    tried = EarlierTry(lab=point.lab, runs=point.runs, metrics=point.metrics, reasons=["the machine was busy"])
    broken = [replace(run, complete=place > 0) for place, run in enumerate([*point.runs, *point.runs])]
    changed = replace(record, points=[replace(point, runs=broken, earlier_tries=[tried])])
    (_, _, row) = rows(chapters(results_sheet(changed))["Trial Accounting"])
    assert row[1:3] == [str(len(broken) + len(point.runs)), str(len(broken) - 1)]
    assert "incomplete" in row[3] and "the machine was busy" in row[3]


def served(record: Record) -> Record:
    (point, *_) = record.points
    table = InferenceRequests(
        number=[0, 1], client=[0, 0], server=[1, 1], prompt_tokens=[100, 300], output_tokens=[10, 30],
        start_s=[0.0, 4.0], lateness_s=[0.0, 0.0], first_s=[1.0, 5.0], end_s=[2.0, 6.0],
        service_first_s=[0.1, 0.1], service_token_s=[0.0, 0.0], failure=["", ""],
    )  # fmt: skip
    runs = [replace(run, requests=table) for run in point.runs[:1]]
    return replace(record, points=[replace(point, runs=runs)])


def test_requests_for_inference_have_the_sheet_of_the_other_draft() -> None:
    record = served(load("frontend-mice"))
    text = results_sheet(record)
    assert INFERENCE in text.splitlines()[2]
    assert list(chapters(text))[:8] == [
        "System Configuration", "Workload Parameters", "KPI Summary Table", "Latency Distribution Plots",
        "Throughput vs. Scale Graphs", "Fabric Health Indicators", "Fabric-Visible Data Volume", "Raw Data Appendix",
    ]  # fmt: skip
    (_, _, row) = rows(chapters(text)["Workload Parameters"])
    assert row[1:5] == ["2", "200", "100", "300"]
    assert float(row[8]) == pytest.approx(record.points[0].lab.k / 4, rel=1e-3), "one request each 4 s of lab time"
    kpis = {line[0]: line for line in rows(chapters(text)["KPI Summary Table"])}
    assert kpis["KV_xfer_bandwidth"][2] == kpis["FEC Error Rate"][2] == NOT_MEASURED


def test_a_strangers_words_stay_in_their_cells() -> None:
    record = load("permutation-lb")
    points = [replace(point, name="a | b\n## 6. Test Results\n<script>") for point in record.points]
    text = results_sheet(replace(record, points=points))
    assert "<script>" not in text.replace("\\<script>", "")
    assert tuple(chapters(text)) == CHAPTER_13
    assert text.count("## 6. Test Results") == 1 + text.count("b ## 6. Test Results")
    for lines in chapters(text).values():
        rows(lines)
