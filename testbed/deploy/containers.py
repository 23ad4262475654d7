"""The containers of a lab: started and journalled by a deploy, found again by later commands, removed by destroy."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from testbed.deploy.records.journal import Journal, JournalContent, JournalledContainers, LabState
from testbed.deploy.steps import StepCallback, StepEvent, step
from testbed.drivers.images.container_images import outdated_images
from testbed.drivers.nodes.containers import LABEL, ContainerEngine, ContainerState, StartedContainer
from testbed.drivers.nodes.netns import NetnsKernel
from testbed.drivers.routing.container_frr import (
    ContainerDaemon,
    find_each_frr,
    frr_owner,
    run_directory_mounts,
)
from testbed.drivers.routing.frr import Elsewhere
from testbed.errors import CapabilityError, DriverError, TestbedError
from testbed.model import Lab, NodeKind
from testbed.plan.operations import LabPlan, StartContainer


class ContainersRemain(TestbedError):
    """Containers of a lab could not be removed: the lab stays recorded until they are."""


def require_engine(lab: Lab) -> ContainerEngine | None:
    """The engine that a lab's containers need, with all their images; None for a lab without.

    Raises `CapabilityError`.
    """
    images = [node.container.image for node in lab.nodes if node.container is not None]
    if not images:
        return None
    engine = ContainerEngine.connect()
    try:
        engine.require_images(images)
    except BaseException:
        engine.close()
        raise
    return engine


class LabContainers:
    """The containers of a lab that is being deployed."""

    def __init__(self, lab: Lab, engine: ContainerEngine, run: Path, journal: Journal) -> None:
        self._lab = lab
        self._engine = engine
        self._run = run
        self._journal = journal
        self._deployment = f"{lab.name}-{secrets.token_hex(8)}"
        self.elsewhere: dict[str, Elsewhere] = {}
        """How the daemons of switches that are containers are started."""

    def start(self, plan: LabPlan, kernel: NetnsKernel, notify: StepCallback) -> Sequence[StartContainer]:
        """Start all, journalled, and give their namespaces to `kernel`; what was started comes back.

        Raises `NameInUse`, `DriverError`, `CapabilityError` for a switch without FRR.
        """
        operations = [item for item in plan.operations if isinstance(item, StartContainer)]
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
            mounts = {item.node: run_directory_mounts(self._run / item.node) for item in switches}
            self._journal.containers(self._engine.url, self._deployment)
            found = self._engine.start(self._lab.name, self._deployment, operations, mounts, started)
            pids = {node: container.pid for node, container in found.items()}
            try:
                self._journal.nodes(kernel.adopt_nodes(operations, pids))
                versions = find_each_frr(self._engine, [(found[item.node], item.container.image) for item in switches])
            except (CapabilityError, DriverError):
                self._engine.require_alive(found.values())  # that it ended is what there is to tell
                raise
            self._journal.started_containers(
                {node: container.id for node, container in found.items()},
                {node: frr.version_text for node, frr in versions.items()},
            )
            for node, frr in versions.items():
                start = partial(self._start_daemon, found[node])
                self.elsewhere[node] = Elsewhere(frr=frr, owner=frr_owner(found[node]), start=start)
        return operations

    def _start_daemon(self, container: StartedContainer, argv: Sequence[str], output: Path) -> ContainerDaemon:
        return ContainerDaemon(self._engine, container.id, argv, output)

    def wait_healthy(self, timeout_s: float, notify: StepCallback) -> None:
        """Until all with a health check are healthy. Raises `DriverError` for one that is not, or has ended."""
        with step("health", notify):
            self._engine.wait_healthy(self._deployment, time.monotonic() + timeout_s)


def remove_containers(content: JournalContent) -> None:
    """Remove all containers that a lab's journal speaks of. Raises `ContainersRemain`."""
    containers = content.containers
    if containers is None:
        return
    unfinished = content.state is LabState.DEPLOYING and not containers.ids
    try:
        engine = ContainerEngine.connect(containers.engine)
        try:
            engine.remove(containers.deployment, unfinished=unfinished)
        finally:
            engine.close()
    except TestbedError as error:
        raise ContainersRemain(
            f"the lab's containers cannot be removed: {error.message}",
            hint=f"destroy again once the engine at {containers.engine} answers; they have the label"
            f" {LABEL}={containers.deployment}",
        ) from error


def container_states(containers: JournalledContainers) -> Mapping[str, ContainerState]:
    """What the engine says of a lab's containers, by node. Raises `CapabilityError`, `DriverError`."""
    engine = ContainerEngine.connect(containers.engine)
    try:
        return engine.states(containers.deployment)
    finally:
        engine.close()
