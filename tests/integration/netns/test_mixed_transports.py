"""One run over three transports on a real lab: each network has its own, and each host a worker for each."""

import random

import pytest
from sandbox import Sandbox

from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.emulated.workers import SharedWorkers, WorkerFailed
from testbed.run.emulated.workload_runner import WorkloadRunner, WorkloadRunOptions
from testbed.run.placed.placement import place_ranks
from testbed.run.schema.model import Ranks, Transport
from testbed.run.schema.transports import TransportKind
from testbed.workload.collectives.algorithms import generate_collective
from testbed.workload.collectives.operation import CollectiveOperation
from testbed.workload.requests.inference_requests import InferenceRequests, generate_inference_requests
from testbed.workload.steps import Workload
from testbed.workload.storage import Checkpoint, generate_checkpoint
from testbed.workload.tenants import Tenant, mix_tenants

pytestmark = [pytest.mark.netns, pytest.mark.frr]

TEXT = """name: {name}
scale: {{time: 2000}}
fabric: {{design: rail-optimized, hosts: 3, gpus: 1, segments: 1, spines: 1, routing: {{bfd: "off"}}}}
networks:
  frontend: {{design: single-switch, nic: {{rate: 100G}}}}
  storage: {{leaves: 1, nic: {{rate: 200G}}, mtu: 9000, routing: {{bfd: "off"}}, targets: {{flash: {{count: 1}}}}}}
"""
K = 2000.0
TRANSPORTS = (
    Transport(kind=TransportKind.UET),
    Transport(kind=TransportKind.TCP),
    Transport(kind=TransportKind.NVME_TCP, options={"io_bytes": 65536, "digests": True}),
)
CHECKPOINT_BYTES = 500_077


@pytest.fixture(scope="module")
def lab(shared_sandbox: Sandbox) -> RunningLab:
    return shared_sandbox.lab(TEXT).of_network("backend", "frontend", "storage")


@pytest.fixture(scope="module")
def nics(lab: RunningLab) -> tuple[PortPlan, ...]:
    """Ranks 0 to 2 are in the back end, 3 to 5 in the front end, 6 to 8 in storage, and 9 is the target."""
    choice = Ranks(networks=("backend", "frontend", "storage"), targets=("*",))
    return place_ranks(lab.model, lab.plan, choice, seed=1).nics


def workload() -> Workload:
    ring = generate_collective(CollectiveOperation(kind="all_reduce", size_bytes=120_000), ranks=3)
    asked = InferenceRequests(
        requests_per_s=50 * K, span_ns=400_000, prefill_ns=10_000, tpot_ns=5_000, output_tokens=5, servers=1
    )
    users = generate_inference_requests(asked, ranks=3, rng=random.Random(1))
    saved = generate_checkpoint(Checkpoint(size_bytes=CHECKPOINT_BYTES, storage=1), ranks=4)
    tenants = (
        Tenant(name="training", workload=ring, ranks=(0, 1, 2)),
        Tenant(name="users", workload=users, ranks=(3, 4, 5)),
        Tenant(name="checkpoint", workload=saved, ranks=(6, 7, 8, 9)),
    )
    return mix_tenants(tenants, ranks=10)


def test_each_tenant_goes_over_its_own_in_one_run_and_again(lab: RunningLab, nics: tuple[PortPlan, ...]) -> None:
    carried = workload()
    with SharedWorkers() as shared, WorkloadRunner(lab, Transport(), shared=shared, of_tenants=TRANSPORTS) as runner:
        for seed in (1, 2):
            result = runner.run(carried, nics, WorkloadRunOptions(seed=seed))
            assert result.complete, result.failure
            assert None not in result.transfers.end_s
            assert [one.wrong for one in result.collectives] == [0]
            assert result.requests.table.number == list(range(len(carried.requests)))
            assert result.requests.counts.answered == len(carried.requests) > 5
    by_port: dict[int | None, set[int | None]] = {}
    for channel in result.channels:
        by_port.setdefault(channel.destination_port, set()).add(channel.source_rank)
    assert by_port == {4793: {0, 1, 2}, 4420: {6, 7, 8}}, "UET's and NVMe/TCP's"
    written = [one.received_bytes for one in result.channels if one.destination_port == 4420]
    assert written == [CHECKPOINT_BYTES] * 3
    assert result.counters["nvme_associations"] == 3
    assert result.counters["datagrams_sent"] > 0
    for start, end, ideal in zip(
        result.transfers.start_s, result.transfers.end_s, result.transfers.ideal_s, strict=True
    ):
        assert start is not None and end is not None
        assert end - start >= 0.5 * ideal, "of its own transport: framing, path and medium"


def test_a_killed_host_loses_the_workers_of_all_its_networks(lab: RunningLab, nics: tuple[PortPlan, ...]) -> None:
    victim = nics[1].node
    pids: list[int] = []

    with WorkloadRunner(lab, Transport(), alone=[victim], of_tenants=TRANSPORTS) as runner:

        def kill(share: float) -> None:
            if not pids:
                pids.extend(
                    pid
                    for kind in ("uet", "tcp", "nvme-tcp")
                    if (pid := runner.pid(f"{victim} over {kind}")) is not None
                )
                runner.kill(victim)

        result = runner.run(workload(), nics, WorkloadRunOptions(seed=1, on_progress=kill))
    assert len(pids) == len(set(pids)) == 3
    assert isinstance(result.failure, WorkerFailed)
    assert result.failure.is_death
    assert victim in str(result.failure)
