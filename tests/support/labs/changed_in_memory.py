"""A lab on the kernel in memory, which is changed as `apply` changes one: its nodes, and what its ports are told."""

from __future__ import annotations

from collections.abc import Sequence

from fake_kernel import FakeKernel, FakeMachine, NodeContent
from lab_snapshot import describe_ports
from memory_maps import maps_in_memory

from testbed.base.datapath.maps import LabMaps
from testbed.lab.core.deploy.links.wires import change_losses, fill_wires, lead_to_delays
from testbed.lab.core.drivers.netlink.port_programs import fill_maps, forget_ports, write_maps
from testbed.lab.core.drivers.nodes.changing import KernelChanges, kernel_changes
from testbed.lab.core.model import DelayBy, Lab
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.management_plan import StartService
from testbed.lab.core.plan.operations import CreateNode, InstallPort, Operation, StartContainer, StartRouting
from testbed.lab.core.plan.overlay_operations import CreateVrf
from testbed.lab.core.plan.qos.numbers import DataPathNumbers, keep_numbers, numbers_of

MOST_PORTS, MOST_TABLES = 1024, 128
_SPACES = CreateNode | CreateVrf | StartContainer
"""The operations that make namespaces: of containers the engine does."""
_BESIDE = StartRouting | StartService
"""The operations that are none of the kernel's."""


class Changed:
    """A lab in memory: its kernel, the maps of its data path, and the plan that both are of."""

    def __init__(self, plan: LabPlan) -> None:
        self.plan = plan
        self.machine = FakeMachine()
        kernel = FakeKernel(plan.lab, machine=self.machine)
        self.identities = dict(kernel.create_nodes(spaces(plan)))
        kernel.publish()
        kernel.apply([item for item in plan.operations if not isinstance(item, _SPACES | _BESIDE)])
        self.maps = maps_in_memory(MOST_PORTS, profiles=MOST_TABLES, buffers=MOST_TABLES)
        if plan.tables is not None:
            fill_maps(self.maps, plan.tables, installs(plan))
            fill_wires(self.maps, plan)

    def change(self, lab: Lab, k: float) -> KernelChanges:
        """Do what `apply` does to the kernel and the maps, in its order."""
        old, new = self.plan, self.planned(lab, k)
        changes = kernel_changes(old, new)
        kernel = FakeKernel(old.lab, self.identities, machine=self.machine)
        new_spaces = [item for item in spaces(new) if item.node not in self.identities]
        self.identities |= kernel.create_nodes(new_spaces)
        kernel.publish({item.node for item in new_spaces})
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


def spaces(plan: LabPlan) -> list[CreateNode | CreateVrf | StartContainer]:
    """The nodes of a plan, whatever makes their namespaces."""
    return [item for item in plan.operations if isinstance(item, _SPACES)]


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
