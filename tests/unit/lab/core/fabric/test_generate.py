"""What the designs generate: the figure's counts, names, ports, subnets and routing intent."""

from collections import Counter

import pytest

from testbed.base.names import check_interface_name, check_node_name
from testbed.base.units import Duration, Rate
from testbed.lab.core.fabric import (
    DESIGNS,
    PORT_MAPS,
    FabricParams,
    NicParams,
    RailParams,
    UplinkParams,
    generate_fabric,
    resolve_routing,
)
from testbed.lab.core.model import Bfd, Delay, Lab, LinkKind, Role, Routing


def build(design: str, **written: object) -> Lab:
    return generate_fabric(FabricParams(design=design, **written), name="lab")  # type: ignore[arg-type]


# rail switches, spines, super-spines, hosts, access links, fabric links
FIGURES = {
    "single-switch": (1, 0, 0, 3, 24, 0),
    "dual-switch": (2, 0, 0, 3, 48, 0),
    "rail-only": (8, 0, 0, 4, 32, 0),
    "multi-rail-switch": (2, 4, 0, 8, 64, 8),
    "dual-rail-switch": (4, 4, 0, 16, 128, 16),
    "rail-optimized": (8, 4, 0, 4, 32, 32),
    "pod": (4, 4, 0, 8, 128, 32),
    "multi-pod": (8, 8, 4, 16, 256, 128),
    "shared-nic": (2, 2, 0, 4, 8, 8),
    "six-by-four": (4, 2, 0, 6, 24, 24),
    "nvl72-superpod": (32, 9, 0, 144, 576, 576),
    "dgx-superpod": (32, 16, 0, 128, 1024, 1024),
    "dual-plane": (32, 4, 0, 8, 128, 64),
    "multi-plane": (16, 16, 0, 8, 64, 64),
}


def test_every_design_has_its_figure_here() -> None:
    assert set(FIGURES) == set(DESIGNS)
    for name, design in DESIGNS.items():
        assert design.name == name
        assert design.summary
        assert design.figure


@pytest.mark.parametrize("design", FIGURES)
def test_a_design_without_parameters_is_its_figure(design: str) -> None:
    lab = build(design)
    roles = Counter(node.role for node in lab.nodes)
    kinds = Counter(link.kind for link in lab.links)
    assert (
        roles[Role.RAIL],
        roles[Role.SPINE],
        roles[Role.SUPER_SPINE],
        roles[None],
        kinds[LinkKind.ACCESS],
        kinds[LinkKind.FABRIC],
    ) == FIGURES[design]
    assert lab.design == design
    assert lab.isolated_rails == (design == "rail-only")
    for node in lab.nodes:
        check_node_name(node.name)
    for link in lab.links:
        check_interface_name(link.a.interface)
        check_interface_name(link.b.interface)


def test_four_port_nics_make_four_planes() -> None:
    lab = build("rail-optimized", gpus=1, hosts=1, spines=1, nic=NicParams(ports=4))
    assert [node.name for node in lab.switches if node.role is Role.RAIL] == [f"p1-s1-rail1{x}" for x in "abcd"]


def test_segments_may_have_unequal_hosts() -> None:
    """A list has the hosts of each segment, which is as many segments as it has numbers; each pod is alike."""
    lab = build("rail-optimized", hosts=(3, 1, 2), gpus=1, spines=1)
    assert [node.name for node in lab.hosts] == [
        *("p1-s1-h1", "p1-s1-h2", "p1-s1-h3", "p1-s2-h1", "p1-s3-h1", "p1-s3-h2")
    ]
    equal = build("rail-optimized", segments=3, hosts=3, gpus=1, spines=1)
    assert {node.name: node for node in equal.switches} == {node.name: node for node in lab.switches}
    assert set(lab.links) < set(equal.links)
    pods = build("multi-pod", hosts=(1, 2), segments=2, gpus=1)
    assert [node.name for node in pods.hosts if node.name.startswith("p2")] == ["p2-s1-h1", "p2-s2-h1", "p2-s2-h2"]
    each = build("multi-pod", hosts=(1, 2, 3, 4), segments=2, gpus=1)
    assert len(each.hosts) == 10
    assert build("multi-pod", hosts=(2, 2), segments=2) == build("multi-pod", hosts=2, segments=2)


def test_single_switch_groups_the_ports_by_host() -> None:
    """Figure 13-4: ports 1-8 are host 1, and the first port of each group is rail 1."""
    lab = build("single-switch")
    port = {str(link.a): link.b.interface for link in lab.links}
    assert [port[f"p1-s1-h2:rail{rail}"] for rail in (1, 8)] == ["down9", "down16"]
    assert {link.rate for link in lab.links} == {Rate.parse("200G")}


def test_port_map_of_figure_13_6() -> None:
    lab = build("pod", rails=RailParams(port_map="figure-13-6"))
    ports = [
        int(link.b.interface.removeprefix("down"))
        for link in lab.links
        if link.b.node == "p1-s1-rail1a" and link.rail == 5
    ]
    assert ports == [2, 5, 8, 11]
    on_one = [link.b.interface for link in lab.links if link.b.node == "p1-s2-rail1b"]
    assert len(set(on_one)) == 32


@pytest.mark.parametrize("name", PORT_MAPS)
def test_port_maps_name_every_interface_once(name: str) -> None:
    ports = [port for block in PORT_MAPS[name] for port in block]
    assert len(set(ports)) == len(ports) == 32
    assert len({len(block) for block in PORT_MAPS[name]}) == 1


@pytest.mark.parametrize(
    ("design", "per_switch", "prefix", "written", "expected"),
    [
        ("rail-optimized", 1, None, {}, (24, 24, False)),
        ("dual-rail-switch", 2, None, {}, (25, 24, True)),
        ("multi-rail-switch", 4, None, {}, (27, 24, True)),
        ("multi-rail-switch", 8, None, {}, (28, 24, True)),
        ("multi-rail-switch", 8, 30, {"hosts": 1}, (30, 24, True)),
        ("multi-rail-switch", 8, 26, {"hosts": 40}, (26, 23, True)),
        ("rail-optimized", 1, 22, {"hosts": 300}, (22, 22, False)),
        ("single-switch", 8, None, {}, (28, 24, False)),
    ],
)
def test_subnets_and_aggregates(
    design: str, per_switch: int, prefix: int | None, written: dict[str, int], expected: tuple[int, int, bool]
) -> None:
    lab = build(design, rails=RailParams(per_switch=per_switch, prefix_length=prefix), **written)
    subnet = lab.rail_subnets[0]
    assert (subnet.prefix_length, subnet.aggregate_length, lab.routing.aggregate) == expected


def test_one_subnet_for_each_rail_of_each_switch() -> None:
    lab = build("dual-rail-switch", gpus=3)
    assert [(subnet.switch, subnet.rail, subnet.slot) for subnet in lab.rail_subnets] == [
        ("p1-s1-rail1", 1, 0),
        ("p1-s1-rail1", 2, 1),
        ("p1-s1-rail2", 3, 0),
    ]


def test_shared_nic() -> None:
    lab = build("shared-nic")
    assert lab.gpus_per_nic == 4
    assert [str(link.a) for link in lab.links[:2]] == ["p1-s1-h1:nic1", "p1-s1-h1:nic2"]
    assert [link.rail for link in lab.links[:2]] == [1, 2]


def test_uplink_count_rate_and_delay_reach_the_core_unless_it_has_its_own() -> None:
    delay, longer = Delay(value=Duration.parse("500ns")), Delay(value=Duration.parse("5us"))
    uplink = UplinkParams(rate=Rate.parse("800G"), count=2, delay=delay)
    same = build("multi-pod", uplink=uplink)
    other = build("multi-pod", uplink=uplink, core_uplink=UplinkParams(rate=Rate.parse("400G"), count=1, delay=longer))
    core = [link for link in same.links if link.b.node == "ss1"]
    assert {(link.rate, link.delay) for link in core} == {(Rate.parse("800G"), delay)}
    assert len(core) == 16
    core = [link for link in other.links if link.b.node == "ss1"]
    assert {(link.rate, link.delay) for link in core} == {(Rate.parse("400G"), longer)}
    assert len(core) == 8
    assert all(link.delay is None for link in same.links if link.kind is LinkKind.ACCESS)


def test_parallel_links_are_numbered_side_by_side() -> None:
    lab = build("six-by-four")
    pairs = [f"{link.a.interface} {link.b.interface}" for link in lab.links if link.a.node == "p1-s1-rail2"]
    assert pairs == [
        *["uplink1 down4", "uplink2 down5", "uplink3 down6"],
        *["uplink4 down4", "uplink5 down5", "uplink6 down6"],
    ]


def test_super_spine_groups_serve_every_other_spine() -> None:
    lab = build("rail-optimized", pods=2, spines=4, super_spines=4, super_spine_groups=2)
    above = {(link.a.node, link.b.node) for link in lab.links if link.b.node.startswith("ss")}
    assert {b for a, b in above if a == "p1-spine1"} == {"ss1", "ss3"}
    assert {b for a, b in above if a == "p2-spine4"} == {"ss2", "ss4"}


def test_super_spines_default_to_the_spines_of_a_pod() -> None:
    assert sum(node.role is Role.SUPER_SPINE for node in build("rail-optimized", pods=2, spines=3).nodes) == 3


@pytest.mark.parametrize(
    ("sessions", "interval_ms"), [(0, 300), (32, 300), (33, 2000), (256, 2000), (257, None), (1024, None)]
)
def test_auto_bfd_slows_down_as_sessions_grow(sessions: int, interval_ms: int | None) -> None:
    expected = None if interval_ms is None else Bfd(interval=Duration(interval_ms * 1_000_000), multiplier=3)
    assert resolve_routing(Routing(), sessions).bfd == expected


def test_bfd_as_written() -> None:
    on = Routing(bfd=Bfd(interval=Duration.parse("50ms"), multiplier=5), bfd_auto=False)
    assert resolve_routing(on, 10_000).bfd == Bfd(interval=Duration.parse("50ms"), multiplier=5)
    assert resolve_routing(Routing(bfd_auto=False), 1).bfd is None
    assert build("pod", routing=on).routing.bfd == Bfd(interval=Duration.parse("50ms"), multiplier=5)
    assert not build("pod", routing=on).routing.bfd_auto
    assert build("pod").routing.bfd_auto


def test_name_and_source_are_kept() -> None:
    lab = generate_fabric(FabricParams(design="pod", mtu=9000), name="mine", source="a.yml")
    assert (lab.name, lab.source) == ("mine", "a.yml")
    assert {link.mtu_bytes for link in lab.links} == {9000}
