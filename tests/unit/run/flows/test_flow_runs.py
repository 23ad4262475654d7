"""Whole scenarios as flows, beside the same ones by packets: figures, bands, verdicts and refusals."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from jsonschema import Draft202012Validator

from testbed.base.errors import ScenarioError
from testbed.record.json_schema import record_schema
from testbed.record.record import Backend, Outcome, Record
from testbed.record.store import decode_record, encode_record
from testbed.run.flows.point import FlowPoint
from testbed.run.flows.slowed_links import slowed_links
from testbed.run.flows.sweep import run_flows
from testbed.run.flows.twins import TwinFlows, make_twin
from testbed.run.simulated.fabric import planned_lab
from testbed.run.simulated.point import SimulatedPoint
from testbed.run.sweep.point_runs import RunOutcome
from testbed.run.sweep.runner import RecordOptions
from testbed.run.sweeps import read_sweep

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
    assert [len(found[folds].collectives) for folds in (False, True)] == [1, 1]
    for name in ("jct", "busbw", "busbw_share"):
        assert found[True].metrics[name] == pytest.approx(found[False].metrics[name], rel=0.02)
    ports = [{(port.node, port.interface): port.tx_bytes for port in found[folds].ports} for folds in (False, True)]
    assert ports[1] == pytest.approx(ports[0], rel=0.02)


@pytest.mark.parametrize("folds", [False, True])
def test_a_collective_whose_messages_are_cut_has_a_size_to_go_by(folds: bool) -> None:
    """Else its bus bandwidth would be eight times that of the line, and no run of its twin to be trusted."""
    sweep = read_sweep(RING, {"workload.bytes": "64MB"})
    [point] = sweep.points
    lab = sweep.lab_of(point)
    whole = FlowPoint(point, lab, folds=folds).run(1, lambda share: False).result
    cut = TwinFlows(point, lab, folds=folds, cut_to=1_000_000).run(1, lambda share: False).result
    assert [one.size_bytes for one in cut.collectives] == [8_000_000]
    assert cut.collectives[0].datatype == whole.collectives[0].datatype
    assert cut.is_valid
    assert cut.metrics["busbw_share"] == pytest.approx(whole.metrics["busbw_share"], rel=0.3)


def test_a_transfer_alone_takes_what_the_slowest_port_of_its_way_allows() -> None:
    text = ROCE.replace("hosts: 4", "hosts: 1").replace("spines: 4", "spines: 1, uplink: {rate: 100G, count: 1}")
    text = text.replace("kind: all-reduce, algorithm: ring, bytes: 2MB", "kind: permutation, bytes: 64bdp")
    text = text.replace("busbw_share, min: 0.3", "jct_ratio, max: 9")
    sweep = read_sweep(text)
    [point] = sweep.points
    result = FlowPoint(point, sweep.lab_of(point)).run(1, lambda share: False).result
    assert result.metrics["fct_slowdown_p99"] == pytest.approx(1.0, rel=0.01)


TWO_POINTS = RING.replace("bytes: 2MB", "bytes: 256kB").replace(
    "repeat: {runs", "matrix: {workload.bytes: [256kB, 512kB]}\nrepeat: {runs"
)


def test_packets_that_fail_leave_the_other_points_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate = SimulatedPoint.run

    def fail_once(self: SimulatedPoint, index: int, on_progress: Callable[[float], bool]) -> RunOutcome:
        if self.point.index == 1:
            return RunOutcome(result=None, failure=ScenarioError("a packet lost its way"))
        return simulate(self, index, on_progress)

    monkeypatch.setattr(SimulatedPoint, "run", fail_once)
    first, second = (point.twin for point in run(TWO_POINTS).points)
    assert first is not None and "a packet lost its way" in first.failure and not first.bands
    assert second is not None and not second.failure and second.bands


def test_a_lab_that_is_only_outlined_is_not_planned_for_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few ranks there are: a plan of tens of thousands of links takes minutes, and much memory."""
    sweep = read_sweep(RING.replace("bytes: 2MB", "bytes: 2MB, ranks: {count: 4}").replace("hosts: 4", "hosts: 16"))
    [point] = sweep.points
    monkeypatch.setattr("testbed.run.flows.twins.MOST_PLANNED_LINKS", 16)
    found = make_twin(sweep, FlowPoint(point, sweep.lab_of(point)))
    assert not found.failure
    assert found.words == "4 NICs of the same design (hosts 4, spines 1)"
    assert len(found.packets.lab.model.links) <= 16
    assert len(found.packets.traffic[0].placement.nics) == 4


def test_after_a_point_that_fails_no_other_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def fail(self: FlowPoint, index: int, on_progress: Callable[[float], bool]) -> RunOutcome:
        seen.append(self.point.index)
        return RunOutcome(result=None, failure=ScenarioError("no end of it"))

    monkeypatch.setattr(FlowPoint, "run", fail)
    outcome = run_flows(read_sweep(TWO_POINTS), RecordOptions(), processes=1)
    assert outcome.failure is not None and outcome.failure.message == "no end of it"
    assert set(seen) == {1}


def test_a_rate_that_a_link_is_given_is_one_of_the_lab() -> None:
    text = RING.replace("repeat:", "faults: [{at: 0s, link: 'p1-s1-rail1:uplink1', set: {rate: 100G}}]\nrepeat:")
    sweep = read_sweep(text)
    [point] = sweep.points
    plan = planned_lab(sweep.lab_of(point), 1000.0).plan
    assert slowed_links(point.scenario.faults, plan)[0] == {"p1-s1-rail1:uplink1": 100_000_000}


@pytest.mark.parametrize("change", ["rate: 50%", "rate: 100G, both: true"])
def test_a_link_of_another_network_slows_no_flow(change: str) -> None:
    text = RING.replace("repeat:", f"faults: [{{at: 0s, link: 'p1-s1-rail1:uplink1', set: {{{change}}}}}]\nrepeat:")
    sweep = read_sweep(text)
    [point] = sweep.points
    plan = replace(planned_lab(sweep.lab_of(point), 1000.0).plan, ports=())
    rates, events = slowed_links(point.scenario.faults, plan)
    assert not rates and [event.target for event in events] == ["p1-s1-rail1:uplink1"]


def test_domains_hold_back_what_stays_inside_them() -> None:
    """Two hosts of two GPUs: the ring goes over 900 GB/s inside, and over 400 Gbit/s between hosts."""
    text = RING.replace("hosts: 4, gpus: 1", "hosts: 2, gpus: 2, scale_up: {preset: h100}")
    fast = run(text, **{"workload.bytes": "2MB"})
    assert ratio_of(fast, "jct") == pytest.approx([1.0] * 3, abs=0.06)


@pytest.mark.parametrize(("fields", "drawn"), [("source, destination", False), ("source, roce_qp", True)])
def test_paths_by_queue_pairs_are_said_to_be_drawn(fields: str, drawn: bool) -> None:
    """Nobody knows queue pairs before a run."""
    balanced = f"base_rtt: 12us, load_balancing: {{mode: flow, hash: {{fields: [{fields}]}}}}"
    sweep = read_sweep(ROCE.replace("base_rtt: 12us", balanced))
    [point] = sweep.points
    said = " ".join(FlowPoint(point, sweep.lab_of(point)).approximations)
    assert ("drawn for each run" in said) == drawn
    assert ("that of the switches' own hash" in said) != drawn


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
