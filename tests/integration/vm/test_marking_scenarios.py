"""Scenarios that need the kernel's RED or DCTCP, run in the lab VM as a user would: `testbed --on vm run`.

An emulated machine that others slow down makes a run invalid and rates low; which packets are marked, and where a queue
stands, is told by depths in bytes, and holds there too.
"""

from pathlib import Path
from typing import Any

import pytest
from lab_vm import CHECKOUT, LabVm, run_scenario

from testbed.workload.metrics.links import LEAST_PACKETS

pytestmark = [pytest.mark.labvm, pytest.mark.netns, pytest.mark.timeout(1800)]

OFF_BY = 0.07
"""Of a bin's share of marks: three standard deviations where it has no more than `LEAST_PACKETS`."""


def run(lab_vm: LabVm, name: str, results: Path) -> tuple[dict[str, dict[str, Any]], str]:
    """The only run of each point by the last value of its matrix, and the report."""
    _, record, document = run_scenario(lab_vm, CHECKOUT / f"scenarios/{name}.yml", results)
    points = {}
    for point in record["points"]:
        (measured,) = point["runs"]
        points[str(list(point["values"].values())[-1])] = measured
    return points, document.with_name("report.html").read_text()


def test_red_marks_by_the_curve_that_ebpf_marks_by(lab_vm: LabVm, tmp_path: Path) -> None:
    points, report = run(lab_vm, "kernel-red", tmp_path)
    for by, marker in (("ebpf", "eBPF"), ("kernel", "RED")):
        (curve,) = points[by]["marking"]
        assert curve["marker"] == marker
        assert sum(curve["marked"]) > 0
        bins = list(zip(curve["packets"], curve["marked"], curve["ideal"], strict=True))
        judged = [
            (hit / packets, ideal) for packets, hit, ideal in bins if packets >= LEAST_PACKETS and ideal is not None
        ]
        assert len(judged) >= 3
        assert all(share == pytest.approx(ideal, abs=OFF_BY) for share, ideal in judged)
    assert "ECN marks against queue depth" in report
    assert "percentage points apart" in report


def test_dctcp_keeps_the_queue_at_its_threshold_and_cubic_fills_it(lab_vm: LabVm, tmp_path: Path) -> None:
    points, _ = run(lab_vm, "dctcp-queue", tmp_path)
    dctcp, cubic = points["dctcp"]["metrics"], points["cubic"]["metrics"]
    assert 50_000 <= dctcp["queue_p50"] <= 150_000
    assert cubic["queue_p50"] >= 3 * dctcp["queue_p50"]
    assert dctcp["drops"] == 0 < cubic["drops"]
    assert dctcp["ecn_mark_ratio"] > 0
