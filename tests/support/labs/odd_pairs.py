"""Hand-made pairs of topologies: what a lab is, and what quite different thing its file says later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from testbed.lab.core.model import Lab
from testbed.lab.core.schema.load import load_topology_text

POD = {"design": "rail-optimized", "segments": 2, "hosts": 2, "gpus": 2, "spines": 2, "nic": {"rate": "400G"}}
UEC, NVIDIA = {"preset": "uec"}, {"preset": "nvidia"}
DELAYED = POD | {"uplink": {"delay": "1us"}}
READ = {"design": "out-of-band", "services": ["gnmi", "sflow"]}
"""A management network whose services read the counters of the data path."""
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


def own_lines(*lines: str) -> dict[str, Any]:
    """Lines of one's own for BGP of a switch."""
    return {"startup-config": {"add": "router bgp {{asn}}\n" + "".join(f" {line}\n" for line in lines)}}


HOMED = {"design": "leaf-spine", "leaves": 2, "spines": 1, "nic": {"per": "host", "ports": 2, "rate": "100G"}}
STORED = {"design": "single-switch", "nic": {"per": "host", "ports": 1, "rate": "200G"}}
CARRIED = {"on": "frontend", "nic": {"per": "host", "rate": "200G"}}
MANAGED = {"design": "out-of-band"}
LEAF = "p1-s1-rail1"
UNEVEN = {"fabric": POD, "topology": {"links": [{"endpoints": [f"{LEAF}:extra1", "p1-spine1:extra1"], "rate": "400G"}]}}
"""A switch has two links to one spine, and one to the other."""
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
    "QoS where there is none": ({"fabric": DELAYED}, {"fabric": DELAYED | {"hosts": 3}, "qos": NVIDIA}),
    "no QoS where there is some": (
        {"fabric": DELAYED, "qos": UEC, "networks": {"management": READ}},
        {"fabric": DELAYED | {"spines": 1}, "networks": {"management": READ}},
    ),
    "QoS of another network": (
        {"fabric": POD, "qos": NVIDIA, "networks": {"storage": STORED}},
        {"fabric": POD, "networks": {"storage": STORED | {"qos": UEC}}},
    ),
    "a host renamed": (by_hand("a", "b"), by_hand("c", "b")),
    "hosts swapped": (by_hand("a", "b"), by_hand("b", "a")),
    "links of a file in place of a design": ({"fabric": POD}, by_hand("a", "b")),
    "NICs that tenants exchange": (of_tenants((1, 2), (3, 4)), of_tenants((1, 3), (2, 4))),
    "NICs that a tenant gives away": (of_tenants((1, 2), (3, 4)), of_tenants((1,), (2, 3, 4))),
    "tenants that change places": (of_tenants((1, 2), (3, 4)), of_tenants((3, 4), (1, 2))),
    "link groups": (
        {"fabric": POD, "networks": {"frontend": HOMED}},
        {"fabric": POD, "networks": {"frontend": HOMED | {"homing": "mlag"}}},
    ),
    "hosts that route": (
        {"fabric": POD, "networks": {"frontend": HOMED | {"homing": "mlag"}}},
        {"fabric": POD, "networks": {"frontend": HOMED | {"homing": "routed"}}},
    ),
    "storage targets": (
        {"fabric": POD, "networks": {"storage": STORED | {"targets": {"flash": {}}}}},
        {"fabric": POD, "networks": {"storage": STORED | {"targets": {"disk": {"count": 2}}}}},
    ),
    "services": (
        {"fabric": POD, "networks": {"management": MANAGED | {"services": ["ssh", "dns"]}}},
        {"fabric": POD | {"hosts": 1}, "networks": {"management": MANAGED | {"services": ["dns", "syslog"]}}},
    ),
    "scale-up": (
        {"fabric": POD | {"scale_up": {"rate": "3.6T", "by": "packets", "planes": 2}}},
        {"fabric": POD | {"gpus": 3, "scale_up": {"rate": "7.2T", "by": "packets", "planes": 3, "domain": "segment"}}},
    ),
    "lines of one's own": (
        {"fabric": POD, "topology": {"nodes": {LEAF: own_lines("timers bgp 5 15", "bgp bestpath compare-routerid")}}},
        {"fabric": POD, "topology": {"roles": {"spine": own_lines("timers bgp 4 12")}}},
    ),
    "weights of paths": (UNEVEN, UNEVEN | {"fabric": UNEVEN["fabric"] | {"routing": {"weighted": True}}}),
    "the time scale": (
        {"fabric": POD, "qos": UEC},
        {"fabric": POD | {"uplink": {"delay": "1us"}}, "qos": UEC, "scale": {"time": 3000}},
    ),
    "a network on another": (
        {"fabric": POD, "networks": {"frontend": HOMED, "storage": STORED}},
        {"fabric": POD, "networks": {"frontend": HOMED | {"overlay": "evpn"}, "storage": CARRIED}},
    ),
    "NICs of the host": ({"fabric": POD}, {"fabric": POD | {"nic": {"per": "host", "ports": 2, "rate": "200G"}}}),
}


def lab_said(document: Mapping[str, Any], name: str = "x") -> Lab:
    """Return the lab of a document, by this name."""
    values = {"scale": {"time": 10000}, **document, "name": name}
    return load_topology_text(yaml.safe_dump(values, sort_keys=False), file=f"{name}.yml")
