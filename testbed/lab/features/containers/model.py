"""A node that is a container: which runtimes there are, and what of it the file says. How it is started is theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from testbed.base.units import Duration

CONTAINER_KEYS = ("image", "entrypoint", "cmd", "binds", "cpu", "memory", "capabilities", "healthcheck")
"""The keys that a file can have for a container and not for a namespace, in containerlab's words."""
HOST_IMAGE = "testbed/host"
SWITCH_IMAGE = "testbed/switch"
"""The images that `testbed images build` makes, which nodes of `runtime: docker` without an image are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeDeclaration:
    """A runtime whose nodes are containers, as it is known on every machine."""

    name: str
    description: str
    """Names a node of it for people, such as "a container"."""
    keys: tuple[str, ...] = ()
    """The keys of `CONTAINER_KEYS` that its nodes have."""
    ansible_connection: str = ""
    """Ansible's connection plug-in that reaches a node by the name of its namespace; "" for none."""


_DOCKER = RuntimeDeclaration(
    name="docker",
    description="a container",
    keys=CONTAINER_KEYS,
    ansible_connection="community.docker.docker",
)

CONTAINER_RUNTIMES: Mapping[str, RuntimeDeclaration] = MappingProxyType({one.name: one for one in (_DOCKER,)})
"""Runtimes whose nodes are containers, by name; `testbed.lab.features.containers.runtimes` has a module for each."""
OLDEST_RUNTIME = _DOCKER.name
"""The one that there was before there was a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """A file or directory of the machine (absolute path `source`) seen in the container as `target`."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """A command that is run in the container every `interval`; status 0 is healthy. In lab time, as all of Docker's."""

    test: tuple[str, ...]
    interval: Duration
    timeout: Duration
    retries: int
    start_period: Duration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """`image` is "" where the runtime has none. `entrypoint` and `command` None: those of the image. `cpus` and
    `memory_bytes` None: no limit.

    `capabilities` are added to what a node of its kind has (names without CAP_, capabilities(7)).
    """

    image: str
    runtime: str = OLDEST_RUNTIME
    entrypoint: tuple[str, ...] | None = None
    command: tuple[str, ...] | None = None
    binds: tuple[Bind, ...] = ()
    cpus: float | None = None
    memory_bytes: int | None = None
    capabilities: tuple[str, ...] = ()
    health_check: HealthCheck | None = None
