"""FRR in containers: which one an image has, and its daemons, started as `testbed.lab.core.drivers.routing.frr` does.

A switch's run directory is the same inside and out, so that its daemons' sockets and logs are where those of any switch
are. Inside it is FRR's own run directory, too: `vtysh` works there without options.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from testbed.base.errors import CapabilityError, DriverError
from testbed.base.linux.vty import OWN_CONFIGURATION, OWN_RUN_DIRECTORY
from testbed.lab.core.drivers.probing.machine import (
    FRR_DIRECTORIES,
    KNOWN_DAEMONS,
    NEEDED_DAEMONS,
    OLDEST_FRR,
    FrrInstallation,
    parse_multipath,
)
from testbed.lab.core.drivers.probing.machine import parse_frr_version as parse_version
from testbed.lab.core.drivers.routing.frr import FRR_USER, own_directory
from testbed.lab.features.containers.engine import ContainerEngine, Mount, StartedContainer


def run_directory_mounts(directory: Path) -> tuple[Mount, ...]:
    """Return what a container of a switch must see of its run directory, which is made here if it is not there."""
    own_directory(directory).mkdir(parents=True, exist_ok=True)
    return (
        Mount(source=directory, target=directory),
        Mount(source=directory, target=OWN_RUN_DIRECTORY),
        Mount(source=own_directory(directory), target=OWN_CONFIGURATION),
    )


def find_container_frr(engine: ContainerEngine, container: StartedContainer, image: str) -> FrrInstallation:
    """The FRR of a running container; its directory is a path in there. Raises `CapabilityError` without one."""
    hint = "image: testbed/switch (`testbed images build`) has one"
    for directory in FRR_DIRECTORIES:
        inside = container.root / str(directory).lstrip("/")
        present = tuple(name for name in KNOWN_DAEMONS if os.access(inside / name, os.X_OK))
        if all(name in present for name in NEEDED_DAEMONS):
            break
    else:
        raise CapabilityError(f"{container.node}: the image {image} has no FRR", missing="frr", hint=hint)
    status, said = engine.run(container.id, [str(directory / "zebra"), "--version"])
    version = parse_version(said)
    if status or version is None:
        raise CapabilityError(
            f"{container.node}: zebra --version of the image {image} says no version: {said.strip()[:200]}",
            missing="frr",
            hint=hint,
        )
    if version < OLDEST_FRR:
        oldest = ".".join(map(str, OLDEST_FRR))
        raise CapabilityError(
            f"{container.node}: FRR {'.'.join(map(str, version))} of the image {image} is older than {oldest}",
            missing="frr",
            hint=hint,
        )
    found = FrrInstallation(directory=directory, version=version, daemons=present, multipath=parse_multipath(said))
    if found.managed and "mgmtd" not in present:
        raise CapabilityError(
            f"{container.node}: FRR {found.version_text} of the image {image} lacks mgmtd", missing="mgmtd", hint=hint
        )
    return found


def find_each_frr(
    engine: ContainerEngine, containers: Iterable[tuple[StartedContainer, str]]
) -> dict[str, FrrInstallation]:
    """FRR of each container by its node; every image (the second of a pair) is asked once."""
    by_image: dict[str, FrrInstallation] = {}
    found = {}
    for container, image in containers:
        if image not in by_image:
            by_image[image] = find_container_frr(engine, container, image)
        found[container.node] = by_image[image]
    return found


def frr_owner(container: StartedContainer) -> tuple[int, int]:
    """User and group numbers, in the container, of the user that FRR drops to."""
    try:
        accounts = (container.root / "etc/passwd").read_text()
    except OSError as error:
        raise DriverError(f"{container.node}: cannot read its accounts: {error.strerror}") from error
    match = re.search(rf"^{FRR_USER}:[^:]*:(\d+):(\d+):", accounts, re.MULTILINE)
    if match is None:
        raise CapabilityError(f"{container.node}: its image has no user {FRR_USER}", missing="frr")
    return int(match[1]), int(match[2])


class ContainerDaemon:
    """A daemon started in a container, which outlives us. Ask `poll`; its status is then `returncode`."""

    def __init__(self, engine: ContainerEngine, container: str, argv: Sequence[str], output: Path) -> None:
        self._api = engine.client.api
        self._output = output
        self.returncode: int | None = None
        self._id = str(self._api.exec_create(container, list(argv), stdout=True, stderr=True)["Id"])
        self._stream = self._api.exec_start(self._id, socket=True)

    def poll(self) -> int | None:
        """Return its status if it has ended; what it printed is in its output file then."""
        if self.returncode is None:
            state = self._api.exec_inspect(self._id)
            if not state["Running"] and state["ExitCode"] is not None:
                self.returncode = int(state["ExitCode"])
                self._keep_output()
        return self.returncode

    def _keep_output(self) -> None:
        from docker.utils import socket

        frames: Any = socket.frames_iter
        with self._output.open("ab") as file:
            for _, data in frames(self._stream, tty=False):
                file.write(data)

    def release(self) -> None:
        """Close the stream."""
        self._stream.close()
