"""Labs over several machines as a feature of a lab: its part here, and the wires to the other machines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.lab.core.feature import Broken, Deployment, EndedProcess, Feature, FeatureChange, Part, Started

if TYPE_CHECKING:
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.core.deploy.watch.check import CheckResult
    from testbed.lab.core.deploy.watch.events import EventStream
    from testbed.lab.core.model import Lab
    from testbed.lab.core.plan.lab_plan import LabPlan
    from testbed.lab.features.machines.part import LabPart

_SILENT = "the process of the wires between machines ended"


class MachinesFeature(Feature):
    """A machine makes its part of the plan, and the wires of the links that are cut."""

    def part(self, said: Mapping[str, Any]) -> Part:
        from testbed.lab.features.machines.part import LabPart

        return LabPart.from_json(said)

    def start(self, deployment: Deployment) -> Started | None:
        said = deployment.state.read(deployment.lab.name).part
        if said is None:
            return None
        from testbed.lab.features.machines.part import LabPart
        from testbed.lab.features.machines.wires import make_wires, start_carriers

        part = LabPart.from_json(said)
        make_wires(part, deployment.plan, deployment.run)
        start_carriers(part, deployment.plan, deployment.state)
        return None

    def change(self, running: RunningLab, lab: Lab, plan: LabPlan) -> FeatureChange | None:
        if running.part is None:
            return None
        from testbed.lab.core.deploy.changing.refusal import ChangeRefused

        raise ChangeRefused(
            f"{running.name} is over several machines, and such a lab is not changed where it is",
            hint=f"destroy -n {running.name}, and deploy the new one",
        )

    def broken(self, plan: LabPlan, run: Path) -> Sequence[Broken]:
        if not _is_cut(plan):
            return ()
        from testbed.daemons.kit.lock import is_held
        from testbed.daemons.wires.configuration import LOCK_NAME
        from testbed.lab.features.machines.wires import DIRECTORY_NAME

        if is_held(run / DIRECTORY_NAME / LOCK_NAME):
            return ()
        return [Broken(what=_SILENT, hint=f"testbed destroy -n {plan.lab}, and deploy it again")]

    def ended(self, lab: RunningLab) -> Sequence[EndedProcess]:
        from testbed.lab.features.machines.wires import carriers_run, start_carriers

        part = _part_of(lab)
        if part is None or carriers_run(lab.plan, lab.state):
            return ()
        return [EndedProcess(node="", what=_SILENT, start=partial(start_carriers, part, lab.plan, lab.state))]

    def subscribe(self, events: EventStream, lab: RunningLab) -> None:
        if lab.part is not None:
            from testbed.lab.features.machines.wires import EVENTS_FILE

            events.tell(EVENTS_FILE)

    def checks(self, lab: RunningLab) -> Sequence[tuple[str, Callable[[RunningLab], CheckResult]]]:
        if lab.part is None:
            return ()
        from testbed.lab.features.machines.watch import check_machines

        return (("machines", check_machines),)


def _is_cut(plan: LabPlan) -> bool:
    from testbed.lab.core.plan.operations import CreateNode
    from testbed.lab.features.machines.part import WIRES

    return any(isinstance(item, CreateNode) and item.node == WIRES for item in plan.operations)


def _part_of(lab: RunningLab) -> LabPart | None:
    from testbed.lab.features.machines.part import LabPart

    return lab.part if isinstance(lab.part, LabPart) else None


FEATURE = MachinesFeature()
