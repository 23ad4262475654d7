"""Wherever a change of a lab is cut short: carrying all of it out finishes it, and carrying it back undoes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from fake_kernel import FakeKernel, FakeMachine
from hypothesis import given
from hypothesis import strategies as st
from observed import ObservedNode

from testbed.base.names import namespace_name
from testbed.base.units import Rate
from testbed.lab.core.drivers.nodes.changing import KernelChanges, kernel_changes
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import CreateNode, StartRouting
from testbed.lab.core.plan.qos.numbers import keep_numbers, numbers_of
from testbed.lab.core.schema.load import load_topology_text

TOPOLOGY = """\
name: x
fabric: {{design: rail-optimized, hosts: {hosts}, gpus: {gpus}, spines: {spines}}}
"""


@st.composite
def labs(draw: st.DrawFn, *, qos: bool) -> Lab:
    sizes = {name: draw(st.integers(1, 3)) for name in ("hosts", "gpus", "spines")}
    text = TOPOLOGY.format(**sizes) + ("qos: {preset: uec}\n" if qos else "")
    lab = load_topology_text(text, file="x.yml")
    rate, mtu = draw(st.sampled_from(("100G", "400G"))), draw(st.sampled_from((1500, 4500)))
    return replace(lab, links=tuple(replace(link, rate=Rate.parse(rate), mtu_bytes=mtu) for link in lab.links))


@dataclass
class Up:
    """A lab that is up: its machine, and the identities that its journal has."""

    machine: FakeMachine
    identities: dict[str, int]

    @classmethod
    def of(cls, plan: LabPlan) -> Up:
        found = cls(machine=FakeMachine(), identities={})
        kernel = FakeKernel(plan.lab, machine=found.machine)
        found.create(kernel, [item for item in plan.operations if isinstance(item, CreateNode)])
        kernel.apply([item for item in plan.operations if not isinstance(item, CreateNode | StartRouting)])
        return found

    def create(self, kernel: FakeKernel, nodes: list[CreateNode]) -> None:
        self.identities |= kernel.create_nodes(nodes)
        kernel.publish({item.node for item in nodes})

    def there(self, lab: str, nodes: set[str]) -> set[str]:
        return {node for node in nodes if namespace_name(lab, node) in self.machine.published}

    def acts(self, lab: str, changes: KernelChanges, *, again: bool = False) -> Iterator[Callable[[], object]]:
        """Everything that a change does, in its order, one thing at a time."""
        created = {item.node for item in changes.created}
        nodes = self.there(lab, {*changes.places, *created}) if again else set(changes.places)
        kernel = FakeKernel(lab, nodes, machine=self.machine, again=again)
        for node in [item for item in changes.created if item.node not in nodes]:
            yield lambda node=node: self.create(kernel, [node])
        for item in changes.first:
            yield lambda item=item: kernel.undo([item])
        for item in changes.made:
            yield lambda item=item: kernel.apply([item], replacing=True)
        for item in changes.outdated:
            yield lambda item=item: kernel.undo([item])
        for pair in changes.changed:
            yield lambda pair=pair: kernel.change(replace(changes, changed=(pair,), outdated=()))
        for item in changes.removed:
            yield lambda item=item: kernel.undo([item])
        for item in changes.settled:
            yield lambda item=item: kernel.apply([item], replacing=True)
        for name in changes.gone:
            if name in self.identities:
                yield lambda name=name: self.remove(lab, name)

    def remove(self, lab: str, node: str) -> None:
        FakeKernel(lab, machine=self.machine).remove({node: self.identities.pop(node)})

    def observed(self, lab: str) -> dict[str, ObservedNode]:
        """Every node that there is, by its namespace's name."""
        nodes = {name.removeprefix(f"{lab}-") for name in self.machine.published}
        return dict(FakeKernel(lab, nodes, machine=self.machine).observe())


def carry_out(up: Up, lab: str, changes: KernelChanges) -> None:
    for act in up.acts(lab, changes, again=True):
        act()


@given(st.booleans().flatmap(lambda qos: st.tuples(labs(qos=qos), labs(qos=qos))), st.data())
def test_a_change_that_was_cut_short_is_finished_or_taken_back(pair: tuple[Lab, Lab], data: st.DataObject) -> None:
    old, new = (plan_lab(lab, k=5000) for lab in pair)
    if old.tables is not None:
        new = keep_numbers(new, numbers_of(old))
    forward, back = kernel_changes(old, new), kernel_changes(new, old)
    count = len(list(Up.of(old).acts("x", forward)))
    cuts = [data.draw(st.integers(0, count), label=label) for label in ("cut of the change", "cut of the way back")]
    wanted, former = Up.of(new).observed("x"), Up.of(old).observed("x")

    for changes, expected in ((forward, wanted), (back, former)):
        up = Up.of(old)
        for act, _ in zip(up.acts("x", forward), range(cuts[0]), strict=False):
            act()
        for act, _ in zip(up.acts("x", back, again=True), range(cuts[1]), strict=False):
            act()  # the way back is cut short, too
        carry_out(up, "x", changes)
        assert up.observed("x") == expected
        carry_out(up, "x", changes)
        assert up.observed("x") == expected, "and once more it is the same"
