"""The runtimes that there are, by the name that topology files give them."""

from __future__ import annotations

from collections.abc import Mapping

from testbed.lab.features.containers.runtimes.docker import DockerRuntime
from testbed.lab.features.containers.runtimes.runtime import Runtime

RUNTIMES: Mapping[str, Runtime] = {"docker": DockerRuntime()}
"""Keys are those of `testbed.lab.features.containers.model.CONTAINER_RUNTIMES`."""
