"""`check` finds a link that is too narrow for what NICs send, whichever of the equally short ways it is on."""

import json
import subprocess

import pytest
from sandbox import Sandbox

from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.check import CheckResult, CheckStatus, check_lab
from testbed.lab.core.schema.load import load_topology_text

pytestmark = [pytest.mark.netns, pytest.mark.frr]

SPINES = 8
NARROW = "leaf2:up5"


def topology(name: str) -> str:
    """Two leaves under eight spines, one of the sixteen links between them with a smaller MTU than all else."""
    spines = [f"    spine{number}: {{kind: switch, role: spine}}" for number in range(1, SPINES + 1)]
    links = [
        f'    - {{endpoints: ["leaf{leaf}:up{spine}", "spine{spine}:down{leaf}"], rate: 100G'
        + (", mtu: 1500}" if f"leaf{leaf}:up{spine}" == NARROW else "}")
        for leaf in (1, 2)
        for spine in range(1, SPINES + 1)
    ]
    return "\n".join(
        [
            f"name: {name}",
            "fabric: {routing: {bfd: off}}",
            "topology:",
            "  nodes:",
            "    leaf1: {kind: switch, role: rail}",
            "    leaf2: {kind: switch, role: rail}",
            *spines,
            "    h1: {kind: host}",
            "    h2: {kind: host}",
            "  links:",
            *links,
            '    - {endpoints: ["h1:eth1", "leaf1:h1"], rate: 100G}',
            '    - {endpoints: ["h2:eth1", "leaf2:h2"], rate: 100G}',
        ]
    )


@pytest.fixture(scope="module")
def lab(shared_sandbox: Sandbox) -> RunningLab:
    name = shared_sandbox.name()
    return shared_sandbox.deploy(load_topology_text(topology(name), file="narrow.yml")).lab


def set_mtu(lab: RunningLab, port: str, mtu_bytes: int) -> None:
    node, interface = port.split(":")
    argv = ["ip", "-n", lab.namespace(node), "link", "set", interface, "mtu", str(mtu_bytes)]
    subprocess.run(argv, check=True)


def path_mtu(lab: RunningLab) -> CheckResult:
    (found,) = (result for result in check_lab(lab).results if result.name == "path mtu")
    return found


def test_the_narrow_link_is_named_both_ways(lab: RunningLab) -> None:
    found = path_mtu(lab)
    assert found.status is CheckStatus.FAIL
    named = {line for line in found.failures if "eth1" not in line}  # whether hosts' own probes meet it is up to hashes
    assert named == {
        "leaf2:up5 -> spine5:down2: 4500 bytes did not pass",
        "spine5:down2 -> leaf2:up5: 4500 bytes did not pass",
    }


def test_without_it_all_passes_and_a_port_that_became_narrow_is_found(lab: RunningLab) -> None:
    for port in (NARROW, "spine5:down2"):
        set_mtu(lab, port, 4500)
    found = path_mtu(lab)
    assert (found.status, found.count) == (CheckStatus.PASS, 2 + 2 * 2 * SPINES), found
    assert "4500 bytes" in found.detail
    set_mtu(lab, "spine7:down1", 4499)
    found = path_mtu(lab)
    assert found.status is CheckStatus.FAIL
    assert "spine7:down1 -> leaf1:up7: 4500 bytes did not pass" in found.failures


def test_a_link_that_is_down_is_named_once_and_all_others_are_tried(lab: RunningLab) -> None:
    """A link that is down has no MTU to find fault with; that it is down is told by the test of links."""
    set_mtu(lab, "spine7:down1", 4500)
    argv = ["ip", "-n", lab.namespace("leaf1"), "link", "set", "up3"]
    subprocess.run([*argv, "down"], check=True)
    links, found = check_lab(lab, ["links", "path mtu"]).results
    subprocess.run([*argv, "up"], check=True)
    assert links.failures == ("leaf1:up3 is down", "spine3:down1 is down")
    assert (found.status, found.count) == (CheckStatus.PASS, 2 + 2 * (2 * SPINES - 1)), found
    assert "DF set, 2 more untried as a port is down" in found.detail


def test_a_port_that_is_up_without_its_address_is_named(lab: RunningLab) -> None:
    """Its probe would go from its link-local address."""
    argv = ["ip", "-n", lab.namespace("leaf1"), "-6", "-json", "address"]
    of_port = ["dev", "up3", "scope", "link"]
    (shown,) = json.loads(subprocess.run([*argv, "show", *of_port], capture_output=True, check=True).stdout)
    subprocess.run([*argv, "flush", *of_port], check=True)
    failures = path_mtu(lab).failures
    subprocess.run([*argv, "add", f"{shown['addr_info'][0]['local']}/64", *of_port, "nodad"], check=True)
    there, back = failures
    assert there.startswith("leaf1:up3 -> spine3:down1 (leaf1:up3 does not have its address fe80::")
    assert back.startswith("spine3:down1 -> leaf1:up3 (leaf1:up3 does not have its address fe80::")


def test_of_a_nic_that_is_down_nothing_is_said_of_its_mtu(lab: RunningLab) -> None:
    """The last of these tests: the host's routes go with its port."""
    argv = ["ip", "-n", lab.namespace("h1"), "link", "set", "eth1"]
    subprocess.run([*argv, "down"], check=True)
    found = path_mtu(lab)
    subprocess.run([*argv, "up"], check=True)
    assert (found.status, found.count) == (CheckStatus.PASS, 2 * 2 * SPINES), found
