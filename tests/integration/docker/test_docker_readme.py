"""What the README says of containers is true: its file is valid, its commands run in their order."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from testbed.spec import load_topology_text

ROOT = Path(__file__).parents[3]
SECTION = (ROOT / "README.md").read_text().split("\n## Containers\n", 1)[1].split("\n## ", 1)[0]

pytestmark = [pytest.mark.docker, pytest.mark.frr, pytest.mark.timeout(600)]


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", SECTION, re.DOTALL)
    return str(found)


def test_the_file() -> None:
    fabric = "name: readme\nfabric: {design: rail-optimized, hosts: 4, gpus: 2, segments: 1, spines: 2}\n"
    lab = load_topology_text(fabric + block("yaml"), file="README.md")
    images = {node.name: node.container.image if node.container else "" for node in lab.nodes}
    assert images["p1-s1-h1"] == "nginx:1.27"
    assert images["p1-s1-h2"] == ""
    assert images["p1-s1-h3"] == "testbed/host"
    assert images["p1-spine1"] == "testbed/switch"


def test_the_commands(sandbox: Any) -> None:
    (sandbox.work / "topologies").symlink_to(ROOT / "topologies")
    said = {}
    try:
        for line in block("sh").splitlines():
            program, verb, *arguments = shlex.split(line, comments=True)
            assert program == "./lab"
            done = sandbox.cli(verb, *arguments, timeout_s=240)
            assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
            said[verb] = done.stdout
    finally:
        sandbox.cli("destroy", "-n", "containers", timeout_s=240)
        (sandbox.work / "topologies").unlink()
    assert said["exec"] == "p1-s1-h1\n"
    assert "testbed/host: up to date" in said["images"]
    assert said["inspect"].count("testbed/host") == 16
