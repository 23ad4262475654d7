"""From a placed workload to each host's program, and back from reports to results."""

import json
import random
from dataclasses import replace
from typing import Any

import pytest
from fake_lab import small_lab

from testbed.base.errors import ScenarioError
from testbed.base.program_errors import ProgramError
from testbed.endpoints.worker.nvme.settings import MEDIUM, NvmeTcpSettings
from testbed.endpoints.worker.program import Program, ScaleUpLinks
from testbed.endpoints.worker.program_json import decode_program, encode_program
from testbed.endpoints.worker.schedule import Schedule
from testbed.endpoints.worker.transport_registry import encode_settings
from testbed.endpoints.worker.transports.tcp import TcpSettings
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.measuring.reports import Ideals, put_together, settle_digests
from testbed.run.placed.channels import plan_channels
from testbed.run.placed.placed_workload import PlacedWorkload, choose_checked, compile_programs, datatype_of
from testbed.run.scale_up.domains import ScaleUpDomains
from testbed.workload.builder import StepBuilder
from testbed.workload.collectives.algorithms import generate_collective
from testbed.workload.collectives.datatype import DataType
from testbed.workload.collectives.operation import ALGORITHMS, CollectiveOperation
from testbed.workload.oracles.serialisation import Framing
from testbed.workload.patterns import generate_permutation, generate_point_to_point
from testbed.workload.steps import Workload

_, PLAN = small_lab(segments=2, hosts=4, rails=2)
NICS = [host.nics[0] for host in PLAN.hosts]
PAIRS = [nic for host in PLAN.hosts for nic in host.nics]
"""Two ranks on each host."""
IDEALS = Ideals(
    framing=lambda nic: Framing(payload_bytes=900, overhead_bytes=100),
    goodput_bps=lambda a, b: 0.9 * min(a.rate_bps, b.rate_bps),
    one_way_s=lambda a, b, size_bytes: size_bytes / 1e6,
)


def place(workload: Workload, nics: list[PortPlan] = NICS, k: float = 1.0) -> PlacedWorkload:
    channels = plan_channels(workload, nics, seed=1)
    domains = ScaleUpDomains(domain_of={nic.node: f"pair{rank // 2}" for rank, nic in enumerate(nics)})
    return PlacedWorkload(workload=workload, ranks=nics, channels=channels, k=k, seed=1, domains=domains)


def programs(workload: Workload, nics: list[PortPlan] = NICS, k: float = 1.0) -> dict[str, Program]:
    checked = choose_checked(workload)
    return compile_programs(place(workload, nics, k), lambda host: TcpSettings(), checked=checked)


def test_every_host_has_its_own_part() -> None:
    workload = generate_collective(CollectiveOperation(kind="all_reduce", size_bytes=800), ranks=8)
    found = programs(workload)
    assert list(found) == [nic.node for nic in NICS]
    for rank, program in enumerate(found.values()):
        assert program.own == {rank}
        assert {step.number for step in program.steps} == {
            step.number for step in workload.transfers if rank in (step.source, step.destination)
        }
        assert all(step.after == () for step in program.steps if step.source != rank)
        assert len(program.channels) == 2


def test_a_transfer_between_hosts_of_one_domain_is_part_of_both_programs() -> None:
    builder = StepBuilder(4, ranks_per_domain=2)
    builder.transfer(0, 1, 10)
    builder.transfer(1, 2, 10)
    found = programs(builder.build("two"))
    [inside], [same, over] = (found[NICS[rank].node].steps for rank in (0, 1))
    assert inside.channel is None and same.channel is None and over.channel == 0
    assert found[NICS[0].node].scale_up.neighbours == {1} and found[NICS[1].node].scale_up.neighbours == {0}
    assert {found[NICS[rank].node].scale_up.domain for rank in (0, 1)} == {"pair0"}
    assert not found[NICS[2].node].scale_up.domain


def test_scale_up_links_lead_nowhere_else() -> None:
    builder = StepBuilder(4, ranks_per_domain=4)
    builder.transfer(1, 2, 10)
    with pytest.raises(ScenarioError, match="which are not in one domain"):
        programs(builder.build("too far"))


@pytest.mark.parametrize("kind", list(ALGORITHMS))
@pytest.mark.parametrize("nics", [NICS, PAIRS[:8]], ids=["alone", "two-per-host"])
def test_every_program_is_one_that_workers_accept(kind: str, nics: list[PortPlan]) -> None:
    for algorithm in ALGORITHMS[kind]:  # type: ignore[index]
        workload = generate_collective(
            CollectiveOperation(kind=kind, size_bytes=1600, algorithm=algorithm), ranks=8, ranks_per_domain=2
        )
        for program in programs(workload, nics).values():
            document = json.loads(json.dumps(encode_program(program)))
            assert json.loads(json.dumps(encode_program(decode_program(document)))) == document


def test_what_is_pulled_is_begun_by_its_destination() -> None:
    builder = StepBuilder(2)
    first = builder.transfer(1, 0, 10)
    builder.transfer(1, 0, 10, after=[first])
    settings = NvmeTcpSettings(
        targets={str(NICS[1].address.ip): dict.fromkeys(MEDIUM, 1)}, ports={"st": (str(NICS[1].address.ip),)}
    )  # type: ignore[union-attr]
    place_of = place(builder.build("reads"))
    found = compile_programs(place_of, lambda host: settings, pulled=lambda step: step.source == 1)
    reader, target = (found[nic.node] for nic in NICS[:2])
    assert [(step.pulled, step.begins_at, step.after) for step in reader.steps] == [(True, 0, ()), (True, 0, (0,))]
    assert [step.after for step in target.steps] == [(), ()]
    assert Schedule(reader.steps, reader.own).left == Schedule(target.steps, target.own).left == 2
    for program in (reader, target):
        document = json.loads(json.dumps(encode_program(program)))
        assert decode_program(document) == program
        document["transport"] = encode_settings(TcpSettings())
        with pytest.raises(ProgramError, match="tcp has no transfer that its destination begins"):
            decode_program(document)


def test_what_is_pulled_waits_for_nothing_that_its_destination_does_not_see() -> None:
    builder = StepBuilder(3)
    elsewhere = builder.transfer(1, 2, 10)
    builder.transfer(1, 0, 10, after=[elsewhere])
    with pytest.raises(ScenarioError, match="is read by rank 0, and waits for step 0, in which that rank takes no"):
        compile_programs(place(builder.build("reads")), lambda host: TcpSettings(), pulled=lambda step: True)


def test_only_what_the_source_waits_for_is_acknowledged() -> None:
    rounds = generate_point_to_point(ranks=2, size_bytes=10, rounds=3)
    steps = programs(rounds)[NICS[0].node].steps
    assert [step.acknowledged for step in steps] == [True, True, False]
    pattern = generate_permutation(ranks=4, size_bytes=10, rng=random.Random(1))
    assert not any(step.acknowledged for program in programs(pattern).values() for step in program.steps)


def test_times_are_scaled() -> None:
    builder = StepBuilder(2)
    builder.compute(0, 1000)
    builder.transfer(0, 1, 10, start_ns=500)
    steps = programs(builder.build("timed"), k=3.0)[NICS[0].node].steps
    assert steps[0].duration_ns == 3000 and steps[1].start_ns == 1500


def test_transfers_between_ranks_of_a_host_stay_inside() -> None:
    workload = generate_collective(CollectiveOperation(kind="all_to_all", size_bytes=64), ranks=4)
    program = programs(workload, PAIRS[:4])[PAIRS[0].node]
    assert program.own == {0, 1}
    inside = [step for step in program.steps if step.channel is None]
    assert {(step.source, step.destination) for step in inside} == {(0, 1), (1, 0)}


def test_data_that_does_not_fit_is_carried_as_traffic() -> None:
    workload = generate_collective(CollectiveOperation(kind="all_reduce", size_bytes=1000), ranks=4, iterations=3)
    assert choose_checked(workload, 8000) == (0, 1)
    found = compile_programs(place(workload), lambda host: TcpSettings(), checked=(0, 1))
    program = found[NICS[0].node]
    assert len(program.collectives) == 2
    last = workload.collectives[2].steps
    assert all((step.piece is None) == (step.number in last) for step in program.steps if step.destination is not None)


@pytest.mark.parametrize("datatype", list(DataType))
def test_the_datatype_follows_from_size_and_elements(datatype: DataType) -> None:
    for kind in ALGORITHMS:
        workload = generate_collective(CollectiveOperation(kind=kind, size_bytes=160, datatype=datatype), ranks=4)
        assert datatype_of(workload.collectives[0]) is datatype


def test_a_transfer_beyond_all_limits() -> None:
    with pytest.raises(ScenarioError, match="step 0 carries"):
        programs(generate_point_to_point(ranks=2, size_bytes=1 << 32))


def report(**changes: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {
        "steps_left": 0,
        "started": [[], []],
        "arrived": [[], []],
        "wrong": [],
        "digests": [],
        "channels": [],
        "samples": {},
        "counters": {},
        "latest_timer_ns": 0,
    }
    return empty | changes


def end(channel: int, **changes: Any) -> dict[str, Any]:
    empty = {
        "sent_bytes": None,
        "retransmits": None,
        "packets": None,
        "min_rtt_us": None,
        "counters": {},
        "moved": [[], []],
    }
    return empty | {"channel": channel} | changes


def test_transfers_and_channels_from_both_ends() -> None:
    workload = generate_point_to_point(ranks=2, size_bytes=1000, rounds=2)
    columns = {
        "at_ns": [0, 10**9],
        "acked_bytes": [0, 5],
        "cwnd_bytes": [1, 2],
        "rtt_us": [3.0, 4.0],
        "retransmits": [0, 1],
    }
    reports = {
        "a": report(
            started=[[0, 1], [0, 3_000_000_000]],
            channels=[end(0, sent_bytes=2000, retransmits=3, packets=9, min_rtt_us=7.5, counters={"x": 1, "z": 4})],
            samples={"0": columns},
            latest_timer_ns=2000,
            counters={"timeout": 1, "qp_state_bytes": 5000},
        ),
        "b": report(
            arrived=[[0, 1], [2_000_000_000, 4_000_000_000]],
            channels=[end(0, counters={"y": 2, "z": 3})],
            counters={"timeout": 2, "qp_state_bytes": 3000},
        ),
    }
    measured = put_together(place(workload), reports, (), IDEALS)
    transfers = measured.transfers
    assert (transfers.start_s, transfers.end_s, transfers.ideal_s) == ([0.0, 3.0], [2.0, 4.0], [1e-3, 1e-3])
    (channel,) = measured.channels
    assert (channel.sent_bytes, channel.received_bytes, channel.retransmits, channel.packets) == (2000, 2000, 3, 9)
    assert (channel.seconds, channel.busy_s, channel.goodput_bps) == (4.0, 3.0, 2000 * 8 / 3)
    assert channel.ideal_bps == NICS[0].rate_bps * 0.9
    assert channel.counters == {"x": 1, "y": 2, "z": 7} and channel.min_rtt_us == 7.5
    assert channel.samples.at_s == [0.0, 1.0] and channel.samples.retransmits == [0, 1]
    assert measured.counters == {"timeout": 3, "latest_timer_us": 2.0, "qp_state_bytes": 5000}


def test_what_nobody_reported_was_not_measured() -> None:
    workload = generate_point_to_point(ranks=2, size_bytes=1000, rounds=2)
    measured = put_together(place(workload), {"a": report(started=[[0], [5]], steps_left=1)}, (), IDEALS)
    assert measured.transfers.start_s == [5e-9, None] and measured.transfers.end_s == [None, None]
    assert measured.channels[0].received_bytes == 0 and measured.channels[0].goodput_bps == 0.0
    assert measured.steps_left == {"a": 1}
    assert put_together(place(workload), {}, (), IDEALS).transfers.number == [0, 1]


def collective_reports(workload: Workload, last_ns: int) -> dict[str, dict[str, Any]]:
    numbers = [step.number for step in workload.transfers]
    times = [last_ns] * len(numbers)
    return {"a": report(started=[numbers, [0] * len(numbers)], arrived=[list(numbers), times])}


def test_a_collective_in_the_terms_of_nccl_tests() -> None:
    workload = generate_collective(CollectiveOperation(kind="all_reduce", size_bytes=4000), ranks=4)
    reports = collective_reports(workload, 10**9)
    reports["a"]["wrong"] = [[0, rank, rank] for rank in range(4)]
    (result,) = put_together(place(workload), reports, (0,), IDEALS).collectives
    assert (result.seconds, result.algbw_bps, result.busbw_bps) == (1.0, 32_000, 48_000)
    assert (result.wrong, result.elements, result.redop, result.label) == (6, 1000, "sum", "all_reduce[0]")
    assert result.ideal_busbw_bps == NICS[0].rate_bps * 0.9


def test_a_collective_that_was_not_checked_or_did_not_end() -> None:
    workload = generate_collective(CollectiveOperation(kind="all_gather", size_bytes=4000), ranks=4)
    (result,) = put_together(place(workload), collective_reports(workload, 5), (), IDEALS).collectives
    assert result.wrong is None and result.redop == "none"
    reports = collective_reports(workload, 5)
    reports["a"]["wrong"] = [[0, rank, 0] for rank in range(3)]  # one rank's host is silent
    assert put_together(place(workload), reports, (0,), IDEALS).collectives[0].wrong is None
    for column in reports["a"]["arrived"]:
        column.pop()
    assert put_together(place(workload), reports, (0,), IDEALS).collectives == []


def test_inside_a_host_no_nic_is_the_bound() -> None:
    workload = generate_collective(CollectiveOperation(kind="all_to_all", size_bytes=4000), ranks=4)
    placed = place(workload, PAIRS[:4])
    links = ScaleUpLinks(rate_bps=8 * PAIRS[0].rate_bps)
    placement = replace(placed, domains=replace(placed.domains, links=links))
    (result,) = put_together(placement, collective_reports(workload, 5), (), IDEALS).collectives
    assert result.line_bps == pytest.approx(1.5 * PAIRS[0].rate_bps), "two of a rank's three blocks cross its NIC"
    assert result.ideal_busbw_bps is not None and result.ideal_busbw_bps < result.line_bps, "headers"
    workload = generate_collective(CollectiveOperation(kind="all_to_all", size_bytes=4000), ranks=2)
    placed = place(workload, PAIRS[:2])
    links = ScaleUpLinks(rate_bps=7_200_000, in_switch_bps=7_200_000, one_way_ns=0)
    placement = replace(placed, domains=replace(placed.domains, links=links))
    (result,) = put_together(placement, collective_reports(workload, 5), (), IDEALS).collectives
    assert result.ideal_busbw_bps == result.line_bps == 7_200_000


def test_digests_settle_who_has_what_was_checked() -> None:
    reports = {
        "a": report(wrong=[[0, 0, 0], [1, 0, 3]], digests=[[0, 0, "x"], [1, 0, "p"]]),
        "b": report(digests=[[0, 1, "x"], [1, 1, "p"]]),
        "c": report(digests=[[0, 2, "y"], [1, 2, "q"]]),
    }
    assert settle_digests(reports) == {"b": [(1, 1)], "c": [(0, 2), (1, 2)]}
    assert reports["b"]["wrong"] == [[0, 1, 0]]
    assert reports["c"]["wrong"] == []


def test_without_the_one_that_checks_all_must_be_counted() -> None:
    assert settle_digests({"b": report(digests=[[0, 1, "x"]])}) == {"b": [(0, 1)]}
