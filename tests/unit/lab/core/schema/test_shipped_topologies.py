"""Every topology we ship loads, is sound, and is called what its file is."""

from collections import Counter
from pathlib import Path

import pytest

from testbed.base.names import check_interface_name, check_lab_name, check_node_name
from testbed.lab.core.fabric import check_sizing
from testbed.lab.core.model import LinkKind, NodeKind
from testbed.lab.core.schema.load import load_topology

TOPOLOGIES = sorted((Path(__file__).parents[5] / "topologies").glob("*.yml"))


@pytest.mark.parametrize("path", TOPOLOGIES, ids=lambda path: path.stem)
def test_it_loads_as_a_sound_lab(path: Path) -> None:
    lab = load_topology(path)
    check_lab_name(lab.name)
    assert lab.name == path.stem
    kinds = {node.name: node.kind for node in lab.nodes}
    assert len(kinds) == len(lab.nodes)
    for name in kinds:
        check_node_name(name)
    ports = Counter(end for link in lab.links for end in (link.a, link.b))
    assert set(ports.values()) == {1}
    for end in ports:
        assert end.node in kinds
        check_interface_name(end.interface)
    assert {end.node for end in ports} == set(kinds)
    for link in lab.links:
        ends = {kinds[link.a.node], kinds[link.b.node]}
        assert (link.kind in (LinkKind.FABRIC, LinkKind.PEER)) == (ends == {NodeKind.SWITCH})
    assert check_sizing(lab) == ()
