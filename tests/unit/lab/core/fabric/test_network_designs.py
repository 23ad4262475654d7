"""Networks beside the back end as they are generated: who stands where, and what cannot be built."""

from dataclasses import replace
from ipaddress import IPv4Network

import pytest

from testbed.base.errors import FabricError
from testbed.base.units import ByteCount, Rate
from testbed.lab.core.fabric.networks import NetworkParams, TargetParams, check_network, generate_network
from testbed.lab.core.model import LinkKind, NodeKind, Role
from testbed.lab.core.model.storage import StorageTarget

HOSTS = tuple(f"h{number}" for number in range(1, 6))
PAIRED = NetworkParams(name="frontend", number=1, leaves=4, ports=2, hosts=HOSTS)


def wiring(params: NetworkParams) -> list[tuple[str, str]]:
    made = generate_network(params)
    return [(str(link.a), str(link.b)) for link in made.links if link.kind is LinkKind.ACCESS]


def test_a_port_of_a_nic_is_on_a_leaf_of_its_own_and_hosts_stand_in_blocks() -> None:
    assert wiring(PAIRED) == [
        *(("h1:fe1", "fe-leaf1:down1"), ("h1:fe2", "fe-leaf2:down1")),
        *(("h2:fe1", "fe-leaf1:down2"), ("h2:fe2", "fe-leaf2:down2")),
        *(("h3:fe1", "fe-leaf1:down3"), ("h3:fe2", "fe-leaf2:down3")),
        *(("h4:fe1", "fe-leaf3:down1"), ("h4:fe2", "fe-leaf4:down1")),
        *(("h5:fe1", "fe-leaf3:down2"), ("h5:fe2", "fe-leaf4:down2")),
    ]


def test_every_leaf_has_a_link_to_every_spine() -> None:
    made = generate_network(replace(PAIRED, spines=3))
    fabric = {(link.a.node, link.b.node) for link in made.links if link.kind is LinkKind.FABRIC}
    leaves = [node.name for node in made.nodes if node.role is Role.LEAF]
    spines = [node.name for node in made.nodes if node.role is Role.SPINE]
    assert fabric == {(leaf, spine) for leaf in leaves for spine in spines}
    assert len(spines) == 3


def test_names_of_all_its_own_are_the_networks() -> None:
    made = generate_network(PAIRED)
    assert {node.network for node in made.nodes} == {link.network for link in made.links} == {"frontend"}
    other = generate_network(replace(PAIRED, name="lan", short="x"))
    assert {node.name.partition("-")[0] for node in other.nodes} == {"x"}


def test_storage_targets_go_to_one_group_of_leaves_after_the_other_behind_its_hosts() -> None:
    target = StorageTarget(capacity=ByteCount.parse("1TB"))
    targets = tuple(
        TargetParams(name=f"flash{number}", target=target, rate=Rate.parse("400G") if number == 3 else None)
        for number in (1, 2, 3)
    )
    made = generate_network(replace(PAIRED, targets=targets))
    storage = [node for node in made.nodes if node.kind is NodeKind.STORAGE]
    assert [(node.name, node.network, node.target) for node in storage] == [
        (f"flash{number}", "frontend", target) for number in (1, 2, 3)
    ]
    assert wiring(replace(PAIRED, targets=targets))[-4:] == [
        *(("h5:fe1", "fe-leaf3:down2"), ("h5:fe2", "fe-leaf4:down2")),
        *(("flash2:fe1", "fe-leaf3:down3"), ("flash2:fe2", "fe-leaf4:down3")),
    ]
    rates = {str(link.a): str(link.rate) for link in made.links if link.kind is LinkKind.ACCESS}
    assert rates["flash1:fe1"] == rates["h1:fe1"] == "100 Gbit/s" and rates["flash3:fe2"] == "400 Gbit/s"


def test_a_single_switch_has_no_uplinks() -> None:
    made = generate_network(NetworkParams(name="storage", number=2, design="single-switch", hosts=HOSTS))
    assert [node.name for node in made.nodes] == ["st-leaf1"]
    assert {link.kind for link in made.links} == {LinkKind.ACCESS}


@pytest.mark.parametrize(
    ("params", "key", "words"),
    [
        (replace(PAIRED, leaves=3), "leaves", "no whole number of groups of 2"),
        (replace(PAIRED, leaves=12), "leaves", "more than the 5 hosts"),
        (replace(PAIRED, hosts=()), "hosts", "no host"),
        (replace(PAIRED, prefix=IPv4Network("192.168.0.0/22")), "prefix", "room for 3 leaves"),
        (replace(PAIRED, hosts=tuple(f"h{n}" for n in range(600)), leaves=4), "leaves", "a leaf has 300 hosts"),
        (replace(PAIRED, short="a-very-long-one"), "short", "longer than 15"),
        (replace(PAIRED, design="single-switch"), "leaves", "fixes leaves at 1"),
        (replace(PAIRED, design="single-switch", leaves=None), "nic.ports", "one switch for a NIC's 2 ports"),
    ],
)
def test_what_cannot_be_built_names_the_key(params: NetworkParams, key: str, words: str) -> None:
    fault = check_network(params)[0]
    assert fault.field == key
    assert words in fault.message
    with pytest.raises(FabricError) as raised:
        generate_network(params)
    assert str(raised.value) == str(fault)
