"""Storage targets as a feature of a lab: those that the kernel serves need modules, and may outlive a killed run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.base.errors import PlanError
from testbed.lab.core.feature import Feature, FeatureChange

if TYPE_CHECKING:
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.core.deploy.records.state import StateDirectory
    from testbed.lab.core.model import Lab, Node
    from testbed.lab.core.plan.lab_plan import LabPlan


class TargetsFeature(Feature):
    """A target is started by whoever runs traffic; a deploy sees to what the kernel's need."""

    def require(self, lab: Lab, state: StateDirectory) -> None:
        """Raise `PlanError` where the kernel is to serve storage targets, and this machine's kernel cannot."""
        from testbed.lab.core.deploy.mechanisms import machine_capabilities
        from testbed.lab.core.model import NETNS

        for node in _kernel_targets(lab):
            place = f"networks.{node.network}.targets"
            if node.runtime != NETNS:
                raise PlanError(
                    f"{node.name} is a {node.runtime} node, and the kernel serves targets in network namespaces alone",
                    field=place,
                    code="no-kernel-target",
                    hint="served_by: user-space",
                )
            if why := machine_capabilities(state).why("storage.nvmet"):
                raise PlanError(
                    f"{node.name} is to be served by the kernel, and {why}",
                    field=place,
                    code="no-kernel-target",
                    hint="deploy it in the lab VM (testbed --on vm), whose kernel has them, or served_by: user-space",
                )

    def prepare(self, lab: Lab, plan: LabPlan) -> None:
        if _kernel_targets(lab):
            from testbed.lab.features.targets.kernel_targets import load_nvmet

            load_nvmet()

    def change(self, running: RunningLab, lab: Lab, plan: LabPlan) -> FeatureChange | None:
        if not lab.targets:
            return None
        from testbed.lab.features.targets.change import target_rows

        rows = list(target_rows(running.model, lab))
        return FeatureChange(rows) if rows else None

    def remove(self, lab: str) -> None:
        from testbed.lab.features.targets.kernel_targets import remove_targets_of

        remove_targets_of(lab)


def _kernel_targets(lab: Lab) -> list[Node]:
    from testbed.lab.core.model.storage import ServedBy

    return [node for node in lab.targets if node.target is not None and node.target.served_by is ServedBy.KERNEL]


FEATURE = TargetsFeature()
