"""Transfers inside scale-up domains as frames: who has which GPU, what a program says of it, flows, loads, trust."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from run_rows import run_result

from testbed.base.errors import ScenarioError
from testbed.base.program_errors import ProgramError
from testbed.endpoints.worker.program import Program
from testbed.endpoints.worker.program_json import decode_program, encode_program
from testbed.endpoints.worker.transports.tcp import TcpSettings
from testbed.lab.core.fabric import FabricParams, generate_fabric
from testbed.lab.core.model import SCALE_UP_PRESETS, Lab, ScaleUpBy
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.features.scale_up.counters.names import LINK_COUNTERS, TRAFFIC
from testbed.lab.features.scale_up.counters.reading import ChannelReading, DomainReading, LinkReading
from testbed.lab.features.scale_up.links import list_links
from testbed.protocols.scale_up.domain.link import LinkErrors
from testbed.record.report.scenario.networks import SCALE_UP_COLUMNS, latency_notes, scale_up_rows
from testbed.record.samples import ScaleUpLoad
from testbed.run.measuring.reports import inside_flows
from testbed.run.placed.channels import plan_channels
from testbed.run.placed.placed_workload import PlacedWorkload, compile_programs
from testbed.run.scale_up.domains import carried_domains, inside_domains
from testbed.run.scale_up.loads import carried_samples, scale_up_loads
from testbed.run.schema.model import Transport, TransportKind
from testbed.run.trust.ports import check_domains
from testbed.workload.collectives.algorithms import generate_collective
from testbed.workload.collectives.datatype import DataType
from testbed.workload.collectives.operation import CollectiveOperation
from testbed.workload.patterns import generate_incast, generate_permutation, generate_point_to_point
from testbed.workload.steps import Workload

K = 20_000.0
GPUS = 4
UET = Transport(kind=TransportKind.UET)


@pytest.fixture(scope="module")
def lab() -> Lab:
    """Two hosts of two GPUs, and one domain of all."""
    made = generate_fabric(FabricParams(design="rail-optimized", hosts=2, gpus=2, spines=1), name="lab")
    scale_up = replace(SCALE_UP_PRESETS["nvl72"], by=ScaleUpBy.PACKETS, shares=(1, 1))
    return replace(made, scale_up=scale_up)


@pytest.fixture(scope="module")
def plan(lab: Lab) -> LabPlan:
    return plan_lab(lab, k=K)


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.protocols.scale_up.domain.build.build", lambda: "/cache/domain.so")


def place(lab: Lab, plan: LabPlan, workload: Workload, transport: Transport = UET) -> PlacedWorkload:
    nics = [nic for host in plan.hosts for nic in host.nics]
    domains = carried_domains(lab, plan, transport, K)
    inside = inside_domains(workload, [domains.of(nic.node) for nic in nics])
    channels = plan_channels(inside, nics, seed=1)
    return PlacedWorkload(workload=inside, ranks=nics, channels=channels, k=K, seed=1, domains=domains)


def programs(placement: PlacedWorkload) -> dict[str, Program]:
    return compile_programs(placement, lambda host: TcpSettings())


def as_json(program: Program) -> Any:
    return json.loads(json.dumps(encode_program(program)))


def test_each_worker_is_told_the_gpus_of_its_own_ranks(lab: Lab, plan: LabPlan) -> None:
    transport = replace(UET, scale_up_errors="count", scale_up_timeout_ms=700)
    found = programs(place(lab, plan, generate_incast(ranks=GPUS, size_bytes=1 << 20), transport))
    assert list(found) == ["p1-s1-h1", "p1-s1-h2"]
    assert not any(program.channels for program in found.values())
    for number, program in enumerate(found.values()):
        packets = program.scale_up.packets
        assert packets is not None and packets.counts_errors and packets.timeout_ns == 700_000_000
        assert [(one.rank, one.gpu.gpu) for one in packets.places] == [(2 * number, 2 * number), (2 * number + 1,) * 2]
        assert packets.places[0].gpu.timeout_s == 0.7 and packets.rtt_ns == 20_000_000
        assert decode_program(as_json(program)).scale_up.packets is not None
        assert as_json(decode_program(as_json(program))) == as_json(program)


def test_time_and_the_other_way_round_are_the_scenarios_choice(lab: Lab, plan: LabPlan) -> None:
    by_time = carried_domains(lab, plan, replace(UET, scale_up="time"), K)
    assert by_time.packets is None
    without = replace(lab, scale_up=SCALE_UP_PRESETS["nvl72"])
    assert carried_domains(without, plan_lab(without, k=K), UET, K).packets is None
    with pytest.raises(ScenarioError, match="no switch for packets"):
        carried_domains(without, plan_lab(without, k=K), replace(UET, scale_up="packets"), K)


def test_reads_are_begun_by_who_wants_the_bytes(lab: Lab, plan: LabPlan) -> None:
    reading = generate_point_to_point(ranks=GPUS, size_bytes=4096, reads=True)
    (program,) = programs(place(lab, plan, reading)).values()
    (step,) = decode_program(as_json(program)).steps
    assert step.pulled and step.begins_at == 1 and step.channel is None


def test_what_cannot_be_carried_is_refused(lab: Lab, plan: LabPlan) -> None:
    operation = CollectiveOperation(kind="all_reduce", size_bytes=1 << 12, algorithm="nvls", datatype=DataType.BFLOAT16)
    with pytest.raises(ScenarioError, match="packets of float32 alone"):
        programs(place(lab, plan, generate_collective(operation, ranks=GPUS, ranks_per_domain=GPUS)))
    with pytest.raises(ScenarioError, match="do not wait for the frames"):
        programs(place(lab, plan, generate_incast(ranks=GPUS, size_bytes=4096), Transport(kind=TransportKind.RDMA)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"library": ""}, "library"),
        ({"counts_errors": 1}, "Expected `bool`"),
        ({"timeout_ns": -1}, ">= 0"),
        ({"more": 1}, "more: is unknown"),
        ({"places": [{"rank": 0, "name": "a", "gpu": {}}]}, "gpu: Object missing"),
        ({"places": [[3, "a"]]}, "Expected `object`"),
    ],
)
def test_bad_packets_of_a_program_are_named(lab: Lab, plan: LabPlan, change: dict[str, Any], message: str) -> None:
    document = as_json(programs(place(lab, plan, generate_incast(ranks=GPUS, size_bytes=4096)))["p1-s1-h1"])
    document["scale_up"]["packets"] |= change
    with pytest.raises(ProgramError, match=message):
        decode_program(document)


def test_a_gpu_of_a_program_is_not_taken_for_granted(lab: Lab, plan: LabPlan) -> None:
    document = as_json(programs(place(lab, plan, generate_incast(ranks=GPUS, size_bytes=4096)))["p1-s1-h1"])
    places = document["scale_up"]["packets"]["places"]
    for broken in ({"link": None}, {"addresses": [["x", "y"]]}, {"gpu": None, "surprise": 1}):
        places[0]["gpu"] |= broken
        with pytest.raises(ProgramError, match="gpu"):
            decode_program(document)
        places[0]["gpu"] = dict(places[1]["gpu"])
    with pytest.raises(ProgramError, match="stands there twice"):
        decode_program(document)


def test_flows_inside_are_compared_with_the_payload_of_a_gpus_links(lab: Lab, plan: LabPlan) -> None:
    placement = place(lab, plan, generate_incast(ranks=GPUS, size_bytes=1_000_000, senders=2))
    found = inside_flows(placement, {0: 0, 1: 0}, {0: 100_000_000, 1: 110_000_000})
    assert found is not None
    transfers, channels = found
    assert transfers.end_s == [0.1, 0.11] and [channel.inside for channel in channels] == [True, True]
    ideal = 7.2e12 / K * 4096 / 4134
    assert channels[0].ideal_bps == pytest.approx(ideal)
    assert channels[0].goodput_bps == pytest.approx(8e6 / 0.090)  # of 100 ms, 10 are the way behind the link
    assert [str(channel.source) for channel in channels] == ["p1-s1-h1:gpu2", "p1-s1-h2:gpu1"]
    mixed = replace(placement, domains=replace(placement.domains, packets=None))
    assert inside_flows(mixed, {}, {}) is None


def link_reading(lab: Lab, place: int, **counters: int) -> LinkReading:
    counted = {item.name: 0 for item in LINK_COUNTERS} | counters
    channel = {item.name: counters.get(item.name, 0) for item in TRAFFIC}
    return LinkReading(
        link=list_links(lab)[place],
        counters=counted,
        errors=LinkErrors(),
        channels=(ChannelReading(vc=0, counters=channel, deepest=place, s_cc=0, s_cf=0, r_cc=0, r_cf=0),),
    )


def report(**changes: Any) -> dict[str, Any]:
    vc = {"tx_frames": 30, "tx_bytes": 3000, "rx_frames": 0, "rx_bytes": 0, "dropped_frames": 0, "dropped_bytes": 0}
    plane = {"retry": {"tx_replay": 2}, "downs": 4, "vcs": [vc | {"tx_line_bytes": 3120, "xmit_wait_ns": 600_000_000}]}
    return {
        "domain": "p1-s1",
        "rtt_ns": 20_000_000,
        "idle_rtt_ns": 21_000_000,
        "ended": 9,
        "failed": 1,
        "stalled": False,
        "stall_ns": 0,
        "progress_ns": 3_000_000_000,
        "pool_bytes": 0,
        "gpus": {"0": {"planes": [plane, plane], "payload_bytes": 2900}},
        "latencies": [[20_000_000, 997], [60_000_000, 3]],
    } | changes


def loads(lab: Lab, plan: LabPlan, reports: list[dict[str, Any]], **reading: Any) -> list[ScaleUpLoad]:
    class Whole:
        def __init__(self) -> None:
            self.plan = plan

    links = tuple(
        link_reading(lab, n, sent_frames=10, dropped_frames=3, xoff_tx=1, xmit_wait_ns=n, downs=1)
        for n in range(2 * GPUS)
    )
    seen = DomainReading(domain="p1-s1", lateness_p999_ns=500_000, links=links, **reading)
    return scale_up_loads(Whole(), [seen], reports)  # type: ignore[arg-type]  # of which it reads the plan alone


def test_loads_are_those_of_both_ends_by_plane(lab: Lab, plan: LabPlan) -> None:
    (load,) = loads(lab, plan, [report()])
    assert [plane.plane for plane in load.planes] == [1, 2]
    for plane in load.planes:
        assert plane.frames == GPUS * 10 + 30 and plane.drops == GPUS * 3 and plane.replays == 2
        assert plane.downs == GPUS, "a link that goes down does so at both ends"
        assert plane.pauses == GPUS and 0 < plane.buffer_peak_bytes <= plane.buffer_bytes
    assert load.rtt_floor_s == pytest.approx(0.001) and load.rtt_floor_real_s == pytest.approx(0.001 / K)
    assert load.latency_p50_s == 0.02 and load.latency_p999_s == 0.06
    (samples,) = carried_samples([load])
    assert samples.latency_p999_rtts == 3.0 and samples.failed / samples.transfers == 0.1
    assert load.request_line_bytes == 2 * 3120 and load.payload_bytes == 2900
    assert load.planes[0].xmit_wait_s == 0.6 and samples.xmit_wait_share == pytest.approx(0.2), "the longest, of 3 s"
    assert samples.request_drops == 2 * GPUS * 3 and samples.request_frames == 60
    assert loads(lab, plan, []) == [] == list(carried_samples([]))


def test_the_report_says_multiples_of_the_round_trip_and_the_machines_part(lab: Lab, plan: LabPlan) -> None:
    found = loads(lab, plan, [report(stalled=True, stall_ns=2_000_000_000)])
    run = run_result(scale_up=found)
    rows = scale_up_rows(run)
    assert [[cell.text for cell in row[:3]] for row in rows] == [["p1-s1", "1", "70"], ["p1-s1", "2", "70"]]
    assert all(len(row) == len(SCALE_UP_COLUMNS) for row in rows)
    dead = replace(run, scale_up=[replace(found[0], planes=[], problem="its switch does not run")])
    ((domain, *others),) = scale_up_rows(dead)
    assert (domain.text, domain.remark) == ("p1-s1", "its switch does not run")
    assert {cell.text for cell in others} == {"–"} and len(others) == len(SCALE_UP_COLUMNS) - 1
    (note,) = latency_notes(run)
    assert "1.00 (P50) and 3.00 (P99.9) modelled round trips; rtt_floor_real 50 ns" in note
    assert "1 of 10 transfers failed, and nothing moved for 2" in note
    unmeasured = replace(run, scale_up=[replace(found[0], latency_p50_s=None, latency_p999_s=None)])
    assert latency_notes(unmeasured)[0].startswith("p1-s1: no times of transactions were measured, 1 of 10")


def test_a_floor_or_lateness_above_its_limit_makes_a_run_invalid(lab: Lab, plan: LabPlan) -> None:
    assert [check.ok for check in check_domains(loads(lab, plan, [report()]))] == [True, True]
    slow = list(check_domains(loads(lab, plan, [report(idle_rtt_ns=22_100_000)])))
    assert [(check.name, check.ok) for check in slow] == [("scale-up-floor", False), ("scale-up-lateness", True)]
    (load,) = loads(lab, plan, [report()])
    late = list(check_domains([replace(load, lateness_p999_s=load.credit_loop_s * 0.11)]))
    assert [check.ok for check in late] == [True, False]
    assert list(check_domains([replace(load, problem="its switch does not run", rtt_floor_s=None)])) == []


def test_a_permutation_that_reads_is_one_that_writes_with_the_ends_changed_over() -> None:
    import random

    writes = generate_permutation(ranks=4, size_bytes=1, rng=random.Random(1))
    reads = generate_permutation(ranks=4, size_bytes=1, rng=random.Random(1), reads=True)
    assert [one.begun_by for one in reads.transfers] == [one.destination for one in writes.transfers]
