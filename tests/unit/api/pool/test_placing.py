"""Which machine gets which point: figures that are divided come from machines of one kind, and labs stay up."""

from __future__ import annotations

from testbed.api.pool.placing import allowed_machines, divided, next_point
from testbed.run.sweep.points import Sweep, topology_key
from testbed.run.sweeps import read_sweep

TEXT = """name: placed
topology:
  inline: {name: placed, fabric: {design: rail-optimized, hosts: 2, gpus: 1, segments: 1, spines: 1}}
workload: {kind: permutation, bytes: 1MB}
matrix: {fabric.hosts: [2, 4], workload.bytes: [1MB, 2MB, 4MB]}
expect:
  - {metric: jct, where: {bytes: 2MB}, over: {bytes: 1MB}, max: 9, source: a guess}
"""


def sweep() -> Sweep:
    return read_sweep(TEXT)


def test_points_that_are_divided_are_groups() -> None:
    points = sweep().points
    groups = divided(points, sweep().scenario.expect)
    names = {frozenset(points[number - 1].name for number in group) for group in groups}
    assert names == {frozenset({f"hosts={hosts} bytes=1MB", f"hosts={hosts} bytes=2MB"}) for hosts in (2, 4)}


def test_a_group_goes_to_machines_of_one_kind_and_others_anywhere() -> None:
    points, expect = sweep().points, sweep().scenario.expect
    allowed = allowed_machines(points, expect, [("a", "b"), ("c",)])
    everyone = frozenset({"a", "b", "c"})
    for point in points:
        if "4MB" in point.name:
            assert allowed[point.index] == everyone
        else:
            assert allowed[point.index] in ({"a", "b"}, {"c"})
    for hosts in (2, 4):
        group = [point for point in points if f"hosts={hosts}" in point.name and "4MB" not in point.name]
        assert len({allowed[point.index] for point in group}) == 1


def test_machines_of_one_kind_may_have_any_point() -> None:
    points, expect = sweep().points, sweep().scenario.expect
    assert set(allowed_machines(points, expect, [("a", "b")]).values()) == {frozenset({"a", "b"})}


def test_a_machine_goes_on_with_its_lab_and_another_begins_with_another() -> None:
    points = list(sweep().points)
    allowed = dict.fromkeys((point.index for point in points), frozenset({"a", "b"}))
    first = next_point("a", points, allowed, {})
    assert first is points[0]
    up = {"a": topology_key(first.topology)}
    second = next_point("b", points[1:], allowed, up)
    assert second is not None and topology_key(second.topology) != up["a"]
    again = next_point("a", [point for point in points[1:] if point is not second], allowed, up)
    assert again is points[1]


def test_where_there_is_one_topology_alone_all_machines_have_it() -> None:
    points = [point for point in sweep().points if "hosts=2" in point.name]
    allowed = dict.fromkeys((point.index for point in points), frozenset({"a", "b"}))
    assert next_point("b", points[1:], allowed, {"a": topology_key(points[0].topology)}) is points[1]
    assert next_point("c", points, allowed, {}) is None
