"""Warnings of topology files: code, place, figures and the key to write; and files that deserve none."""

from pathlib import Path

import pytest

from testbed.base.errors import Problem
from testbed.lab.core.schema.load import load_topology, load_topology_text

TOPOLOGIES = Path(__file__).parents[5] / "topologies"
BY_HAND = """name: hand
topology:
  nodes:
    leaf1: {kind: switch, role: rail}
    leaf2: {kind: switch, role: rail}
    spine1: {kind: switch, role: spine}
    spine2: {kind: switch, role: spine}
    h1: {kind: host}
    h2: {kind: host}
  links:
    - {endpoints: ["h1:eth1", "leaf1:h1"], rate: 400G}
    - {endpoints: ["h2:eth1", "leaf2:h1"], rate: 400G}
    - {endpoints: ["leaf1:up1", "spine1:down1"], rate: 300G}
    - {endpoints: ["leaf1:up2", "spine2:down1"], rate: 300G}
    - {endpoints: ["leaf2:up1", "spine1:down2"], rate: 300G}
    - {endpoints: ["leaf2:up2", "spine2:down2"], rate: 300G}
"""


def warnings(text: str, **overrides: object) -> list[Problem]:
    found: list[Problem] = []
    load_topology_text(text, file="lab.yml", overrides=overrides, warn=found.append)
    return found


def changed(line: int, old: str, new: str) -> str:
    """`BY_HAND` with something else in one line (from 1)."""
    lines = BY_HAND.splitlines()
    assert old in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new)
    return "\n".join(lines)


def test_a_file_without_fault_gets_no_warning() -> None:
    assert warnings(BY_HAND) == []


@pytest.mark.parametrize("path", sorted(TOPOLOGIES.glob("*.yml")), ids=lambda path: path.stem)
def test_shipped_topologies_have_no_other_fault_than_shared_planes(path: Path) -> None:
    """Dual-port NICs of the figures have leaves of both planes under the same spines."""
    found: list[Problem] = []
    load_topology(path, warn=found.append)
    expected = ["shared-planes"] if path.stem in ("pod", "multi-pod") else []
    assert [problem.code for problem in found] == expected


WIDE = "name: wide\nfabric:\n  design: rail-optimized\n  segments: 2\n  spines: 66\n"


@pytest.mark.parametrize(
    ("text", "position"), [(WIDE, "lab.yml:2:1"), (WIDE + "  routing: {bfd: off, ecmp: 64}\n", "lab.yml:6:29")]
)
def test_a_fabric_wider_than_its_ecmp_is_told_the_key(text: str, position: str) -> None:
    (problem,) = warnings(text)
    assert problem.code == "wider-than-ecmp"
    assert str(problem).startswith(f"{position}: wider-than-ecmp: fabric.routing.ecmp: ")
    assert "66 equally short ways and installs 64" in problem.message
    assert problem.hint == "routing: {ecmp: 66}"
    assert warnings(text, **{"fabric.routing.ecmp": 66}) == []


def test_what_no_ecmp_can_do_is_said() -> None:
    (problem,) = warnings(WIDE, **{"fabric.spines": 300})
    assert problem.hint == "routing: {ecmp: 224} is the most that FRR can do; 76 stay idle"


def test_a_network_beside_the_back_end_is_told_its_own_key() -> None:
    text = "name: two\nfabric: {design: rail-optimized}\nnetworks:\n  frontend:\n    leaves: 2\n    spines: 4\n"
    (problem,) = warnings(text, **{"networks.frontend.routing.ecmp": 2})
    assert (problem.code, problem.path) == ("wider-than-ecmp", "networks.frontend.routing.ecmp")


@pytest.mark.parametrize(("line", "position"), [(14, "lab.yml:14:56"), (16, "lab.yml:16:56")])
def test_links_of_unequal_rate_in_one_ecmp_group(line: int, position: str) -> None:
    """Wherever the slow link is, it is named, with the figures of both ways to spread."""
    (problem,) = warnings(changed(line, "300G", "100G"))
    assert str(problem).startswith(f"{position}: uneven-ecmp: topology.links[{line - 11}].rate: ")
    assert "carry 200 Gbit/s of 400 Gbit/s" in problem.message
    assert "is 100% of what the NICs of one half can send by the links, 50% by plain ECMP" in problem.message


@pytest.mark.parametrize(("line", "position"), [(13, "lab.yml:13:67"), (11, "lab.yml:11:61")])
def test_a_link_that_is_too_narrow(line: int, position: str) -> None:
    rate = "300G" if line > 12 else "400G"
    (problem,) = warnings(changed(line, rate, f"{rate}, mtu: 1500"))
    assert str(problem).startswith(f"{position}: narrow-link: topology.links[{line - 11}].mtu: ")
    assert "has an MTU of 1500 bytes, and h" in problem.message
    assert "packets of up to 4500" in problem.message
    assert problem.hint == "mtu: 4500"


def test_an_mtu_that_all_links_have_is_no_fault() -> None:
    assert warnings(BY_HAND, **{"fabric.mtu": 1500}) == []


def test_planes_that_share_spines() -> None:
    text = "name: planes\nfabric: {design: rail-optimized, nic: {ports: 2}}\n"
    (problem,) = warnings(text)
    assert str(problem).startswith("lab.yml:2:47: shared-planes: fabric.nic.ports: ")
    assert "2 planes of leaves that share their spine switches" in problem.message
    assert warnings("name: planes\nfabric: {design: dual-switch}\n") == []
