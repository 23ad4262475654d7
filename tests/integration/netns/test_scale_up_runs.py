"""Collectives over scale-up domains that span hosts: data goes from one host's worker to another's, and is right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from testbed.base.errors import ScenarioError
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.model import SCALE_UP_PRESETS
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.emulated.workers import SharedWorkers
from testbed.run.emulated.workload_runner import WorkloadRunner, WorkloadRunOptions
from testbed.run.schema.model import Transport, TransportKind
from testbed.workload.collectives.algorithms import generate_collective
from testbed.workload.collectives.operation import CollectiveOperation
from testbed.workload.steps import Workload

pytestmark = [pytest.mark.netns, pytest.mark.frr]

K = 20_000.0
"""NICs of 20 Mbit/s, scale-up links of 360 Mbit/s, and 10 ms one way inside a domain."""


@pytest.fixture(scope="module")
def lab(shared_sandbox: Any) -> RunningLab:
    """Two segments of two hosts with two GPUs each: a domain has four GPUs."""
    model = shared_sandbox.model(segments=2, hosts=2, gpus=2, spines=1)
    shared_sandbox.deploy(replace(model, scale_up=SCALE_UP_PRESETS["nvl72"]), k=K)
    return RunningLab.open(model.name, shared_sandbox.state)


@pytest.fixture(scope="module")
def runner(lab: RunningLab) -> Iterator[WorkloadRunner]:
    with (
        SharedWorkers(2) as shared,
        WorkloadRunner(lab, Transport(kind=TransportKind.UET), shared=shared) as found,
    ):
        yield found


def nics(lab: RunningLab) -> list[PortPlan]:
    return [nic for host in lab.plan.hosts for nic in host.nics]


def collective(kind: str, algorithm: str) -> Workload:
    operation = CollectiveOperation(kind=kind, size_bytes=1 << 18, algorithm=algorithm)
    return generate_collective(operation, ranks=8, ranks_per_domain=4)


@pytest.mark.parametrize(
    ("kind", "algorithm", "peers"),
    [
        ("all_reduce", "hierarchical", 1),
        ("all_reduce", "nvls", 1),
        ("all_to_all", "direct", 4),
        ("all_to_all", "pxn", 1),
    ],
)
def test_what_crosses_hosts_inside_a_domain_is_right(
    lab: RunningLab, runner: WorkloadRunner, kind: str, algorithm: str, peers: int
) -> None:
    result = runner.run(collective(kind, algorithm), nics(lab), WorkloadRunOptions(seed=3))
    assert result.complete, result.failure
    (found,) = result.collectives
    assert found.wrong == 0
    for rank in range(8):
        mine = {one.destination_rank for one in result.channels if one.source_rank == rank}
        assert len(mine) == peers and all(other // 4 != rank // 4 for other in mine if other is not None)
    assert result.inside_s is not None and result.inside_s[1] - result.inside_s[0] > 0.010


def test_workers_that_share_no_process_cannot_share_a_domain(lab: RunningLab) -> None:
    with (
        WorkloadRunner(lab, Transport(kind=TransportKind.UET)) as alone,
        pytest.raises(ScenarioError, match="cannot share a process"),
    ):
        alone.run(collective("all_reduce", "hierarchical"), nics(lab))
