"""Scale-up domains as a feature of a lab: those by packets have a switch each, and its wires to GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.lab.core.feature import (
    Broken,
    Deployment,
    EndedProcess,
    Feature,
    FeatureChange,
    LinksBeside,
    ScaleDemand,
    Started,
)

if TYPE_CHECKING:
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.core.deploy.watch.check import CheckResult
    from testbed.lab.core.deploy.watch.events import EventStream
    from testbed.lab.core.model import Lab
    from testbed.lab.core.plan.lab_plan import LabPlan


class ScaleUpFeature(Feature):
    """A domain's switch is a process in a namespace of its own, which lives as long as the lab."""

    def namespaces(self, lab: Lab) -> Iterable[str]:
        from testbed.lab.features.scale_up.plan.domains import domain_nodes

        return domain_nodes(lab)

    def prepare(self, lab: Lab, plan: LabPlan) -> None:
        if plan.scale_up_domains:
            from testbed.protocols.scale_up.domain import build

            build.build()

    def scale(self, lab: Lab, share: float) -> ScaleDemand | None:
        from testbed.lab.core.model import ScaleUpBy

        if lab.scale_up.by is not ScaleUpBy.PACKETS:
            return None
        from testbed.lab.features.scale_up.plan.time_scale import packet_scale

        return packet_scale(lab, share)

    def links(self, lab: RunningLab) -> LinksBeside:
        from testbed.lab.features.scale_up.planes import PlaneControl

        return PlaneControl(lab)

    def start(self, deployment: Deployment) -> Started | None:
        if not deployment.plan.scale_up_domains:
            return None
        from testbed.lab.features.scale_up.apply import start_domain_switches
        from testbed.lab.features.scale_up.host_gpus import write_host_gpus

        start_domain_switches(deployment.plan, deployment.run)
        write_host_gpus(deployment.plan, deployment.run)
        return None

    def change(self, running: RunningLab, lab: Lab, plan: LabPlan) -> FeatureChange | None:
        if not (running.plan.scale_up_domains or plan.scale_up_domains) and running.model.scale_up == lab.scale_up:
            return None
        from testbed.lab.features.scale_up.change import domains_change

        return domains_change(running, lab, plan)

    def set_links(self, lab: RunningLab, node: str, *, up: bool) -> None:
        from testbed.lab.features.scale_up.apply import set_gpu_wires

        set_gpu_wires(lab, node, up=up)

    def broken(self, plan: LabPlan, run: Path) -> Sequence[Broken]:
        from testbed.lab.features.scale_up.watch_switches import dead_domains, dead_line, revival_hint

        return [Broken(what=dead_line(name), hint=revival_hint(name)) for name in dead_domains(plan, run)]

    def environment(self, plan: LabPlan, run: Path, node: str) -> Mapping[str, str]:
        if not plan.scale_up_domains:
            return {}
        from testbed.lab.features.scale_up.gpu_files import gpu_environment

        return gpu_environment(plan, run, node)

    def mounted(self, plan: LabPlan, run: Path, node: str) -> Iterable[Path]:
        if not plan.scale_up_domains:
            return ()
        from testbed.lab.features.scale_up.gpu_files import gpu_paths

        return gpu_paths(plan, run, node)

    def subscribe(self, events: EventStream, lab: RunningLab) -> None:
        if lab.plan.scale_up_domains:
            from testbed.lab.features.scale_up.events import follow_switches

            follow_switches(events, lab)

    def ended(self, lab: RunningLab) -> Sequence[EndedProcess]:
        if not lab.plan.scale_up_domains:
            return ()
        from testbed.lab.features.scale_up.apply import start_domain_switches
        from testbed.lab.features.scale_up.watch_switches import dead_domains, dead_line

        run = lab.processes_directory
        return [
            EndedProcess(node="", what=dead_line(name), start=partial(start_domain_switches, lab.plan, run, (name,)))
            for name in dead_domains(lab.plan, run)
        ]

    def checks(self, lab: RunningLab) -> Sequence[tuple[str, Callable[[RunningLab], CheckResult]]]:
        if not lab.plan.scale_up_domains:
            return ()
        from testbed.lab.features.scale_up.watch import check_planes, check_switches

        return (("scale-up", check_switches), ("scale-up planes", check_planes))


FEATURE = ScaleUpFeature()
