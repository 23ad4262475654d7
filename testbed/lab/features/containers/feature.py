"""Nodes that are containers as a feature of a lab: the runtimes that realise them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from testbed.lab.core.feature import Feature

if TYPE_CHECKING:
    from testbed.lab.core.deploy.runtime import Runtime


class ContainersFeature(Feature):
    """A node has an image, and an engine makes its container."""

    def runtimes(self) -> Mapping[str, Runtime]:
        """Return the runtimes of `testbed.lab.core.model.containers.CONTAINER_RUNTIMES`."""
        from testbed.lab.features.containers.runtimes.docker import DockerRuntime

        return {"docker": DockerRuntime()}


FEATURE = ContainersFeature()
