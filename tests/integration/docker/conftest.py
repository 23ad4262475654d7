"""An engine for all tests of containers, with our images built in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from docker_engine import TestEngine, running_engine

from testbed.lab.features.containers.engine import ContainerEngine
from testbed.lab.features.containers.images.container_images import build_image, known_names


@pytest.fixture(scope="session")
def bare_engine(machine: None) -> Iterator[TestEngine]:
    """An engine that $DOCKER_HOST names; whether it has images is not known."""
    before = os.environ.get("DOCKER_HOST")
    with running_engine() as engine:
        os.environ["DOCKER_HOST"] = engine.url
        try:
            yield engine
        finally:
            if before is None:
                del os.environ["DOCKER_HOST"]
            else:
                os.environ["DOCKER_HOST"] = before


@pytest.fixture(scope="session", autouse=True)
def engine(bare_engine: TestEngine) -> TestEngine:
    """An engine with the images of nodes. First of all: sandboxes hand $DOCKER_HOST on."""

    def build(name: str) -> None:
        with closing(ContainerEngine.connect(bare_engine.url)) as client:
            build_image(client, name)

    first, *others = known_names(())
    build(first)  # and the image that all stand on
    with ThreadPoolExecutor() as pool:
        list(pool.map(build, others))
    return bare_engine


@pytest.fixture
def client(engine: TestEngine) -> Iterator[ContainerEngine]:
    """A connection of the test's own; no container may be left at the end."""
    connection = ContainerEngine.connect(engine.url)
    try:
        yield connection
        left = [container.name for container in connection.client.containers.list(all=True, ignore_removed=True)]
        assert left == []
    finally:
        for container in connection.client.containers.list(all=True, ignore_removed=True):
            container.remove(force=True)
        connection.close()
