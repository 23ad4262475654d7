"""An InfiniBand back end as a feature of a lab: its subnet's programs, its links, and what is asked of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.lab.core.feature import Broken, Deployment, EndedProcess, Feature, FeatureChange, LinksBeside, Started

if TYPE_CHECKING:
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.core.deploy.records.state import StateDirectory
    from testbed.lab.core.deploy.watch.check import CheckResult
    from testbed.lab.core.model import Lab
    from testbed.lab.core.plan.lab_plan import LabPlan
    from testbed.lab.features.infiniband.running import StartedPlane


class _Started(Started):
    def __init__(self, plane: StartedPlane) -> None:
        self._plane = plane

    def release(self) -> None:
        self._plane.release()


class InfinibandFeature(Feature):
    """OpenSM and ibsim run in a namespace beside the lab's nodes, as long as the lab."""

    def require(self, lab: Lab, state: StateDirectory) -> None:
        if lab.infiniband is not None:
            from testbed.lab.features.infiniband.plane import require_programs

            require_programs()

    def namespaces(self, lab: Lab) -> Iterable[str]:
        from testbed.base.names import SUBNET_NODE

        return () if lab.infiniband is None else (SUBNET_NODE,)

    def start(self, deployment: Deployment) -> Started | None:
        fabric, plan = deployment.lab.infiniband, deployment.plan.infiniband
        if fabric is None or plan is None:
            return None
        from testbed.lab.features.infiniband.live import lab_plane, start_subnet

        plane = lab_plane(deployment.lab.name, deployment.run)
        return _Started(start_subnet(plane, plan, fabric, deployment.plan.k))

    def change(self, running: RunningLab, lab: Lab, plan: LabPlan) -> FeatureChange | None:
        if running.model.infiniband is None and lab.infiniband is None:
            return None
        from testbed.lab.features.infiniband.change import subnet_change

        return subnet_change(running, lab, plan)

    def links(self, lab: RunningLab) -> LinksBeside | None:
        if lab.whole.model.infiniband is None:
            return None
        from testbed.lab.features.infiniband.live import SubnetLinks

        return SubnetLinks(lab)

    def broken(self, plan: LabPlan, run: Path) -> Sequence[Broken]:
        if plan.infiniband is None:
            return ()
        from testbed.lab.features.infiniband.live import plane_directory
        from testbed.lab.features.infiniband.running import SIMULATOR, noted_pids

        if SIMULATOR in noted_pids(plane_directory(run)):
            return ()
        return [Broken(what="the subnet: its ibsim does not run", hint="`testbed apply --repair` brings it up")]

    def ended(self, lab: RunningLab) -> Sequence[EndedProcess]:
        if lab.whole.model.infiniband is None:
            return ()
        from testbed.lab.features.infiniband.live import LiveSubnet
        from testbed.lab.features.infiniband.running import SIMULATOR

        subnet = LiveSubnet(lab)
        if SIMULATOR in (names := subnet.ended()):
            from testbed.lab.features.infiniband.change import restart_subnet

            return [EndedProcess(node="", what="the subnet, with its ibsim", start=partial(restart_subnet, lab))]
        ended = [
            EndedProcess(
                node=name.partition(":")[0],
                what=f"the subnet manager at {name}",
                start=partial(subnet.restart_manager, name),
            )
            for name in names
        ]
        if subnet.wires is not None and not subnet.wires.is_running():
            ended.append(EndedProcess(node="", what="the wires of the subnet", start=subnet.start_wires))
        return ended

    def environment(self, plan: LabPlan, run: Path, node: str) -> Mapping[str, str]:
        if plan.infiniband is None or not plan.infiniband.has(node):
            return {}
        from testbed.lab.features.infiniband.live import plane_directory
        from testbed.lab.features.infiniband.tools import tool_environment

        return tool_environment(plane_directory(run), node)

    def checks(self, lab: RunningLab) -> Sequence[tuple[str, Callable[[RunningLab], CheckResult]]]:
        if lab.whole.model.infiniband is None:
            return ()
        from testbed.lab.features.infiniband.watch import SubnetChecks

        return SubnetChecks(lab).all()


FEATURE = InfinibandFeature()
