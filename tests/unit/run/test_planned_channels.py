"""Planned paths: source ports lead channels along paths that no two flows share."""

from collections import Counter
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from testbed.base.datapath.flow_hash import FiveTuple
from testbed.base.errors import ScenarioError, SpecError
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology
from testbed.run.ideals.fabric_graph import fabric_graph
from testbed.run.ideals.switch_choices import lab_choice
from testbed.run.placed.lab import PlannedLab
from testbed.run.schema.file import load_scenario_text
from testbed.run.schema.model import Transport, TransportKind
from testbed.run.simulated.outlook import foresee_simulated
from testbed.run.sweeps import read_sweep
from testbed.run.transports.registry import transport_on
from testbed.workload.patterns import generate_tornado

TOPOLOGY = Path(__file__).parents[3] / "topologies" / "uec-spray.yml"
PROTOCOLS = {TransportKind.ROCE: 17, TransportKind.TCP: 6}


def lab(**keys: object) -> PlannedLab:
    settings = {"fabric.segments": 2, "fabric.hosts": 4, "fabric.gpus": 1, "qos.load_balancing.mode": "flow"}
    model = load_topology(
        TOPOLOGY, overrides={**settings, **{f"qos.load_balancing.{key}": one for key, one in keys.items()}}
    )
    return PlannedLab(model=model, plan=plan_lab(model, k=10_000))


def uplink_loads(on: PlannedLab, kind: TransportKind, paths: str | None, seed: int) -> Counter[int]:
    """How many flows of a shift by half of all hosts each link between switches has."""
    workload = generate_tornado(ranks=8, size_bytes=1_000_000, shift=4)
    nics = [host.nics[0] for host in on.plan.hosts]
    plan = transport_on(on, Transport(kind=kind, paths=paths)).plan_channels(workload, nics, seed=seed)
    graph = fabric_graph(on.model, on.plan)
    loads: Counter[int] = Counter()
    for channel in plan.channels:
        near, far = nics[channel.source], nics[channel.destination]
        assert near.address is not None and far.address is not None
        five = FiveTuple(
            source=IPv4Address(near.address.ip),
            destination=IPv4Address(far.address.ip),
            protocol=PROTOCOLS[kind],
            source_port=channel.source_port,
            destination_port=channel.destination_port,
        )
        choose = lab_choice(on.plan, [five], run=seed)
        ends = f"{near.node}:{near.name}", f"{far.node}:{far.name}"
        loads.update(graph.path(*ends, lambda node, links, choose=choose: choose(0, node, links))[1:-1])  # type: ignore[misc]
    return loads


@pytest.mark.parametrize("kind", PROTOCOLS)
@pytest.mark.parametrize("seed", [1, 2, 7])
def test_no_two_channels_share_an_uplink(kind: TransportKind, seed: int) -> None:
    on = lab()
    assert set(uplink_loads(on, kind, "planned", seed).values()) == {1}
    assert max(uplink_loads(on, kind, None, seed).values()) > 1, "as ports are drawn, some do"


def test_the_ports_are_drawn_by_the_seed_of_the_run() -> None:
    workload = generate_tornado(ranks=8, size_bytes=1000, shift=4)
    on = lab()
    nics = [host.nics[0] for host in on.plan.hosts]
    transport = transport_on(on, Transport(kind=TransportKind.ROCE, paths="planned"))
    one, again, other = (
        [channel.source_port for channel in transport.plan_channels(workload, nics, seed=seed).channels]
        for seed in (1, 1, 2)
    )
    assert one == again != other


@pytest.mark.parametrize("mode", ["spray", "adaptive", "flowlet"])
def test_switches_that_do_not_hash_flows_are_refused(mode: str) -> None:
    with pytest.raises(ScenarioError, match="planned: ") as caught:
        uplink_loads(lab(mode=mode), TransportKind.ROCE, "planned", 1)
    assert "mode: flow" in str(caught.value.hint)


def test_queue_pairs_that_switches_hash_are_not_known_before_a_run() -> None:
    on = lab(hash={"fields": ["source", "destination", "source_port", "roce_qp"]})
    with pytest.raises(ScenarioError, match="hashes queue pairs"):
        uplink_loads(on, TransportKind.ROCE, "planned", 1)
    assert set(uplink_loads(on, TransportKind.TCP, "planned", 1).values()) == {1}, "TCP has none"


@pytest.mark.parametrize("what", [{"tenant": "red"}, {"member": "fe1"}, {"nic_ports": 2}])
def test_where_others_choose_among_links_nothing_is_planned(what: dict[str, Any]) -> None:
    on = lab()
    nics = [replace(host.nics[0], **what) for host in on.plan.hosts]
    transport = transport_on(on, Transport(kind=TransportKind.TCP, paths="planned"))
    with pytest.raises(ScenarioError, match="in tenants, or on NICs with several ports") as caught:
        transport.plan_channels(generate_tornado(ranks=8, size_bytes=1000, shift=4), nics, seed=1)
    assert "paths: hashed" in str(caught.value.hint)


def test_flows_that_leave_their_path_have_none_planned() -> None:
    on = lab()
    leaving = Transport(kind=TransportKind.ROCE, paths="planned", cc="swift", options={"parameters": "plb"})
    nics = [host.nics[0] for host in on.plan.hosts]
    with pytest.raises(ScenarioError, match="leaves a path that stays congested"):
        transport_on(on, leaving).plan_channels(generate_tornado(ranks=8, size_bytes=1000, shift=4), nics, seed=1)


def test_pinned_destinations_leave_nothing_to_plan() -> None:
    on = lab(mode="static")
    with pytest.raises(ScenarioError, match="pins destinations to paths"):
        uplink_loads(on, TransportKind.ROCE, "planned", 1)


def test_switches_that_hash_no_source_ports_lead_no_flows() -> None:
    with pytest.raises(ScenarioError, match="hashes no source ports"):
        uplink_loads(lab(hash={"fields": ["source", "destination"]}), TransportKind.TCP, "planned", 1)


def test_what_leaves_nothing_to_plan_is_told_at_its_place() -> None:
    text = f"""name: planned
topology: {{file: {TOPOLOGY}, set: {{fabric.segments: 2, fabric.hosts: 2, fabric.gpus: 1}}}}
transport: {{kind: roce, paths: planned}}
workload: {{kind: permutation, bytes: 1MB}}
"""
    with pytest.raises(SpecError) as caught:
        foresee_simulated(read_sweep(text))
    [problem] = caught.value.problems
    assert (problem.code, problem.position is not None and problem.position.line) == ("unfit", 3)
    assert "planned: p1-s1-rail1 balances by spray" in problem.message


def test_fields_of_the_hash_and_hosts_of_segments_are_single_values_of_a_matrix() -> None:
    text = f"""name: swept
topology: {{file: {TOPOLOGY}, set: {{fabric.gpus: 1, fabric.hosts: "2, 1", qos.load_balancing.mode: flow}}}}
transport: {{kind: roce}}
workload: {{kind: permutation, bytes: 1MB}}
matrix: {{qos.load_balancing.hash.fields: ["source, destination", "source, destination, roce_qp"]}}
"""
    sweep = read_sweep(text)
    labs = [sweep.lab_of(point) for point in sweep.points]
    assert [len(one.hosts) for one in labs] == [3, 3]
    fields = [one.qos.of("p1-s1-rail1").load_balancing.hash_fields for one in labs if one.qos is not None]
    assert [[field.value for field in some] for some in fields] == [
        ["source", "destination"],
        ["source", "destination", "roce_qp"],
    ]


@pytest.mark.parametrize(
    ("transport", "said"),
    [
        ("{kind: roce, paths: planned, qps: 4}", "qps is 4"),
        ("{kind: roce, paths: planned, connections: dct}", "connections is dct"),
        ("{kind: roce, recovery: go-back-0, ooo: true}", "ooo keeps it"),
        ("{kind: roce, recovery: go-back-0, cc: swift}", "swift waits for more"),
    ],
)
def test_what_does_not_go_together_is_refused(transport: str, said: str) -> None:
    text = (
        f"name: x\ntopology: {{file: {TOPOLOGY}}}\ntransport: {transport}\n"
        "workload: {kind: permutation, bytes: 64kB}\nrepeat: {runs: 1, seed: 1}\n"
    )
    with pytest.raises(SpecError) as caught:
        load_scenario_text(text, file="x.yml")
    assert any(said in problem.message for problem in caught.value.problems)
