"""Requests for inference on a real lab: answered beside training, interrupted, a server killed; and a scenario."""

import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from testbed.base.interrupt import Interrupt
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.emulated.workers import SharedWorkers, WorkerFailed
from testbed.run.emulated.workload_runner import WorkloadRunner, WorkloadRunOptions
from testbed.run.measuring.measured import Measured, TimeLimitReached
from testbed.run.measuring.requests import RequestsMeasured
from testbed.run.schema.model import Transport
from testbed.workload.collectives.algorithms import generate_collective
from testbed.workload.collectives.operation import CollectiveOperation
from testbed.workload.requests.inference_requests import InferenceRequests, generate_inference_requests
from testbed.workload.steps import Workload
from testbed.workload.tenants import Tenant, mix_tenants

pytestmark = [pytest.mark.netns, pytest.mark.frr]

K = 1000.0
RUN_S = 120.0
VERDICTS = (0, 2)
"""Beside other tests the machine may have been too busy to trust what was measured."""


@pytest.fixture(scope="module")
def lab(shared_sandbox: Any) -> RunningLab:
    """8 hosts with a NIC each under two leaves."""
    model = shared_sandbox.model(segments=2, hosts=4, gpus=1, spines=2)
    shared_sandbox.deploy(model, k=K)
    return RunningLab.open(model.name, shared_sandbox.state)


def nics(lab: RunningLab, count: int) -> list[PortPlan]:
    """Consecutive ranks hang off different leaves."""
    found = [host.nics[0] for host in lab.plan.hosts]
    half = len(found) // 2
    return [nic for pair in zip(found[:half], found[half:], strict=True) for nic in pair][:count]


def requests(ranks: int = 4, **changes: Any) -> Workload:
    """100 requests in a second of lab time, with answers of 5 tokens, 10 ms apart after the first 20 ms."""
    asked = {"requests_per_s": 100 * K, "span_ns": 1_000_000, "prefill_ns": 20_000, "tpot_ns": 10_000}
    return generate_inference_requests(
        InferenceRequests(**(asked | {"output_tokens": 5} | changes)), ranks=ranks, rng=random.Random(1)
    )


def measured(result: Measured) -> RequestsMeasured:
    assert result.requests is not None
    return result.requests


def test_all_are_answered_by_shared_workers_and_again(lab: RunningLab) -> None:
    workload = requests()
    shares: list[float] = []
    with SharedWorkers() as shared, WorkloadRunner(lab, Transport(), shared=shared) as runner:
        for seed in (1, 2):
            result = runner.run(workload, nics(lab, 4), WorkloadRunOptions(seed=seed, k=K, on_progress=shares.append))
            found = measured(result)
            assert result.complete, result.failure
            assert found.counts.answered == len(workload.requests) > 70
            assert set(found.table.failure) == {""}
            assert min(found.times.ttft_s) >= 0.02 and min(found.times.e2el_s) >= 0.06
            assert result.counters["http_connections"] < len(workload.requests) / 2, "connections are kept"
            assert result.counters["http_refusals"] == 0
    assert shares[-1] == 1.0


def test_workers_are_in_real_time_while_there_are_requests_and_no_longer(lab: RunningLab) -> None:
    ranks = nics(lab, 4)
    seen: set[int] = set()
    with WorkloadRunner(lab, Transport()) as runner:

        def look(share: float) -> None:
            if 0.02 < share < 0.9:
                seen.add(os.sched_getscheduler(runner.pid(ranks[0].node) or 0))

        assert runner.run(requests(), ranks, WorkloadRunOptions(k=K, on_progress=look)).complete
        after = {os.sched_getscheduler(runner.pid(nic.node) or 0) for nic in ranks}
    assert seen == {os.SCHED_FIFO | os.SCHED_RESET_ON_FORK}
    assert after == {os.SCHED_OTHER}


def test_requests_beside_a_collective(lab: RunningLab) -> None:
    training = generate_collective(CollectiveOperation(kind="all_reduce", size_bytes=1 << 20), ranks=4)
    mixed = mix_tenants(
        [
            Tenant(name="training", workload=training, ranks=(0, 1, 2, 3)),
            Tenant(name="users", workload=requests(), ranks=(4, 5, 6, 7)),
        ],
        ranks=8,
    )
    with WorkloadRunner(lab, Transport()) as runner:
        result = runner.run(mixed, nics(lab, 8), WorkloadRunOptions(k=K))
    assert result.complete, result.failure
    assert result.collectives[0].wrong == 0
    found = measured(result)
    assert found.counts.answered == len(mixed.requests)
    assert {*found.table.client, *found.table.server} == {4, 5, 6, 7}


def test_an_interrupt_keeps_the_answers_that_there_are(lab: RunningLab) -> None:
    workload = requests(span_ns=20_000_000)
    with Interrupt() as interrupt, WorkloadRunner(lab, Transport()) as runner:
        result = runner.run(
            workload,
            nics(lab, 4),
            WorkloadRunOptions(
                k=K, interrupt=interrupt, on_progress=lambda share: interrupt.request() if share > 0.02 else None
            ),
        )
        assert result.interrupted and result.failure is None
        found = measured(result)
        assert 0 < found.counts.answered < len(workload.requests) / 2
        assert found.counts.failed == 0
        assert runner.run(requests(), nics(lab, 4), WorkloadRunOptions(k=K)).complete, "the ports are free again"


def test_a_server_that_is_killed_and_a_time_limit(lab: RunningLab) -> None:
    workload = requests(span_ns=20_000_000)
    ranks = nics(lab, 4)
    victim = ranks[3].node
    with WorkloadRunner(lab, Transport(), alone=[victim]) as runner:

        def kill(share: float) -> None:
            pid = runner.pid(victim)
            if share > 0.02 and pid is not None:
                os.kill(pid, signal.SIGKILL)

        result = runner.run(workload, ranks, WorkloadRunOptions(k=K, on_progress=kill))
        assert isinstance(result.failure, WorkerFailed) and result.failure.host == victim
        assert measured(result).counts.answered > 0
        late = runner.run(requests(prefill_ns=1_000_000_000), ranks, WorkloadRunOptions(k=K, limit_s=1.5))
        assert isinstance(late.failure, TimeLimitReached)
        assert set(late.failure.hosts) == {ranks[0].node, ranks[1].node}, "servers wait for nothing"


@pytest.fixture
def scenario(sandbox: Any) -> Path:
    path: Path = sandbox.work / "front.yml"
    path.write_text(
        f"""name: front
topology:
  inline:
    name: {sandbox.name()}
    scale: {{time: 1000}}
    fabric: {{design: single-switch, hosts: 4, gpus: 1}}
workload:
  kind: inference-requests
  arrivals: gamma
  requests_per_s: 50000
  span: 2ms
  lengths: azure-code
  prefill: 10us
  tpot: 500ns
  ttft_limit: 100us
  tpot_limit: 2us
expect:
  - {{metric: failed_requests, max: 0, source: test}}
  - {{metric: mean_ttft, min: 10ms, max: 1s, source: test}}
"""
    )
    return path


def test_a_scenario_has_the_metrics_of_its_requests(sandbox: Any, scenario: Path) -> None:
    done = sandbox.cli("run", str(scenario), "-o", "out", "-f", "json", timeout_s=RUN_S)
    assert done.returncode in VERDICTS, done.stderr
    directory = sandbox.work / json.loads(done.stdout)["directory"]
    record = json.loads((directory / "record.json").read_text())
    [point] = record["points"]
    metrics = {metric["name"]: metric["median"] for metric in point["metrics"]}
    assert metrics["failed_requests"] == 0
    assert 0.01 <= metrics["median_ttft"] <= metrics["p99_ttft"] < 1
    assert metrics["mean_ttft_network"] == pytest.approx(metrics["mean_ttft"] - 0.01)
    assert metrics["mean_e2el_network"] < metrics["mean_ttft_network"] + 0.05
    assert metrics["request_goodput"] <= metrics["request_throughput"]
    assert [item["outcome"] for item in record["expectations"]] in (["pass"] * 2, ["invalid"] * 2)
    [run] = point["runs"]
    assert "request-lateness" in [check["name"] for check in run["checks"]]
    assert run["requests"]["output_tokens"] and {one["name"] for one in run["distributions"]} >= {"ttft", "itl"}
    lines = (directory / "requests.csv").read_text().splitlines()
    assert len(lines) == 1 + len(run["requests"]["number"])
    assert "Time to first token" in (directory / "report.html").read_text()
    assert sandbox.namespaces() == {}
