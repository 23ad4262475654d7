"""Bring-up and removal of a fabric whose hosts are containers, against promised seconds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from docker_engine import running_engine
from figures import Figure, judge
from test_bring_up import deploy_and_destroy

from testbed.lab.features.containers.engine import ContainerEngine
from testbed.lab.features.containers.images.container_images import build_image

pytestmark = [pytest.mark.bench, pytest.mark.docker, pytest.mark.frr, pytest.mark.timeout(900)]


def test_32_containers_and_6_switches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_engine() as engine:
        client = ContainerEngine.connect(engine.url)
        build_image(client, "host")
        monkeypatch.setitem(os.environ, "DOCKER_HOST", engine.url)
        deploy, destroy, used = deploy_and_destroy("topologies/containers.yml", "dkbench", tmp_path)
        assert client.client.containers.list(all=True) == []
        client.close()
    judge(
        Figure("32 Docker hosts + 6 switches: deploy until converged", deploy, at_most=25, unit="s"),
        Figure("32 Docker hosts + 6 switches: destroy", destroy, at_most=10, unit="s"),
        Figure("32 Docker hosts + 6 switches: memory", used, at_most=1.5, unit="GB"),
    )
