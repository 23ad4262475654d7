"""Whole scenarios as flows, beside the same ones by packets: figures, bands, verdicts and refusals."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator

from testbed.api.sweeps import read_sweep
from testbed.base.errors import ScenarioError
from testbed.record.json_schema import record_schema
from testbed.record.record import Backend, Outcome, Record
from testbed.record.store import decode_record, encode_record
from testbed.run.flows.point import FlowPoint
from testbed.run.flows.sweep import run_flows
from testbed.run.sweep.runner import RecordOptions

pytestmark = pytest.mark.process

RING = """
name: ring
topology:
  inline:
    name: small
    scale: {time: auto}
    fabric: {design: rail-optimized, segments: 2, hosts: 4, gpus: 1, spines: 4, nic: {per: gpu, rate: 400G}}
    qos: {preset: uec, base_rtt: 12us, load_balancing: {mode: spray}}
transport: {kind: uet}
workload: {kind: all-reduce, algorithm: ring, bytes: 2MB}
repeat: {runs: 1, seed: 1}
expect:
  - {metric: busbw_share, min: 0.3, source: line rate}
"""
ROCE = RING.replace("kind: uet", "kind: roce, cc: none").replace(
    "preset: uec, base_rtt: 12us, load_balancing: {mode: spray}", "preset: dcqcn, base_rtt: 12us"
)


def run(text: str, **overrides: object) -> Record:
    outcome = run_flows(read_sweep(text, overrides), RecordOptions(), processes=1)
    assert outcome.failure is None, outcome.failure
    return outcome.record


def metric(record: Record, name: str) -> float:
    value = record.points[0].runs[0].metrics[name]
    assert value is not None
    return float(value)


def ratio_of(record: Record, name: str) -> list[float]:
    assert record.points[0].twin is not None
    return [float(one) for band in record.points[0].twin.bands if band.metric == name for one in band.ratios]


@pytest.mark.parametrize("text", [RING, ROCE], ids=["uet", "roce"])
def test_a_ring_is_within_a_twentieth_of_its_packets_and_judged_by_its_band(text: str) -> None:
    record = run(text)
    assert record.environment.backend is Backend.FLOWS
    assert record.verdict.outcome is Outcome.PASS, record.verdict.reasons
    assert "so is the whole band" in record.verdict.reasons[0]
    [expectation] = record.expectations
    assert expectation.low is not None and expectation.high is not None and expectation.measured is not None
    assert expectation.low < expectation.measured < expectation.high * 1.05
    ratios = ratio_of(record, "jct")
    assert len(ratios) == 3
    assert ratios == pytest.approx([1.0] * 3, abs=0.05)
    twin = record.points[0].twin
    assert twin is not None and twin.nics == 8 and twin.words == "the point itself"
    assert decode_record(encode_record(record)) == record
    Draft202012Validator(record_schema()).validate(json.loads(encode_record(record)))


def test_the_same_seed_gives_the_same_record() -> None:
    first, second = (run(RING, **{"workload.bytes": "1MB"}) for _ in range(2))
    assert first.points == second.points


def test_a_limit_inside_the_band_is_judged_by_nobody() -> None:
    found = run(RING).expectations[0]
    assert found.low is not None and found.high is not None
    within = RING.replace("min: 0.3", f"min: {(found.low + found.high) / 2:.6f}")
    verdict = run(within).verdict
    assert verdict.outcome is Outcome.INVALID
    assert "the band of the flow level covers the limit" in verdict.reasons[0]


def test_what_only_packets_know_is_not_measured() -> None:
    record = run(RING.replace("busbw_share, min: 0.3", "drops, max: 0"), **{"workload.bytes": "256kB"})
    assert record.verdict.outcome is Outcome.INVALID
    assert record.verdict.reasons == ["drops is not measured as flows, which have no packets"]
    metrics = record.points[0].runs[0].metrics
    assert not set(metrics) & {"drops", "retransmits", "ecn_mark_ratio", "pause_frames", "queue_p99", "wrong"}
    assert {"jct", "busbw", "busbw_share", "mmr_uplinks", "fct_slowdown_p99", "aggregate_share"} <= set(metrics)


def test_a_folded_ring_takes_as_long_as_all_its_transfers() -> None:
    sweep = read_sweep(RING)
    [point] = sweep.points
    found = {}
    for folds in (False, True):
        one = FlowPoint(point, sweep.lab_of(point), folds=folds)
        result = one.run(1, lambda share: False).result
        assert result is not None
        found[folds] = result
    assert len(found[False].transfers.number) == 2 * 7 * 8
    assert found[True].transfers.number == []
    for name in ("jct", "busbw", "busbw_share"):
        assert found[True].metrics[name] == pytest.approx(found[False].metrics[name], rel=0.02)
    ports = [{(port.node, port.interface): port.tx_bytes for port in found[folds].ports} for folds in (False, True)]
    assert ports[1] == pytest.approx(ports[0], rel=0.02)


def test_domains_hold_back_what_stays_inside_them() -> None:
    """Two hosts of two GPUs: the ring goes over 900 GB/s inside, and over 400 Gbit/s between hosts."""
    text = RING.replace("hosts: 4, gpus: 1", "hosts: 2, gpus: 2, scale_up: {preset: h100}")
    fast = run(text, **{"workload.bytes": "2MB"})
    assert ratio_of(fast, "jct") == pytest.approx([1.0] * 3, abs=0.06)


def test_a_permutation_hashes_as_its_packets_do() -> None:
    text = RING.replace(
        "kind: all-reduce, algorithm: ring, bytes: 2MB", "kind: permutation, scope: inter-leaf, bytes: 32bdp"
    )
    text = text.replace("kind: uet", "kind: uet, paths: single").replace("mode: spray", "mode: flow")
    record = run(text.replace("busbw_share, min: 0.3", "mmr_uplinks, min: 1"))
    assert ratio_of(record, "mmr_uplinks") == pytest.approx([1.0] * 3, abs=0.02)
    assert ratio_of(record, "tail_fct") == pytest.approx([1.0] * 3, abs=0.15)


def test_adaptive_spraying_avoids_a_slow_uplink_and_oblivious_does_not() -> None:
    text = RING.replace(
        "kind: all-reduce, algorithm: ring, bytes: 2MB", "kind: permutation, scope: inter-leaf, bytes: 16bdp"
    )
    text = text.replace("mode: spray", "mode: flow").replace(
        "repeat:", ('faults: [{at: 0s, link: "p1-s1-rail1:uplink1", set: {rate: 50%, both: true}}]\nrepeat:')
    )
    text = text.replace("busbw_share, min: 0.3", "tail_fct, min: 0")
    oblivious, reps = (
        metric(run(text.replace("kind: uet", f"kind: uet, paths: {paths}")), "tail_fct")
        for paths in ("oblivious", "reps")
    )
    assert oblivious / reps > 1.3


LOSSY = ROCE.replace("preset: dcqcn, base_rtt: 12us", "preset: uec, base_rtt: 12us, load_balancing: {mode: flow}")


@pytest.mark.parametrize(
    ("text", "overrides", "said"),
    [
        (LOSSY, {}, "has all behind it sent again"),
        (RING, {"transport.kind": "nvme-tcp"}, "has links alone"),
        (
            RING.replace("bytes: 2MB", "bytes: 2MB").replace(
                "repeat:", "faults: [{at: 1ms, link: 'p1-s1-rail1:uplink1', down: true}]\nrepeat:"
            ),
            {},
            "rate of links",
        ),
        (
            RING.replace("repeat:", "faults: [{at: 1ms, link: 'p1-s1-rail1:uplink1', set: {rate: 50%}}]\nrepeat:"),
            {},
            "in the middle of it",
        ),
    ],
    ids=["go-back-n", "storage", "link-down", "mid-run"],
)
def test_what_flows_would_get_wrong_is_refused_with_the_reason(
    text: str, overrides: dict[str, object], said: str
) -> None:
    with pytest.raises(ScenarioError, match=said):
        run(text, **overrides)
