"""Workloads of NICs with ports in several planes: what is cut, what rides one plane, and what waits for what."""

import random

import pytest

from testbed.base.errors import WorkloadError
from testbed.workload.builder import StepBuilder
from testbed.workload.collectives.datatype import DataType
from testbed.workload.planes import over_planes
from testbed.workload.steps import Collective, Transfer, Workload

PORTS = [(0, 1), (2, 3), (4, 5)]


def chain() -> Workload:
    """Rank 0 sends to 1 twice, the second transfer after the first, which 1 answers by sending to 2."""
    builder = StepBuilder(3)
    first = builder.transfer(0, 1, 1001, label="first")
    builder.transfer(0, 1, 500, after=(first,), label="second")
    builder.compute(1, 10, after=(first,))
    builder.transfer(1, 2, 7, after=(first,), label="on")
    return builder.build("chain")


def moved(workload: Workload, *, striped: bool, seed: int = 1) -> list[Transfer]:
    found = over_planes(workload, PORTS, ranks=6, striped=striped, rng=random.Random(seed))
    assert found.ranks == 6
    return list(found.transfers)


def test_a_message_is_cut_into_a_part_for_each_plane_and_waited_for_as_a_whole() -> None:
    workload = over_planes(chain(), PORTS, ranks=6, striped=True, rng=random.Random(1))
    assert [(one.source, one.destination, one.size_bytes, one.after) for one in workload.transfers] == [
        (0, 2, 501, ()),
        (1, 3, 500, ()),
        (0, 2, 250, (0, 1)),
        (1, 3, 250, (0, 1)),
        (2, 4, 4, (0, 1)),
        (3, 5, 3, (0, 1)),
    ]
    (compute,) = (step for step in workload.steps if step not in workload.transfers)
    assert (compute.number, compute.after) == (4, (0, 1))
    assert "cut into 2 parts" in workload.notes[-1]


def test_a_flow_rides_one_plane_from_its_begin_to_its_end() -> None:
    """What follows on a flow stays in its plane; another flow has one of its own, drawn by the seed."""
    planes = set()
    for seed in range(20):
        first, second, onward = moved(chain(), striped=False, seed=seed)
        assert (first.size_bytes, second.size_bytes) == (1001, 500)
        assert {one.source % 2 == one.destination % 2 for one in (first, second, onward)} == {True}
        assert first.source == second.source
        planes.add((first.source % 2, onward.source % 2))
    assert planes == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert moved(chain(), striped=False, seed=3) == moved(chain(), striped=False, seed=3)


def test_what_stays_in_a_host_has_no_plane() -> None:
    builder = StepBuilder(2, ranks_per_domain=2)
    builder.transfer(0, 1, 100)
    (one,) = moved(builder.build("inside"), striped=True)
    assert (one.source, one.destination, one.size_bytes, one.scale_up) == (0, 2, 100, True)


def test_a_byte_is_not_cut() -> None:
    builder = StepBuilder(2)
    builder.transfer(0, 1, 1)
    assert [one.size_bytes for one in moved(builder.build("byte"), striped=True)] == [1]


def test_a_collective_is_refused() -> None:
    collective = Collective(kind="all_reduce", algorithm="ring", ranks=(0, 1), size_bytes=8, elements=2, steps=range(0))
    workload = Workload(name="ring", ranks=2, steps=(), collectives=(collective,))
    assert DataType.FLOAT32.size_bytes * 2 == collective.size_bytes
    with pytest.raises(WorkloadError, match="arrays are not cut"):
        over_planes(workload, PORTS, ranks=6, striped=True, rng=random.Random(1))
