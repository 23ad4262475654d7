"""Oracles of open loops: how evenly these very flows load the links, whenever they begin; and ideals of the ways."""

import random
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_rows import channel

from testbed.base.datapath.abi import FIVE_TUPLE, HashField
from testbed.base.datapath.flow_hash import ROCE_PORT, FiveTuple
from testbed.base.errors import ScenarioError
from testbed.base.units import Duration
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology
from testbed.run.ideals.point_ideals import PointIdeals, _way_class
from testbed.run.ideals.predictions import SEEDS, Carried, predict_point
from testbed.run.ideals.switch_choices import lab_choice, tells_flows_apart
from testbed.run.placed.channels import plan_channels
from testbed.run.placed.lab import PlannedLab
from testbed.run.placed.placement import RankPlacement, flow_end
from testbed.run.placed.traffic import RunTraffic, make_traffic
from testbed.run.schema.file import load_scenario, load_scenario_topology
from testbed.run.schema.model import Scenario, TopologyRef, Transport, TransportKind
from testbed.run.schema.model import Workload as Asked
from testbed.run.schema.oracles import OF_FLOWS, OF_LINKS
from testbed.run.sweep.points import plan_points
from testbed.run.transports.registry import transport_on
from testbed.workload.flow_sizes import FLOW_SIZES
from testbed.workload.frontend import Mice, generate_mice
from testbed.workload.oracles.serialisation import tcp_framing
from testbed.workload.patterns import generate_permutation, generate_point_to_point, generate_tornado
from testbed.workload.steps import Workload

TOPOLOGY = Path(__file__).parents[3] / "topologies" / "uec-spray.yml"
LINKS = {"mmr_uplinks", "mmr_worst_switch", "jain_links", "effective_paths"}


@pytest.fixture(scope="module")
def lab() -> PlannedLab:
    """Two leaves of four hosts each, four spines, hashed by flow."""
    settings = {"fabric.segments": 2, "fabric.hosts": 4, "fabric.gpus": 1, "fabric.spines": 4}
    model = load_topology(TOPOLOGY, overrides={**settings, "qos.load_balancing.mode": "flow"})
    return PlannedLab(model=model, plan=plan_lab(model, k=10_000))


def asked(kind: TransportKind = TransportKind.TCP, paths: str | None = None) -> Scenario:
    return Scenario(
        name="x",
        topology=TopologyRef(file=str(TOPOLOGY)),
        workload=Asked(kind="mice"),
        transport=Transport(kind=kind, paths=paths),
    )


def carried(
    lab: PlannedLab, workload: Workload, *, run: bool = True, seed: int = 1, scenario: Scenario | None = None
) -> Carried:
    nics = tuple(host.nics[0] for host in lab.plan.hosts)
    placement = RankPlacement(nics=nics, ranks_per_domain=0)
    if not run:
        return Carried(workload=workload, placement=placement)
    rules = transport_on(lab, (scenario or asked()).transport).channel_rules
    plan = plan_channels(workload, nics, rules, seed=seed)
    channels = []
    for one in plan.channels:
        ports = {"source_port": one.source_port, "destination_port": one.destination_port}
        channels.append(channel(flow_end(nics[one.source]), flow_end(nics[one.destination]), **ports))
    channel_of = {number: channels[index] for number, index in plan.of_step.items()}
    return Carried(workload=workload, placement=placement, channels=channels, channel_of=channel_of)


def predicted(lab: PlannedLab, *runs: Carried, scenario: Scenario | None = None) -> dict[str, float]:
    said = predict_point(scenario or asked(), lab, runs, framing=tcp_framing(4500), base_rtt_s=0.0)
    return {one.metric: one.mean for one in said}


def mice(seed: int, load: float = 0.05) -> Workload:
    flows = Mice(sizes=FLOW_SIZES["FbHdp"].up_to(100_000), load=load, duration_ns=200_000)
    return generate_mice(flows, ranks=8, rate_bps=400_000_000_000, rng=random.Random(seed))


def test_one_flow_loads_one_of_four_uplinks(lab: PlannedLab) -> None:
    workload = generate_point_to_point(ranks=8, size_bytes=10_000, source=0, destination=7)
    (step,) = workload.steps
    later = replace(workload, steps=(replace(step, start_ns=5),))  # type: ignore[type-var]
    found = predicted(lab, carried(lab, later))
    assert set(found) == LINKS, "nothing of rates"
    assert found["mmr_worst_switch"] == 4 and found["effective_paths"] == 1
    assert found["mmr_uplinks"] == 8 and found["jain_links"] == pytest.approx(1 / 8)


def test_mice_are_placed_by_their_own_ports(lab: PlannedLab) -> None:
    workload = mice(1)
    one, again, other = (predicted(lab, carried(lab, workload, seed=seed)) for seed in (1, 1, 2))
    assert one == again != other
    assert 1 < one["mmr_worst_switch"] < 2 and 3 < one["effective_paths"] < 4
    (said, *_) = predict_point(asked(), lab, [carried(lab, workload)], framing=tcp_framing(4500), base_rtt_s=0.0)
    assert "own hash" in said.oracle and said.seeds == 1


def test_each_run_is_predicted_by_its_own_hash_seeds(lab: PlannedLab) -> None:
    first = carried(lab, mice(1))
    second = replace(first, seed=2)
    assert predicted(lab, first) != predicted(lab, second)
    both = predicted(lab, first, second)
    assert both["jain_links"] == pytest.approx(
        (predicted(lab, first)["jain_links"] + predicted(lab, second)["jain_links"]) / 2
    )


def test_more_mice_hash_more_evenly(lab: PlannedLab) -> None:
    mean = defaultdict(float)
    for load in (0.01, 0.1):
        for seed in range(6):
            mean[load] += predicted(lab, carried(lab, mice(seed, load), seed=seed))["mmr_worst_switch"] / 6
    assert mean[0.1] - 1 < (mean[0.01] - 1) / 1.5, mean


def test_before_a_run_the_hash_is_drawn(lab: PlannedLab) -> None:
    (said, *_) = predict_point(
        asked(), lab, [carried(lab, mice(1), run=False)], framing=tcp_framing(4500), base_rtt_s=0.0
    )
    assert "hashed at random" in said.oracle and said.seeds == SEEDS and said.stdev > 0


@pytest.mark.parametrize("what", [{"tenant": "red"}, {"member": "fe1"}, {"nic_ports": 2}])
def test_a_hash_that_is_not_known_is_drawn(lab: PlannedLab, what: dict[str, Any]) -> None:
    """Switches hash the outer packet of VXLAN, whose source port the run does not have; a host with a link group, or
    that speaks BGP, hashes as its kernel does."""
    known = carried(lab, mice(1))
    nics = tuple(replace(nic, **what) for nic in known.placement.nics)
    inside = replace(known, placement=replace(known.placement, nics=nics))
    (said, *_) = predict_point(asked(), lab, [inside], framing=tcp_framing(4500), base_rtt_s=0.0)
    assert "hashed at random" in said.oracle and said.seeds == SEEDS and said.stdev > 0


def test_several_flows_of_a_pair_are_told_apart(lab: PlannedLab) -> None:
    workload = generate_permutation(ranks=8, size_bytes=100_000, rng=random.Random(1), flows=3)
    (said, *_) = predict_point(asked(), lab, [carried(lab, workload)], framing=tcp_framing(4500), base_rtt_s=0.0)
    assert "own hash" in said.oracle


@pytest.mark.parametrize("paths", ["single", "oblivious", "reps"])
def test_messages_of_a_pair_that_share_a_channel_are_one_flow(lab: PlannedLab, paths: str) -> None:
    """UET sends what one NIC has for another over one packet delivery context, and TCP over a connection each."""
    one, four = (
        generate_point_to_point(ranks=8, size_bytes=size_bytes, source=0, destination=7, flows=flows)
        for size_bytes, flows in ((4_000_000, 1), (1_000_000, 4))
    )
    sprayed = asked(TransportKind.UET, paths)
    for run in (False, True):
        found = predicted(lab, carried(lab, four, run=run, scenario=sprayed), scenario=sprayed)
        assert found["aggregate_share"] == found["slowest_share"] == pytest.approx(1)
        alone = predicted(lab, carried(lab, one, run=run, scenario=sprayed), scenario=sprayed)
        assert found == pytest.approx(alone, rel=1e-3)
    beside = predicted(lab, carried(lab, four))
    assert beside["aggregate_share"] == beside["slowest_share"] == pytest.approx(1 / 4)


def test_a_permutation_of_several_messages_has_the_shares_of_one(lab: PlannedLab) -> None:
    sprayed = asked(TransportKind.UET, "reps")
    one, many = (
        predicted(
            lab,
            carried(lab, generate_permutation(ranks=8, size_bytes=100_000, rng=random.Random(1), flows=flows)),
            scenario=sprayed,
        )
        for flows in (1, 16)
    )
    assert many == pytest.approx(one) and many["slowest_share"] == pytest.approx(1)


def test_timed_flows_of_a_pair_share_a_channel_too(lab: PlannedLab) -> None:
    sprayed = asked(TransportKind.UET, "single")
    timed = replace(sprayed, workload=replace(sprayed.workload, duration=Duration.parse("1ms")))
    four = generate_point_to_point(ranks=8, size_bytes=1_000_000, source=0, destination=7, flows=4)
    run = carried(lab, four, scenario=timed)
    said = predict_point(timed, lab, [replace(run, channel_of={})], framing=tcp_framing(4500), base_rtt_s=0.0)
    assert {one.metric: one.mean for one in said}["slowest_share"] == pytest.approx(1)
    assert "own hash" in said[0].oracle


def test_what_is_expected_of_oracles_is_what_they_say(lab: PlannedLab) -> None:
    """A file may expect these within an oracle (`run.schema.oracles`), and nothing else."""
    workload = generate_permutation(ranks=8, size_bytes=100_000, rng=random.Random(1))
    assert set(predicted(lab, carried(lab, workload))) == {*OF_FLOWS, *OF_LINKS}
    assert set(predicted(lab, carried(lab, mice(1)))) == {*OF_LINKS}
    assert set(predicted(lab, carried(lab, workload), scenario=asked(TransportKind.UET, "reps"))) == {*OF_FLOWS}


def test_sprayed_open_loops_have_no_oracle(lab: PlannedLab) -> None:
    assert predicted(lab, carried(lab, mice(1)), scenario=asked(TransportKind.UET, "reps")) == {}


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


def balanced(**keys: object) -> PlannedLab:
    settings = {"fabric.segments": 2, "fabric.hosts": 4, "fabric.gpus": 1, "fabric.spines": 4}
    settings |= {f"qos.load_balancing.{name}": value for name, value in keys.items()}
    model = load_topology(TOPOLOGY, overrides=settings)
    return PlannedLab(model=model, plan=plan_lab(model, k=10_000))


def shares(lab: PlannedLab, shift: int = 4) -> tuple[str, float]:
    """What the oracle says of flows from each rank to the one `shift` further on."""
    traffic = carried(lab, generate_tornado(ranks=8, size_bytes=1_000_000, shift=shift))
    found = predict_point(asked(), lab, [traffic], framing=tcp_framing(4500), base_rtt_s=0.0)
    said = next(one for one in found if one.metric == "aggregate_share")
    return said.oracle, said.mean


def test_pinned_destinations_of_a_leaf_do_not_meet() -> None:
    oracle, share = shares(balanced(mode="static"))
    assert "pins of their destinations" in oracle and share == pytest.approx(1)


def test_destinations_with_the_same_remainder_meet() -> None:
    lab = balanced(mode="static")
    assert lab.plan.tables is not None
    alike = replace(lab.plan, tables=replace(lab.plan.tables, destinations=()))  # each destination is the first one
    assert shares(PlannedLab(model=lab.model, plan=alike))[1] == pytest.approx(1 / 4), "four flows on one uplink"


def test_adaptive_switches_reach_what_splittable_flows_do() -> None:
    oracle, share = shares(balanced(mode="adaptive"))
    assert "splittable" in oracle and share == pytest.approx(1)


@pytest.mark.parametrize("keys", [{"per": "flowlet"}, {"hysteresis": "30KB"}])
def test_where_flows_stay_for_a_while_no_oracle_knows(keys: dict[str, object]) -> None:
    lab = balanced(mode="adaptive", **keys)
    traffic = carried(lab, generate_tornado(ranks=8, size_bytes=1_000_000, shift=4))
    assert predict_point(asked(), lab, [traffic], framing=tcp_framing(4500), base_rtt_s=0.0) == []


def test_the_fields_of_the_hash_are_followed() -> None:
    model = load_topology(TOPOLOGY, overrides={"qos.load_balancing.mode": "flow"})
    (profile, *rest) = model.qos.profiles
    found = {}
    for fields in (FIVE_TUPLE, (HashField.PROTOCOL,), tuple(HashField)):
        balancing = replace(profile.load_balancing, hash_fields=fields)
        qos = replace(model.qos, profiles=(replace(profile, load_balancing=balancing), *rest))
        other = replace(model, qos=qos)
        found[fields] = shares(PlannedLab(model=other, plan=plan_lab(other, k=10_000)))
    assert found[HashField.PROTOCOL,][1] < found[FIVE_TUPLE][1], "all flows of a leaf on one uplink"
    assert "own hash" in found[tuple(HashField)][0], "TCP has no queue pairs"


def roce(lab: PlannedLab, flows: int) -> list[FiveTuple]:
    """RoCE from each NIC of the first leaf to each of the second."""
    ends = [host.nics[0].address for host in lab.plan.hosts]
    pairs = [(near, far) for near in ends[:4] for far in ends[4:] if near is not None and far is not None]
    return [
        FiveTuple(
            source=near.ip, destination=far.ip, protocol=17, source_port=50_000 + number, destination_port=ROCE_PORT
        )
        for number, (near, far) in enumerate(pairs[:flows])
    ]


def test_queue_pairs_are_not_known_before_a_run() -> None:
    lab = balanced(mode="flow", hash={"fields": ["source", "roce_qp"]})
    flows = roce(lab, 2)
    with pytest.raises(ScenarioError, match="hashes queue pairs"):
        lab_choice(lab.plan, flows, run=1)
    lab_choice(lab.plan, [replace(flow, queue_pair=7) for flow in flows], run=1)
    assert tells_flows_apart(lab.plan)


def test_flows_that_the_kernel_does_not_tell_apart_are_not_drawn_one_by_one() -> None:
    """Each pair of hosts has one path, which a hash drawn for each flow would not give it."""
    workload = generate_permutation(ranks=8, size_bytes=100_000, rng=random.Random(1), flows=3)
    for fields, drawn in ((["source", "destination"], False), (["source", "destination", "source_port"], True)):
        lab = balanced(mode="flow", hash={"by": "kernel", "fields": fields})
        said = predict_point(asked(), lab, [carried(lab, workload)], framing=tcp_framing(4500), base_rtt_s=0.0)
        assert bool(said) is drawn


def test_a_pin_is_to_a_next_hop_whatever_that_weighs() -> None:
    """Leaf 1 has four next hops to leaf 2, of weights 16, 16, 33 and 33; four destinations would have one each."""
    model = load_topology(TOPOLOGY.with_name("uneven-bundle.yml"), overrides={"qos.load_balancing.mode": "static"})
    plan = plan_lab(model, k=10_000)
    near, *_, a, b, c = (host.nics[0].address for host in plan.hosts)
    assert near is not None
    flows = [
        FiveTuple(source=near.ip, destination=one.ip, protocol=6, source_port=1, destination_port=2)
        for one in (a, b, c)
        if one is not None
    ]
    choose = lab_choice(plan, flows, run=1)
    found = {choose(number, "leaf1", 98) for number in range(len(flows))}
    assert len(found) == 3 and found <= {0, 16, 32, 65}
