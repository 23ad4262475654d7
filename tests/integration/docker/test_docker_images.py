"""Our own images: built once, again when their inputs change, with the build's own words where it fails."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.base.errors import CapabilityError, DriverError
from testbed.lab.core.deploy.steps import StepEvent
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.containers.engine import ContainerEngine
from testbed.lab.features.containers.images import container_images
from testbed.lab.features.containers.images.container_images import Base, build_image, image_status, load_recipe

ROOT = Path(__file__).parents[3]

pytestmark = [pytest.mark.docker, pytest.mark.netns, pytest.mark.timeout(600)]

PAIR = """
name: {name}
topology:
  nodes: {{a: {{kind: host, runtime: docker}}, b: {{kind: host}}}}
  links: [{{endpoints: ["a:eth1", "b:eth1"]}}]
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what images are made from."""
    shutil.copytree(ROOT / "images", tmp_path / "images", ignore=shutil.ignore_patterns("vm", "wireshark"))
    for name in load_recipe("host").files:
        if name.startswith("testbed/"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_what_is_up_to_date_is_not_built_again(client: ContainerEngine, sandbox: Any) -> None:
    assert not build_image(client, "host")
    done = sandbox.cli("images", "build")
    assert done.stdout == "testbed/host: up to date\ntestbed/switch: up to date\n"
    listed = json.loads(sandbox.cli("images", "list", "-f", "json").stdout)
    assert [row["image"] for row in listed] == ["testbed/host", "testbed/switch", "testbed/runner"]
    assert [row["state"] for row in listed[:2]] == ["current", "current"]


def test_a_change_of_any_input_is_seen(client: ContainerEngine, checkout: Path) -> None:
    assert image_status(client, "host", checkout).state == "current"
    assert image_status(client, "switch", checkout).state == "current"
    source = checkout / "testbed/endpoints/agent.py"
    source.write_text(source.read_text() + "\n")
    assert image_status(client, "host", checkout).state == "outdated"
    assert image_status(client, "switch", checkout).state == "current"
    (checkout / "images/switch/Dockerfile").write_text("FROM scratch\n")
    assert image_status(client, "switch", checkout).state == "outdated"


def test_a_lab_of_outdated_images_says_so(
    client: ContainerEngine, sandbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs in containers is what was built, and not what the sources say since."""

    def steps() -> dict[str, str]:
        events: list[StepEvent] = []
        text = PAIR.format(name=sandbox.name())
        sandbox.deploy(load_topology_text(text, file="pair.yml"), notify=events.append)
        sandbox.destroy()
        return {event.step: event.detail for event in events}

    assert "images" not in steps()
    real = container_images.load_recipe
    monkeypatch.setattr(container_images, "load_recipe", lambda *names: replace(real(*names), inputs="others"))
    assert steps()["images"] == "testbed/host: older than the sources here, `testbed images build`"


def test_a_build_that_fails_says_what_the_step_said(client: ContainerEngine, checkout: Path) -> None:
    recipe = checkout / "images/switch/Dockerfile"
    recipe.write_text("ARG BASE\nFROM ${BASE}\nRUN echo oh dear; exit 3\n")
    before = image_status(client, "switch").id
    with pytest.raises(DriverError, match=r"(?s)building testbed/switch failed: .*3.*oh dear"):
        build_image(client, "switch", checkout=checkout)
    assert image_status(client, "switch").id == before


def test_what_is_missing_is_named(client: ContainerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CapabilityError, match="no recipe of the image host"):
        build_image(client, "host", checkout=tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CapabilityError, match="mmdebstrap is not installed"):
        build_image(client, "host", base=Base.MMDEBSTRAP, rebuild=True)


def test_a_base_is_made_where_what_is_killed_leaves_no_mount(
    client: ContainerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mmdebstrap mounts /dev in what it makes: in a mount namespace of its own, which ends with it."""
    program = tmp_path / "mmdebstrap"
    program.write_text("#!/bin/sh\nreadlink /proc/self/ns/mnt >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(DriverError, match=r"mmdebstrap could not make trixie: mnt:\[\d+\]") as caught:
        build_image(client, "host", base=Base.MMDEBSTRAP, rebuild=True)
    assert str(Path("/proc/self/ns/mnt").readlink()) not in str(caught.value)


def test_names_and_bases_that_do_not_exist(sandbox: Any) -> None:
    unknown = sandbox.cli("images", "build", "router")
    assert (unknown.returncode, "there is no image 'router'" in unknown.stderr) == (3, True)
    nowhere = sandbox.cli("images", "build", "--base", "moon")
    assert (nowhere.returncode, "--base moon: expected auto" in nowhere.stderr) == (3, True)
