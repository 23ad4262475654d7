"""Labs as files of containerlab and netlab: what those tools' documentation allows, and all of the lab that fits."""

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from testbed.base.errors import PlanError
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology, load_topology_text
from testbed.lab.formats.containerlab_file import write_containerlab
from testbed.lab.formats.netlab_file import write_netlab

ROOT = Path(__file__).parents[4]
TOPOLOGIES = sorted((ROOT / "topologies").glob("*.yml"))
SMALL = ("demo", "hand-written", "mixed", "containers", "dual-switch", "two-tenants", "datacentre")

TEXTS: dict[str, Any] = {"type": "array", "items": {"type": "string"}, "minItems": 1}
CONTAINERLAB: dict[str, Any] = {
    "type": "object",
    "required": ["name", "topology"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string"},
        "topology": {
            "type": "object",
            "required": ["nodes"],
            "properties": {
                "nodes": {
                    "type": "object",
                    "additionalProperties": {
                        "type": "object",
                        "additionalProperties": False,
                        "properties": {
                            "kind": {"enum": ["linux", "bridge", "host", "frr"]},
                            "image": {"type": "string"},
                            "labels": {"type": "object", "additionalProperties": {"type": ["string", "number"]}},
                            "env": {"type": "object", "additionalProperties": {"type": ["string", "number"]}},
                            "binds": {**TEXTS, "uniqueItems": True},
                            "exec": TEXTS,
                            "cmd": {"type": "string"},
                            "entrypoint": {"type": "string"},
                            "cpu": {"type": "number", "minimum": 0},
                            "memory": {"type": "string"},
                            "cap-add": {**TEXTS, "uniqueItems": True},
                            "healthcheck": {
                                "type": "object",
                                "additionalProperties": False,
                                "properties": {
                                    "test": TEXTS,
                                    **{
                                        key: {"type": "integer"}
                                        for key in ("interval", "timeout", "retries", "start-period")
                                    },
                                },
                            },
                        },
                    },
                },
                "links": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "required": ["endpoints"],
                        "additionalProperties": False,
                        "properties": {
                            "endpoints": {
                                "type": "array",
                                "minItems": 2,
                                "maxItems": 2,
                                "uniqueItems": True,
                                "items": {"type": "string", "pattern": r"^\S+:\S+$"},
                            },
                            "mtu": {"type": "integer", "minimum": 1, "maximum": 65535},
                            "vars": {"type": "object"},
                        },
                    },
                },
            },
        },
    },
}
"""What containerlab's manual and JSON Schema allow of what is written: keys of nodes, links in the brief form."""
NETLAB_NODE = {"device", "module", "bgp", "clab"}
NETLAB_LINK = {"interfaces", "bandwidth", "mtu", "prefix", "tc"}
NETLAB_CLAB = {"image", "binds", "cmd", "env", "exec"}


def parsed(text: str) -> Any:
    return yaml.safe_load(text)


@pytest.fixture(scope="module")
def demo() -> Lab:
    return load_topology(ROOT / "topologies" / "demo.yml")


@pytest.mark.parametrize("path", [path for path in TOPOLOGIES if path.stem in SMALL], ids=lambda path: path.stem)
def test_containerlab_accepts_what_is_written(path: Path) -> None:
    exported = write_containerlab(load_topology(path), beside="x-files")
    document = parsed(exported.text)
    jsonschema.validate(document, CONTAINERLAB)
    nodes = document["topology"]["nodes"]
    used = set()
    for link in document["topology"]["links"]:
        for end in link["endpoints"]:
            node, interface = end.split(":")
            assert node in nodes
            assert len(interface) <= 15 and end not in used
            used.add(end)
    for name, node in nodes.items():
        for bind in node.get("binds", ()):
            source = bind.split(":")[0]
            assert source.startswith("/") or source in exported.files, (name, bind)


@pytest.mark.parametrize("path", [path for path in TOPOLOGIES if path.stem in SMALL], ids=lambda path: path.stem)
def test_netlab_has_every_key_that_is_written(path: Path) -> None:
    lab = load_topology(path)
    document = parsed(write_netlab(lab).text)
    assert set(document) == {"name", "provider", "defaults", "nodes", "links"}
    assert re.fullmatch("[a-z][a-z0-9_]{0,15}", document["name"])
    for node in document["nodes"].values():
        assert set(node) <= NETLAB_NODE and set(node.get("clab", {})) <= NETLAB_CLAB
    for link in document["links"]:
        assert set(link) <= NETLAB_LINK
        assert all(set(end) == {"node", "ifname"} and end["node"] in document["nodes"] for end in link["interfaces"])
        assert isinstance(link["bandwidth"], int) and link["bandwidth"] > 0
    numbers = {name: node["bgp"]["as"] for name, node in document["nodes"].items() if "bgp" in node}
    assert set(numbers) == {node.name for node in lab.switches}


def test_every_node_of_the_lab_has_what_the_plan_gives_it(demo: Lab) -> None:
    exported = write_containerlab(demo, beside="demo-files")
    host, switch = demo.hosts[0].name, demo.switches[0].name
    script = exported.files[f"demo-files/{host}/setup.sh"]
    assert "ip address add 10." in script and "ip -4 route add" in script
    assert "router bgp" in exported.files[f"demo-files/{switch}/frr.conf"]
    assert "bgpd=yes" in exported.files[f"demo-files/{switch}/daemons"]
    nodes = parsed(exported.text)["topology"]["nodes"]
    assert nodes[host]["exec"][0] == "sh /etc/testbed/setup.sh"
    assert f"demo-files/{switch}/frr.conf:/etc/frr/frr.conf" in nodes[switch]["binds"]
    assert f"demo-files/{host}/frr.conf" not in exported.files


def test_buffers_that_fit_at_no_full_rate_do_not_keep_a_lab_from_its_configuration() -> None:
    """A lab of lossless classes runs at a time scale; what another tool is given has no queues."""
    lab = load_topology(ROOT / "topologies" / "dcqcn.yml")
    with pytest.raises(PlanError, match="of buffer at k = 1"):
        plan_lab(lab, k=1)
    files = write_containerlab(lab, beside="files").files
    conf = files["files/p1-s1-rail1/frr.conf"]
    assert "router bgp" in conf and conf.count("neighbor uplink") >= 1


def test_without_a_folder_the_configuration_is_missed_aloud(demo: Lab) -> None:
    exported = write_containerlab(demo)
    assert not exported.files
    assert any("-o FILE" in sentence for sentence in exported.left_out)
    assert "/etc/testbed" not in exported.text


def test_what_no_other_tool_has_is_said(demo: Lab) -> None:
    tenants = write_containerlab(load_topology(ROOT / "topologies" / "two-tenants.yml"), beside="x")
    assert any("tenants" in sentence for sentence in tenants.left_out)
    assert not tenants.files
    qos = load_topology(ROOT / "topologies" / "uec-spray.yml")
    assert any(sentence.startswith("qos") for sentence in write_netlab(qos).left_out)


def test_a_password_of_bgp_is_in_no_file() -> None:
    text = (ROOT / "topologies" / "hand-written.yml").read_text() + "fabric: {routing: {password: true}}\n"
    exported = write_containerlab(load_topology_text(text, file="x.yml"), beside="x")
    assert "password" not in "".join(exported.files.values())


def test_long_names_and_many_nodes_raise_netlabs_limits() -> None:
    lab = load_topology_text(
        "name: x\nfabric: {design: rail-optimized, segments: 2, hosts: 80, gpus: 1, spines: 2}\n", file="x.yml"
    )
    constants = parsed(write_netlab(lab).text)["defaults"].get("const", {})
    assert constants.get("MAX_NODE_ID") == len(lab.nodes)
