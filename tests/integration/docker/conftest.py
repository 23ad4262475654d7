"""An engine for all tests of containers, with our images built in it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from docker_engine import TestEngine, running_engine

from testbed.lab.features.containers.engine import ContainerEngine
from testbed.lab.features.containers.images.container_images import (
    IMAGES,
    RUNNER,
    build_image,
    image_status,
    known_names,
)


@pytest.fixture(scope="session")
def engine(machine: None) -> Iterator[TestEngine]:
    """An engine with the images of nodes."""

    def build(name: str) -> None:
        with closing(ContainerEngine.connect(running.url)) as client:
            build_image(client, name)

    first, *others = known_names(())
    with running_engine() as running:
        build(first)  # and the image that all stand on
        with ThreadPoolExecutor() as pool:
            list(pool.map(build, others))
        yield running


@pytest.fixture(scope="module", autouse=True)
def named_engine(engine: TestEngine) -> Iterator[None]:
    """It is the one that $DOCKER_HOST names: first of all, for sandboxes hand that on, and for these files alone."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("DOCKER_HOST", engine.url)
        yield


@pytest.fixture(scope="session")
def runner_image(engine: TestEngine) -> str:
    """The image of CI jobs, with interpreted transports: to compile them takes minutes, and tells nothing of
    containers."""
    with pytest.MonkeyPatch.context() as changed, closing(ContainerEngine.connect(engine.url)) as client:
        changed.setenv("TESTBED_PURE", "1")
        build_image(client, RUNNER)
        assert image_status(client, RUNNER).state == "current"
        assert not build_image(client, RUNNER), "built again, though nothing has changed"
    return IMAGES[RUNNER]


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
