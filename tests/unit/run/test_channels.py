"""Which transfers share a channel, and which ports it has."""

import random
from dataclasses import replace

import pytest
from fake_lab import small_lab

from testbed.base.errors import ScenarioError
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.protocols.uet.packets.codes import UDP_PORT
from testbed.run.placed.channels import (
    CONNECTIONS,
    LISTENING_PORT,
    SOURCE_PORTS,
    ChannelPlan,
    ChannelRules,
    plan_channels,
)
from testbed.workload.builder import StepBuilder
from testbed.workload.collectives.algorithms import generate_collective
from testbed.workload.collectives.operation import CollectiveOperation
from testbed.workload.patterns import generate_background, generate_permutation, generate_point_to_point
from testbed.workload.steps import Workload

_, PLAN = small_lab(segments=2, hosts=4, rails=2)
NICS = [host.nics[0] for host in PLAN.hosts]
"""One of each host."""


def planned(
    workload: Workload, rules: ChannelRules = CONNECTIONS, *, nics: list[PortPlan] = NICS, seed: int = 1
) -> ChannelPlan:
    return plan_channels(workload, nics, rules, seed=seed)


SPRAYING = ChannelRules(destination_port=UDP_PORT, one_for_each_pair=True)
SINGLE_PATH = replace(SPRAYING, keeps_port=True)


def test_flows_of_a_pattern_have_channels_of_their_own() -> None:
    workload = generate_permutation(ranks=8, size_bytes=10, rng=random.Random(1), flows=3)
    plan = planned(workload)
    assert len(plan.channels) == 24
    assert sorted(plan.of_step.values()) == list(range(24))
    assert all(
        (plan.channels[index].source, plan.channels[index].destination)
        == (workload.transfers[number].source, workload.transfers[number].destination)
        for number, index in plan.of_step.items()
    )


def test_rounds_follow_on_the_same_channels() -> None:
    plan = planned(generate_point_to_point(ranks=2, size_bytes=10, flows=2, rounds=5))
    assert len(plan.channels) == 2
    assert [plan.of_step[number] for number in range(4)] == [0, 1, 0, 1]


def test_a_background_flow_has_as_many_as_are_under_way_at_once() -> None:
    workload = generate_background(
        ranks=2, size_bytes=1000, pairs=1, duration_ns=10**9, rate_bps=10**6, load=0.5, rng=random.Random(1)
    )
    assert len(workload.steps) > 20
    assert len(planned(workload).channels) == 2


def test_transfers_of_a_collective_share_one() -> None:
    ring = generate_collective(CollectiveOperation(kind="all_reduce", size_bytes=800, chunks=2), ranks=8, iterations=3)
    assert len(planned(ring).channels) == 8
    everybody = generate_collective(CollectiveOperation(kind="all_to_all", size_bytes=800), ranks=8)
    assert len(planned(everybody).channels) == 56


def test_a_pipeline_sends_one_after_another() -> None:
    """Micro-batches that wait for computing alone might be under way at once, and still share their way."""
    builder = StepBuilder(2)
    done: tuple[int, ...] = ()
    for _ in range(6):
        done = (builder.compute(0, 100, after=done),)
        builder.transfer(0, 1, 10, after=done)
    assert len(planned(builder.build("pipeline")).channels) == 1


def test_uet_has_one_channel_for_each_pair() -> None:
    workload = generate_permutation(ranks=8, size_bytes=10, rng=random.Random(1), flows=3)
    plan = planned(workload, SPRAYING)
    assert len(plan.channels) == 8
    assert {channel.source_port for channel in plan.channels} == {0}
    assert {channel.destination_port for channel in plan.channels} == {UDP_PORT}
    single = planned(workload, SINGLE_PATH)
    assert all(SOURCE_PORTS[0] <= channel.source_port < SOURCE_PORTS[1] for channel in single.channels)


def test_on_a_single_path_a_nic_has_one_port_for_all_its_peers() -> None:
    workload = generate_collective(CollectiveOperation(kind="all_to_all", size_bytes=400), ranks=4)
    plan = planned(workload, SINGLE_PATH)
    ports = {(channel.source, channel.source_port) for channel in plan.channels}
    assert len(ports) == 4


def test_ports_are_the_seeds_and_below_the_ephemeral_ones() -> None:
    workload = generate_permutation(ranks=8, size_bytes=10, rng=random.Random(1), flows=50)
    first, again, other = planned(workload), planned(workload), planned(workload, seed=2)
    assert first == again
    assert [c.source_port for c in first.channels] != [c.source_port for c in other.channels]
    assert all(SOURCE_PORTS[0] <= channel.source_port < SOURCE_PORTS[1] < 32768 for channel in first.channels)
    assert len({(c.source, c.destination, c.source_port) for c in first.channels}) == 400
    assert {channel.destination_port for channel in first.channels} == {LISTENING_PORT}


def test_ranks_of_one_host_have_no_channel() -> None:
    nics = [nic for host in PLAN.hosts[:2] for nic in host.nics]
    plan = planned(generate_collective(CollectiveOperation(kind="all_to_all", size_bytes=400), ranks=4), nics=nics)
    assert {(c.source, c.destination) for c in plan.channels} == {
        (a, b) for a in range(4) for b in range(4) if a // 2 != b // 2
    }


def test_ranks_that_cannot_be() -> None:
    workload = generate_point_to_point(ranks=2, size_bytes=10)
    with pytest.raises(ScenarioError, match="has 2 ranks, and 1 NICs"):
        planned(workload, nics=NICS[:1])
    with pytest.raises(ScenarioError, match="it has no address"):
        planned(workload, nics=[NICS[0], replace(NICS[1], address=None)])
