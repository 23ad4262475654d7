"""Nodes that are containers in a change of a lab that is up: those that are new are started, others removed.

A container is what it is from its start on. So one with another image, command or environment is another container in
the place of the first, if that is allowed: its links, and all other nodes, stay. Likewise a host or a switch becomes a
container, or is one no more.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.base.linux.namespaces import still_published
from testbed.base.linux.vty import shell_directory
from testbed.base.names import namespace_name
from testbed.lab.core.deploy.changing.node import RECREATE, rebuild
from testbed.lab.core.deploy.lifecycle import await_convergence, run_node_commands
from testbed.lab.core.deploy.live import RunningLab, planned_daemons
from testbed.lab.core.deploy.records.journal import JournalContent
from testbed.lab.core.deploy.watch.running_config import note_configurations
from testbed.lab.core.drivers.nodes.netns import NetnsKernel
from testbed.lab.core.drivers.routing.frr import own_directory
from testbed.lab.core.feature import Changing, FeatureChange
from testbed.lab.core.model.containers import Container
from testbed.lab.core.plan.changes import Allow, ChangeRow, Effect
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import CreateNode, StartContainer
from testbed.lab.features.containers.runtimes.docker import NAME, DeployingContainers, DockerRuntime

if TYPE_CHECKING:
    from testbed.lab.core.drivers.routing.frr import Elsewhere


class ContainersChange(FeatureChange):
    """Starts containers before anything else is done, and removes others when nothing leads to them any more."""

    def __init__(
        self, started: Mapping[str, StartContainer], gone: frozenset[str], anew: Mapping[str, str] | None = None
    ) -> None:
        """`anew` says of each node that something else is to realise what that is."""
        self._anew = anew or {}
        rows = [
            ChangeRow(
                effect=Effect.MADE,
                node=node,
                what=f"container {node}",
                kind="container",
                detail=item.container.image,
            )
            for node, item in started.items()
        ]
        rows += [
            ChangeRow(
                effect=Effect.REMADE,
                node=node,
                what=f"node {node}",
                kind="node",
                detail=detail,
                at_stake="what runs in it, its files and sessions, and the packets of its links meanwhile",
                allow=Allow.RECREATE,
            )
            for node, detail in self._anew.items()
        ]
        super().__init__(rows)
        self._started = started
        self._gone = gone
        self._nodes: DeployingContainers | None = None

    @property
    def elsewhere(self) -> Mapping[str, Elsewhere]:
        """Return how the routing daemons of the new ones that are switches are started."""
        return {} if self._nodes is None else self._nodes.elsewhere

    def begin(self, changing: Changing) -> None:
        """Start the new containers, whose namespaces are then nodes like any other."""
        content = changing.journal.read()
        anew = self._to_make_anew(changing)
        if contained := [node.name for node in changing.lab.nodes if node.name in anew and node.container]:
            DockerRuntime().extend(changing.lab, changing.run, changing.journal, contained).close()  # has their images
        wanted = [node for node in self._started if not _is_up(changing.lab.name, content, node)]
        if not wanted:
            return
        nodes = DockerRuntime().extend(changing.lab, changing.run, changing.journal, wanted)
        with contextlib.closing(NetnsKernel(changing.lab.name)) as kernel:
            nodes.remove_started()  # by an apply that was killed
            kernel.remove({node: content.identities[node] for node in wanted if node in content.identities})
            nodes.start(changing.plan, kernel, changing.notify)
            kernel.publish()
        self._nodes = nodes

    def routed(self, changing: Changing) -> None:
        """Wait until those that have a health check are healthy."""
        if self._nodes is not None:
            with contextlib.closing(self._nodes):
                self._nodes.wait_healthy(60.0, changing.notify)

    def removed(self, changing: Changing) -> None:
        """Remove those that are no more, and make nodes anew that something else is to realise; all else of these is
        changed already."""
        if self._gone:
            DockerRuntime().remove_nodes(changing.journal.read(), self._gone)
        if not (anew := self._to_make_anew(changing)):
            return
        lab = RunningLab(changing.record, changing.state)
        for node in anew:
            changing.journal.step(_step(node))
            changing.journal.work(node, RECREATE)
            rebuild(lab, node, changing.notify, was=changing.running)
            if lab.node(node).container is None:
                DockerRuntime().remove_nodes(changing.journal.read(), {node})
                changing.journal.removed_containers(NAME, {node})
            _remove_views(changing.run / node, is_contained=lab.node(node).container is not None)
            changing.journal.work(node, "")
        await_convergence(changing.plan, changing.state, changing.timeout_s, changing.notify)
        fresh = RunningLab(changing.record, changing.state)
        daemons = planned_daemons(changing.plan, fresh.frr_version)  # another FRR says the same in other words
        note_configurations(changing.run, {node: daemons[node] for node in anew if node in daemons})
        run_node_commands(changing.lab, fresh, set(anew))

    def _to_make_anew(self, changing: Changing) -> Sequence[str]:
        """Return the nodes that something else is to realise: on the way back those alone with which the way there has
        begun. Others are what they were, with all that runs in them."""
        begun = changing.journal.read().steps
        return [node for node in self._anew if not changing.undoes or _step(node) in begun]


def _remove_views(directory: Path, *, is_contained: bool) -> None:
    """Remove what a node's run directory has for shells of a node that is no container, or for one that is."""
    if is_contained:
        shutil.rmtree(shell_directory(directory), ignore_errors=True)
    else:
        with contextlib.suppress(OSError):  # FRR with mgmtd has its own files there
            own_directory(directory).rmdir()


def _step(node: str) -> str:
    """The step of a change in which something else comes to realise a node."""
    return f"{RECREATE} {node}"


def _is_up(lab: str, content: JournalContent, node: str) -> bool:
    """Tell whether a container was started by a change that was cut short, or not yet removed by one."""
    started = any(node in containers.ids for containers in content.containers.values())
    return started and bool(still_published({namespace_name(lab, node): content.identities.get(node, 0)}))


def containers_change(running: RunningLab, plan: LabPlan) -> ContainersChange | None:
    """Return what makes the containers of a lab that is up those of `plan`; None where nothing differs."""
    before, after = _containers(running.plan), _containers(plan)
    spaces = [{item.node for item in each.operations if isinstance(item, CreateNode)} for each in (running.plan, plan)]
    anew: dict[str, str] = {}
    for node, item in after.items():
        if node in spaces[0]:
            anew[node] = f"a container of {item.container.image}"
        elif node in before and (detail := _differing(before[node], item)):
            anew[node] = detail
    anew |= dict.fromkeys(sorted(before.keys() & spaces[1]), "no container any more")
    started = {node: item for node, item in after.items() if node not in before and node not in anew}
    gone = frozenset(before.keys() - after.keys() - anew.keys())
    return ContainersChange(started, gone, anew) if started or gone or anew else None


def _differing(old: StartContainer, new: StartContainer) -> str:
    """Say in what two containers of a node differ; "" where they are alike."""
    if old.container.image != new.container.image:
        return f"image {old.container.image} -> {new.container.image}"
    keys = [item.name for item in fields(Container)]
    pairs = [(key, getattr(old.container, key), getattr(new.container, key)) for key in keys]
    pairs.append(("env", old.env, new.env))
    return ", ".join(name for name, was, now in pairs if was != now)


def _containers(plan: LabPlan) -> dict[str, StartContainer]:
    return {item.node: item for item in plan.operations if isinstance(item, StartContainer)}
