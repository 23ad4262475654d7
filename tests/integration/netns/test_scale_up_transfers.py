"""Traffic inside a scale-up domain as packets: a lab's own switch process carries it, and data is right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from testbed.deploy.live import RunningLab
from testbed.model import SCALE_UP_PRESETS, ScaleUpBy
from testbed.model.scenario import Transport, TransportKind
from testbed.plan.operations import PortPlan
from testbed.scenario.run.workers import SharedWorkers
from testbed.scenario.run.workload_runner import ExecutionResult, WorkloadRunner, WorkloadRunOptions
from testbed.workload.collectives.algorithms import generate_collective
from testbed.workload.collectives.operation import CollectiveOperation
from testbed.workload.steps import Workload

pytestmark = [pytest.mark.netns, pytest.mark.frr]

K = 50_000.0
"""A GPU has 72 Mbit/s to its planes together, and a round trip takes 50 ms."""
GPUS = 4
SIZE = 4 << 20


@pytest.fixture(scope="module")
def lab(shared_sandbox: Any) -> RunningLab:
    """One host with four GPUs and four planes."""
    model = shared_sandbox.model(segments=1, hosts=1, gpus=GPUS, spines=1)
    scale_up = replace(SCALE_UP_PRESETS["h100"], by=ScaleUpBy.PACKETS)
    shared_sandbox.deploy(replace(model, scale_up=scale_up), k=K)
    return RunningLab.open(model.name, shared_sandbox.state)


@pytest.fixture(scope="module")
def shared() -> Iterator[SharedWorkers]:
    with SharedWorkers(1) as found:
        yield found


def nics(lab: RunningLab) -> list[PortPlan]:
    return [nic for host in lab.plan.hosts for nic in host.nics]


def all_reduce() -> Workload:
    operation = CollectiveOperation(kind="all_reduce", size_bytes=SIZE, algorithm="ring")
    return generate_collective(operation, ranks=GPUS, ranks_per_domain=GPUS)


def run(lab: RunningLab, shared: SharedWorkers, workload: Workload, **transport: Any) -> ExecutionResult:
    with WorkloadRunner(lab, Transport(kind=TransportKind.UET, **transport), shared=shared) as runner:
        return runner.run(workload, nics(lab), WorkloadRunOptions(seed=3))


def test_an_all_reduce_is_right_and_takes_the_time_of_its_links(lab: RunningLab, shared: SharedWorkers) -> None:
    by_packets, by_time = (run(lab, shared, all_reduce(), scale_up=by) for by in ("packets", "time"))
    for result in (by_packets, by_time):
        assert result.complete, result.failure
        assert result.collectives[0].wrong == 0
    print(by_packets.collectives[0].seconds, by_time.collectives[0].seconds)
    assert by_packets.collectives[0].seconds == pytest.approx(by_time.collectives[0].seconds, rel=0.08)
