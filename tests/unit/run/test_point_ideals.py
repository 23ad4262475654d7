"""What a point's metrics are compared with: latencies of pairs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from testbed.lab.core.plan.lab import plan_lab
from testbed.run.ideals.point_ideals import PointIdeals, _way_class
from testbed.run.placed.lab import PlannedLab
from testbed.run.placed.traffic import RunTraffic, make_traffic
from testbed.run.schema.file import load_scenario, load_scenario_topology
from testbed.run.sweep.points import plan_points

SCENARIOS = Path(__file__).parents[3] / "scenarios"


def of_scenario(name: str, point: int) -> tuple[PointIdeals, RunTraffic]:
    chosen = plan_points(load_scenario(SCENARIOS / f"{name}.yml"))[point]
    model = load_scenario_topology(chosen.topology)
    lab = PlannedLab(model=model, plan=plan_lab(model, k=10_000))
    seen = lab.of_network(*chosen.scenario.workload.ranks.networks_in(model))
    traffic = make_traffic(chosen.scenario, seen, seed=1)
    return PointIdeals.of(chosen.scenario, seen, [traffic]), traffic


def test_a_ring_has_the_latency_of_each_of_its_hops() -> None:
    """Of eight ranks under two leaves two hops cross the spines: of a chain of 14 steps at most four."""
    ideals, traffic = of_scenario("roce-allreduce", 0)
    nics = traffic.placement.nics
    near_s, far_s = ideals.way_s(nics[0], nics[1]), ideals.way_s(nics[3], nics[4])
    assert near_s < far_s < ideals.base_rtt_s / 2, "the sender's own port is no part of it"
    sizes = {step.size_bytes for step in traffic.workload.transfers}
    sending_s = 8 * ideals.framing.wire_bytes(max(sizes)) / nics[0].nic_bps
    found = ideals.roofline_s(traffic)
    assert found == pytest.approx(14 * sending_s + 10 * near_s + 4 * far_s, rel=1e-3)


def test_ways_over_links_of_other_delays_are_not_the_same() -> None:
    _, traffic = of_scenario("roce-allreduce", 0)
    first, second, *_ = traffic.placement.nics
    slow = replace(second, delay_ns=second.delay_ns + 1000)
    assert len({_way_class(first, second), _way_class(first, slow), _way_class(slow, first)}) == 3
