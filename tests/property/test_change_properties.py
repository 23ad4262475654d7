"""Whatever two plans of a lab are: to deploy the one and change it to the other is to deploy the other.

That is so for all that the kernel in memory has of a lab, and for all that the programs of its ports are told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from fake_kernel import FakeKernel, FakeMachine, NodeContent
from hypothesis import given, settings
from hypothesis import strategies as st
from lab_snapshot import describe_ports, differences
from lab_texts import BESIDE, MANAGED, PLAIN, QOS, SCALE_UP, SESSIONS, SIZES, WITH_QOS, Choices, two_labs
from memory_maps import maps_in_memory

from testbed.base.datapath.maps import LabMaps
from testbed.base.errors import PlanError
from testbed.base.names import namespace_name
from testbed.lab.core.deploy.links.wires import change_losses, fill_wires, lead_to_delays
from testbed.lab.core.drivers.netlink.port_programs import fill_maps, forget_ports, write_maps
from testbed.lab.core.drivers.nodes.changing import KernelChanges, kernel_changes
from testbed.lab.core.feature import keep
from testbed.lab.core.model import DelayBy, Lab, LinkKind
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.management_plan import StartService
from testbed.lab.core.plan.operations import CreateNode, CreateVeth, InstallPort, Operation, StartRouting
from testbed.lab.core.plan.qos.numbers import DataPathNumbers, keep_numbers, numbers_of
from testbed.lab.features.scale_up.plan.domains import domain_nodes

MOST_PORTS, MOST_TABLES = 512, 64
KINDS: dict[str, Choices] = {
    "plain": {**PLAIN, **SESSIONS, **BESIDE},
    "qos": WITH_QOS,
    "qos and networks": {**PLAIN, **QOS, **BESIDE},
    "managed": {**SIZES, **MANAGED},
    "scale-up": {**SIZES, **SCALE_UP},
}


class Changed:
    """A lab in memory: its kernel, the maps of its data path, and the plan that both are of."""

    def __init__(self, plan: LabPlan) -> None:
        self.plan = plan
        self.machine = FakeMachine()
        kernel = FakeKernel(plan.lab, machine=self.machine)
        self.identities = dict(kernel.create_nodes([item for item in plan.operations if isinstance(item, CreateNode)]))
        kernel.publish()
        kernel.apply(
            [item for item in plan.operations if not isinstance(item, CreateNode | StartRouting | StartService)]
        )
        self.maps = maps_in_memory(MOST_PORTS, profiles=MOST_TABLES, buffers=MOST_TABLES)
        if plan.tables is not None:
            fill_maps(self.maps, plan.tables, installs(plan))
            fill_wires(self.maps, plan)

    def change(self, lab: Lab, k: float) -> KernelChanges:
        """Do what `apply` does to the kernel and the maps, in its order."""
        old, new = self.plan, self.planned(lab, k)
        changes = kernel_changes(old, new)
        kernel = FakeKernel(old.lab, self.identities, machine=self.machine)
        self.identities |= kernel.create_nodes(changes.created)
        kernel.publish({item.node for item in changes.created})
        if new.tables is not None:
            write_maps(self.maps, new.tables, changes.installs)
            change_losses(self.maps, old, new)
        self.undo(kernel, changes.first)
        kernel.apply(changes.made, replacing=True)
        lead_to_delays(self.maps, changes.made, there=True)
        kernel.change(changes)
        self.undo(kernel, changes.removed)
        kernel.apply(changes.settled, replacing=True)
        forget_ports(self.maps, sorted(set(old.port_numbers.values()) - set(new.port_numbers.values())))
        for node in changes.gone:
            FakeKernel(new.lab, machine=self.machine).remove({node: self.identities.pop(node)})
        self.plan = new
        return changes

    def undo(self, kernel: FakeKernel, operations: Sequence[Operation]) -> None:
        lead_to_delays(self.maps, operations, there=False)
        kernel.undo(operations)

    def planned(self, lab: Lab, k: float) -> LabPlan:
        plan = planned(lab, k)
        return keep_numbers(plan, recorded(self.plan)) if plan.tables is not None else plan

    @property
    def nodes(self) -> dict[str, NodeContent]:
        return dict(self.machine.published)

    @property
    def ports(self) -> dict[str, str]:
        return described(self.maps, self.plan)


def installs(plan: LabPlan) -> list[InstallPort]:
    return [item for item in plan.operations if isinstance(item, InstallPort)]


def planned(lab: Lab, k: float) -> LabPlan:
    """The kernel has all delays: it is there where it keeps them as much as where endpoints do."""
    return plan_lab(lab, k=k, auto_delay=DelayBy.KERNEL)


def recorded(plan: LabPlan) -> DataPathNumbers:
    """The numbers as the record of a lab hands them on."""
    numbers = numbers_of(plan)
    return DataPathNumbers(ports=dict(numbers.ports), buffers=dict(numbers.buffers), profiles=dict(numbers.profiles))


def described(maps: LabMaps, plan: LabPlan) -> dict[str, str]:
    return dict(describe_ports(maps, plan)) if plan.tables is not None else {}


def scale_of(lab: Lab) -> float:
    return float(lab.scale.time or 5000)


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
