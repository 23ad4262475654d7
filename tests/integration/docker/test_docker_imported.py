"""A file of containerlab whose images are kept: hosts and switches are containers, and what it says of them holds."""

from typing import Any

import pytest

from testbed.lab.core.deploy.watch.check import CheckStatus, check_lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.formats.importing import import_topology

pytestmark = [pytest.mark.docker, pytest.mark.frr, pytest.mark.timeout(600)]

THEIRS = """
name: theirs
topology:
  nodes:
    spine1: {kind: frr, image: testbed/switch, startup-config: spine1.conf}
    leaf1: {kind: linux, image: testbed/switch, binds: ["leaf1.conf:/etc/frr/frr.conf"]}
    leaf2: {kind: nokia_srlinux, image: "ghcr.io/nokia/srlinux:25.7.2"}
    h1:
      kind: linux
      image: testbed/host
      binds: ["shared:/shared:ro"]
      env: {COLOUR: green}
      memory: 128mb
      exec: ["ip addr add 192.0.2.10/24 dev eth1", "test -f /shared/note"]
    h2: {kind: linux, image: testbed/host}
  links:
    - endpoints: ["spine1:eth1", "leaf1:eth1"]
    - endpoints: ["spine1:eth2", "leaf2:ethernet-1/1"]
    - endpoints: ["h1:eth1", "leaf1:eth2"]
    - endpoints: ["h2:eth1", "leaf2:ethernet-1/2"]
"""


def test_images_binds_and_environment_are_the_files(engine: Any, sandbox: Any) -> None:
    (sandbox.work / "shared").mkdir()
    (sandbox.work / "shared" / "note").write_text("from outside\n")
    found = import_topology(
        THEIRS, "theirs.clab.yml", directory=sandbox.work, runtime="docker", environment={}, name=sandbox.name()
    )
    assert found.containers == 4
    lab = sandbox.deploy(load_topology_text(found.text, file="ours.yml")).lab
    assert lab.model.node("leaf2").container is None
    assert lab.run("h1", ["cat", "/shared/note"]).stdout == "from outside\n"
    assert lab.run("h1", ["printenv", "COLOUR"]).stdout == "green\n"
    assert not [result for result in check_lab(lab).results if result.status is CheckStatus.FAIL]
    (address,) = [port.address for host in lab.plan.hosts if host.node == "h2" for port in host.nics]
    assert str(address.ip) and lab.run("h1", ["ping", "-n", "-c", "1", "-W", "2", str(address.ip)]).returncode == 0
