"""The out-of-band network as it is generated: who has a port, in which order, and what cannot be built."""

from dataclasses import replace
from ipaddress import IPv4Network

import pytest

from testbed.base.errors import FabricError
from testbed.base.units import Rate
from testbed.lab.core.fabric import FabricParams, generate_fabric
from testbed.lab.core.fabric.networks import NetworkParams
from testbed.lab.core.model import OUT_OF_BAND, End, Lab, Link, LinkKind, Node, NodeKind
from testbed.lab.features.management.fabric import MAX_MANAGED, check_out_of_band, generate_out_of_band, keep_places

PARAMS = NetworkParams(name="management", number=1, design=OUT_OF_BAND, rate=Rate.parse("1G"))
LAB = generate_fabric(FabricParams(design="single-switch", hosts=2, gpus=1), name="lab")
ROUTER = Node(name="red-router", kind=NodeKind.ROUTER)


def order(lab: Lab, params: NetworkParams = PARAMS) -> list[tuple[int, str, str]]:
    return [(link.host_number, str(link.a), str(link.b)) for link in generate_out_of_band(params, lab).links]


def test_the_server_is_first_and_every_host_and_switch_has_a_port() -> None:
    assert order(replace(LAB, nodes=(*LAB.nodes, ROUTER))) == [
        (1, "mgmt1:mgmt0", "mgmt-sw1:uplink1"),
        (2, "p1-s1-rail1:mgmt0", "mgmt-sw1:down1"),
        (3, "p1-s1-h1:mgmt0", "mgmt-sw1:down2"),
        (4, "p1-s1-h2:mgmt0", "mgmt-sw1:down3"),
    ]
    made = generate_out_of_band(PARAMS, LAB)
    assert [(node.name, node.kind) for node in made.nodes] == [
        ("mgmt-sw1", NodeKind.BRIDGE),
        ("mgmt1", NodeKind.SERVER),
    ]
    assert {link.kind for link in made.links} == {LinkKind.MANAGEMENT} and made.network.is_out_of_band


def test_a_node_more_moves_no_other_one() -> None:
    more = replace(LAB, nodes=(*LAB.nodes, Node(name="last", kind=NodeKind.HOST)))
    assert order(more)[:-1] == order(LAB)


def test_names_begin_as_the_file_says() -> None:
    assert order(LAB, replace(PARAMS, short="con"))[:2] == [
        (1, "con1:con0", "con-sw1:uplink1"),
        (2, "p1-s1-rail1:con0", "con-sw1:down1"),
    ]


def used(node: str) -> Lab:
    link = Link(
        a=End(node=node, interface="mgmt0"),
        b=End(node="p1-s1-h2", interface="eth1"),
        kind=LinkKind.ROUTED,
        rate=Rate.parse("1G"),
        mtu_bytes=1500,
    )
    return replace(LAB, links=(*LAB.links, link))


@pytest.mark.parametrize(
    ("lab", "change", "key", "code"),
    [
        (LAB, {"prefix": IPv4Network("192.168.0.0/30")}, "prefix", "prefix-too-small"),
        (LAB, {"short": "much-too-long-a-name"}, "short", "bad-name"),
        (replace(LAB, nodes=(*LAB.nodes, Node(name="mgmt1", kind=NodeKind.HOST))), {}, "short", "name-taken"),
        (used("p1-s1-h1"), {}, "short", "name-taken"),
        (
            replace(LAB, nodes=tuple(Node(name=f"h{number}", kind=NodeKind.HOST) for number in range(MAX_MANAGED + 1))),
            {},
            "design",
            "size",
        ),
    ],
)
def test_what_cannot_be_built_names_its_key(lab: Lab, change: dict[str, object], key: str, code: str) -> None:
    params = replace(PARAMS, **change)  # type: ignore[arg-type]
    assert [(fault.field, fault.code) for fault in check_out_of_band(params, lab)] == [(key, code)]
    with pytest.raises(FabricError):
        generate_out_of_band(params, lab)


def test_a_prefix_may_be_just_large_enough() -> None:
    """Three nodes and the server in six addresses, and five nodes with it in the same."""
    small = replace(PARAMS, prefix=IPv4Network("192.168.0.0/29"))
    hosts = tuple(Node(name=f"x{number}", kind=NodeKind.HOST) for number in range(3))
    assert not check_out_of_band(small, replace(LAB, nodes=(*LAB.nodes, *hosts[:2])))
    (fault,) = check_out_of_band(small, replace(LAB, nodes=(*LAB.nodes, *hosts)))
    assert fault.hint == "a prefix of /28 or shorter"


def fabric(hosts: int, params: NetworkParams = PARAMS) -> Lab:
    """A lab with a network of management ports."""
    lab = generate_fabric(FabricParams(design="single-switch", hosts=hosts, gpus=1), name="lab")
    spare = Node(name="spare", kind=NodeKind.HOST)  # behind the hosts, as spines are
    lab = replace(lab, nodes=(*lab.nodes, spare))
    made = generate_out_of_band(params, lab)
    return replace(lab, nodes=(*lab.nodes, *made.nodes), links=(*lab.links, *made.links), networks=(made.network,))


def places(lab: Lab) -> dict[str, tuple[int, str]]:
    return {link.a.node: (link.host_number, link.b.interface) for link in lab.links if link.kind is LinkKind.MANAGEMENT}


def test_nodes_of_a_lab_that_is_up_keep_their_places() -> None:
    old, fresh = fabric(2), fabric(3)
    assert places(old)["spare"] == (5, "down4") != places(fresh)["spare"]
    new = keep_places(old, fresh)
    assert {node: places(new)[node] for node in places(old)} == places(old)
    assert places(new)["p1-s1-h3"] == (6, "down5"), "who is new has the first place that is free"
    assert keep_places(new, fresh) == new, "asked again, it is what is there"


def test_places_that_are_given_up_are_taken_again() -> None:
    three = keep_places(fabric(2), fabric(3))
    one = keep_places(three, fabric(1))
    assert set(places(one).items()) < set(places(three).items())
    assert places(keep_places(one, fabric(2)))["p1-s1-h2"] == places(fabric(2))["p1-s1-h2"]
    assert keep_places(one, fabric(2)) == fabric(2), "there and back again is where it was"


def test_another_prefix_or_name_keeps_nothing() -> None:
    old = keep_places(fabric(2), fabric(3))
    for other in (replace(PARAMS, prefix=IPv4Network("10.99.0.0/24")), replace(PARAMS, short="con")):
        assert keep_places(old, fabric(3, other)) == fabric(3, other)
    assert keep_places(LAB, fabric(3)) == fabric(3)
    assert keep_places(fabric(3), LAB) == LAB
