"""No figure of a run is beyond its ideal: every kind of workload on the simulator, with 1 to 8 GPUs in a host.

What stays inside a host, or a scale-up domain, is no byte of the fabric in any ideal, share or oracle.
"""

import pytest

from testbed.base.metric import Better
from testbed.record.catalogue import definition_of
from testbed.record.record import PointResult, RunResult
from testbed.run.simulated.sweep import run_simulated
from testbed.run.sweep.runner import RecordOptions
from testbed.run.sweeps import read_sweep
from testbed.workload.registry import KINDS

pytestmark = pytest.mark.process

RANKS = 16
WORKLOADS = (
    "point-to-point, bytes: 16kB, source: 0, destination: 7",
    "incast, bytes: 16kB, senders: 7",
    "overlapped-incast, long_bytes: 64kB, burst_bytes: 16kB, burst_start: 1us, senders: 4",
    "incast-victim, bytes: 16kB, senders: 4",
    "outcast, bytes: 16kB",
    "outcast-incast, bytes: 16kB, receivers: 3",
    "permutation, bytes: 16kB",
    "tornado, bytes: 16kB, shift: 3",
    "mice, span: 10us, largest: 100kB",
    "background, bytes: 16kB, span: 10us, pairs: 8",
    "all-reduce, bytes: 64kB",
    "all-reduce, bytes: 64kB, algorithm: hierarchical",
    "all-reduce, bytes: 64kB, algorithm: tree",
    "all-reduce, bytes: 64kB, algorithm: halving-doubling",
    "all-reduce, bytes: 64kB, algorithm: nvls",
    "reduce-scatter, bytes: 64kB",
    "all-gather, bytes: 64kB",
    "broadcast, bytes: 64kB",
    "reduce, bytes: 64kB",
    "gather, bytes: 64kB",
    "scatter, bytes: 64kB",
    "send-recv, bytes: 64kB",
    "all-to-all, bytes: 4kB",
    "all-to-all, bytes: 4kB, algorithm: pxn",
    "training-step, data: 4, pipeline: 2, tensor: 1, gradient_bytes: 32kB, activation_bytes: 16kB, forward: 2us,"
    " backward: 3us, tensor_forward_bytes: 0B, tensor_backward_bytes: 0B",
    "training-step, data: 2, pipeline: 2, tensor: 2, gradient_bytes: 32kB, activation_bytes: 16kB, forward: 2us,"
    " backward: 3us, tensor_forward_bytes: 16kB, tensor_backward_bytes: 16kB",
    "pipeline, bytes: 32kB, stages: 4, forward: 2us, backward: 4us",
    "moe, experts: 16, top_k: 2, tokens: 16, hidden: 256, layers: 1",
    "moe, experts: 16, top_k: 2, tokens: 16, hidden: 256, layers: 1, relay: true",
    "kv-cache-incast, bytes: 16kB",
    "inference, model: 8B, requests: 3, bytes_factor: 0.0001",
    "checkpoint, bytes: 16kB, storage: [7], checkpoints: 1",
    "dataset-streaming, storage: [7], batches: 2, bytes_factor: 0.0001",
    "model-staging, storage: [7], bytes_factor: 0.00001",
    "kv-offload, storage: [7], requests: 3, bytes_factor: 0.0001",
    "prefix-cache, storage: [7], requests: 3, prefixes: 2, blocks: 2, bytes_factor: 0.0001",
    "tenants, tenants: [{ranks: 8, workload: {kind: all-reduce, bytes: 64kB, algorithm: hierarchical}},"
    " {ranks: 8, start: 5us, workload: {kind: incast, bytes: 16kB}}]",
)
NOT_SIMULATED = {"inference-requests", "fio", "program", "trace"}
"""Kinds that go over HTTP or by fio, and programs, none of which is simulated, and files of other tools."""


def run(workload: str, *, gpus: int, domain: str = "h100", ranks: int = RANKS) -> PointResult:
    kind, _, parameters = workload.partition(", ")
    text = f"""
name: inside
topology:
  inline:
    name: inside
    scale: {{time: auto}}
    fabric:
      {{design: rail-optimized, segments: 2, hosts: {ranks // gpus // 2}, gpus: {gpus}, spines: 2,
       nic: {{per: gpu, rate: 400G}}, scale_up: {{preset: {domain}}}}}
    qos: {{preset: uec}}
transport: {{kind: uet, cc: nscc}}
workload: {{kind: {kind}, {parameters}}}
repeat: {{runs: 1, seed: 1}}
"""
    outcome = run_simulated(read_sweep(text, {}), RecordOptions(), processes=1)
    assert outcome.failure is None
    return outcome.record.points[0]


def beyond(one: RunResult) -> dict[str, float]:
    """The metrics whose best value is 1 and that are better, in a way of their own: 0.1 % is the end of a packet."""
    found = {}
    for name, value in one.metrics.items():
        metric = definition_of(name)
        if metric is not None and metric.ideal == 1 and value:
            better = value if metric.better is Better.MORE else 1 / value
            if better > 1.001:
                found[name] = value
    return found


def test_every_kind_is_run() -> None:
    assert {one.partition(", ")[0] for one in WORKLOADS} | NOT_SIMULATED == set(KINDS)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda one: one.partition(", bytes")[0][:40])
@pytest.mark.parametrize(
    ("gpus", "domain"),
    [(2, "h100"), (4, "nvl72"), *(pytest.param(gpus, "h100", marks=pytest.mark.thorough) for gpus in (1, 4, 8))],
)
def test_no_figure_is_beyond_its_ideal(workload: str, gpus: int, domain: str) -> None:
    point = run(workload, gpus=gpus, domain=domain)
    [one] = point.runs
    assert beyond(one) == {}
    assert all(check.ok for check in one.checks), [check.message for check in one.checks if not check.ok]
    assert "ideal" in {check.name for check in one.checks}
    for item in one.collectives:
        assert item.ideal_busbw_bps is not None and item.busbw_bps <= 1.001 * item.ideal_busbw_bps
    rate_bps = 400e9
    for said in point.predictions:
        if said.metric in ("aggregate_share", "slowest_share"):
            assert said.maximum <= 1 + 1e-9
    entered = 8 * (one.metrics["s_fabric"] or 0.0) / (RANKS * rate_bps)
    assert entered <= (one.metrics["jct"] or 0.0), "no more entered the fabric than its NICs send meanwhile"


def test_a_sender_in_the_receivers_host_is_no_sender_of_the_fabric() -> None:
    """Rank 0 of two GPUs has one neighbour in its host and two senders outside: 2 x S over its NIC, and not 3 x S."""
    point = run("incast, bytes: 1MB, senders: 3", gpus=2, ranks=4)
    [one] = point.runs
    assert one.metrics["s_fabric"] == 2_000_000 and len(one.channels) == 2
    assert one.metrics["jct"] == pytest.approx(2 * 8e6 / 400e9, rel=0.12)
    assert 1 <= (one.metrics["tail_fct_ratio"] or 0) < 1.1 and 1 <= (one.metrics["jct_ratio"] or 0) < 1.1
    said = {item.metric: item.mean for item in point.predictions}
    assert said["aggregate_share"] == pytest.approx(0.5), "two flows share a NIC"


def test_an_incast_inside_of_a_host_is_compared_with_its_links() -> None:
    point = run("incast, bytes: 1MB, senders: 3, destination: 0", gpus=4, ranks=8)
    [one] = point.runs
    assert one.metrics["s_fabric"] == 0 and one.channels == [] and point.predictions == []
    assert one.metrics["jct"] == pytest.approx(3 * 8e6 / 3.6e12 + 0.5e-6, rel=0.01), "and half a round trip"
    assert 1 <= (one.metrics["jct_ratio"] or 0) < 1.1 and "tail_fct_ratio" not in one.metrics
