"""Packets inside scale-up domains, simulated: the C of emulated ones in the simulator, and what it counts."""

from __future__ import annotations

import shutil
from functools import cache

import pytest

from testbed.record.record import Outcome, Record, RunResult
from testbed.run.simulated.sweep import run_simulated
from testbed.run.sweep.runner import RecordOptions
from testbed.run.sweeps import read_sweep

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(shutil.which("clang") is None, reason="clang is not installed"),
]

BOARD = """
name: board
topology:
  inline:
    name: board
    scale: {time: 50000}
    fabric:
      design: single-switch
      hosts: HOSTS
      gpus: 4
      nic: {per: gpu, ports: 1, rate: 400G}
      routing: {bfd: off}
      scale_up: {by: packets, domain: host, rate: 800G, planes: 2, rtt: 1us, LLR}
transport: {kind: uet, scale_up_errors: count, scale_up_timeout_ms: 2000}
workload: WORKLOAD
faults: [FAULTS]
repeat: {runs: 1, seed: 3}
expect:
  - {metric: scale_up_drops, max: 0, source: "credits"}
"""
LLR = "llr: {window: auto, timer: 4windows, replays: 3}"


@cache
def record_of(workload: str, faults: str = "", hosts: int = 1, llr: str = LLR) -> Record:
    text = BOARD.replace("WORKLOAD", workload).replace("FAULTS", faults).replace("HOSTS", str(hosts))
    outcome = run_simulated(read_sweep(text.replace("LLR", llr), {}), RecordOptions(), processes=1)
    assert outcome.failure is None, outcome.failure
    return outcome.record


def run_of(workload: str, faults: str = "", hosts: int = 1, llr: str = LLR) -> RunResult:
    record = record_of(workload, faults, hosts, llr)
    one = record.points[0].runs[0]
    assert record.verdict.outcome is Outcome.PASS, record.verdict
    checks = {check.name: check.ok for check in one.checks}
    assert {"scale-up-balance", "datagrams"} <= checks.keys() and all(checks.values())
    return one


def value(one: RunResult, metric: str) -> float:
    found = one.metrics[metric]
    assert found is not None
    return found


def test_a_copy_takes_the_time_of_its_links_and_half_a_round_trip() -> None:
    one = run_of("{kind: point-to-point, bytes: 4MB}")
    ideal_s = 4e6 * 8 * 4134 / 4096 / (800e9 / 50_000) + 0.05 / 2
    assert ideal_s < value(one, "jct") < 1.03 * ideal_s
    [load] = one.scale_up
    assert load.domain == "p1-s1-h1" and load.transfers == 1 and load.failed == 0 and not load.problem
    assert load.rtt_floor_s is not None and 0 < load.rtt_floor_s < 0.05, "a frame's time beside the modelled round trip"
    assert load.payload_bytes >= 4_000_000 and [plane.drops for plane in load.planes] == [0, 0]
    shares = [plane.bytes for plane in load.planes]
    assert max(shares) / min(shares) < 1.01, "planes have equal links"


@pytest.mark.parametrize("algorithm", ["ring", "nvls"])
def test_what_gpus_and_switches_add_up_is_right(algorithm: str) -> None:
    one = run_of(f"{{kind: all-reduce, bytes: 1MB, algorithm: {algorithm}}}")
    assert value(one, "wrong") == 0


def test_a_domain_and_the_fabric_share_a_run() -> None:
    one = run_of("{kind: all-to-all, bytes: 256kB}", hosts=2)
    assert value(one, "wrong") == 0 and len(one.scale_up) == 2
    assert {one.channels[number].inside for number in one.transfers.channel} == {False}
    assert value(one, "retransmits") == 0


def test_what_a_link_loses_it_sends_again_and_without_retry_it_is_lost() -> None:
    loss = "{at: 0s, link: 'p1-s1-h1.gpu1:plane1', set: {loss: 0.01}}"
    flows = "{kind: point-to-point, flows: 50, bytes: 128kB}"
    again, lost = run_of(flows, loss), run_of(flows, loss, llr="llr: off")
    assert value(again, "scale_up_failed_share") == 0 and value(again, "scale_up_retries") > 0
    assert 0.02 < value(lost, "scale_up_failed_share") < 0.6 and value(lost, "scale_up_retries") == 0


def test_a_plane_that_fails_and_comes_back_leaves_its_part_to_the_other() -> None:
    copy = "{kind: point-to-point, bytes: 20MB}"
    whole, failed = run_of(copy), run_of(copy, "{at: 2s, until: 6s, plane: 1, down: true}")
    assert [(event.kind, event.at_s) for event in failed.events] == [("plane-down", 2.0), ("undone-plane-down", 6.0)]
    assert value(failed, "jct") > value(whole, "jct") + 1
    downs = [plane.downs for plane in failed.scale_up[0].planes]
    assert downs[0] - downs[1] == 4, "besides those of GPUs that nobody works for"
    assert value(failed, "scale_up_failed_share") == 0


def test_a_switch_that_dies_fails_what_is_under_way() -> None:
    record = record_of("{kind: point-to-point, bytes: 20MB}", "{at: 2s, until: 4s, domain: p1-s1-h1, kill: true}")
    one = record.points[0].runs[0]
    assert all(check.ok for check in one.checks) and one.scale_up[0].problem == "its switch does not run"
    assert value(one, "scale_up_failed_share") == 1 and 2 < one.elapsed_s < 2.1


def test_the_same_seed_gives_the_same_run() -> None:
    loss = "{at: 0s, link: 'p1-s1-h1.gpu1:plane1', set: {loss: 0.01}}"
    flows = "{kind: point-to-point, flows: 20, bytes: 128kB}"
    first = run_of(flows, loss)
    record_of.cache_clear()
    again = run_of(flows, loss)
    assert again.metrics == first.metrics and again.scale_up == first.scale_up


def test_the_record_says_that_frames_are_simulated_at_the_labs_scale() -> None:
    record = record_of("{kind: point-to-point, bytes: 4MB}")
    assert record.points[0].lab.k == 50_000
    said = " ".join(record.environment.approximations)
    assert "Simulated at k = 50000" in said and "each of which stands for several transactions of 256 B" in said
