"""The points of a matrix: their order, names, and which of them a command line asks for."""

import pytest

from testbed.base.errors import ScenarioError, SpecError
from testbed.run.schema.file import load_scenario_text
from testbed.run.schema.model import Expectation, Scenario, TopologyRef, Workload
from testbed.run.sweep.points import Point, judgeable, plan_points

SWEEP = """name: sweep
topology: {file: pod.yml}
workload: {kind: incast, bytes: 1MB}
matrix:
  workload.senders: [1, 2]
  qos.load_balancing.mode: [flow, spray]
  transport.kind: [tcp, uet]
repeat: {runs: 3}
"""


def points_of(text: str, **only: object) -> tuple[Point, ...]:
    return plan_points(load_scenario_text(text, file="s.yml", only=only).scenario)


def test_a_scenario_without_a_matrix_is_one_point() -> None:
    [point] = points_of(SWEEP.partition("matrix:")[0])
    assert (point.index, point.name, dict(point.values)) == (1, "", {})


def test_points_of_one_topology_stand_together() -> None:
    points = points_of(SWEEP)
    assert [point.index for point in points] == list(range(1, 9))
    assert [point.overrides["qos.load_balancing.mode"] for point in points] == ["flow"] * 4 + ["spray"] * 4
    assert [point.name for point in points[:4]] == [
        "senders=1 mode=flow kind=tcp",
        "senders=1 mode=flow kind=uet",
        "senders=2 mode=flow kind=tcp",
        "senders=2 mode=flow kind=uet",
    ]
    assert {point.scenario.repeat.runs for point in points} == {3}


def test_keys_that_end_alike_are_named_in_full() -> None:
    points = points_of(
        SWEEP.replace("qos.load_balancing.mode: [flow, spray]", "workload.kind: [incast, outcast]").replace(
            "workload.senders: [1, 2]", "qos.trimming: [true, false]"
        )
    )
    assert points[0].name == "trimming=true workload.kind=incast transport.kind=tcp"


def test_points_that_were_never_resolved_are_refused() -> None:
    scenario = Scenario(
        name="x", topology=TopologyRef(file="x.yml"), workload=Workload(kind="incast"), matrix={"workload.flows": (1,)}
    )
    with pytest.raises(ScenarioError, match="never resolved"):
        plan_points(scenario)


def test_some_points_only() -> None:
    assert len(points_of(SWEEP, mode="spray")) == 4
    assert [point.name for point in points_of(SWEEP, **{"qos.load_balancing.mode": "flow", "senders": 2})] == [
        "senders=2 mode=flow kind=tcp",
        "senders=2 mode=flow kind=uet",
    ]


@pytest.mark.parametrize(
    ("only", "message"),
    [
        ({"modus": "flow"}, "the matrix has no such key\n  hint: did you mean mode"),
        ({"mode": "sprayed"}, "no point has mode=sprayed"),
        ({"senders": True}, "no point has senders=true"),
    ],
)
def test_points_that_there_are_not(only: dict[str, object], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        points_of(SWEEP, **only)


def test_only_without_a_matrix() -> None:
    with pytest.raises(ScenarioError, match="the scenario has no matrix"):
        points_of(SWEEP.partition("matrix:")[0], mode="flow")


def test_what_is_wrong_with_points_left_out_is_no_problem() -> None:
    """TCP knows no `paths`, and a workload of 0 senders there is not."""
    wrong = SWEEP.replace("senders: [1, 2]", "senders: [1, 0]").replace(
        "transport.kind: [tcp, uet]", "transport.kind: [tcp, uet]\n  transport.paths: [reps]"
    )
    with pytest.raises(SpecError) as caught:
        points_of(wrong)
    assert len(caught.value.problems) >= 2
    assert [point.name for point in points_of(wrong, kind="uet", senders=1, mode="flow")] == [
        "senders=1 mode=flow kind=uet paths=reps"
    ]
    with pytest.raises(SpecError):
        points_of(wrong, kind="uet", senders=0)


def test_points_are_called_as_the_file_writes_their_values() -> None:
    text = SWEEP.partition("matrix:")[0] + "matrix: {qos.buffer.alpha: [0.50, 1e0], qos.trimming: [true]}\n"
    assert [point.name for point in points_of(text)] == ["alpha=0.50 trimming=true", "alpha=1e0 trimming=true"]
    assert [point.name for point in points_of(text, alpha=1)] == ["alpha=1e0 trimming=true"]


def test_what_compares_with_a_point_left_out_is_not_judged() -> None:
    points = points_of(SWEEP)
    plain = Expectation(metric="jct", where={"mode": "flow"}, maximum=1.0)
    ratio = Expectation(metric="jct", where={"mode": "flow"}, over={"mode": "spray"}, maximum=1.0)
    assert judgeable([plain, ratio], points) == (plain, ratio)
    assert judgeable([plain, ratio], points_of(SWEEP, mode="flow")) == (plain,)
    assert judgeable([plain, ratio], points_of(SWEEP, kind="uet")) == (plain, ratio)
