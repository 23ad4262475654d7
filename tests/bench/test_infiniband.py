"""The time that OpenSM takes for subnets: until all tables are in force, and until those without a link are.

It counts from the start of the manager, or from the cut of the link, to the line of its log, whose times are its own.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from figures import Figure, judge

from testbed.base.installation.packages import missing_programs
from testbed.lab.core.schema.load import load_topology
from testbed.lab.features.infiniband.configuration import plan_subnet
from testbed.lab.features.infiniband.manager import await_sweep, count_sweeps
from testbed.lab.features.infiniband.plane import PROGRAMS, SEARCH, Plane
from testbed.lab.features.infiniband.reading import SubnetReader
from testbed.lab.features.infiniband.running import StartedPlane, start_plane
from testbed.lab.features.infiniband.simulator import Simulator
from testbed.protocols.infiniband.routes import judge_routes

TOPOLOGIES = Path(__file__).parents[2] / "topologies" / "infiniband"
FOUR_PODS = {"fabric.pods": 4, "fabric.spines": 32, "fabric.uplink.count": 1}
LINK_DOWN_S = 1.0
QUIET_S = 1.0
"""The manager has nothing left to do after a sweep: a link that goes in the midst of one is swept twice."""

pytestmark = [
    pytest.mark.bench,
    pytest.mark.netns,
    pytest.mark.skipif(
        bool(missing_programs(PROGRAMS, SEARCH)),
        reason="what InfiniBand needs is not installed: `testbed doctor` says so",
    ),
]


@contextmanager
def started(name: str, overrides: dict[str, object]) -> Iterator[StartedPlane]:
    """A plane without a manager."""
    lab = load_topology(TOPOLOGIES / name, overrides=overrides)
    assert lab.infiniband is not None
    with tempfile.TemporaryDirectory(prefix="testbed-bench-") as directory:
        Path(directory).chmod(0o755)
        plane = start_plane(Plane(directory=Path(directory), socket=Path(directory).name), plan_subnet(lab.infiniband))
        try:
            yield plane
        finally:
            plane.end()


@pytest.mark.parametrize(
    ("name", "overrides", "hcas", "at_most_s"),
    [
        ("fat-tree-32.yml", {}, 32, 0.1),
        ("superpod.yml", {}, 1024, 1.5),
        pytest.param("superpod.yml", FOUR_PODS, 4096, 10.0, marks=pytest.mark.thorough),
    ],
)
def test_a_subnet_is_up(name: str, overrides: dict[str, object], hcas: int, at_most_s: float) -> None:
    with started(name, overrides) as plane:
        begun = time.monotonic()
        plane.start_managers(most=1)
        took = time.monotonic() - begun
        judge(Figure(f"InfiniBand: {hcas} HCAs, SUBNET UP", took, at_most=at_most_s, unit="s"))
        subnet = SubnetReader(plane=plane.plane, planned=plane.subnet).read()
        report = judge_routes(subnet)
        assert (report.hcas, report.broken, subnet.engine) == (hcas, 0, "ftree")
        assert report.free_shifts == hcas - 1


def test_new_tables_without_a_link() -> None:
    with started("superpod.yml", {}) as plane:
        plane.start_managers(most=1)
        time.sleep(QUIET_S)
        leaf = plane.subnet.nodes["p1-s1-rail1"]
        before, begun = count_sweeps(plane.managers), time.monotonic()
        Simulator(plane=plane.plane).unlink(leaf.identifier, leaf.ports)
        await_sweep(plane.managers, before, 60.0, plane.processes)
        took = time.monotonic() - begun
        judge(Figure("InfiniBand: 1,024 HCAs, link down to new tables", took, at_most=LINK_DOWN_S, unit="s"))
        assert judge_routes(SubnetReader(plane=plane.plane, planned=plane.subnet).read()).broken == 0
