"""Whatever two plans of a lab are: to deploy the one and change it to the other is to deploy the other."""

from __future__ import annotations

from dataclasses import replace

from fake_kernel import FakeKernel, FakeMachine
from hypothesis import given
from hypothesis import strategies as st
from observed import ObservedNode

from testbed.base.names import namespace_name
from testbed.base.units import Rate
from testbed.lab.core.drivers.nodes.changing import kernel_changes
from testbed.lab.core.fabric import FabricParams, generate_fabric
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import CreateNode, StartRouting
from testbed.lab.core.plan.qos.numbers import keep_numbers, numbers_of
from testbed.lab.core.schema.load import load_topology_text

QOS = """\
name: x
fabric: {{design: rail-optimized, hosts: {hosts}, gpus: {gpus}, spines: {spines}}}
qos: {{preset: uec}}
"""


@st.composite
def labs(draw: st.DrawFn, *, qos: bool) -> Lab:
    sizes = {name: draw(st.integers(1, 3)) for name in ("hosts", "gpus", "spines")}
    if qos:
        lab = load_topology_text(QOS.format(**sizes), file="x.yml")
    else:
        lab = generate_fabric(FabricParams(design="rail-optimized", **sizes), name="x")
    rate, mtu = draw(st.sampled_from(("100G", "400G"))), draw(st.sampled_from((1500, 4500)))
    return replace(lab, links=tuple(replace(link, rate=Rate.parse(rate), mtu_bytes=mtu) for link in lab.links))


def deployed(plan: LabPlan) -> tuple[FakeKernel, FakeMachine, dict[str, int]]:
    machine = FakeMachine()
    kernel = FakeKernel(plan.lab, machine=machine)
    identities = dict(kernel.create_nodes([item for item in plan.operations if isinstance(item, CreateNode)]))
    kernel.publish()
    kernel.apply([item for item in plan.operations if not isinstance(item, CreateNode | StartRouting)])
    return kernel, machine, identities


def changed(kernel: FakeKernel, machine: FakeMachine, identities: dict[str, int], old: LabPlan, new: LabPlan) -> None:
    changes = kernel_changes(old, new)
    identities |= kernel.create_nodes(changes.created)
    kernel.publish({item.node for item in changes.created})
    kernel.undo(changes.first)
    kernel.apply(changes.made)
    kernel.change(changes)
    kernel.undo(changes.removed)
    for node in changes.gone:
        FakeKernel(new.lab, machine=machine).remove({node: identities.pop(node)})


def observed(plan: LabPlan, machine: FakeMachine) -> dict[str, ObservedNode]:
    nodes = [item.node for item in plan.operations if isinstance(item, CreateNode)]
    assert machine.published.keys() == {namespace_name(plan.lab, node) for node in nodes}
    return dict(FakeKernel(plan.lab, nodes, machine=machine).observe())


def kept(plan: LabPlan, before: LabPlan) -> LabPlan:
    return keep_numbers(plan, numbers_of(before)) if plan.tables is not None else plan


@given(st.booleans().flatmap(lambda qos: st.tuples(labs(qos=qos), labs(qos=qos))))
def test_a_lab_that_is_changed_is_the_lab_that_was_meant(pair: tuple[Lab, Lab]) -> None:
    first, second = (plan_lab(lab, k=5000) for lab in pair)
    kernel, machine, identities = deployed(first)
    new = kept(second, first)
    changed(kernel, machine, identities, first, new)
    assert observed(new, machine) == observed(second, deployed(second)[1])
    assert not kernel_changes(new, kept(second, new)), "a second time there is nothing to do"
    back = kept(first, new)
    changed(FakeKernel(first.lab, identities, machine=machine), machine, identities, new, back)
    assert observed(first, machine) == observed(first, deployed(first)[1])
