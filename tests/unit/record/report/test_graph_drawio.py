"""A lab as a file of draw.io: whole, well-formed whatever names are, in rows."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from testbed.base.units import Rate
from testbed.lab.core.model import End, Lab, Link, LinkKind, Node, NodeKind, Role
from testbed.lab.core.schema.load import load_topology
from testbed.lab.graph import render_drawio

ROOT = Path(__file__).parents[4]
NASTY = "<b onmouseover=alert(1)>\"'&]]>"


def cells(lab: Lab) -> tuple[dict[str, ElementTree.Element], list[ElementTree.Element]]:
    """The boxes by their ids, and the edges."""
    root = ElementTree.fromstring(render_drawio(lab))
    found = list(root.iter("mxCell"))
    boxes = {cell.attrib["id"]: cell for cell in found if cell.get("vertex") and cell.get("parent") == "1"}
    return boxes, [cell for cell in found if cell.get("edge")]


@pytest.mark.parametrize("name", ["demo", "hand-written", "datacentre", "rail-optimized-1024", "nvl72", "two-tenants"])
def test_every_node_and_every_link_is_drawn(name: str) -> None:
    lab = load_topology(ROOT / "topologies" / f"{name}.yml")
    boxes, edges = cells(lab)
    assert {cell.attrib["value"] for cell in boxes.values()} >= {node.name for node in lab.hosts}
    assert len(edges) >= sum(link.kind is not LinkKind.MANAGEMENT for link in lab.links)
    for edge in edges:
        assert edge.attrib["source"] in boxes and edge.attrib["target"] in boxes
    ids = [cell.get("id") for cell in ElementTree.fromstring(render_drawio(lab)).iter("mxCell")]
    assert len(ids) == len(set(ids))


def test_boxes_do_not_overlap_and_tiers_are_rows() -> None:
    lab = load_topology(ROOT / "topologies" / "demo.yml")
    boxes, _ = cells(lab)
    places = {}
    for cell in boxes.values():
        geometry = cell.find("mxGeometry")
        places[cell.attrib["value"]] = (int(geometry.attrib["x"]), int(geometry.attrib["y"]))
    assert len(set(places.values())) == len(places)
    rows = {node.role: places[node.name][1] for node in lab.switches}
    assert rows[Role.SPINE] < rows[Role.RAIL] < places[lab.hosts[0].name][1]


def test_names_stay_text() -> None:
    nodes = (Node(name="leaf1", kind=NodeKind.SWITCH, role=Role.LEAF), Node(name=NASTY, kind=NodeKind.HOST))
    link = Link(
        a=End(node=NASTY, interface="eth1"),
        b=End(node="leaf1", interface="eth1"),
        kind=LinkKind.ROUTED,
        rate=Rate.parse("400G"),
        mtu_bytes=4500,
    )
    boxes, _ = cells(Lab(name="x", nodes=nodes, links=(link,)))
    shown = {cell.attrib["value"] for cell in boxes.values()}
    assert not any("<b" in text for text in shown)
