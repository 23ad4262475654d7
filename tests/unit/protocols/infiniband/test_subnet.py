"""A subnet as plain data: its paths, its lanes, and its text."""

from dataclasses import replace

from fat_trees import fat_tree

from testbed.protocols.infiniband.subnet import NO_PORT, Subnet, SubnetPartition


def test_a_path_goes_by_the_tables() -> None:
    subnet = fat_tree(2, 2, 2)
    assert subnet.path("h0", "h1") == (("h0", 1), ("leaf0", 2))
    assert subnet.path("h0", "h3") == (("h0", 1), ("leaf0", 4), ("spine1", 2), ("leaf1", 2))
    assert subnet.peer("leaf0", 4) == ("spine1", 1)
    assert subnet.peer("leaf0", 9) is None


def test_a_path_that_leads_nowhere_is_none() -> None:
    subnet = fat_tree(2, 2, 2)
    no_route = replace(subnet, lfts={**subnet.lfts, "leaf0": bytes([NO_PORT] * 5)})
    assert no_route.path("h0", "h3") is None
    short = replace(subnet, lfts={**subnet.lfts, "leaf0": b""})
    assert short.path("h0", "h3") is None, "a LID behind the end of the table has no route"
    back = replace(subnet, lfts={**subnet.lfts, "spine1": bytes([NO_PORT, *(1,) * 4])})
    assert back.path("h0", "h3") is None, "a loop has an end"


def test_lanes_are_those_of_service_levels() -> None:
    subnet = fat_tree(2, 2, 2)
    lids = subnet.nodes["h0"].lid, subnet.nodes["h3"].lid
    laned = replace(subnet, sls={lids: 1}, vls=2, sl2vl=(0, 1, *(0,) * 14))
    assert (laned.sl("h0", "h3"), laned.vl("h0", "h3")) == (1, 1)
    assert (laned.sl("h3", "h0"), laned.vl("h3", "h0")) == (0, 0)


def test_nodes_are_in_the_order_of_their_guids() -> None:
    subnet = fat_tree(2, 2, 2)
    assert [node.name for node in subnet.hcas] == ["h0", "h1", "h2", "h3"]
    assert [node.name for node in subnet.switches] == ["leaf0", "leaf1", "spine0", "spine1"]


def test_text_and_back() -> None:
    subnet = replace(
        fat_tree(2, 2, 2),
        sls={(1, 2): 3},
        vl_high=((1, 64),),
        vl_low=((0, 8),),
        vl_high_limit=4,
        partitions=(SubnetPartition(name="red", pkey=1, sl=3, members=("h0", "h1")),),
    )
    assert Subnet.from_json(subnet.to_json()) == subnet
