"""Link groups of hosts as a feature of a lab: bonds of the kernel, or processes of ours that speak LACP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.lab.core.feature import Deployment, Feature, FeatureChange, Started

if TYPE_CHECKING:
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.core.deploy.watch.check import CheckResult
    from testbed.lab.core.model import Lab
    from testbed.lab.core.plan.lab_plan import LabPlan


class _Started(Started):
    def __init__(self, plan: LabPlan, run: Path) -> None:
        self._plan = plan
        self._run = run

    def wait_links(self, timeout_s: float) -> None:
        from testbed.lab.features.mlag.apply import wait_link_groups

        wait_link_groups(self._plan, self._run, timeout_s)


class LinkGroupsFeature(Feature):
    """A host's two ports are one link group, whose partner two leaves are together."""

    def prepare(self, lab: Lab, plan: LabPlan) -> None:
        if plan.link_groups is not None and any(host.is_bond for host in plan.link_groups.hosts):
            from testbed.daemons.lag.bonding import load_bonding

            load_bonding()

    def start(self, deployment: Deployment) -> Started | None:
        if deployment.plan.link_groups is None:
            return None
        from testbed.lab.features.mlag.apply import start_link_groups

        start_link_groups(deployment.plan, deployment.run)
        return _Started(deployment.plan, deployment.run)

    def change(self, running: RunningLab, lab: Lab, plan: LabPlan) -> FeatureChange | None:
        if running.plan.link_groups is None and plan.link_groups is None:
            return None
        from testbed.lab.features.mlag.change import change_link_groups

        return change_link_groups(running, plan)

    def before_routing(self, plan: LabPlan, run: Path, node: str) -> None:
        from testbed.lab.features.mlag.apply import start_link_groups

        start_link_groups(plan, run, only=(node,))

    def set_hash_seeds(self, lab: RunningLab, run: int) -> None:
        if lab.plan.link_groups is None:
            return
        from testbed.lab.features.mlag.change import seed_link_groups

        seed_link_groups(lab, run)

    def checks(self, lab: RunningLab) -> Sequence[tuple[str, Callable[[RunningLab], CheckResult]]]:
        if lab.plan.link_groups is None:
            return ()
        from testbed.lab.features.mlag.apply import check_link_groups

        return (("link groups", check_link_groups),)


FEATURE = LinkGroupsFeature()
