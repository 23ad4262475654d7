"""A lab for draw.io (diagrams.net): every node a box that can be moved, every link an edge that stays on its boxes.

Tiers are rows, the back end's above the hosts, the switches of other networks below them. The format is mxGraph's XML,
as draw.io itself saves it uncompressed.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from testbed.lab.core.model import Lab, Link, Node, NodeKind
from testbed.lab.graph.dot import FILLS, NETWORK_COLOURS, rail_colour
from testbed.lab.graph.grouping import Grouping, Tier, group_lab
from testbed.lab.graph.layers import Layer, group_layers, layers_of, switches_of
from testbed.lab.graph.management import pictured
from testbed.lab.graph.scale_up import with_domains

_WIDTH, _HEIGHT, _GAP, _ROW = 120, 40, 30, 150
"""Boxes, the room between two in a row, and the distance of rows (px)."""
_MOST_LABELLED = 64
"""Links of a lab whose ends still have room for the names of their ports."""
_BOX = "rounded=1;whiteSpace=wrap;html=1;fontSize=11;"
_EDGE = "endArrow=none;html=1;fontSize=9;"
_END = "edgeLabel;html=1;align=center;verticalAlign=middle;resizable=0;fontSize=8;"


def render_drawio(lab: Lab) -> str:
    """Return `lab` as a file of draw.io."""
    lab = pictured(with_domains(lab))
    layers = layers_of(lab)
    grouping = group_layers(lab, layers) if layers else group_lab(lab)
    root = _Page(lab.name)
    for number, row in enumerate(_rows(lab, grouping, layers)):
        root.add_row(row, number, grouping)
    numbers = {layer.name: layer.number for layer in layers}
    labelled = len(lab.links) <= _MOST_LABELLED
    for index, link in enumerate(lab.links):
        root.add_link(link, index, numbers.get(link.network, 0), labelled=labelled)
    return root.text()


def _rows(lab: Lab, grouping: Grouping, layers: Sequence[Layer]) -> list[list[Node]]:
    """The nodes of each row, from the top."""
    below = [switches_of(layer) for layer in layers if layer.number and not layer.carrier]
    beside = {node.name for rows in below for row in rows for node in row}
    rows = [
        [node for node in lab.nodes if grouping.tiers[node.name] is tier and node.name not in beside] for tier in Tier
    ]
    rows += [[node for rows in below for node in rows[index]] for index in (0, 1)]
    return [row for row in rows if row]


class _Page:
    """A page while it is drawn. Ids of cells are numbers: names of nodes may be anything."""

    def __init__(self, name: str) -> None:
        self._file = ElementTree.Element("mxfile", host="testbed")
        diagram = ElementTree.SubElement(self._file, "diagram", name=name)
        model = ElementTree.SubElement(diagram, "mxGraphModel", grid="1", gridSize="10", page="0")
        self._root = ElementTree.SubElement(model, "root")
        ElementTree.SubElement(self._root, "mxCell", id="0")
        ElementTree.SubElement(self._root, "mxCell", {"id": "1", "parent": "0"})
        self._ids: dict[str, str] = {}

    def add_row(self, nodes: Sequence[Node], row: int, grouping: Grouping) -> None:
        """Draw a row around the middle of the page."""
        left = -len(nodes) * (_WIDTH + _GAP) // 2
        for place, node in enumerate(nodes):
            cell_id = self._ids[node.name] = f"n{len(self._ids)}"
            rails = grouping.rails.get(node.name, ())
            stroke = rail_colour(rails[0]) if len(rails) == 1 else "#8b97a6"
            shape = "ellipse;" if node.kind is NodeKind.ROUTER else ""
            style = f"{shape}{_BOX}fillColor={FILLS[grouping.tiers[node.name]]};strokeColor={stroke};"
            cell = self._cell(cell_id, node.name, style, vertex="1")
            x, y = left + place * (_WIDTH + _GAP), row * _ROW
            self._geometry(cell, x=str(x), y=str(y), width=str(_WIDTH), height=str(_HEIGHT))

    def add_link(self, link: Link, index: int, network: int, *, labelled: bool) -> None:
        """Draw a link, with its rate and, where there is room, the names of its ports."""
        colour = NETWORK_COLOURS[network % len(NETWORK_COLOURS)] if network or not link.rail else rail_colour(link.rail)
        ends = {"source": self._ids[link.b.node], "target": self._ids[link.a.node]}
        text = str(link.rate) if labelled else ""
        cell = self._cell(f"l{index}", text, f"{_EDGE}strokeColor={colour};", edge="1", **ends)
        self._geometry(cell, relative="1")
        if not labelled:
            return
        for place, interface in (("-0.8", link.b.interface), ("0.8", link.a.interface)):
            label = self._cell(f"l{index}{place}", interface, _END, parent=f"l{index}", vertex="1", connectable="0")
            self._geometry(label, x=place, relative="1")

    def text(self) -> str:
        """Return the text of the file."""
        ElementTree.indent(self._file)
        return ElementTree.tostring(self._file, encoding="unicode") + "\n"

    def _cell(self, cell_id: str, value: str, style: str, *, parent: str = "1", **more: str) -> ElementTree.Element:
        attributes = {"id": cell_id, "value": _as_html(value), "style": style, "parent": parent, **more}
        return ElementTree.SubElement(self._root, "mxCell", attributes)

    def _geometry(self, cell: ElementTree.Element, **numbers: str) -> None:
        geometry = ElementTree.SubElement(cell, "mxGeometry", numbers)
        geometry.set("as", "geometry")


def _as_html(text: str) -> str:
    """Return text for a label, which draw.io reads as HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
