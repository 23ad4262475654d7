"""What the pause agent is told of a lab that is changed: the ports that there are, and those that are leaving."""

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.daemons.portd.attachment import LabAttachment
from testbed.lab.core.deploy.pausing import attachment as module
from testbed.lab.core.deploy.pausing.attachment import attachment_of, change_attachment
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.qos.numbers import keep_numbers, numbers_of
from testbed.lab.core.schema.load import load_topology_text

TEXT = """name: one
fabric: {{design: rail-optimized, segments: 1, hosts: {hosts}, gpus: 1, spines: 1}}
qos: {{preset: {preset}, buffer: {{shared: 100MB}}}}
"""
RUN, STATE = Path("/run/one"), Path("/state/one")


def planned(hosts: int, preset: str = "dcqcn") -> LabPlan:
    return plan_lab(load_topology_text(TEXT.format(hosts=hosts, preset=preset), file="one.yml"), k=10_000)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[[LabPlan, LabPlan], list[LabAttachment]]:
    """Returns what the agent is told when a lab of the one plan becomes one of the other."""
    found: list[LabAttachment] = []

    class Agent:
        def __init__(self, run: Path) -> None:
            assert run == Path("/run")

        def attach(self, lab: LabAttachment) -> None:
            found.append(lab)

    monkeypatch.setattr(module, "PauseAgent", Agent)

    def change(old: LabPlan, new: LabPlan) -> list[LabAttachment]:
        found.clear()
        change_attachment(old, new, Path("/run"), RUN, STATE)
        return list(found)

    return change


def test_ports_that_leave_are_served_until_they_are_gone(
    told: Callable[[LabPlan, LabPlan], list[LabAttachment]],
) -> None:
    few = planned(2)
    more = keep_numbers(planned(3), numbers_of(few))
    (came,) = told(few, more)
    assert came == attachment_of(more, RUN, STATE), "none leaves"
    (gone,) = told(more, keep_numbers(few, numbers_of(more)))
    names = {f"{port.node}:{port.interface}" for port in gone.ports}
    assert {"p1-s1-h3:rail1", "p1-s1-rail1:down3"} <= names
    assert sorted(port.number for port in gone.ports) == sorted(port.number for port in came.ports)


def test_nobody_is_told_of_what_stays(told: Callable[[LabPlan, LabPlan], list[LabAttachment]]) -> None:
    assert told(planned(2), planned(2)) == []
    assert told(planned(2), planned(2, "uec")) == [], "no class is lossless any more, which leaving tells"
    assert told(planned(2, "uec"), planned(2)) == [attachment_of(planned(2), RUN, STATE)]
