"""The chance that a scenario of a paper fails by the draw of its hashes alone: the very paths of many seeds say so.

Where no two flows of a ring meet on a link, hashed paths are as good as adaptive ones, and a band that tells them apart
is missed. That happens at each of n leaves with the chance u! / u^u, for u flows on u uplinks: 8e-5 for four of four.
"""

import math
import random
from collections import Counter
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from testbed.base.datapath.flow_hash import ROCE_PORT, FiveTuple
from testbed.lab.core.plan.lab import plan_lab
from testbed.run.ideals.fabric_graph import fabric_graph
from testbed.run.ideals.switch_choices import lab_choice
from testbed.run.placed.channels import plan_channels
from testbed.run.placed.lab import PlannedLab
from testbed.run.placed.traffic import make_traffic
from testbed.run.schema.file import load_scenario_topology
from testbed.run.sweeps import read_sweep
from testbed.workload.oracles.ecmp import place_flows
from testbed.workload.oracles.prediction import Flow

PAPERS = Path(__file__).parents[3] / "scenarios" / "papers"
SEEDS = range(1, 201)
UDP = 17


def fullest_link(scenario: str, point: str) -> Counter[int]:
    """How many flows are on the fullest link of a ring, over seeds: the ring is as slow as these."""
    sweep = read_sweep(PAPERS / f"{scenario}.yml")
    [one] = [each for each in sweep.points if each.name == point]
    model = load_scenario_topology(one.scenario.topology)
    lab = PlannedLab(model=model, plan=plan_lab(model, k=1000.0))
    graph = fabric_graph(lab.model, lab.plan)
    found: Counter[int] = Counter()
    for seed in SEEDS:
        traffic = make_traffic(one.scenario, lab, seed=seed)
        nics = traffic.placement.nics
        channels = plan_channels(traffic.workload, nics, seed=seed).channels
        flows: list[Flow] = []
        fives: list[FiveTuple] = []
        for each in channels:
            near, far = nics[each.source], nics[each.destination]
            assert near.address is not None and far.address is not None
            flows.append(Flow(source=f"{near.node}:{near.name}", destination=f"{far.node}:{far.name}"))
            fives.append(
                FiveTuple(
                    source=IPv4Address(near.address.ip),
                    destination=IPv4Address(far.address.ip),
                    protocol=UDP,
                    source_port=each.source_port,
                    destination_port=ROCE_PORT,
                    queue_pair=random.Random(f"{seed} {len(fives)}").randrange(2, 1 << 24),
                )
            )
        paths = place_flows(graph, flows, lab_choice(lab.plan, fives, run=seed))
        found[max(Counter(link for path in paths for link in path).values())] += 1
    return found


@pytest.mark.parametrize("point", ["mode=flow order=spread", "mode=flow order=shuffled"])
def test_of_hashed_flows_two_meet_whatever_the_seed(point: str) -> None:
    assert 1 not in fullest_link("deepseek-routing", point)


def test_pinned_flows_do_not_meet_in_the_ring_that_they_were_made_for() -> None:
    assert set(fullest_link("deepseek-routing", "mode=static order=spread")) == {1}


def test_in_a_random_ring_two_pinned_flows_meet_in_nearly_every_run_and_in_two_of_three_always() -> None:
    chance = fullest_link("deepseek-routing", "mode=static order=shuffled")[1] / len(SEEDS)
    assert 0 < chance <= 0.02
    runs = read_sweep(PAPERS / "deepseek-routing.yml").scenario.repeat.runs
    assert runs == 3 and 3 * chance**2 < 0.001, "the median of three"


def test_the_chance_that_no_two_of_four_times_four_flows_meet_is_one_in_thirteen_thousand() -> None:
    assert (math.factorial(4) / 4**4) ** 4 == pytest.approx(1 / 13_000, rel=0.02)
    assert 1 not in fullest_link("meta-qp-scaling", "qps=1")
