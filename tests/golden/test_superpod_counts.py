"""The counts NVIDIA publishes for its DGX SuperPOD (B200 reference architecture) come out of the generator exactly."""

from collections import Counter
from functools import cache

import pytest

from testbed.lab.core.fabric import FabricParams, Sizing, check_sizing, generate_fabric, measure_sizing
from testbed.lab.core.fabric.params import UplinkParams
from testbed.lab.core.model import Lab, NodeKind, Role

# SU: nodes, GPUs, leaf, spine, core, node-leaf, leaf-spine, spine-core links.
PUBLISHED = {
    2: (64, 512, 16, 8, 0, 512, 512, 0),
    4: (128, 1024, 32, 16, 0, 1024, 1024, 0),
    8: (256, 2048, 64, 32, 0, 2048, 2048, 0),
    16: (512, 4096, 128, 128, 64, 4096, 4096, 4096),
    32: (1024, 8192, 256, 256, 128, 8192, 8192, 8192),
    64: (2048, 16384, 512, 512, 256, 16384, 16384, 16384),
}
UNITS = pytest.mark.parametrize("units", [*(2, 4, 8, 16, 32), pytest.param(64, marks=pytest.mark.thorough)])


def superpod(units: int) -> FabricParams:
    """The design alone: how many units, the rest is its own."""
    if units <= 8:
        return FabricParams(design="dgx-superpod", segments=units)
    return FabricParams(design="dgx-superpod", pods=units // 4)


@cache
def generated(units: int) -> tuple[Lab, Sizing]:
    lab = generate_fabric(superpod(units), name="superpod")
    return lab, measure_sizing(lab)


def spelled_out(units: int) -> FabricParams:
    """The same as plain rail-optimized parameters."""
    if units <= 8:
        return FabricParams(
            design="rail-optimized",
            segments=units,
            hosts=32,
            gpus=8,
            spines=4 * units,
            uplink=UplinkParams(count=8 // units),
            switch_radix=64,
        )
    return FabricParams(
        design="rail-optimized",
        pods=units // 4,
        segments=4,
        hosts=32,
        gpus=8,
        spines=32,
        super_spines=4 * units,
        super_spine_groups=units // 8,
        switch_radix=64,
    )


@UNITS
def test_published_counts(units: int) -> None:
    lab, sizing = generated(units)
    switches = Counter(node.role for node in lab.nodes if node.kind is NodeKind.SWITCH)
    assert (
        sizing.hosts,
        sizing.gpus,
        switches[Role.RAIL],
        switches[Role.SPINE],
        switches[Role.SUPER_SPINE],
        sizing.host_links,
        sizing.rail_spine_links,
        sizing.spine_super_spine_links,
    ) == PUBLISHED[units]
    assert len(lab.links) == sum(PUBLISHED[units][5:])


@UNITS
def test_every_switch_uses_its_64_ports_and_nothing_is_oversubscribed(units: int) -> None:
    """Honest wiring: a leaf has 32 ports down and 32 up, and so has a spine that has cores above it."""
    lab, sizing = generated(units)
    down: Counter[str] = Counter()
    up: Counter[str] = Counter()
    for link in lab.links:
        up[link.a.node] += 1
        down[link.b.node] += 1
    top = Role.SPINE if units <= 8 else Role.SUPER_SPINE
    for switch in lab.switches:
        expected = (64, 0) if switch.role is top else (32, 32)
        assert (down[switch.name], up[switch.name]) == expected, switch.name
    assert check_sizing(lab) == ()
    assert sizing.bisection.bandwidth_bps == sizing.bisection.access_bps


@pytest.mark.parametrize("units", [unit for unit in PUBLISHED if unit <= 16])
def test_the_design_is_a_preset_of_rail_optimized(units: int) -> None:
    design, _ = generated(units)
    plain = generate_fabric(spelled_out(units), name="superpod")
    assert (design.nodes, design.links, design.rail_subnets) == (plain.nodes, plain.links, plain.rail_subnets)
