"""A node that is a container: what of it the file says. How it is started is the driver's."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.units import Duration

NETNS = "netns"
"""The runtime of a node that is a network namespace and nothing more."""
CONTAINER_RUNTIMES = ("docker",)
"""Runtimes whose nodes are containers; `testbed.deploy.runtimes` has a module for each."""
HOST_IMAGE = "testbed/host"
SWITCH_IMAGE = "testbed/switch"
"""What `testbed images build` makes, and what a node of `runtime: docker` without an image is."""


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
    """`entrypoint` and `command` None: those of the image. `cpus` and `memory_bytes` None: no limit.

    `capabilities` are added to what a node of its kind has (names without CAP_, capabilities(7)).
    """

    image: str
    runtime: str = CONTAINER_RUNTIMES[0]
    entrypoint: tuple[str, ...] | None = None
    command: tuple[str, ...] | None = None
    binds: tuple[Bind, ...] = ()
    cpus: float | None = None
    memory_bytes: int | None = None
    capabilities: tuple[str, ...] = ()
    health_check: HealthCheck | None = None
