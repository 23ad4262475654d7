"""`run --prove-scale`: which points run again, and when two scales agree."""

from dataclasses import replace

import pytest
from recorded import NAMES, load

from testbed.base.errors import ScenarioError
from testbed.record.record import Outcome, Record
from testbed.run.schema.file import load_scenario_text
from testbed.run.sweep.points import plan_points
from testbed.run.sweep.scale_proof import at_twice_the_scale, check_provable, compare_scales, with_proof

SCENARIO = "name: x\ntopology: {file: x.yml, set: {fabric.hosts: 4}}\nworkload: {kind: permutation}\n"


@pytest.fixture(scope="module")
def record() -> Record:
    """One of several points with shares and ratios."""
    found = list(map(load, NAMES))
    return next(one for one in found if one.points[0].metrics and not one.incomplete)


def slowed(record: Record, factor: float) -> Record:
    points = [
        replace(
            point,
            lab=replace(point.lab, k=2 * point.lab.k),
            metrics=[
                replace(metric, median=None if metric.median is None else metric.median * factor)
                for metric in point.metrics
            ],
        )
        for point in record.points
    ]
    return replace(record, points=points)


def test_points_run_again_at_twice_their_own_scale(record: Record) -> None:
    [point] = plan_points(load_scenario_text(SCENARIO, file="s.yml").scenario)
    at_5000 = replace(record, points=[replace(record.points[0], name="", lab=replace(record.points[0].lab, k=5000.0))])
    [again] = at_twice_the_scale([point], at_5000)
    assert dict(again.topology.set) == {"fabric.hosts": 4, "scale.time": 10000.0}
    assert again.name == point.name
    assert at_twice_the_scale([point], replace(at_5000, points=[])) == ()


def test_figures_that_agree_prove_the_scale(record: Record) -> None:
    proof = compare_scales(record, slowed(record, 1.05))
    assert proof
    assert all(item.ok and item.difference < 0.06 for item in proof)
    proved = with_proof(record, proof)
    assert proved.scale_proof == proof
    assert proved.verdict == record.verdict


def test_figures_that_differ_make_the_record_invalid(record: Record) -> None:
    proof = compare_scales(record, slowed(record, 0.8))
    assert not all(item.ok for item in proof)
    judged = with_proof(record, proof)
    assert judged.verdict.outcome is Outcome.INVALID
    assert any("at twice that: they differ by 20%" in reason for reason in judged.verdict.reasons)


def test_only_shares_and_ratios_are_compared_and_rare_events_are_not(record: Record) -> None:
    names = {item.metric for item in compare_scales(record, slowed(record, 1.0))}
    assert names <= {
        metric.name for point in record.points for metric in point.metrics if metric.unit in ("share", "ratio")
    }
    tiny = replace(
        record,
        points=[
            replace(point, metrics=[replace(metric, median=0.001) for metric in point.metrics])
            for point in record.points
        ],
    )
    assert all(item.ok for item in compare_scales(tiny, slowed(tiny, 5)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("faults: [{at: 1s, link: 'a:b', down: true}]\n", "times of faults are lab time"),
        ("matrix: {scale.time: [1000, 2000]}\n", "changes the scale itself"),
    ],
)
def test_scenarios_whose_scale_cannot_be_proved(text: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        check_provable(load_scenario_text(SCENARIO + text, file="s.yml").scenario)
