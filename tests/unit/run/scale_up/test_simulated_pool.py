"""Pooled memory in simulated runs: its closed forms, who is refused, and what a run cannot ask of it."""

from __future__ import annotations

import shutil

import pytest

from testbed.base.errors import ScenarioError, SpecError
from testbed.endpoints.worker import inside_packets
from testbed.record.record import RunResult
from testbed.run.placed.placement import place_ranks
from testbed.run.scale_up.pool import check_regions
from testbed.run.simulated.fabric import planned_lab
from testbed.run.simulated.outlook import foresee_simulated
from testbed.run.simulated.sweep import run_simulated
from testbed.run.sweep.runner import RecordOptions
from testbed.run.sweeps import read_sweep
from testbed.workload.steps import Compute, Request, Workload

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(shutil.which("clang") is None, reason="clang is not installed"),
]

RACK = """
name: rack
topology:
  inline:
    name: rack
    scale: {time: 20000}
    fabric:
      design: single-switch
      hosts: HOSTS
      gpus: GPUS
      nic: {per: gpu, ports: 1, rate: 400G}
      routing: {bfd: off}
      scale_up: {by: packets, domain: host, rate: 512G, planes: 1, rtt: 1usPOOL}
transport: {kind: uet, scale_up_errors: count, scale_up_timeout_ms: 2000MORE}
workload: WORKLOAD
repeat: {runs: 1, seed: 3}
"""
POOL = ", pool: {devices: 2, rate: 128G, ways: 2}"
K = 20_000
REGION_BPS = 256e9 / K


def text_of(workload: str, *, hosts: int = 1, gpus: int = 2, pool: str = POOL, more: str = "") -> str:
    text = RACK.replace("HOSTS", str(hosts)).replace("GPUS", str(gpus))
    return text.replace("POOL", pool).replace("MORE", more).replace("WORKLOAD", workload)


def run_of(workload: str, **choice: object) -> RunResult:
    outcome = run_simulated(read_sweep(text_of(workload, **choice), {}), RecordOptions(), processes=1)  # type: ignore[arg-type]
    if outcome.failure is not None:
        raise outcome.failure
    [one] = outcome.record.points[0].runs
    checks = {check.name: check.ok for check in one.checks}
    assert {"scale-up-balance", "datagrams"} <= checks.keys() and all(checks.values())
    assert max(load.lateness_p999_s for load in one.scale_up) < 1e-6, "nothing is late where time waits for it"
    return one


def value(one: RunResult, metric: str) -> float:
    found = one.metrics[metric]
    assert found is not None
    return found


def test_what_is_written_is_read_back_at_the_rate_of_the_memory() -> None:
    """Two ranks write 2 MB each and read it: the devices do 8 MB, reads and writes together."""
    one = run_of("{kind: checkpoint, bytes: 2MB, storage: 1, stripes: 2, restore: true, ranks: {pool: true}}")
    assert value(one, "jct") == pytest.approx(8e6 * 8 / REGION_BPS, rel=0.03)
    assert value(one, "jct_ratio") == pytest.approx(1, abs=0.03)
    [load] = one.scale_up
    assert 4_000_000 <= load.pool_bytes <= 4_000_000 + 2 * 2 * 4096, "each rank's, in whole rows of granules"
    ends = {(flow.source.interface, flow.destination.interface) for flow in one.channels}
    assert ends == {("gpu1", "pool1"), ("gpu2", "pool1"), ("pool1", "gpu1"), ("pool1", "gpu2")}


def test_transfers_of_many_parts_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """31 operations each, of which a few are under way at a time."""
    monkeypatch.setattr(inside_packets, "MOST_AT_ONCE", 1 << 16)
    one = run_of("{kind: checkpoint, bytes: 2MB, storage: 1, restore: true, ranks: {pool: true}}")
    assert value(one, "jct") == pytest.approx(8e6 * 8 / REGION_BPS, rel=0.03)
    assert [load.failed for load in one.scale_up] == [0]


def test_an_end_has_room_for_all_parts_of_all_transfers() -> None:
    """40 transfers of 30 operations: more than 1,024, which are not begun all at once."""
    text = text_of("{kind: point-to-point, source: 0, destination: 1, flows: 40, bytes: 2GB}", pool="")
    outcome = run_simulated(read_sweep(text.replace("bytes: 2GB", "bytes: 2GB, time_limit: 1s"), {}), RecordOptions())
    assert "time limit" in str(outcome.failure)


def test_each_region_is_a_rank() -> None:
    one = run_of(
        "{kind: checkpoint, bytes: 1MB, storage: 2, stripes: 4, ranks: {pool: true}}",
        pool=", pool: {devices: 2, rate: 128G, ways: 1}",
    )
    assert {flow.destination.interface for flow in one.channels} == {"pool1", "pool2"}
    assert value(one, "jct") == pytest.approx(2e6 * 8 / REGION_BPS, rel=0.05)


LEASE = (
    "{kind: prefix-cache, storage: 1, prefixes: 1, blocks: 4, requests: 12, requests_per_s: 100, bytes_factor: 0.0001,"
    " warm_up: 100ms, WHEN, ranks: {pool: true}}"
)


@pytest.mark.parametrize(("when", "refused"), [("lease: 10s", False), ("lease: 100ms", True)])
def test_who_reads_when_it_is_withdrawn_is_refused(when: str, refused: bool) -> None:
    one = run_of(LEASE.replace("WHEN", when))
    [load] = one.scale_up
    assert bool(load.failed) is refused
    assert load.failed % 4 == 0, "prompts of the other host: all four blocks of each"
    assert load.failed < 12 * 4, "the owner goes on"


def test_an_idle_time_before_a_transfer_is_no_stall() -> None:
    """The lease ends 20 s of lab time after anything moved, and nothing is given up after 2."""
    one = run_of(LEASE.replace("WHEN", "lease: 10s"))
    [load] = one.scale_up
    assert not load.stalled and not load.failed and value(one, "jct") > 19


def refused(workload: str, **choice: object) -> ScenarioError:
    with pytest.raises(ScenarioError) as caught:
        run_of(workload, **choice)
    assert caught.value.hint
    return caught.value


def test_memory_asks_for_nothing() -> None:
    error = refused("{kind: checkpoint, bytes: 1MB, storage: 1, read_back: true, ranks: {pool: true}}")
    assert "is begun by rank 2, which is pooled memory" in error.message


@pytest.mark.parametrize(
    "workload",
    ["kind: reduce, root: 2", "kind: broadcast", "kind: gather, root: 2, datatype: bfloat16"],
)
def test_memory_has_no_part_in_a_collective(workload: str) -> None:
    error = refused(f"{{{workload}, bytes: 100kB, ranks: {{pool: true}}}}")
    assert "rank 2 of a collective" in error.message and "adds nothing up" in error.message


REQUEST = Request(
    number=0, client=0, server=2, start_ns=0, prompt_tokens=1, output_tokens=1, request_bytes=1, chunk_bytes=1,
    prefill_ns=1, tpot_ns=1, ttft_limit_ns=1, tpot_limit_ns=1,
)  # fmt: skip


@pytest.mark.parametrize(
    "workload",
    [
        Workload(name="work", ranks=3, steps=(Compute(number=0, rank=2, duration_ns=1, label="batch"),)),
        Workload(name="requests", ranks=3, steps=(), requests=(REQUEST,)),
    ],
    ids=lambda workload: workload.name,
)
def test_memory_computes_nothing(workload: Workload) -> None:
    sweep = read_sweep(text_of("{kind: incast, destination: 2, bytes: 1MB, ranks: {pool: true}}"), {})
    lab = planned_lab(sweep.lab_of(sweep.points[0]), K)
    nics = place_ranks(lab.model, lab.plan, sweep.points[0].scenario.workload.ranks, seed=1).nics
    with pytest.raises(ScenarioError, match="rank 2, which is pooled memory") as caught:
        check_regions(workload, lab.plan, nics, by_packets=True, timeout_ms=5000)
    assert caught.value.hint


def test_a_lease_of_what_nobody_grants_is_refused() -> None:
    """Of two hosts without a pool, the last rank being the storage: no transfer would be refused, whoever reads."""
    error = refused(LEASE.replace("WHEN", "lease: 100ms").replace(", ranks: {pool: true}", ""), gpus=3, pool="")
    assert "step 5 (lease) withdraws what others may read, and rank 2 grants nothing" in error.message


def test_transfers_by_time_are_no_loads() -> None:
    error = refused("{kind: incast, destination: 2, bytes: 1MB, ranks: {pool: true}}", more=", scale_up: time")
    assert "are frames" in error.message


def test_a_region_is_reached_in_its_domain_alone() -> None:
    error = refused("{kind: incast, destination: 2, senders: [0, 1], bytes: 1MB, ranks: {pool: true}}", hosts=2, gpus=1)
    assert "p1-s1-h2 to p1-s1-h1, and pooled memory is reached inside its scale-up domain alone" in error.message


def test_more_than_a_region_has_is_refused_before_the_run() -> None:
    error = refused(
        "{kind: checkpoint, bytes: 1MB, storage: 1, ranks: {pool: true}}",
        pool=", pool: {devices: 2, capacity: 900kB}",
    )
    assert "keeps 2,015,232 bytes in pool1 of p1-s1-h1, which has 1,800,000" in error.message


@pytest.mark.parametrize(("pool", "takes"), [("latency: 100us", "2.02 s"), ("rate: 20M", "32.8 s")])
def test_memory_that_answers_nobody_in_time_is_refused(pool: str, takes: str) -> None:
    """2 s are given: 100 us are 2.02 with the RTT, and 4 kB at 1 kbit/s are 32.8."""
    load = "{kind: incast, destination: 2, senders: 1, bytes: 4kB, ranks: {pool: true}}"
    error = refused(load, pool=f", pool: {{devices: 1, {pool}}}")
    assert (
        f"takes {'2.02' if 'latency' in pool else '32.8'} s of the lab's time, and is given up after 2" in error.message
    )


def test_slow_memory_is_waited_for_where_there_is_patience() -> None:
    """300 us are 6 s of the lab's time: longer than links are tried that have no memory behind them."""
    load = "{kind: incast, destination: 2, senders: 1, bytes: 4kB, ranks: {pool: true}}"
    text = text_of(load, pool=", pool: {devices: 1, latency: 300us}").replace("timeout_ms: 2000", "timeout_ms: 20000")
    outcome = run_simulated(read_sweep(text, {}), RecordOptions(), processes=1)
    assert outcome.failure is None
    assert value(outcome.record.points[0].runs[0], "jct") == pytest.approx(6.02, rel=0.01)


@pytest.mark.parametrize(("ways", "refuses"), [(2, True), (1, False)])
def test_a_window_has_so_many_bytes_and_no_more(ways: int, refuses: bool) -> None:
    """40 GB of a rank are more than an offset of 35 bits tells apart; two regions have half of it each."""
    workload = (
        f"{{kind: checkpoint, bytes: 40GB, storage: {2 // ways}, stripes: 20, writers: 1, ranks: {{pool: true}}}}"
    )
    sweep = read_sweep(text_of(workload, pool=f", pool: {{devices: 2, ways: {ways}}}"), {})
    if not refuses:
        foresee_simulated(sweep)
        return
    with pytest.raises(ScenarioError, match=r"rank 0 keeps 40,[\d,]{11} bytes in pool1 of p1-s1-h1, and a window"):
        foresee_simulated(sweep)


@pytest.mark.parametrize(("senders", "refuses"), [(63, False), (64, True)])
def test_a_device_has_so_many_windows_and_no_more(senders: int, refuses: bool) -> None:
    """64, and one of them is for trying the links."""
    workload = f"{{kind: incast, destination: 64, senders: {senders}, bytes: 4kB, ranks: {{pool: true}}}}"
    sweep = read_sweep(text_of(workload, hosts=8, gpus=8).replace("domain: host", "domain: segment"), {})
    if not refuses:
        foresee_simulated(sweep)
        return
    with pytest.raises(ScenarioError, match=r"asks for 64 windows of pool1 of p1-s1-h1.*; its devices have 63"):
        foresee_simulated(sweep)


def test_a_lab_without_a_pool_is_named_with_its_place() -> None:
    with pytest.raises(SpecError) as caught:
        read_sweep(text_of("{kind: incast, bytes: 1MB, ranks: {pool: true}}", pool=""), {})
    [problem] = caught.value.problems
    assert problem.code == "no-pool" and "have no pooled memory" in problem.message
    assert problem.position is not None and problem.path == "workload.ranks.pool"


@pytest.mark.parametrize(
    ("flow_control", "llr"), [("credits", "auto"), ("pfc", "off")], ids=["credits and retry", "pauses without retry"]
)
def test_loads_of_a_line_are_as_fast_whatever_a_frame_stands_for(flow_control: str, llr: str) -> None:
    """In flight x line / latency: a round of 96 chains takes as long as one of 16, and 1.6 ns for each line more."""

    def seconds(coarse: int, flows: int) -> float:
        pool = f", coarse: {coarse}, flow_control: {flow_control}, llr: {llr}, pool: {{devices: 1, rate: 512G}}"
        load = f"{{kind: point-to-point, source: 1, destination: 0, operation: read, bytes: 64, flows: {flows},"
        found = run_of(f"{load} rounds: 10, ranks: {{count: 1, pool: true}}}}", gpus=1, pool=pool)
        return value(found, "jct")

    few, many = seconds(1, 16), seconds(1, 96)
    assert few == pytest.approx(10 * 1.27e-6 * K, rel=0.03), "1 us, 250 ns, and the lines of the others"
    assert many < 1.2 * few
    for coarse in (4, 16):
        assert seconds(coarse, 16) == pytest.approx(few, rel=0.01)
        assert seconds(coarse, 96) == pytest.approx(many, rel=0.01)
