"""Simulations that are too large for a step of each transfer, and what is foreseen of any."""

import json
from pathlib import Path

import pytest

from testbed.base.errors import TestbedError
from testbed.cli.scenarios.run import run as run_verb
from testbed.record.record import Outcome, PointResult
from testbed.run.ideals import predictions
from testbed.run.simulated.outlook import foresee_simulated, together_s
from testbed.run.simulated.point import SimulatedPoint
from testbed.run.simulated.sweep import run_simulated
from testbed.run.sweep.runner import RecordOptions
from testbed.run.sweeps import read_sweep
from testbed.workload import builder
from testbed.workload.collectives import algorithms

pytestmark = pytest.mark.process

RING = """
name: ring
topology:
  inline:
    name: ring
    scale: {time: auto}
    fabric: {design: rail-optimized, segments: 2, hosts: 3, gpus: 1, spines: 2, nic: {per: gpu, rate: 400G}}
    qos: {preset: uec, base_rtt: 12us}
transport: {kind: uet, cc: nscc}
workload: {kind: all-reduce, bytes: 300kB, iterations: 2}
repeat: {runs: 1, seed: 3}
expect:
  - {metric: jct_ratio, max: 20, source: "it moves at all"}
"""
ROCE = RING.replace("kind: uet, cc: nscc", "kind: roce").replace("preset: uec", "preset: dcqcn")
INSIDE = RING.replace("gpus: 1", "gpus: 2")
"""With a scale-up domain in each host."""
PATTERN = RING.replace("kind: all-reduce, bytes: 300kB, iterations: 2", "kind: permutation, bytes: 1MB").replace(
    "metric: jct_ratio", "metric: tail_fct_ratio"
)


def point_of(text: str) -> PointResult:
    outcome = run_simulated(read_sweep(text), RecordOptions(), processes=1)
    assert outcome.failure is None
    assert outcome.record.verdict.outcome is Outcome.PASS, outcome.record.verdict
    return outcome.record.points[0]


@pytest.mark.parametrize("text", [RING, ROCE, INSIDE, RING.replace("bytes: 300kB", "bytes: 300kB, chunks: 3")])
def test_a_ring_that_is_streamed_takes_the_time_of_one_whose_transfers_are_steps(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepwise = point_of(text).runs[0]
    monkeypatch.setattr(algorithms, "MAX_STEPS", 10)
    point = point_of(text)
    streamed = point.runs[0]
    assert any("are not recorded one by one" in note for note in point.notes)
    assert len(stepwise.collectives) == len(streamed.collectives) == 2
    for one, other in zip(stepwise.collectives, streamed.collectives, strict=True):
        assert other.seconds == pytest.approx(one.seconds, rel=0.06), "another order of what is drawn at random"
        assert (other.ranks, other.size_bytes, other.algorithm) == (one.ranks, one.size_bytes, one.algorithm)
        assert other.ideal_busbw_bps == pytest.approx(one.ideal_busbw_bps, rel=0.01)
        assert one.wrong == 0 and other.wrong is None, "its data is not carried, so that it is not checked"
    assert not streamed.transfers.number, "a transfer of it is not recorded by itself"
    assert {(one.source_rank, one.destination_rank) for one in streamed.channels} == {
        (one.source_rank, one.destination_rank) for one in stepwise.channels
    }
    for channel in streamed.channels:
        assert channel.received_bytes == channel.sent_bytes > 0


def test_other_collectives_of_too_many_steps_end_in_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "MAX_STEPS", 20)
    text = PATTERN.replace("kind: permutation, bytes: 1MB", "kind: all-to-all, bytes: 4kB")
    with pytest.raises(TestbedError, match="more than 20 steps"):
        foresee_simulated(read_sweep(text))


@pytest.mark.parametrize(
    "text", [PATTERN, PATTERN.replace("kind: uet, cc: nscc", "kind: roce").replace("uec", "dcqcn")]
)
def test_hops_are_foreseen_as_they_come(text: str) -> None:
    sweep = read_sweep(text)
    [one] = foresee_simulated(sweep)
    outcome = SimulatedPoint(sweep.points[0], sweep.lab_of(sweep.points[0])).run(1, lambda share: False)
    assert outcome.result is not None
    full = sum(port.tx_bytes for port in outcome.result.ports) / 4200  # as if all packets were full
    assert 0.8 * full < one.hops < 1.8 * full
    assert one.transfers == 6 and one.bytes == 6_000_000
    assert one.memory_bytes > 50_000_000 and one.estimated_s > 0


def test_a_ring_of_1024_ranks_is_foreseen_without_its_transfers() -> None:
    """It has more than a workload may have steps."""
    text = RING.replace("segments: 2, hosts: 3", "segments: 8, hosts: 128").replace("bytes: 300kB", "bytes: 64MB")
    [one] = foresee_simulated(read_sweep(text.replace(", iterations: 2", "")))
    assert one.ranks == 1024 and one.transfers == 2 * 1023 * 1024
    assert one.hops > 2 * 16 * one.transfers, "16 packets through a leaf, at least"
    assert one.memory_bytes < 2e9 and one.estimated_s > 10


def test_runs_are_spread_over_processes() -> None:
    points = foresee_simulated(read_sweep(PATTERN.replace("runs: 1", "runs: 8")))
    alone, spread = together_s(points, 1), together_s(points, 4)
    assert alone == pytest.approx(4 * spread)
    assert together_s(points, 100) == pytest.approx(alone / 8)


def test_the_verb_says_hops_memory_and_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ring.yml"
    file.write_text(RING)
    words = [str(file), "--backend", "simulation", "--dry-run"]
    run_verb.main(words, standalone_mode=False)
    told = capsys.readouterr().out
    assert "hops" in told and "nothing was touched" in told and not (tmp_path / "results").exists()
    run_verb.main([*words, "-f", "json"], standalone_mode=False)
    [document] = json.loads(capsys.readouterr().out)
    [point] = document["points"]
    assert point["transfers"] == 2 * 2 * 5 * 6 and point["hops"] > 120
    assert {"memory_bytes", "estimated_s", "runs"} <= point.keys()


def test_of_many_flows_oracles_say_how_they_load_the_links(monkeypatch: pytest.MonkeyPatch) -> None:
    text = PATTERN.replace("preset: uec", "preset: dcqcn").replace("cc: nscc", "paths: single")
    text = text.replace("max: 20", "max: 100")
    names = []
    for most in (predictions.MOST_FLOWS, 5):
        monkeypatch.setattr(predictions, "MOST_FLOWS", most)
        names.append({one.metric for one in point_of(text).predictions})
    assert "tail_fct_ratio" in names[0] and names[1] < names[0]
    assert "tail_fct_ratio" not in names[1] and "mmr_uplinks" in names[1]
