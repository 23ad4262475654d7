"""Who sends to whom: bijections, rails, segments, seeds."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import ScenarioError
from testbed.model.scenario import Scope
from testbed.scenario.fake_lab import small_lab
from testbed.scenario.permutation import derange, plan_permutation


@given(st.lists(st.integers(1, 12), min_size=2, max_size=8), st.integers(0, 2**32))
def test_derangement_of_blocks(sizes: list[int], seed: int) -> None:
    blocks = [block for block, size in enumerate(sizes) for _ in range(size)]
    if 2 * max(sizes) > len(blocks):
        return
    items = list(range(len(blocks)))
    targets = derange(items, blocks, random.Random(seed))
    assert sorted(targets) == items
    assert all(blocks[target] != blocks[source] for source, target in enumerate(targets))


def test_two_equal_blocks_are_drawn_evenly() -> None:
    seen = Counter(tuple(derange([0, 1, 2, 3], "aabb", random.Random(seed))) for seed in range(400))
    assert set(seen) == {(2, 3, 0, 1), (2, 3, 1, 0), (3, 2, 0, 1), (3, 2, 1, 0)}
    assert min(seen.values()) > 60


@pytest.mark.parametrize("seed", range(5))
def test_every_nic_sends_once_and_receives_once_across_segments(seed: int) -> None:
    lab, plan = small_lab(segments=3, hosts=2, rails=4)
    transfers = plan_permutation(lab, plan, scope=Scope.INTER_SEGMENT, seed=seed)
    nics = {(nic.node, nic.name) for host in plan.hosts for nic in host.nics}
    assert {(t.source.node, t.source.name) for t in transfers} == nics
    assert {(t.destination.node, t.destination.name) for t in transfers} == nics
    for transfer in transfers:
        source, destination = lab.node(transfer.source.node).place, lab.node(transfer.destination.node).place
        assert source is not None and destination is not None
        assert source.segment != destination.segment
        assert transfer.source.rail == transfer.destination.rail
        assert 20000 <= transfer.source_port < 32000


def test_scope_any_crosses_hosts_within_a_segment() -> None:
    lab, plan = small_lab(segments=1, hosts=4)
    transfers = plan_permutation(lab, plan, scope=Scope.ANY, seed=1)
    assert all(t.source.node != t.destination.node for t in transfers)


def test_a_seed_means_the_same_flows_for_ever() -> None:
    lab, plan = small_lab(rails=1)
    transfers = plan_permutation(lab, plan, scope=Scope.INTER_SEGMENT, seed=1)
    assert [str(t) for t in transfers] == [
        "flow 1 (p1-s1-h1:rail1 -> p1-s2-h1:rail1)",
        "flow 2 (p1-s1-h2:rail1 -> p1-s2-h2:rail1)",
        "flow 3 (p1-s2-h1:rail1 -> p1-s1-h1:rail1)",
        "flow 4 (p1-s2-h2:rail1 -> p1-s1-h2:rail1)",
    ]
    assert [t.source_port for t in transfers] == [25393, 27819, 29464, 21126]
    assert transfers != plan_permutation(lab, plan, scope=Scope.INTER_SEGMENT, seed=2)


def test_one_segment_has_nobody_to_talk_to() -> None:
    lab, plan = small_lab(segments=1)
    with pytest.raises(ScenarioError, match="no inter-segment permutation on rail 1: 2 of its 2 NICs") as caught:
        plan_permutation(lab, plan, scope=Scope.INTER_SEGMENT, seed=1)
    assert caught.value.hint is not None and "scope: any" in caught.value.hint
