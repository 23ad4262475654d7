"""The labs of a record in its report: one by its name, several by theirs, with the points measured on each."""

import re
from dataclasses import replace

from recorded import load

from testbed.record.record import LabSummary, Record
from testbed.record.report import render_report
from testbed.record.report.scenario.configuration import facts
from testbed.record.report.scenario.labs import describe_lab, labs_of, named_labs


def on_labs(*changes: dict[str, object]) -> Record:
    """A record, each of whose first points has its lab with these changes, and no other points."""
    record = load("permutation-lb")
    points = [
        replace(point, lab=replace(point.lab, **change))  # type: ignore[arg-type]
        for point, change in zip(record.points, changes, strict=False)
    ]
    assert len(points) == len(changes)
    return replace(record, points=points)


def lab_of(record: Record) -> LabSummary:
    return record.points[0].lab


def test_a_lab_at_several_time_scales_is_one() -> None:
    record = on_labs({"k": 2000.0}, {"k": 4000.0, "nic_bps": 1})
    (one,) = labs_of(record)
    assert named_labs(labs_of(record)) == lab_of(record).name
    assert len(one.points) == 2
    assert dict(facts(record, record.points[0]))["Time scale"].startswith("k = 2000 to 4000")


def test_several_labs_are_named_at_the_head_and_at_their_points() -> None:
    record = on_labs({"name": "pod-a"}, {"name": "pod-b", "hosts": 4}, {"name": "pod-c", "design": ""})
    page = render_report(record)
    assert "Scenario on pod-a, pod-b and pod-c, " in page
    for name in ("pod-a", "pod-b", "pod-c"):
        assert page.count(f"<small>on {name}</small>") == 1
        assert len(re.findall(rf'<p class="note">On {name}, [^<]+ NICs in ', page)) == 1
        assert f"<dt>Lab {name}</dt>" in page
    assert "On pod-c, hand-written: " in page
    assert "Of the first point, on pod-a." in page


def test_shapes_of_one_topology_have_one_name_and_are_counted() -> None:
    record = on_labs({"hosts": 4}, {"hosts": 8}, {"hosts": 16})
    assert named_labs(labs_of(record)) == f"{lab_of(record).name} in 3 shapes"


def test_many_labs_are_counted() -> None:
    record = on_labs({})
    point = record.points[0]
    points = [replace(point, lab=replace(point.lab, name=f"lab{number}")) for number in range(9)]
    assert named_labs(labs_of(replace(record, points=points))) == "lab0, lab1, lab2, lab3 and 5 more labs"


def test_one_of_a_kind_is_told_as_one() -> None:
    lab = replace(lab_of(on_labs({})), design="", hosts=1, nics=1, switches={"rail": 1, "spine": 2})
    assert describe_lab(lab) == "hand-written: 1 NIC in 1 host, 1 rail switch and 2 spine switches"


def test_the_only_lab_is_told_as_ever() -> None:
    record = load("permutation")
    page = render_report(record)
    assert f"Scenario on {lab_of(record).name}, " in page and "<small>on " not in page
    assert [name for name, _ in facts(record, record.points[0])][:3] == ["Fabric", "Links", "Routing"]
