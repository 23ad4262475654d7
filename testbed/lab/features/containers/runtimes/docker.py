"""The runtime "docker": containers that a deploy starts and journals, commands find again, and destroy removes."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.base.cleanup import on_failure
from testbed.base.errors import CapabilityError, DriverError, TestbedError
from testbed.base.names import namespace_name
from testbed.lab.core.deploy.node_files import HOSTS, hosts_path, libfabric_directory
from testbed.lab.core.deploy.records.journal import Journal, JournalContent, JournalledContainers, LabState
from testbed.lab.core.deploy.runtime import NodesRemain, not_started
from testbed.lab.core.deploy.steps import StepCallback, StepEvent, step
from testbed.lab.core.feature import features
from testbed.lab.core.model import Lab, NodeKind
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import StartContainer
from testbed.lab.features.containers.engine import LABEL, ContainerEngine, Mount, StartedContainer

if TYPE_CHECKING:
    from testbed.lab.core.drivers.nodes.netns import NetnsKernel
    from testbed.lab.core.drivers.routing.frr import Elsewhere
    from testbed.lab.features.containers.frr import ContainerDaemon

NAME = "docker"


class DeployingContainers:
    """The containers of a lab that is being deployed, or those of the nodes `only` that are added to one that is up.

    `deployment` is the value of the label of those that the lab has already; "" where it has none.
    """

    def __init__(
        self,
        lab: Lab,
        engine: ContainerEngine,
        run: Path,
        journal: Journal,
        only: Collection[str] | None = None,
        deployment: str = "",
    ) -> None:
        self._lab = lab
        self._engine = engine
        self._run = run
        self._journal = journal
        self._only = only
        self._is_journalled = bool(deployment)
        self._deployment = deployment or f"{lab.name}-{secrets.token_hex(8)}"
        self.elsewhere: dict[str, Elsewhere] = {}
        """The routing daemons that are started in containers, by the switch that they are of."""

    def start(self, plan: LabPlan, kernel: NetnsKernel, notify: StepCallback) -> Sequence[StartContainer]:
        """Start all, journalled, and give their namespaces to `kernel`; what was started comes back.

        Raises `NameInUse`, `DriverError`, `CapabilityError` for a switch without FRR, or GPUs without a compiler.
        """
        from testbed.lab.features.containers.images.container_images import outdated_images

        operations = [
            item
            for item in plan.operations
            if isinstance(item, StartContainer) and item.container.runtime == NAME and self._is_meant(item.node)
        ]
        switches = [item for item in operations if item.kind is NodeKind.SWITCH]

        def started(count: int) -> None:
            notify(StepEvent(step="containers", phase="progress", done=count, total=len(operations)))

        if outdated := outdated_images(self._engine, [item.container.image for item in operations]):
            notify(
                StepEvent(
                    step="images",
                    phase="stop",
                    detail=f"{', '.join(outdated)}: older than the sources here, `testbed images build`",
                )
            )
        with step("containers", notify, f"{len(operations)} containers"):
            mounts = self._mounts(plan, operations)
            self._journal_deployment()
            found = self._engine.start(self._lab.name, self._deployment, operations, mounts, started)
            pids = {node: container.pid for node, container in found.items()}
            try:
                self._journal.nodes(kernel.adopt_nodes(operations, pids))
                self._note(found, switches)
            except (CapabilityError, DriverError):
                self._engine.require_alive(found.values())  # that it ended is what there is to tell
                raise
        return operations

    def _journal_deployment(self) -> None:
        """Note whose containers are about to be made, where the lab has none yet."""
        if not self._is_journalled:
            self._journal.containers(NAME, self._engine.url, self._deployment)
            self._is_journalled = True

    def _mounts(self, plan: LabPlan, operations: Sequence[StartContainer]) -> dict[str, tuple[Mount, ...]]:
        """Return the mounts by which each container sees this machine."""
        from testbed.lab.features.containers.frr import run_directory_mounts

        switches = [item for item in operations if item.kind is NodeKind.SWITCH]
        mounts = {item.node: run_directory_mounts(self._run / item.node) for item in switches}
        for item in operations:
            paths = [path for feature in features() for path in feature.mounted(plan, self._run, item.node)]
            if item.kind is NodeKind.HOST:
                paths.append(libfabric_directory(self._run))
            if paths:
                mounts[item.node] = tuple(Mount(source=path, target=path, read_only=True) for path in paths)
            if str(HOSTS) not in {bind.target for bind in item.container.binds}:
                names = Mount(source=hosts_path(self._run), target=HOSTS, read_only=True)
                mounts[item.node] = (*mounts.get(item.node, ()), names)
        return mounts

    def _note(self, found: Mapping[str, StartedContainer], switches: Sequence[StartContainer]) -> None:
        """Journal containers that run, and find out how the daemons of switches among them are started.

        Raises `CapabilityError`, `DriverError`.
        """
        from testbed.lab.core.drivers.routing.frr import Elsewhere
        from testbed.lab.features.containers.frr import find_each_frr, frr_owner

        versions = find_each_frr(self._engine, [(found[item.node], item.container.image) for item in switches])
        self._journal.started_containers(
            NAME,
            {node: container.id for node, container in found.items()},
            {node: frr.version_text for node, frr in versions.items()},
        )
        for node, frr in versions.items():
            start = partial(self._start_daemon, found[node])
            self.elsewhere[node] = Elsewhere(frr=frr, owner=frr_owner(found[node]), start=start)

    def renew(self, plan: LabPlan, kernel: NetnsKernel, *, keep: bool) -> Mapping[str, int]:
        """Restart the one container that is meant, or without `keep` make another one of its image."""
        (operation,) = [
            item for item in plan.operations if isinstance(item, StartContainer) and self._is_meant(item.node)
        ]
        self._journal_deployment()
        node, known = operation.node, self._journal.read().containers[NAME].ids
        container = self._engine.restart(node, known[node]) if keep and node in known else None
        if container is None:
            self._engine.remove(self._deployment, only={node})
            mounts = self._mounts(plan, [operation])
            container = self._engine.start(self._lab.name, self._deployment, [operation], mounts)[node]
        identities = kernel.adopt_nodes([operation], {node: container.pid})
        self._note({node: container}, [operation] if operation.kind is NodeKind.SWITCH else [])
        return identities

    def _is_meant(self, node: str) -> bool:
        return self._only is None or node in self._only

    def remove_started(self) -> None:
        """Remove those that are there already: a command that was killed has started them."""
        if self._is_journalled:
            self._engine.remove(self._deployment, only=self._only)

    def _start_daemon(self, container: StartedContainer, argv: Sequence[str], output: Path) -> ContainerDaemon:
        from testbed.lab.features.containers.frr import ContainerDaemon

        return ContainerDaemon(self._engine, container.id, argv, output)

    def wait_healthy(self, timeout_s: float, notify: StepCallback) -> None:
        """Wait until all that have a health check are healthy. Raises `DriverError` for one that is not, or ended."""
        with step("health", notify):
            self._engine.wait_healthy(self._deployment, time.monotonic() + timeout_s, only=self._only)

    def close(self) -> None:
        """Let go of the engine; the containers stay."""
        self._engine.close()


class LiveContainers:
    """The containers of a lab that runs, as its journal knows them."""

    def __init__(self, journalled: JournalledContainers) -> None:
        self._journalled = journalled

    def container_id(self, node: str) -> str:
        """The engine's name of a node's container. Raises `DriverError` where it was not started."""
        found = self._journalled.ids.get(node)
        if found is None:
            raise not_started(node)
        return found

    def spawn(self, node: str, argv: Sequence[str], options: dict[str, Any]) -> subprocess.Popen[bytes]:
        """Start a command in a container: its environment (to which `env` is added) and privileges are those in there.

        This process's interpreter stands for the one in the container.
        """
        from testbed.lab.features.containers import exec as container_exec

        options.pop("own_sysfs", None)  # a container has its own anyway
        argv = ["python3", *argv[1:]] if argv[0] == sys.executable else argv
        engine = self._journalled.engine.removeprefix("unix://")
        return container_exec.spawn(engine, self.container_id(node), argv, **options)

    def logs(self, node: str, *, follow: bool) -> Iterator[bytes]:
        """Return what a container's own process printed, in pieces; with `follow` until it ends."""
        container = self.container_id(node)
        with contextlib.closing(ContainerEngine.connect(self._journalled.engine)) as engine:
            yield from engine.logs(container, follow=follow)

    def states(self) -> Mapping[str, str]:
        """The engine's word for each container, "unknown" where it does not answer. One that is not ours is gone."""
        try:
            with contextlib.closing(ContainerEngine.connect(self._journalled.engine)) as engine:
                states = engine.states(self._journalled.deployment)
        except (CapabilityError, DriverError):
            return dict.fromkeys(self._journalled.ids, "unknown")
        return {node: state.word for node, state in states.items() if self._journalled.ids.get(node) == state.id}

    def frr_version(self, node: str) -> str:
        """The version of FRR in a switch's container."""
        return self._journalled.frr.get(node, "")


class DockerRuntime:
    """Nodes that are containers of the Docker engine of this machine (`$DOCKER_HOST`)."""

    def prepare(self, lab: Lab, run: Path, journal: Journal) -> DeployingContainers | None:
        """Connect to the engine, which must have all images of the lab, and no container by the name of one of it.

        Those of a lab that the journal knows are to go. Raises `CapabilityError`, `NameInUse`.
        """
        images = {node.name: node.container.image for node in lab.nodes if node.container and node.runtime == NAME}
        if not images:
            return None
        replaced = journal.read().containers.get(NAME)
        engine = ContainerEngine.connect()
        with on_failure(engine.close):
            engine.require_images(images.values())
            names = [namespace_name(lab.name, node) for node in images]
            engine.require_names(names, but="" if replaced is None else replaced.deployment)
        return DeployingContainers(lab, engine, run, journal)

    def extend(self, lab: Lab, run: Path, journal: Journal, nodes: Collection[str]) -> DeployingContainers:
        """Connect to the engine for nodes that are added to a lab that is up, which keeps those that it has.

        Raises `CapabilityError`, `NameInUse`.
        """
        there = journal.read().containers.get(NAME)
        engine = ContainerEngine.connect(None if there is None else there.engine)
        deployment = "" if there is None else there.deployment
        with on_failure(engine.close):
            engine.require_images(
                node.container.image for node in lab.nodes if node.container is not None and node.name in nodes
            )
            engine.require_names([namespace_name(lab.name, node) for node in nodes], but=deployment)
        return DeployingContainers(lab, engine, run, journal, only=nodes, deployment=deployment)

    def remove_nodes(self, content: JournalContent, nodes: Collection[str]) -> None:
        """Remove the containers of some nodes of a lab that stays. Raises `NodesRemain`."""
        if (journalled := content.containers.get(NAME)) is not None:
            _remove(journalled, unfinished=False, only=nodes)

    def live(self, content: JournalContent) -> LiveContainers | None:
        """The containers of a deployed lab; None for a lab without."""
        journalled = content.containers.get(NAME)
        return None if journalled is None else LiveContainers(journalled)

    def remove(self, content: JournalContent) -> None:
        """Remove all containers that a lab's journal speaks of. Raises `NodesRemain`."""
        if (journalled := content.containers.get(NAME)) is not None:
            _remove(journalled, unfinished=content.state is LabState.DEPLOYING and not journalled.ids)


def _remove(containers: JournalledContainers, *, unfinished: bool, only: Collection[str] | None = None) -> None:
    try:
        with contextlib.closing(ContainerEngine.connect(containers.engine)) as engine:
            engine.remove(containers.deployment, unfinished=unfinished, only=only)
    except TestbedError as error:
        raise NodesRemain(
            f"the lab's containers cannot be removed: {error.message}",
            hint=f"destroy again once the engine at {containers.engine} answers; they have the label"
            f" {LABEL}={containers.deployment}",
        ) from error
