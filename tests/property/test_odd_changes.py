"""Labs that become something quite different: by hand-made pairs, and from each topology that is shipped to another.

What holds for labs that differ in a few keys holds for these as well: to deploy the one and change it to the other is
to deploy the other, in all that the kernel in memory has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from changed_in_memory import Changed, planned, scale_of
from fake_kernel import NodeContent
from lab_snapshot import differences

from testbed.base.names import namespace_name
from testbed.lab.core.feature import keep
from testbed.lab.core.model import Lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.scale_up.plan.domains import domain_nodes

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
MOST_NODES = 64
"""The size of a shipped lab whose changes are tried: larger ones are of the same kinds."""

POD = {"design": "rail-optimized", "segments": 2, "hosts": 2, "gpus": 2, "spines": 2, "nic": {"rate": "400G"}}
UEC = {"preset": "uec"}
NICS = {host: f"p1-s1-h{host}:rail1" for host in range(1, 5)}


def of_tenants(red: tuple[int, ...], blue: tuple[int, ...]) -> dict[str, Any]:
    """A rail whose NICs are tenants', by the numbers of their hosts."""
    return {
        "fabric": POD | {"segments": 1, "hosts": 4, "overlay": {"evpn": {"vrf_by": "namespace"}}, "guards": "on"},
        "tenants": {
            name: {"subnets": {"web": {"prefix": "172.31.0.0/24", "nics": [NICS[host] for host in hosts]}}}
            for name, hosts in (("red", red), ("blue", blue))
        },
    }


def by_hand(first: str, second: str) -> dict[str, Any]:
    """Two hosts of these names on two switches, by hand; the first is on the first switch."""
    ends = {first: "left", second: "right"}
    links = [{"endpoints": [f"{host}:eth1", f"{switch}:swp1"], "rate": "100G"} for host, switch in ends.items()]
    return {
        "topology": {
            "nodes": {
                "left": {"kind": "switch", "role": "rail"},
                "right": {"kind": "switch", "role": "rail"},
                "above": {"kind": "switch", "role": "spine"},
                **{host: {"kind": "host"} for host in sorted(ends)},
            },
            "links": [
                *links,
                {"endpoints": ["left:swp2", "above:swp1"], "rate": "400G"},
                {"endpoints": ["right:swp2", "above:swp2"], "rate": "400G"},
            ],
        }
    }


HOMED = {"design": "leaf-spine", "leaves": 2, "spines": 1, "nic": {"per": "host", "ports": 2, "rate": "100G"}}
STORED = {"design": "single-switch", "nic": {"per": "host", "ports": 1, "rate": "200G"}}
CARRIED = {"on": "frontend", "nic": {"per": "host", "rate": "200G"}}
EVERYTHING = {
    "scale": {"time": 20000},
    "fabric": {
        "design": "rail-optimized",
        "pods": 2,
        "segments": 1,
        "hosts": 3,
        "gpus": 3,
        "spines": 1,
        "super_spines": 2,
        "nic": {"per": "gpu", "ports": 1, "rate": "200G"},
        "uplink": {"rate": "800G", "count": 2, "delay": "1us"},
        "mtu": 4500,
        "guards": "on",
        "routing": {"protocol": "ibgp", "password": True, "bfd": {"interval": "1s", "multiplier": 3}},
        "scale_up": {"preset": "h100"},
    },
    "networks": {
        "frontend": HOMED | {"homing": "mlag"},
        "storage": STORED | {"targets": {"flash": {}}},
        "management": {"design": "out-of-band", "services": ["ssh", "dns"]},
    },
    "qos": {"preset": "nvidia", "load_balancing": {"mode": "spray"}},
}
PAIRS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "everything at once": ({"fabric": POD, "qos": UEC}, EVERYTHING),
    "another design": (
        {"fabric": POD, "qos": UEC},
        {"fabric": {"design": "rail-only", "hosts": 3, "gpus": 2}, "qos": UEC},
    ),
    "one switch": ({"fabric": POD}, {"fabric": {"design": "single-switch", "hosts": 4, "gpus": 2}}),
    "planes": (
        {"fabric": POD, "qos": UEC},
        {"fabric": POD | {"design": "multi-plane", "planes": 2, "spines": 1}, "qos": UEC},
    ),
    "a host renamed": (by_hand("a", "b"), by_hand("c", "b")),
    "hosts swapped": (by_hand("a", "b"), by_hand("b", "a")),
    "links of a file in place of a design": ({"fabric": POD}, by_hand("a", "b")),
    "NICs that tenants exchange": (of_tenants((1, 2), (3, 4)), of_tenants((1, 3), (2, 4))),
    "NICs that a tenant gives away": (of_tenants((1, 2), (3, 4)), of_tenants((1,), (2, 3, 4))),
    "tenants that change places": (of_tenants((1, 2), (3, 4)), of_tenants((3, 4), (1, 2))),
    "InfiniBand": ({"fabric": POD}, {"fabric": POD | {"link_layer": "infiniband"}}),
    "link groups": (
        {"fabric": POD, "networks": {"frontend": HOMED}},
        {"fabric": POD, "networks": {"frontend": HOMED | {"homing": "mlag"}}},
    ),
    "hosts that route": (
        {"fabric": POD, "networks": {"frontend": HOMED | {"homing": "mlag"}}},
        {"fabric": POD, "networks": {"frontend": HOMED | {"homing": "routed"}}},
    ),
    "a network on another": (
        {"fabric": POD, "networks": {"frontend": HOMED, "storage": STORED}},
        {"fabric": POD, "networks": {"frontend": HOMED | {"overlay": "evpn"}, "storage": CARRIED}},
    ),
    "NICs of the host": ({"fabric": POD}, {"fabric": POD | {"nic": {"per": "host", "ports": 2, "rate": "200G"}}}),
}


def loaded(document: Mapping[str, Any]) -> Lab:
    return load_topology_text(yaml.safe_dump({**document, "name": "x"}, sort_keys=False), file="x.yml")


def described_nodes(nodes: Mapping[str, NodeContent]) -> dict[str, str]:
    """A text for each thing of each node, so that what differs is told by its name."""
    found = {}
    for name, content in nodes.items():
        for part in fields(content):
            if part.compare:
                value = getattr(content, part.name)
                items = value.items() if isinstance(value, dict) else ((each, "") for each in value)
                found |= {f"{name} {part.name} {key}": str(each) for key, each in items}
    return found


def require_changed(first: Lab, second: Lab) -> None:
    """Change a lab to another and back: each time it is the lab that was meant, and a second time nothing is done."""
    lab = Changed(planned(first, scale_of(first)))
    there = keep(first, second)
    for wanted in (there, keep(there, first)):
        meant = Changed(planned(wanted, scale_of(wanted)))
        lab.change(wanted, scale_of(wanted))
        lines = differences(described_nodes(lab.nodes), described_nodes(meant.nodes))
        lines += differences(lab.ports, meant.ports)
        assert not lines, "\n".join([f"{len(lines)} differences", *lines[:20]])
        places = [*(node.name for node in wanted.nodes), *domain_nodes(wanted)]
        assert lab.nodes.keys() >= {namespace_name(lab.plan.lab, place) for place in places}
        assert not lab.change(wanted, scale_of(wanted)), "a second time there is nothing to do"


@pytest.mark.parametrize("what", PAIRS)
def test_a_lab_becomes_something_quite_different(what: str) -> None:
    require_changed(*map(loaded, PAIRS[what]))


@cache
def shipped() -> Mapping[str, Lab]:
    """The topologies that come with the product and are no larger than they need to be, all with QoS: without, a lab
    has no data path of ours, and is made anew."""
    found = {}
    for path in sorted(TOPOLOGIES.rglob("*.yml")):
        text = path.read_text()
        if path.parent.name in ("large", "infiniband"):
            continue
        text = re.sub("(?m)^name:.*", "name: x", text) + ("" if "\nqos:" in text else "qos: {preset: uec}\n")
        lab = load_topology_text(text, file=path.name)
        if len(lab.nodes) <= MOST_NODES:
            found[path.stem] = lab
    return found


SHIPPED = sorted(path.stem for path in TOPOLOGIES.rglob("*.yml"))


def test_shipped_labs_become_each_other_in_turn() -> None:
    names = sorted(shipped())
    assert len(names) > 10
    for one, other in pairwise([*names, names[0]]):
        require_changed(shipped()[one], shipped()[other])


@pytest.mark.thorough
@pytest.mark.parametrize("one", SHIPPED)
def test_each_shipped_lab_becomes_each_other(one: str) -> None:
    for other in shipped():
        if one in shipped() and other != one:
            require_changed(shipped()[one], shipped()[other])
