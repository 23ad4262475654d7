"""Nodes that are containers as a feature of a lab: the runtimes that realise them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from testbed.lab.core.feature import Feature, FeatureChange

if TYPE_CHECKING:
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.core.deploy.runtime import Runtime
    from testbed.lab.core.model import Lab
    from testbed.lab.core.plan.lab_plan import LabPlan


class ContainersFeature(Feature):
    """A node has an image, and an engine makes its container."""

    def runtimes(self) -> Mapping[str, Runtime]:
        """Return the runtimes of `testbed.lab.core.model.containers.CONTAINER_RUNTIMES`."""
        from testbed.lab.features.containers.runtimes.docker import DockerRuntime

        return {"docker": DockerRuntime()}

    def change(self, running: RunningLab, lab: Lab, plan: LabPlan) -> FeatureChange | None:
        if not any(node.container is not None for node in (*running.model.nodes, *lab.nodes)):
            return None
        from testbed.lab.features.containers.change import containers_change

        return containers_change(running, plan)


FEATURE = ContainersFeature()
