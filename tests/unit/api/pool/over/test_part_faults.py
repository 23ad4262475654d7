"""Faults on a lab over several machines: each machine has its part of them, and what none can do is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from spread_lab import LOSSLESS, TOPOLOGY

from testbed.api.pool.over.messages import QUESTIONS, line_of, read_line
from testbed.api.pool.over.part_faults import fault_findings, fault_of, faults_by_machine, join_faults
from testbed.api.pool.over.run_messages import FaultsSeen, PartFault, WatchPart
from testbed.base.units import Duration
from testbed.lab.core.model import Lab
from testbed.lab.core.schema.load import load_topology
from testbed.record.samples import RunEvent
from testbed.run.schema.model import AtStep, Fault

MS = 1_000_000


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    file = tmp_path_factory.mktemp("lab") / "two.yml"
    file.write_text(TOPOLOGY.format(name="two") + LOSSLESS)
    return load_topology(file)


@pytest.fixture(scope="module")
def places(lab: Lab) -> dict[str, str]:
    second = ("p1-s2", "p1-spine2")
    return {node.name: "b" if node.name.startswith(second) else "a" for node in lab.nodes}


def port(lab: Lab, node: str, peer: str) -> str:
    """The port of a node that leads to another one."""
    ends = [(link.a, link.b) for link in lab.links] + [(link.b, link.a) for link in lab.links]
    return next(str(near) for near, far in ends if (near.node, far.node) == (node, peer))


def fault(kind: str, target: str, *, at: Duration | AtStep | None = None, **settings: Any) -> Fault:
    return Fault(
        at=at or Duration(100 * MS), until=Duration(300 * MS), kind=kind, target=target, settings=settings or {}
    )


def test_what_is_lost_is_a_matter_of_the_machine_where_a_link_ends(lab: Lab, places: Mapping[str, str]) -> None:
    near, far = port(lab, "p1-s1-rail1", "p1-spine2"), port(lab, "p1-spine2", "p1-s1-rail1")
    one_way = faults_by_machine([fault("link-set", near, rate="50%", loss=0.1)], lab, places)
    assert {name: [(one.target, one.settings) for one in found] for name, found in one_way.items()} == {
        "a": [(near, {"rate": "50%"})],
        "b": [(near, {"loss": 0.1})],
    }
    both = faults_by_machine([fault("link-set", near, rate="50%", silent=True, both=True)], lab, places)
    assert {name: sorted((one.target, *one.settings) for one in found) for name, found in both.items()} == {
        "a": sorted([(near, "rate"), (far, "silent")]),
        "b": sorted([(near, "silent"), (far, "rate")]),
    }


def test_a_fault_of_one_machine_stays_whole_there(lab: Lab, places: Mapping[str, str]) -> None:
    inside = port(lab, "p1-s2-rail1", "p1-spine2")
    cut = port(lab, "p1-spine2", "p1-s1-rail1")
    faults = [
        fault("link-set", inside, loss=0.1, both=True),
        fault("link-down", cut),
        fault("node-kill", "p1-spine1"),
    ]
    found = faults_by_machine(faults, lab, places)
    assert [fault_of(one) for one in found["b"]] == faults[:2]
    assert [fault_of(one) for one in found["a"]] == faults[2:]


def test_faults_go_over_a_connection_as_they_are() -> None:
    part = PartFault(at_ns=1, kind="link-set", target="a:b", until_ns=9, settings={"rate": "50%", "loss": 0.5})
    asked = WatchPart(lab="two", networks=("backend",), seed=1, hops=(), faults=(part,))
    assert read_line(line_of(asked), QUESTIONS) == asked


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda lab: fault("agent-kill", "p1-s1-h1"), "agent-kill of p1-s1-h1 is none"),
        (lambda lab: fault("pfc-storm", "p1-s1-rail1:port1", priority=3), "pfc-storm of"),
        (lambda lab: fault("link-down", "p1-s1-rail1:port1", at=AtStep(step=3)), "no programs"),
        (
            lambda lab: fault("link-set", port(lab, "p1-s1-rail1", "p1-spine2"), delay="1us", loss=0.1),
            "whose delay stays",
        ),
    ],
)
def test_what_no_machine_can_do_is_refused_at_its_place(
    wrong: Any, words: str, lab: Lab, places: Mapping[str, str]
) -> None:
    fine = fault("link-down", port(lab, "p1-s1-rail1", "p1-spine2"))
    [(index, finding)] = fault_findings([fine, wrong(lab)], lab, places)
    assert index == 1 and words in finding.message and finding.hint


def seen(acts: int, *, left: tuple[str, ...] = (), events: tuple[RunEvent, ...] = ()) -> FaultsSeen:
    return FaultsSeen(acts=acts, latest_s=acts / 100, troubles=left, left_changed=left, disturbed=True, events=events)


def test_what_all_machines_did_is_one_outcome_in_order_of_time() -> None:
    down, up = (RunEvent(at_s=at, kind=kind, target="x") for at, kind in ((0.1, "link-down"), (0.3, "link-up")))
    events, outcome = join_faults(
        2,
        {"a": seen(2, events=(up,)), "b": seen(1, left=("it stays down",), events=(down,))},
        {"a": "no route", "b": ""},
    )
    assert events == [down, up]
    assert (outcome.planned, outcome.acts, outcome.latest_s) == (2, 3, 0.02)
    assert outcome.troubles == ("b: it stays down", "a: no route")
    assert outcome.left_changed == ("a: no route", "b: it stays down")
