"""Whatever two plans of a lab are: to deploy the one and change it to the other is to deploy the other.

That is so for all that the kernel in memory has of a lab, and for all that the programs of its ports are told.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from changed_in_memory import Changed, planned, scale_of
from hypothesis import given, settings
from hypothesis import strategies as st
from lab_snapshot import differences
from lab_texts import BESIDE, MANAGED, PLAIN, QOS, SCALE_UP, SESSIONS, SIZES, WITH_QOS, Choices, two_labs

from testbed.base.errors import PlanError
from testbed.base.names import namespace_name
from testbed.lab.core.deploy.changing.carrying.moved_addresses import names_may_differ
from testbed.lab.core.deploy.node_files import hosts_text
from testbed.lab.core.drivers.nodes.changing import kernel_changes
from testbed.lab.core.feature import keep
from testbed.lab.core.model import Lab, LinkKind
from testbed.lab.core.plan.operations import CreateVeth
from testbed.lab.features.scale_up.plan.domains import domain_nodes

KINDS: dict[str, Choices] = {
    "plain": {**PLAIN, **SESSIONS, **BESIDE},
    "qos": WITH_QOS,
    "qos and networks": {**PLAIN, **QOS, **BESIDE},
    "managed": {**SIZES, **MANAGED},
    "scale-up": {**SIZES, **SCALE_UP},
}


def fitting(labs: tuple[Lab, Lab]) -> bool:
    """Tell whether both labs can be planned: a buffer may be too small for what is lossless."""
    try:
        for lab in labs:
            planned(lab, scale_of(lab))
    except PlanError:
        return False
    return True


@st.composite
def pairs(draw: st.DrawFn, kind: str) -> tuple[Lab, Lab]:
    return draw(two_labs(KINDS[kind]).filter(fitting))


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=25)
def test_a_lab_that_is_changed_is_the_lab_that_was_meant(kind: str, data: Any) -> None:
    first, second = data.draw(pairs(kind))
    lab = Changed(planned(first, scale_of(first)))
    before = Changed(lab.plan)
    second = keep(first, second)  # names of ports, bridges and places of management, which a deploy would give anew
    meant = Changed(planned(second, scale_of(second)))

    lab.change(second, scale_of(second))
    assert lab.nodes == meant.nodes
    assert not differences(lab.ports, meant.ports)
    places = [*(node.name for node in second.nodes), *domain_nodes(second)]
    assert lab.nodes.keys() == {namespace_name(lab.plan.lab, place) for place in places}

    again = lab.change(second, scale_of(second))
    assert not again, f"a second time there is nothing to do: {again}"

    back = keep(second, first)
    assert without_kept_bridges(back) == first, "what was given up is taken again"
    lab.change(back, scale_of(back))
    restored = before if back == first else Changed(planned(back, scale_of(back)))
    assert lab.nodes == restored.nodes
    assert not differences(lab.ports, restored.ports)


def without_kept_bridges(lab: Lab) -> Lab:
    """Return a lab as a deploy would make it: a rail of one port has a bridge only where it has had several."""
    return replace(lab, rail_subnets=tuple(replace(subnet, bridged=False) for subnet in lab.rail_subnets))


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=25)
def test_what_both_labs_have_is_not_made_anew_for_its_name(kind: str, data: Any) -> None:
    """A link between the same switches is the same device, whatever comes or goes before it, and so is its address."""
    first, second = data.draw(pairs(kind))
    kept = keep(first, second)
    before, after = names_of(first), names_of(kept)
    both = before.keys() & after.keys()
    assert {link: after[link] for link in both} == {link: before[link] for link in both}
    assert keep(first, kept) == kept, "who has kept everything keeps it"
    changes = kernel_changes(planned(first, scale_of(first)), planned(kept, scale_of(kept)))
    between = {link.a.node for link in first.links if link.kind is LinkKind.FABRIC}
    remade = [item for item in changes.remade if isinstance(item, CreateVeth) and item.a.node in between]
    assert not [item for item in remade if item.b.node in {above for _, above, _ in both}]


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=25)
def test_names_of_nodes_are_written_anew_wherever_they_differ(kind: str, data: Any) -> None:
    """A feature that changes has them written in any case; what it adds is left out here."""
    first, second = data.draw(pairs(kind))
    old, new = planned(first, scale_of(first)), planned(keep(first, second), scale_of(second))
    for before, after in ((old, new), (new, old)):
        if hosts_text(before) != hosts_text(after):
            assert names_may_differ(kernel_changes(before, after), before, after)
    assert not names_may_differ(kernel_changes(old, old), old, old)


def names_of(lab: Lab) -> dict[tuple[str, str, int], tuple[str, str]]:
    """The names of the ports of each link between switches, by both switches and which of their links it is."""
    met: Counter[tuple[str, str]] = Counter()
    found = {}
    for link in lab.links:
        if link.kind is LinkKind.FABRIC:
            met[link.a.node, link.b.node] += 1
            found[link.a.node, link.b.node, met[link.a.node, link.b.node]] = link.a.interface, link.b.interface
    return found


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=10)
def test_numbers_are_given_once_and_stay(kind: str, data: Any) -> None:
    """A port of the data path has the number that it had, and no two have the same, whatever came in between."""
    first, second = data.draw(pairs(kind))
    lab = Changed(planned(first, scale_of(first)))
    before = lab.plan.port_numbers
    lab.change(keep(first, second), scale_of(second))
    after = lab.plan.port_numbers
    assert len(set(after.values())) == len(after)
    kept = before.keys() & after.keys()
    assert {port: after[port] for port in kept} == {port: before[port] for port in kept}
    lab.change(first, scale_of(first))
    assert max(lab.plan.port_numbers.values(), default=0) <= max(len(before), max(after.values(), default=0))
