"""Containers of a lab that is changed: those that are new are started, and others made anew where that is allowed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from testbed.lab.core.deploy.changing.refusal import ChangeRefused
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.drivers.nodes.changing import kernel_changes
from testbed.lab.core.fabric import FabricParams, generate_fabric
from testbed.lab.core.model import Lab
from testbed.lab.core.model.containers import Container
from testbed.lab.core.plan.changes import Allow, Effect
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.operations import StartContainer
from testbed.lab.features.containers.change import ContainersChange, containers_change

FIRST, LAST = "p1-s1-h1", "p1-s1-h3"


def model(hosts: int, contained: dict[str, str]) -> Lab:
    """A lab of which some hosts are containers of an image."""
    return in_containers(FabricParams(design="single-switch", hosts=hosts, gpus=1), contained)


def fabric(contained: dict[str, str]) -> Lab:
    """A lab whose switches route, of which some nodes are containers of an image."""
    return in_containers(FabricParams(design="rail-optimized", hosts=2, gpus=1, spines=1), contained)


def in_containers(params: FabricParams, contained: dict[str, str]) -> Lab:
    made = generate_fabric(params, name="lab")
    nodes = tuple(
        replace(node, container=Container(image=contained[node.name], runtime="docker"))
        if node.name in contained
        else node
        for node in made.nodes
    )
    return replace(made, nodes=nodes)


def asked(old: Lab, new: Lab) -> ContainersChange | None:
    running = cast(RunningLab, SimpleNamespace(plan=plan_lab(old, k=1000)))
    return containers_change(running, plan_lab(new, k=1000))


def test_a_container_more_is_started_and_nothing_else() -> None:
    old, new = model(2, {FIRST: "a"}), model(3, {FIRST: "a", LAST: "b"})
    assert asked(old, old) is None
    found = asked(old, new)
    assert found is not None
    assert [(row.effect, row.node, row.what, row.detail) for row in found.rows] == [
        (Effect.MADE, LAST, f"container {LAST}", "b")
    ]
    kernel = kernel_changes(plan_lab(old, k=1000), plan_lab(new, k=1000))
    assert not kernel.created and not any(isinstance(item, StartContainer) for item in kernel.made)
    assert LAST in kernel.places, "its namespace is there when its links are made"


def test_a_container_less_is_a_node_less() -> None:
    old, new = model(3, {FIRST: "a", LAST: "b"}), model(2, {FIRST: "a"})
    found = asked(old, new)
    assert found is not None and not found.rows, "the node's row says it"
    assert kernel_changes(plan_lab(old, k=1000), plan_lab(new, k=1000)).gone == (LAST,)


@pytest.mark.parametrize(
    ("before", "after", "detail"),
    [
        ({FIRST: "a"}, {FIRST: "b"}, "image a -> b"),
        ({}, {FIRST: "a"}, "a container of a"),
        ({FIRST: "a"}, {}, "no container any more"),
    ],
)
def test_a_node_that_would_be_another_one_is_made_anew_where_that_is_allowed(
    before: dict[str, str], after: dict[str, str], detail: str
) -> None:
    old, new = model(2, before), model(2, after)
    found = asked(old, new)
    assert found is not None
    (row,) = found.rows
    assert (row.effect, row.node, row.detail, row.allow) == (Effect.REMADE, FIRST, detail, Allow.RECREATE)
    assert "what runs in it" in row.at_stake
    assert not kernel_changes(plan_lab(old, k=1000), plan_lab(new, k=1000)), "its links stay as they are"


def test_a_switch_whose_daemons_would_run_elsewhere_is_refused() -> None:
    switch = "p1-s1-rail1"
    with pytest.raises(ChangeRefused, match=f"{switch}, whose routing daemons .* container of a") as caught:
        asked(fabric({}), fabric({switch: "a"}))
    assert "deploy --reconfigure" in (caught.value.hint or "")
