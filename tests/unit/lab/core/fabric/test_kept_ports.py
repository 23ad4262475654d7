"""Ports between switches of a lab that is up keep their names when their file changes, and rails their bridges."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import yaml

from testbed.lab.core.drivers.nodes.changing import kernel_changes
from testbed.lab.core.fabric.kept_bridges import keep_bridges
from testbed.lab.core.fabric.kept_ports import keep_ports
from testbed.lab.core.model import Lab, Link, LinkKind
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.operations import CreateBridge, CreateVeth
from testbed.lab.core.schema.load import load_topology_text

FABRIC = {
    "design": "rail-optimized",
    "segments": 2,
    "hosts": 2,
    "gpus": 1,
    "spines": 2,
    "nic": {"rate": "400G"},
    "uplink": {"count": 1},
}


def lab_of(fabric: Mapping[str, Any] | None = None, **sections: Any) -> Lab:
    document = {"name": "x", "fabric": {**FABRIC, **(fabric or {})}, **sections}
    return load_topology_text(yaml.safe_dump(document, sort_keys=False), file="x.yml")


def ports_between(lab: Lab, below: str, above: str) -> list[tuple[str, str]]:
    return [(link.a.interface, link.b.interface) for link in lab.links if (link.a.node, link.b.node) == (below, above)]


def test_a_rail_more_leaves_the_ports_of_the_others_as_they_are() -> None:
    before = lab_of()
    deployed = lab_of({"gpus": 2})
    after = keep_ports(before, deployed)
    assert ports_between(deployed, "p1-s2-rail1", "p1-spine1") == [("uplink1", "down3")], "as a deploy numbers them"
    assert ports_between(after, "p1-s1-rail1", "p1-spine1") == [("uplink1", "down1")]
    assert ports_between(after, "p1-s2-rail1", "p1-spine1") == [("uplink1", "down2")]
    assert ports_between(after, "p1-s1-rail2", "p1-spine1") == [("uplink1", "down3")], "the lowest number that is free"
    assert ports_between(after, "p1-s2-rail2", "p1-spine1") == [("uplink1", "down4")]


def test_parallel_links_come_beside_those_that_are_there() -> None:
    before = lab_of()
    after = keep_ports(before, lab_of({"uplink": {"count": 2}}))
    assert ports_between(after, "p1-s1-rail1", "p1-spine1") == [("uplink1", "down1"), ("uplink3", "down3")]
    assert ports_between(after, "p1-s1-rail1", "p1-spine2") == [("uplink2", "down1"), ("uplink4", "down3")]
    assert ports_between(after, "p1-s2-rail1", "p1-spine1") == [("uplink1", "down2"), ("uplink3", "down4")]


@pytest.mark.parametrize("fabric", [{"gpus": 3}, {"uplink": {"count": 3}}, {"spines": 4}, {"segments": 3}])
def test_back_again_every_port_has_the_name_of_the_deploy(fabric: dict[str, Any]) -> None:
    before = lab_of()
    there = keep_ports(before, lab_of(fabric))
    assert keep_ports(there, lab_of()) == before
    assert keep_ports(before, there) == there, "a second time nothing is renamed"


@pytest.mark.parametrize(
    "fabric", [{"gpus": 3}, {"uplink": {"count": 3}}, {"gpus": 2, "uplink": {"count": 2}, "segments": 3}]
)
def test_no_link_is_made_anew_for_its_number(fabric: dict[str, Any]) -> None:
    before, after = lab_of(), lab_of(fabric)
    remade = kernel_changes(plan_lab(before, k=5000), plan_lab(after, k=5000)).remade
    assert any(isinstance(item, CreateVeth) for item in remade), "as it was without names that are kept"
    changes = kernel_changes(plan_lab(before, k=5000), plan_lab(keep_ports(before, after), k=5000))
    assert not changes.remade and not changes.first


def test_a_port_that_the_file_names_has_its_name() -> None:
    """The file of a lab with a rail more names the link of a rail that was there by the number that it has there."""
    more = lab_of({"gpus": 2})
    assert ports_between(more, "p1-s1-rail2", "p1-spine1") == [("uplink1", "down2")]
    written = {"links": [{"endpoints": ["p1-s1-rail1:uplink3", "p1-spine1:down3"], "rate": "400G"}]}
    after = keep_ports(more, lab_of(topology=written))  # the rail goes, and a written link comes
    assert ports_between(after, "p1-s1-rail1", "p1-spine1") == [("uplink1", "down1"), ("uplink3", "down3")]
    assert ports_between(after, "p1-s2-rail1", "p1-spine1")[0][1] not in ("down1", "down3")
    ends = [str(end) for link in after.links for end in (link.a, link.b)]
    assert len(set(ends)) == len(ends)


def test_a_name_that_is_given_up_is_not_taken_by_the_same_change() -> None:
    """The old port is there until the change is through."""
    before = lab_of({"gpus": 2})
    after = keep_ports(before, lab_of({"gpus": 1, "segments": 3}))
    old = {str(end) for link in before.links for end in (link.a, link.b)}
    kept = {str(end) for link in before.links if link.a.node != "p1-s1-rail2" for end in (link.a, link.b)}
    new = {str(end) for link in after.links if "p1-s3" in link.a.node for end in (link.a, link.b)}
    assert not new & (old | kept)


def test_the_qos_of_a_port_goes_with_its_link() -> None:
    qos = {"preset": "uec", "ports": {"p1-spine1:down3": {"trimming": False}}}
    after = keep_ports(lab_of(qos={"preset": "uec"}), lab_of({"gpus": 2}, qos=qos))
    assert ports_between(after, "p1-s2-rail1", "p1-spine1") == [("uplink1", "down2")]
    assert list(after.qos.of_port) == ["p1-spine1:down2"], "of the link that a deploy calls down3"


def test_links_that_nobody_numbers_are_left() -> None:
    before, after = lab_of(), lab_of({"gpus": 2})
    unnumbered = replace(before, links=tuple(replace(link, numbered=False) for link in before.links))
    assert keep_ports(unnumbered, after) == after, "the record of an earlier version does not say"


def switch_links(lab: Lab) -> list[Link]:
    return [link for link in lab.links if link.kind is LinkKind.FABRIC]


def test_only_links_between_switches_are_numbered_for_good() -> None:
    lab = lab_of()
    assert all(link.numbered for link in switch_links(lab))
    assert not any(link.numbered for link in lab.links if link.kind is LinkKind.ACCESS)


def test_a_rail_that_is_left_to_one_port_keeps_its_bridge() -> None:
    several, one = lab_of({"hosts": 3}), lab_of({"hosts": 1})
    kept = keep_bridges(several, one)
    changes = kernel_changes(plan_lab(several, k=5000), plan_lab(kept, k=5000))
    assert not changes.remade and not changes.first and not changes.changed
    assert not [item for item in changes.removed if isinstance(item, CreateBridge)]
    assert keep_bridges(kept, one) == kept, "also in the next change"
    assert keep_bridges(kept, several) == several


def test_a_rail_that_never_had_a_bridge_gets_none() -> None:
    one = lab_of({"hosts": 1})
    assert keep_bridges(one, lab_of({"hosts": 1, "gpus": 2})) == lab_of({"hosts": 1, "gpus": 2})
