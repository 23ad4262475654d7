"""What GPUs lose which share of their bandwidth when one switch, link or plane dies, in closed forms and by hand."""

from pathlib import Path

import pytest
from hand_made import by_hand

from testbed.lab.core.fabric import FabricParams, NicParams, UplinkParams, generate_fabric, measure_sizing
from testbed.lab.core.fabric.figures.failures import FailureDomain, find_failure_domains
from testbed.lab.core.fabric.graph import LabGraph
from testbed.lab.core.fabric.sizing import seen_for_sizing
from testbed.lab.core.model import BACKEND, Lab, Role
from testbed.lab.core.schema.load import load_topology, load_topology_text

TOPOLOGIES = Path(__file__).parents[6] / "topologies"


LEAF_SPINE = {"leaf": Role.RAIL, "spine1": Role.SPINE, "spine2": Role.SPINE}


def build(design: str, **written: object) -> Lab:
    return generate_fabric(FabricParams(design=design, **written), name="lab")  # type: ignore[arg-type]


def domains(lab: Lab, network: str = BACKEND) -> dict[str, FailureDomain]:
    return {one.what: one for one in find_failure_domains(lab, LabGraph(lab), network)}


def told(lab: Lab) -> dict[str, tuple[int, int, float]]:
    """How many of each kind there are, the GPUs that lose when one dies, and their share."""
    return {what: (one.elements, one.affected, pytest.approx(one.share)) for what, one in domains(lab).items()}


def test_a_superpod_of_four_units() -> None:
    """32 leaves of 32 GPUs, 16 spines with two links to each leaf (NVIDIA's reference architecture)."""
    assert told(build("dgx-superpod")) == {
        "NIC link": (1024, 1, 1.0),
        "rail switch": (32, 32, 1.0),
        "spine switch": (16, 1024, 1 / 16),
        "rail to spine link": (1024, 32, 1 / 32),
    }


@pytest.mark.parametrize("k", [4, 6])
def test_a_fat_tree(k: int) -> None:
    """A core of (k/2)^2 takes one part of so many from all; an aggregation switch one of k/2 from its pod's hosts
    (Al-Fares et al., SIGCOMM 2008)."""
    half = k // 2
    lab = build(
        "rail-optimized",
        pods=k,
        segments=half,
        hosts=half,
        gpus=1,
        spines=half,
        super_spines=half * half,
        super_spine_groups=half,
    )
    assert told(lab) == {
        "NIC link": (k**3 // 4, 1, 1.0),
        "rail switch": (k * half, half, 1.0),
        "spine switch": (k * half, half * half, 1 / half),
        "super-spine switch": (half * half, k**3 // 4, 1 / half**2),
        "rail to spine link": (k**3 // 4, half, 1 / half),
        "spine to super-spine link": (k**3 // 4, half * half, 1 / half**2),
    }


def test_a_nic_with_two_ports_loses_half_with_a_plane_a_leaf_or_a_link() -> None:
    """As Alibaba's HPN (SIGCOMM 2024) has it: dual-ToR, so that a GPU never loses its whole NIC."""
    found = domains(build("pod"))
    assert (found["plane"].elements, found["plane"].affected, found["plane"].share) == (2, 64, 0.5)
    assert (found["rail switch"].affected, found["rail switch"].share) == (32, 0.5)
    assert (found["NIC link"].affected, found["NIC link"].share) == (1, 0.5)
    assert found["spine switch"].share == pytest.approx(1 / 4)


def test_gpus_that_share_a_nic_lose_it_together() -> None:
    found = domains(build("shared-nic"))
    assert (found["NIC link"].affected, found["NIC link"].share) == (4, 1.0)
    assert found["rail switch"].affected == 16


def test_a_rail_without_spines_is_lost_alone() -> None:
    assert told(build("rail-only", hosts=4, gpus=8)) == {"NIC link": (32, 1, 1.0), "rail switch": (8, 4, 1.0)}


def test_more_rails_on_a_switch_are_a_larger_domain() -> None:
    """Failure domains: multi-rail > dual-rail > single-rail per switch."""
    sizes = [
        domains(build(design, hosts=4, segments=2, gpus=8))["rail switch"].affected
        for design in ("multi-rail-switch", "dual-rail-switch", "rail-optimized")
    ]
    assert sizes == [32, 8, 4]


def test_shares_follow_the_rates_of_links() -> None:
    """300G and 100G up: with the wider link three quarters are lost."""
    lab = by_hand([("h1", "leaf", 400), ("leaf", "spine1", 300), ("leaf", "spine2", 100)], LEAF_SPINE)
    found = domains(lab)
    assert (found["spine switch"].worst, found["spine switch"].share) == ("spine1", 0.75)
    assert found["rail to spine link"].worst == "leaf:eth2 - spine1:eth1"


def test_two_interfaces_without_a_rail_are_two_nics() -> None:
    lab = by_hand([("h1", "leaf", 200), ("h1", "spine1", 200)], LEAF_SPINE)
    found = domains(lab)
    assert "plane" not in found
    assert (found["NIC link"].elements, found["NIC link"].share) == (2, 1.0)


def test_a_network_beside_the_back_end_counts_hosts() -> None:
    text = (
        "name: two\nfabric: {design: rail-optimized, hosts: 4, gpus: 2, segments: 1, spines: 1}\n"
        "networks:\n  frontend: {leaves: 2, spines: 2, nic: {ports: 2}}\n"
    )
    lab = load_topology_text(text, file="two.yml")
    found = domains(seen_for_sizing(lab, "frontend"), "frontend")
    leaf = found["leaf switch"]
    assert (leaf.affected, leaf.unit, leaf.share) == (4, "hosts", 0.5)
    assert (found["spine switch"].affected, found["spine switch"].share) == (4, 0.5)


def test_parallel_links_share_what_a_switch_takes() -> None:
    lab = build("rail-optimized", segments=2, hosts=2, gpus=1, spines=2, uplink=UplinkParams(count=4), nic=NicParams())
    found = domains(lab)
    assert (found["spine switch"].share, found["rail to spine link"].share) == (0.5, 1 / 8)
    assert found["rail to spine link"].elements == 2 * 2 * 4


def test_a_probe_beside_a_generated_fabric_is_no_gpu() -> None:
    lab = load_topology(TOPOLOGIES / "mixed.yml")
    found = domains(lab)
    assert found["NIC link"].elements == measure_sizing(lab).gpus


def test_networks_that_one_carries_are_no_ports_of_its_nics() -> None:
    """A host of the converged data centre has a port of the front end, one of storage and one of management there."""
    lab = load_topology(TOPOLOGIES / "converged.yml")
    found = domains(seen_for_sizing(lab, "frontend"), "frontend")
    assert (found["NIC link"].elements, found["NIC link"].affected, found["NIC link"].share) == (4, 1, 1.0)
