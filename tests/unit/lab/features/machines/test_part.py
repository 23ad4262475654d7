"""The part of a plan that a machine makes: all of it is in one part, and each cut link ends in a stub in two."""

import pytest

from testbed.lab.core.feature import read_part
from testbed.lab.core.model import Lab
from testbed.lab.core.model.machines import LabMachine
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import CreateNode, CreateVeth, InstallPort, SetSysctl
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.machines.part import WIRES, LabPart, Peer
from testbed.lab.features.machines.places import cut_links, place_nodes

MACHINES = (LabMachine(name="a", ssh="root@a"), LabMachine(name="b", ssh="root@b"))
UNDERLAY_NS = 30_000
FABRIC = "name: parts\nfabric: {design: rail-optimized, segments: 2, hosts: 2, gpus: 2, spines: 2}\n"
LOSSLESS = "qos: {preset: uec}\n"


@pytest.fixture(params=[FABRIC, FABRIC + LOSSLESS], ids=["plain", "qos"])
def lab(request: pytest.FixtureRequest) -> Lab:
    return load_topology_text(request.param, file="<text>")


@pytest.fixture
def plan(lab: Lab) -> LabPlan:
    return plan_lab(lab, slot=7, k=20_000)


@pytest.fixture
def parts(lab: Lab) -> tuple[LabPart, LabPart]:
    places = place_nodes(lab, MACHINES)
    return (part_of("a", "b", places), part_of("b", "a", places))


def part_of(machine: str, other: str, places: dict[str, str]) -> LabPart:
    addresses = {"a": "10.99.0.11", "b": "10.99.0.12"}
    peer = Peer(address=addresses[other], delay_ns=UNDERLAY_NS)
    return LabPart(machine=machine, places=places, address=addresses[machine], device="eth0", peers={other: peer})


def test_every_operation_is_in_one_part_but_for_links_that_are_cut(
    lab: Lab, plan: LabPlan, parts: tuple[LabPart, LabPart]
) -> None:
    made = [part.plan(plan) for part in parts]
    cut = cut_links(lab, parts[0].places).links
    added = [item for each in made for item in each.operations if item not in plan.operations]
    stubs = [item for item in added if isinstance(item, CreateVeth)]
    assert len(stubs) == 2 * len(cut), "a half on each machine"
    others = [item for item in added if item not in stubs]
    assert {item.node for item in others if isinstance(item, CreateNode | SetSysctl)} == {WIRES}
    assert len(others) == 6, "and the namespace of stubs, which itself says nothing"
    kept = [item for each in made for item in each.operations if item in plan.operations]
    gone = [item for item in plan.operations if item not in kept]
    assert len(kept) == len(plan.operations) - len(cut)
    assert {f"{item.a} {item.b}" for item in gone if isinstance(item, CreateVeth)} == {f"{e.a} {e.b}" for e in cut}


def test_the_two_halves_of_a_link_have_the_same_network_identifier_and_name_each_other(
    plan: LabPlan, parts: tuple[LabPart, LabPart]
) -> None:
    here, there = (part.cuts(part.plan(plan)) for part in parts)
    assert here and len(here) == len(there)
    other = {cut.vni: cut for cut in there}
    assert len(other) == len(there), "each link has its own"
    for cut in here:
        far = other[cut.vni]
        assert (cut.port, cut.peer, cut.machine, far.machine) == (far.peer, far.port, "b", "a")
        assert cut.vni < 1 << 24 and cut.stub != cut.tunnel < 1 << 16
    other_slot = plan_lab(load_topology_text(FABRIC, file="<text>"), slot=8, k=20_000)
    assert not {cut.vni for cut in parts[0].cuts(parts[0].plan(other_slot))} & set(other), "labs are apart"


def test_a_half_keeps_the_end_that_its_node_has(plan: LabPlan, parts: tuple[LabPart, LabPart]) -> None:
    part = parts[0]
    whole = {str(end): end for item in plan.operations if isinstance(item, CreateVeth) for end in (item.a, item.b)}
    for item in part.plan(plan).operations:
        if isinstance(item, CreateVeth) and WIRES in (item.a.node, item.b.node):
            near = item.a if item.b.node == WIRES else item.b
            assert whole[str(near)] == near and near.node in part.nodes


def test_the_namespace_of_stubs_is_made_before_its_links(plan: LabPlan, parts: tuple[LabPart, LabPart]) -> None:
    first = parts[0].plan(plan).operations[0]
    assert isinstance(first, CreateNode) and first.node == WIRES


def test_what_is_here_of_a_lab_has_no_end_elsewhere(lab: Lab, plan: LabPlan, parts: tuple[LabPart, LabPart]) -> None:
    for part in parts:
        here, made = part.model(lab), part.plan(plan)
        names = {node.name for node in here.nodes}
        assert names == part.nodes and {end.node for link in here.links for end in (link.a, link.b)} <= names
        assert {subnet.switch for subnet in here.rail_subnets} <= names
        assert {port.node for port in made.ports} <= names and {host.node for host in made.hosts} <= names
        assert {switch.node for switch in made.switches} == set(made.expected_routes)
        numbers = {f"{item.node}:{item.name}": item.port for item in plan.operations if isinstance(item, InstallPort)}
        assert made.port_numbers == {place: at for place, at in numbers.items() if place.partition(":")[0] in names}


def test_the_underlay_is_a_part_of_the_delay_of_a_cut_link() -> None:
    delayed = FABRIC.replace("spines: 2", "spines: 2, uplink: {delay: 500ns}")
    lab = load_topology_text(delayed, file="<text>")
    plan = plan_lab(lab, slot=7, k=20_000)
    places = place_nodes(lab, MACHINES)
    part = part_of("a", "b", places)
    whole = {(port.node, port.name): port for port in plan.ports}
    for port in part.plan(plan).ports:
        before = whole[port.node, port.name].delay_ns
        cut = places[port.peer.partition(":")[0]] == "b"
        assert port.delay_ns == (before - UNDERLAY_NS if cut else before)
        assert before > UNDERLAY_NS or not cut


def test_a_part_is_read_back_from_the_record_of_its_lab(parts: tuple[LabPart, LabPart]) -> None:
    assert read_part(parts[0].to_json()) == parts[0]
    with pytest.raises(ValueError, match="octets"):
        read_part({**parts[0].to_json(), "address": "a.b"})
    with pytest.raises(ValueError, match="machine"):
        read_part({"nodes": []})
