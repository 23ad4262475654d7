"""The large topologies and scenarios that we ship: they have the published counts, and twins that packets can be."""

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from testbed.lab.core.fabric import FabricParams, generate_fabric, measure_sizing
from testbed.lab.core.model import Lab, LinkKind
from testbed.run.flows.support import check_flows_supported
from testbed.run.flows.twin_shape import TwinShape
from testbed.run.flows.twins import MOST_NICS
from testbed.run.schema.file import load_scenario, load_scenario_topology
from testbed.run.schema.model import TopologyRef
from testbed.run.sweeps import read_sweep

ROOT = Path(__file__).parents[4]
SCENARIOS = sorted((ROOT / "scenarios" / "large").glob("*.yml"))
COUNTS = {
    "meta-24576": (24_576, {"rail": 1536, "spine": 128, "super-spine": 432}, 24_576 + 128 * 27),
    "rail-65536": (65_536, {"rail": 2048, "spine": 512, "super-spine": 1024}, 2 * 65_536),
}
FABRICS = pytest.mark.parametrize("name", ["meta-24576", pytest.param("rail-65536", marks=pytest.mark.thorough)])


@cache
def large(name: str) -> Lab:
    return load_scenario_topology(TopologyRef(file=str(ROOT / "topologies" / "large" / f"{name}.yml")))


def test_every_file_has_its_counts_here() -> None:
    assert {path.stem for path in (ROOT / "topologies" / "large").glob("*.yml")} == set(COUNTS)
    assert len(SCENARIOS) >= 3


@FABRICS
def test_a_large_fabric_has_the_counts_that_its_file_names(name: str) -> None:
    gpus, switches, fabric = COUNTS[name]
    lab = large(name)
    kinds = Counter(link.kind for link in lab.links)
    assert kinds[LinkKind.ACCESS] == gpus
    assert kinds[LinkKind.FABRIC] == fabric
    assert Counter(node.role.value for node in lab.switches if node.role is not None) == switches


def test_pods_of_llama_3_are_oversubscribed_seven_to_one() -> None:
    lab = large("meta-24576")
    spine = next(node.name for node in lab.switches if node.role is not None and node.role.value == "spine")
    down = sum(link.rate.bps for link in lab.links if link.b.node == spine)
    up = sum(link.rate.bps for link in lab.links if link.a.node == spine)
    assert down / up == pytest.approx(7, abs=0.2)


@FABRICS
def test_a_twin_is_smaller_and_keeps_what_tiers_can_carry(name: str) -> None:
    whole = TwinShape.of(large(name))
    small = whole.within(MOST_NICS, MOST_NICS)
    assert small.nics <= MOST_NICS
    assert small.pods == 2
    assert small.super_spines % small.groups == 0

    def ratio(shape: TwinShape) -> float:
        """Segments under a spine, over the super-spines of its group."""
        return shape.segments / (shape.super_spines / shape.groups)

    assert ratio(small) == pytest.approx(ratio(whole), rel=0.2)
    tiny = whole.within(64, MOST_NICS)
    assert tiny.nics <= 64
    assert tiny.spines / tiny.hosts == whole.spines / whole.hosts


TWINS: dict[str, tuple[dict[str, Any], tuple[int, ...], float]] = {
    "planes of three tiers": (
        {"design": "dual-plane", "pods": 4, "segments": 4, "hosts": 16, "gpus": 4, "spines": 8, "super_spines": 8},
        (2, 2, 16, 8, 4, 1),
        1.0,
    ),
    "unequal segments": ({"design": "dgx-superpod", "hosts": (32, 32, 31)}, (1, 2, 32, 16, 0, 1), 1.0),
    "hosts that cannot be halved": (
        {"design": "rail-optimized", "segments": 4, "hosts": 63, "spines": 63, "gpus": 8},
        (1, 2, 32, 32, 0, 1),
        1.0,
    ),
    "units of 72 hosts": (
        {"design": "dgx-superpod", "segments": 4, "hosts": 72, "switch_radix": 144},
        (1, 2, 32, 8, 0, 1),
        1.0,
    ),
    "groups that spines leave": (
        {"design": "rail-optimized", "pods": 2, "segments": 2, "hosts": 60, "gpus": 8, "spines": 12}
        | {"super_spines": 8, "super_spine_groups": 4},
        (2, 1, 30, 6, 2, 2),
        5.0,
    ),
}
"""What a file says of a fabric -> pods, segments, hosts, spines, super-spines and groups of its twin, and how far each
of its rail switches is oversubscribed, as each of the whole."""


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_of_any_design_can_be_built_and_carries_as_much(name: str) -> None:
    written, numbers, ratio = TWINS[name]
    params = FabricParams(**written)
    whole = generate_fabric(params, name="whole")
    shape = TwinShape.of(whole)
    small = shape.within(MOST_NICS, MOST_NICS)
    assert (small.pods, small.segments, small.hosts, small.spines, small.super_spines, small.groups) == numbers
    keys = {key.removeprefix("fabric."): value for key, value in small.settings(shape).items()}
    uplink = replace(params.uplink, count=keys.pop("uplink.count"))
    twin = generate_fabric(replace(params, uplink=uplink, **keys), name="twin")
    assert sum(link.kind is LinkKind.ACCESS for link in twin.links) == small.nics <= MOST_NICS
    for lab in (whole, twin):
        assert measure_sizing(lab).roles[0].oversubscription == pytest.approx(ratio, rel=0.05)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_large_scenario_is_right_and_says_what_it_expects(path: Path) -> None:
    scenario = load_scenario(path)
    assert scenario.name == path.stem
    assert scenario.description and scenario.expect and all(item.source for item in scenario.expect)


@pytest.mark.thorough
def test_flows_take_the_training_step() -> None:
    check_flows_supported(read_sweep(ROOT / "scenarios" / "large" / "training-405b.yml"))
