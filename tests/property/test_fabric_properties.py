"""Properties of every generated fabric: unique names, one link per interface, symmetry, growth renames nothing."""

from collections import Counter
from dataclasses import replace
from itertools import product

import networkx
from equal_paths import equal_cost_paths
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from testbed.base.names import MAX_INTERFACE_NAME, check_interface_name, check_node_name
from testbed.lab.core.fabric import (
    DESIGNS,
    FabricParams,
    NicParams,
    RailParams,
    UplinkParams,
    check_params,
    generate_fabric,
    measure_sizing,
)
from testbed.lab.core.model import End, Lab, LinkKind, NodeKind, Role

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.filter_too_much])

maybe = st.none
RELATIVES = ("hosts", "segments", "pods", "spines", "super_spines")


@st.composite
def fabrics(draw: st.DrawFn) -> FabricParams:
    """Small fabrics of every design, all parameters varied; only sound ones."""

    def number(low: int, high: int) -> int | None:
        return draw(maybe() | st.integers(low, high))

    params = FabricParams(
        design=draw(st.sampled_from([name for name in DESIGNS if name not in ("dgx-superpod", "nvl72-superpod")])),
        pods=number(1, 3),
        segments=number(1, 3),
        hosts=number(1, 5),
        gpus=number(1, 9),
        nic=NicParams(
            per=draw(st.sampled_from([None, None, "gpu", "host"])),
            ports=draw(st.sampled_from([None, None, 1, 2, 4])),
            count=number(1, 4),
        ),
        planes=draw(st.sampled_from([None, None, 1, 2, 4])),
        rails=RailParams(
            per_switch=draw(st.sampled_from([None, None, 1, 2, 4, 8])),
            port_map=draw(st.sampled_from([None, None, None, "figure-13-6", "figure-13-10"])),
            prefix_length=number(20, 28),
        ),
        spines=number(0, 5),
        super_spines=number(0, 6),
        super_spine_groups=draw(st.sampled_from([None, None, 1, 2])),
        uplink=UplinkParams(count=number(1, 3)),
        core_uplink=UplinkParams(count=number(1, 3)),
    )
    # A value that a design does not accept is left out, so that few draws are lost.
    for _ in range(4):
        faults = check_params(params)
        if not faults:
            return params
        for fault in faults:
            params = without(params, fault.field)
    assume(False)
    raise AssertionError


def without(params: FabricParams, field: str) -> FabricParams:
    if field == "nic.count":
        return replace(params, nic=replace(params.nic, per=None, count=None))
    section, _, key = field.rpartition(".")
    if not section:
        return replace(params, **{key: None})
    return replace(params, **{section: replace(getattr(params, section), **{key: None})})


def generate(params: FabricParams) -> Lab:
    return generate_fabric(params, name="lab")


def ends(lab: Lab) -> list[End]:
    return [end for link in lab.links for end in (link.a, link.b)]


@given(fabrics())
@settings(PATIENT, max_examples=150)
def test_names_are_unique_and_legal_and_every_interface_is_in_one_link(params: FabricParams) -> None:
    lab = generate(params)
    names = [node.name for node in lab.nodes]
    assert len(set(names)) == len(names)
    for name in names:
        check_node_name(name)
    assert max(Counter(ends(lab)).values()) == 1
    for end in ends(lab):
        check_interface_name(end.interface)
        assert len(end.interface.encode()) <= MAX_INTERFACE_NAME
        assert end.node in names


@given(fabrics())
@settings(PATIENT, max_examples=60)
def test_places_are_unique_within_a_role(params: FabricParams) -> None:
    lab = generate(params)
    places = Counter((node.kind, node.role, node.place) for node in lab.nodes)
    assert max(places.values()) == 1
    assert all(node.place is not None for node in lab.nodes)


@given(fabrics())
@settings(PATIENT, max_examples=60)
def test_the_fabric_is_symmetric(params: FabricParams) -> None:
    """Every switch of a role has the same number of uplinks, every host the same NICs, every link goes up one tier."""
    lab = generate(params)
    role = {node.name: node.role for node in lab.nodes}
    up = Counter(link.a.node for link in lab.links)
    for tier in (None, Role.RAIL, Role.SPINE):
        members = [node.name for node in lab.nodes if node.role is tier]
        assert len({up[name] for name in members}) <= 1
    down = Counter(link.b.node for link in lab.links)
    for tier in (Role.SPINE, Role.SUPER_SPINE):
        assert len({down[node.name] for node in lab.nodes if node.role is tier}) <= 1
    above = {None: Role.RAIL, Role.RAIL: Role.SPINE, Role.SPINE: Role.SUPER_SPINE}
    assert all(role[link.b.node] is above[role[link.a.node]] for link in lab.links)


@given(fabrics())
@settings(PATIENT, max_examples=60)
def test_every_rail_of_an_access_link_has_a_subnet_with_room(params: FabricParams) -> None:
    lab = generate(params)
    subnets = {(subnet.switch, subnet.rail): subnet for subnet in lab.rail_subnets}
    assert len(subnets) == len(lab.rail_subnets)
    members = Counter((link.b.node, link.rail) for link in lab.links if link.kind is LinkKind.ACCESS)
    assert set(members) == set(subnets)
    for key, hosts in members.items():
        subnet = subnets[key]
        assert hosts + 3 <= 1 << (32 - subnet.prefix_length)
        assert (subnet.slot + 1) << (32 - subnet.prefix_length) <= 1 << (32 - subnet.aggregate_length)
    slots = Counter((subnet.switch, subnet.slot) for subnet in lab.rail_subnets)
    assert max(slots.values()) == 1


@given(fabrics(), st.sampled_from(RELATIVES))
@settings(PATIENT, max_examples=150)
def test_growth_keeps_every_name_place_and_port(params: FabricParams, key: str) -> None:
    """Adding a host, segment, pod, spine or super-spine leaves all that was there exactly as it was."""
    before = generate(params)
    grown = replace(params, **{key: count_of(before, key) + (params.super_spine_groups or 1)})
    # Other counts stay what they were, also where the design would derive them.
    for other in RELATIVES:
        if other != key and getattr(params, other) is None:
            grown = replace(grown, **{other: count_of(before, other)})
    assume(not check_params(grown))
    after = generate(grown)
    nodes = {node.name: node for node in after.nodes}
    assert all(nodes[node.name] == node for node in before.nodes)
    assert set(before.links) <= set(after.links)
    assert set(before.rail_subnets) <= set(after.rail_subnets)
    assert len(after.nodes) > len(before.nodes)


def count_of(lab: Lab, key: str) -> int:
    """A parameter as it came out."""
    places = [(node, node.place) for node in lab.nodes if node.place is not None]
    match key:
        case "pods":
            return max(place.pod for _, place in places)
        case "segments":
            return max(place.segment for _, place in places)
        case "hosts":
            return max(place.index for node, place in places if node.kind is NodeKind.HOST)
        case "spines":
            return max((place.index for node, place in places if node.role is Role.SPINE), default=0)
        case _:
            return max((place.index for node, place in places if node.role is Role.SUPER_SPINE), default=0)


@given(fabrics())
@settings(PATIENT, max_examples=40)
def test_sizing_agrees_with_an_independent_count(params: FabricParams) -> None:
    """networkx' maximum flow for the bisection, which no kind of traffic exceeds; every pair's paths lie within the
    summary's range."""
    lab = generate(params)
    sizing = measure_sizing(lab)
    assert len(lab.links) == sizing.host_links + sizing.rail_spine_links + sizing.spine_super_spine_links
    if sizing.bisection is not None:
        assert sizing.bisection.bandwidth_bps == flow_between_halves(lab, sizing.bisection.between)
        assert sizing.bisection.bandwidth_bps <= sizing.bisection.access_bps
        for load in sizing.bisection_traffic:
            assert load.access_bps <= sizing.bisection.access_bps
            assert (load.bandwidth_bps or 0) <= sizing.bisection.bandwidth_bps * (1 + 1e-6)
    nics = [link.a for link in lab.links if link.kind is LinkKind.ACCESS]
    seen = {equal_cost_paths(lab, a, b) for a, b in product(nics[:1], nics[1:][-6:])}
    one_port = (params.nic.ports or 1) == lab.planes == 1 and params.design in SINGLE_PORT
    if sizing.paths and len(lab.switches) < 40 and one_port:
        fewest, most = min(path.fewest for path in sizing.paths), max(path.most for path in sizing.paths)
        assert all(fewest <= paths <= most for paths in seen)


SINGLE_PORT = tuple(name for name, design in DESIGNS.items() if design.preset.get("nic.ports", 1) == 1)


def flow_between_halves(lab: Lab, between: str) -> int:
    unit_of = {
        "pods": lambda place: place.pod,
        "segments": lambda place: (place.pod, place.segment),
        "hosts": lambda place: (place.pod, place.segment, place.index),
    }[between]
    units = sorted({unit_of(host.place) for host in lab.hosts})
    first = set(units[: len(units) // 2])
    graph = networkx.DiGraph()
    for link in lab.links:
        for tail, head in ((link.a.node, link.b.node), (link.b.node, link.a.node)):
            capacity = graph.get_edge_data(tail, head, {"capacity": 0})["capacity"]
            graph.add_edge(tail, head, capacity=capacity + link.rate.bps)
    for host in lab.hosts:
        if unit_of(host.place) in first:
            graph.add_edge("source", host.name)
            graph.remove_edges_from(
                [(neighbour, host.name) for neighbour in graph.predecessors(host.name) if neighbour != "source"]
            )
        else:
            graph.remove_edges_from([(host.name, neighbour) for neighbour in list(graph.successors(host.name))])
            graph.add_edge(host.name, "sink")
    return int(networkx.maximum_flow_value(graph, "source", "sink"))
