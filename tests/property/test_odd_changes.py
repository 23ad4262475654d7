"""Labs that become something quite different: by hand-made pairs, and from each topology that is shipped to another.

What holds for labs that differ in a few keys holds for these as well: to deploy the one and change it to the other is
to deploy the other, in all that the kernel in memory has.
"""

import re
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from changed_in_memory import Changed, planned, scale_of
from fake_kernel import NodeContent
from lab_snapshot import differences
from odd_pairs import PAIRS, lab_said

from testbed.base.names import namespace_name
from testbed.lab.core.feature import keep
from testbed.lab.core.model import Lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.scale_up.plan.domains import domain_nodes

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
MOST_NODES = 64
"""The size of a shipped lab whose changes are tried: larger ones are of the same kinds."""


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
    require_changed(*map(lab_said, PAIRS[what]))


@cache
def shipped() -> Mapping[str, Lab]:
    """The topologies that come with the product and are no larger than they need to be."""
    found = {}
    for path in sorted(TOPOLOGIES.rglob("*.yml")):
        text = path.read_text()
        if path.parent.name == "large":
            continue
        text = re.sub("(?m)^name:.*", "name: x", text)
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
    if one not in shipped():
        pytest.skip(f"it has more than {MOST_NODES} nodes")
    for other in shipped().keys() - {one}:
        require_changed(shipped()[one], shipped()[other])
