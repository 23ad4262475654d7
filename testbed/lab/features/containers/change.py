"""Nodes that are containers in a change of a lab that is up: those that are new are started, others removed.

A container is what it is from its start on. So another image, command or environment, or another runtime, is another
node: that is refused by name, and `deploy --reconfigure` makes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from testbed.base.linux.namespaces import still_published
from testbed.base.names import namespace_name
from testbed.lab.core.deploy.changing.refusal import ChangeRefused
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.journal import JournalContent
from testbed.lab.core.drivers.nodes.netns import NetnsKernel
from testbed.lab.core.feature import Changing, FeatureChange
from testbed.lab.core.plan.changes import ChangeRow, Effect
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import CreateNode, StartContainer
from testbed.lab.features.containers.runtimes.docker import DeployingContainers, DockerRuntime

if TYPE_CHECKING:
    from testbed.lab.core.drivers.routing.frr import Elsewhere


class ContainersChange(FeatureChange):
    """Starts containers before anything else is done, and removes others when nothing leads to them any more."""

    def __init__(self, started: Mapping[str, StartContainer], gone: frozenset[str]) -> None:
        super().__init__(
            [
                ChangeRow(
                    effect=Effect.MADE,
                    node=node,
                    what=f"container {node}",
                    kind="container",
                    detail=item.container.image,
                )
                for node, item in started.items()
            ]
        )
        self._started = started
        self._gone = gone
        self._nodes: DeployingContainers | None = None

    @property
    def elsewhere(self) -> Mapping[str, Elsewhere]:
        """Return how the routing daemons of the new ones that are switches are started."""
        return {} if self._nodes is None else self._nodes.elsewhere

    def begin(self, changing: Changing) -> None:
        """Start the new containers, whose namespaces are then nodes like any other."""
        if not self._started:
            return
        content = changing.journal.read()
        wanted = [node for node in self._started if not _is_up(changing.lab.name, content, node)]
        if not wanted:
            return
        nodes = DockerRuntime().extend(changing.lab, changing.run, changing.journal, wanted)
        kernel = NetnsKernel(changing.lab.name)
        try:
            nodes.remove_started()  # by an apply that was killed
            kernel.remove({node: content.identities[node] for node in wanted if node in content.identities})
            nodes.start(changing.plan, kernel, changing.notify)
            kernel.publish()
        finally:
            kernel.close()
        self._nodes = nodes

    def routed(self, changing: Changing) -> None:
        """Wait until those that have a health check are healthy."""
        if self._nodes is not None:
            try:
                self._nodes.wait_healthy(60.0, changing.notify)
            finally:
                self._nodes.close()

    def removed(self, changing: Changing) -> None:
        if self._gone:
            DockerRuntime().remove_nodes(changing.journal.read(), self._gone)


def _is_up(lab: str, content: JournalContent, node: str) -> bool:
    """Tell whether a container was started by a change that was cut short, or not yet removed by one."""
    started = any(node in containers.ids for containers in content.containers.values())
    return started and bool(still_published({namespace_name(lab, node): content.identities.get(node, 0)}))


def containers_change(running: RunningLab, plan: LabPlan) -> ContainersChange | None:
    """Return what makes the containers of a lab that is up those of `plan`; None where nothing differs.

    Raises `ChangeRefused` for a node that would be another container, or one where it was none.
    """
    before, after = _containers(running.plan), _containers(plan)
    spaces = [{item.node for item in each.operations if isinstance(item, CreateNode)} for each in (running.plan, plan)]
    for node, item in after.items():
        if node in spaces[0] or (node in before and before[node] != item):
            raise _refused(node, "would be another container" if node in before else "would be a container")
    if other := sorted(before.keys() & spaces[1]):
        raise _refused(other[0], "would be no container any more")
    started = {node: item for node, item in after.items() if node not in before}
    gone = frozenset(before.keys() - after.keys())
    return ContainersChange(started, gone) if started or gone else None


def _refused(node: str, why: str) -> ChangeRefused:
    return ChangeRefused(f"{node} {why}", hint="deploy --reconfigure replaces the lab")


def _containers(plan: LabPlan) -> dict[str, StartContainer]:
    return {item.node: item for item in plan.operations if isinstance(item, StartContainer)}
