"""TCP, flows for a duration, requests and NVMe/TCP on the simulator, from the file to the record."""

from pathlib import Path

import pytest

from testbed.base.errors import ScenarioError
from testbed.record.record import Outcome, Record
from testbed.run.simulated.outlook import foresee_simulated
from testbed.run.simulated.point import SimulatedPoint
from testbed.run.simulated.support import REAL_PROGRAMS, check_supported
from testbed.run.simulated.sweep import run_simulated
from testbed.run.sweep.runner import RecordOptions
from testbed.run.sweeps import read_sweep

pytestmark = pytest.mark.process

SCENARIOS = Path(__file__).parents[4] / "scenarios"
FABRIC = """
topology:
  inline:
    name: small
    scale: {time: 10000}
    fabric: {design: rail-optimized, segments: 2, hosts: 2, gpus: 1, spines: 2, nic: {per: gpu, rate: 100G}, mtu: 1500}
"""
BYTES = f"""
name: small
{FABRIC}
transport: {{kind: tcp}}
workload: {{kind: permutation, scope: inter-leaf, bytes: 300kB}}
repeat: {{runs: 2, seed: 3}}
expect:
  - {{metric: aggregate_share, min: 0.3, source: "two flows share an uplink at worst"}}
"""
DURATION = BYTES.replace("bytes: 300kB", "duration: 2s").replace("runs: 2", "runs: 1")
INCAST = f"""
name: incast
{FABRIC.replace("segments: 2, hosts: 2", "segments: 1, hosts: 5")}
transport: {{kind: tcp}}
workload: {{kind: incast, senders: 4, bytes: 400kB}}
repeat: {{runs: 1, seed: 3}}
expect:
  - {{metric: tail_fct_ratio, max: 2.5, source: "all bytes through one port, and time-outs where the queue is full"}}
"""
REQUESTS = f"""
name: requests
{FABRIC}
transport: {{kind: tcp}}
workload:
  {{kind: inference-requests, clients: 2, requests_per_s: 100000, span: 100us, prefill: 2us, tpot: 200ns,
    output_tokens: 4, ttft_limit: 50us, tpot_limit: 5us}}
repeat: {{runs: 1, seed: 3}}
expect:
  - {{metric: failed_requests, max: 0, source: "every request is answered"}}
"""
STORAGE = """
name: storage
topology:
  inline:
    name: store
    scale: {time: 10000}
    fabric: {design: rail-optimized, segments: 1, hosts: 2, gpus: 1, spines: 1, routing: {bfd: off}}
    networks:
      storage: {leaves: 2, nic: {rate: 100G}, mtu: 4200, routing: {bfd: off},
                targets: {flash: {count: 1, capacity: 1GB, medium: {rate: 400G, latency: 5us}}}}
transport: {kind: nvme-tcp, io_bytes: 65536}
workload: {kind: checkpoint, bytes: 300kB, storage: 1, ranks: {network: storage, targets: ["*"]}}
repeat: {runs: 1, seed: 3}
expect:
  - {metric: jct_ratio, min: 1.0, max: 2.0, source: "the medium's latency beside the wire's time"}
"""


def simulate(text: str) -> Record:
    outcome = run_simulated(read_sweep(text), RecordOptions(), processes=1)
    assert outcome.failure is None
    return outcome.record


def passes(record: Record) -> None:
    for point in record.points:
        for run in point.runs:
            assert [check.name for check in run.checks if not check.ok] == []
    assert record.verdict.outcome is Outcome.PASS, record.verdict.reasons


@pytest.mark.parametrize("text", [BYTES, INCAST, DURATION, REQUESTS, STORAGE], ids=lambda text: text.split()[1])
def test_a_scenario_passes(text) -> None:
    passes(simulate(text))


def test_hops_are_foreseen_to_storage_targets_too() -> None:
    [one] = foresee_simulated(read_sweep(STORAGE))
    assert one.transfers > 0 and one.hops > one.transfers and one.estimated_s > 0


def test_requests_and_answers_are_foreseen() -> None:
    sweep = read_sweep(REQUESTS)
    [one] = foresee_simulated(sweep)
    asked = SimulatedPoint(sweep.points[0], sweep.lab_of(sweep.points[0])).traffic[0].workload.requests
    assert asked and one.hops >= 2 * 5 * len(asked), "a request and four tokens, over two lines at least"


@pytest.mark.parametrize("name", ["overlay-cost", "model-staging", "storm-spares-others"])
def test_shipped_scenarios_over_tcp_keep_to_their_bands(name) -> None:
    passes(run_simulated(read_sweep(SCENARIOS / f"{name}.yml"), RecordOptions(), processes=1).record)


def test_channels_have_the_counters_of_an_emulated_run() -> None:
    [point] = simulate(BYTES).points
    channel = point.runs[0].channels[0]
    assert channel.received_bytes == 300_000
    assert channel.sent_bytes == 300_000
    assert channel.packets is not None
    assert channel.packets >= 300_000 // 1448
    assert channel.min_rtt_us is not None
    assert set(channel.counters) == {
        "busy_us",
        "delivered_ce",
        "duplicate_sacks",
        "out_of_order",
        "receive_window_limited_us",
        "received_packets",
        "reorderings_seen",
        "send_buffer_limited_us",
    }
    assert channel.samples.cwnd_bytes


def test_flows_of_a_duration_are_measured_behind_their_warm_up() -> None:
    [point] = simulate(DURATION).points
    [run] = point.runs
    assert len(run.channels) == 4
    for channel in run.channels:
        assert channel.seconds == 2
        assert channel.samples.at_s[0] == 1
        assert channel.samples.at_s[-1] == pytest.approx(3)
        assert 0 < channel.goodput_bps <= channel.ideal_bps * 1.001
        assert channel.destination_port == 5201


def test_the_same_seed_gives_the_same_record() -> None:
    first, second = (simulate(INCAST) for _ in range(2))
    assert [run.metrics for point in first.points for run in point.runs] == [
        run.metrics for point in second.points for run in point.runs
    ]


def test_a_collective_s_sums_are_checked_to_the_bit() -> None:
    text = BYTES.replace("{kind: permutation, scope: inter-leaf, bytes: 300kB}", "{kind: all-reduce, bytes: 200kB}")
    text = text.replace("metric: aggregate_share, min: 0.3", "metric: wrong, max: 0").replace("runs: 2", "runs: 1")
    passes(simulate(text))


@pytest.mark.parametrize(("name", "kind"), [("fio-depth", "nbd"), ("rdma-latency", "rdma")])
def test_real_programs_are_refused_by_name(name, kind) -> None:
    with pytest.raises(ScenarioError, match=f"runs no real programs, and {kind} is {REAL_PROGRAMS[kind]}"):
        check_supported(read_sweep(SCENARIOS / f"{name}.yml"))


def test_a_congestion_control_of_the_kernel_alone_is_refused() -> None:
    with pytest.raises(ScenarioError, match="cubic, reno, dctcp, and not with bbr"):
        check_supported(read_sweep(BYTES.replace("kind: tcp", "kind: tcp, cc: bbr")))
