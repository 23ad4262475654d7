"""The topologies we ship: one for each design, each names its figure first and comes out as its comments say."""

from pathlib import Path

import pytest

from testbed.lab.core.fabric import DESIGNS, FabricParams, check_sizing, generate_fabric, measure_sizing
from testbed.lab.core.model import BACKEND, Lab, LinkKind
from testbed.lab.core.schema.load import load_topology

TOPOLOGIES = Path(__file__).parents[5] / "topologies"
FILES = sorted(TOPOLOGIES.glob("*.yml"))

# nodes, switches, links, bisection bandwidth as a share of what the NICs could send (None: there is one host)
SHIPPED: dict[str, tuple[int, int, int, float | None]] = {
    "bench-300": (306, 6, 308, 2 / 75),
    "bottleneck": (3, 1, 2, 1.0),
    "converged": (10, 6, 24, 1.0),
    "containers": (38, 6, 72, 1 / 8),
    "dcqcn": (7, 2, 6, 1.0),
    "dcqcn-victim": (14, 5, 13, 1.0),
    "datacentre": (18, 10, 64, 1.0),
    "demo": (16, 8, 32, 1.0),
    "dual-rail-switch": (24, 8, 144, 1.0),
    "dual-switch": (5, 2, 48, 1.0),
    "hand-written": (8, 4, 8, 1.0),
    "mixed": (9, 6, 17, 1.0),
    "multi-pod": (36, 20, 384, 1.0),
    "mlag-hosts": (6, 2, 5, 1.0),
    "mlag-rails": (14, 10, 36, 1.0),
    "mlag-tenants": (10, 2, 9, 1.0),
    "multi-rail-switch": (14, 6, 72, 1.0),
    "nvl72": (24, 6, 144, 1.0),
    "nvl72-superpod": (185, 41, 1152, 1.0),
    "pod": (16, 8, 160, 1.0),
    "pooled-memory": (6, 2, 5, 1.0),
    "qp-hash": (24, 8, 32, 1.0),
    "qos-overrides": (14, 10, 24, 1.0),
    "rail-only": (12, 8, 32, 1.0),
    "rail-optimized": (28, 20, 128, 1.0),
    "rail-optimized-1024": (168, 40, 1280, 1 / 8),
    "rail-qos": (14, 6, 24, 0.5),
    "routed-hosts": (6, 2, 5, 1.0),
    "scale-up-domain": (2, 1, 8, None),
    "shared-nic": (8, 4, 16, 1.0),
    "single-switch": (4, 1, 24, 1.0),
    "six-by-four": (12, 6, 48, 1.0),
    "superpod-4su": (176, 48, 2048, 1.0),
    "two-tenants": (10, 4, 16, 1.0),
    "uneven-bundle": (10, 4, 13, 1.0),
    "uec-spray": (16, 8, 32, 1.0),
}


def load(name: str) -> Lab:
    return load_topology(TOPOLOGIES / f"{name}.yml")


def test_every_file_has_its_counts_here_or_is_a_design_as_it_is() -> None:
    """The counts of a design stand in test_generate.py; that its file is as the design, a test below says."""
    files = {path.stem for path in FILES}
    assert files >= set(SHIPPED)
    assert files - set(SHIPPED) <= set(DESIGNS)


def test_every_design_is_shipped() -> None:
    assert {load(path.stem).design for path in FILES} >= set(DESIGNS)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_topology(name: str) -> None:
    lab = load(name).of_network(BACKEND)
    sizing = measure_sizing(lab)
    assert lab.name == name
    *counts, share = SHIPPED[name]
    assert [len(lab.nodes), sizing.switches, len(lab.links)] == counts
    assert (None if sizing.bisection is None else sizing.bisection.share) == pytest.approx(share)
    assert check_sizing(lab) == ()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_first_comment_names_the_figure(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# ")
    assert any(word in first.lower() for word in ("figure", "reference architecture", "case study")), first


@pytest.mark.parametrize(
    "name", [path.stem for path in FILES if path.stem in DESIGNS and path.stem != "rail-optimized"]
)
def test_a_file_named_like_a_design_spells_out_its_preset(name: str) -> None:
    """Only port maps (interface names) differ: whoever writes nothing but the design gets the same fabric."""
    written, preset = load(name).of_network(BACKEND), generate_fabric(FabricParams(design=name), name=name)
    assert written.nodes == preset.nodes
    assert [(link.a, link.b.node, link.rate) for link in written.links] == [
        (link.a, link.b.node, link.rate) for link in preset.links
    ]
    assert written.rail_subnets == preset.rail_subnets


def test_the_probe_of_the_mixed_file_is_beside_the_rail() -> None:
    link = load("mixed").links[-1]
    assert (str(link.a), str(link.b), link.kind) == ("probe1:eth1", "p1-s1-rail1:extra1", LinkKind.ROUTED)
