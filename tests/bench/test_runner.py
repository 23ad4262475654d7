"""What the runner costs beyond the traffic itself: of a run on an unchanged lab, and of ten thousand small steps.

The lab has eight hosts under two leaves. "Beyond the traffic" is the time of `WorkloadRunner.run` less that from the
common begin to the end of the last transfer: preparing, connecting, reporting, checking, and hearing that all are done.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import pytest
from figures import Figure, judge

from testbed.api import Lab
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.emulated.workload_runner import WorkloadRunner
from testbed.run.measuring.measured import Measured
from testbed.run.schema.model import Transport, TransportKind
from testbed.workload.collectives.algorithms import generate_collective
from testbed.workload.collectives.operation import CollectiveOperation
from testbed.workload.steps import Workload

pytestmark = [pytest.mark.bench, pytest.mark.netns, pytest.mark.frr, pytest.mark.timeout(300)]

TOPOLOGY = """
name: wkbench
scale: {time: 2000}
fabric: {design: rail-optimized, segments: 2, hosts: 4, gpus: 1, spines: 2, nic: {per: gpu, rate: 400G}}
"""
ROUNDS = 5
MB = 1 << 20


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    with Lab.deploy(TOPOLOGY, directory=tmp_path_factory.mktemp("lab")) as deployed:
        yield RunningLab.open(deployed.name, StateDirectory())


def nics(lab: RunningLab) -> list[PortPlan]:
    return [host.nics[0] for host in lab.plan.hosts]


def traffic_s(result: Measured) -> float:
    return max(end for end in result.transfers.end_s if end is not None)


def rounds(lab: RunningLab, kind: TransportKind, workload: Workload) -> tuple[list[float], Measured]:
    """How long each round took beyond its traffic, after a first that starts the workers; and the last's result."""
    beyond = []
    with WorkloadRunner(lab, Transport(kind=kind)) as runner:
        for _ in range(1 + ROUNDS):
            begun = time.monotonic()
            result = runner.run(workload, nics(lab))
            took = time.monotonic() - begun
            assert result.complete and all(item.wrong == 0 for item in result.collectives), result.failure
            beyond.append(took - traffic_s(result))
    return beyond[1:], result


@pytest.mark.parametrize("kind", [TransportKind.TCP, TransportKind.UET])
def test_a_run_on_an_unchanged_lab(lab: RunningLab, kind: TransportKind) -> None:
    workload = generate_collective(
        CollectiveOperation(kind="all_reduce", size_bytes=4 * MB if kind is TransportKind.TCP else MB // 4), ranks=8
    )
    beyond, _ = rounds(lab, kind, workload)
    what = f"runner: beyond the traffic, 8 hosts, checked AllReduce over {kind}"
    judge(Figure(what, statistics.median(beyond), at_most=0.5, unit="s"))


def test_ten_thousand_small_steps(lab: RunningLab) -> None:
    workload = generate_collective(CollectiveOperation(kind="all_reduce", size_bytes=8 * 64), ranks=8, iterations=90)
    assert len(workload.transfers) > 10_000
    beyond, result = rounds(lab, TransportKind.TCP, workload)
    per_step_us = traffic_s(result) * 1e6 / len(workload.transfers)
    judge(
        Figure("runner: beyond the traffic, 10,000 steps", statistics.median(beyond), at_most=1.0, unit="s"),
        Figure("worker: a step of 64 B in a ring of 8, with 2 cores", per_step_us, at_most=200, unit="us"),
    )
