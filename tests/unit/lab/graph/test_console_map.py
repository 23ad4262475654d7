"""The picture of a lab for the console: each line says which links it stands for, each link where the model has it."""

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from testbed.lab.core.model import Lab
from testbed.lab.core.schema.load import load_topology
from testbed.lab.graph.console import console_map
from testbed.lab.graph.layout import MAX_LINES

TOPOLOGIES = Path(__file__).parents[4] / "topologies"
NAMES = ("demo", "datacentre", "superpod-4su", "nvl72-superpod")


def load(name: str) -> tuple[Lab, dict[str, Any]]:
    lab = load_topology(TOPOLOGIES / f"{name}.yml")
    return lab, console_map(lab)


def lines(found: dict[str, Any]) -> list[dict[str, str]]:
    tree = ElementTree.fromstring(found["svg"])
    return [dict(one.attrib) for one in tree.iter() if "k" in one.attrib.get("class", "").split()]


@pytest.mark.parametrize("name", NAMES)
def test_links_are_those_of_the_model(name: str) -> None:
    lab, found = load(name)
    nodes, interfaces = found["data"]["nodes"], found["data"]["interfaces"]
    assert len(found["link"]) == len(found["data"]["links"])
    for drawn, number in zip(found["data"]["links"], found["link"], strict=True):
        a, port_a, b, port_b = drawn[:4]
        if number < 0:
            assert "plane" in interfaces[port_a], "only those to the planes of domains are drawn alone"
            continue
        link = lab.links[number]
        assert (nodes[a][0], interfaces[port_a]) == (link.a.node, link.a.interface)
        assert (nodes[b][0], interfaces[port_b]) == (link.b.node, link.b.interface)


@pytest.mark.parametrize("name", NAMES)
def test_lines_stand_for_links_between_their_ends(name: str) -> None:
    _, found = load(name)
    data, drawn = found["data"], set()

    def there(node: int, end: str) -> bool:
        return data["nodes"][node][2] == int(end[1:]) if end.startswith("#") else node == int(end)

    for line in lines(found):
        for number in map(int, line["data-l"].split()):
            a, b = data["links"][number][0], data["links"][number][2]
            one, other = line["data-a"], line["data-b"]
            assert (there(a, one) and there(b, other)) or (there(a, other) and there(b, one))
            drawn.add(number)
    between = [n for n, link in enumerate(data["links"]) if data["nodes"][link[0]][1] < 3 > data["nodes"][link[2]][1]]
    missing = set(range(len(data["links"]))) - drawn
    assert missing <= set(between), "every link of a host has a line"
    assert not missing or len(between) > MAX_LINES / 10, "ribbons stand for many links alone"


def test_it_has_no_inline_style_and_no_script() -> None:
    for name in NAMES:
        svg = load(name)[1]["svg"]
        assert not re.search(r"\sstyle=|<script|<style|\son\w+=|href=", svg)
