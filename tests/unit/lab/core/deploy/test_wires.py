"""Losses and delays that a topology declares: written into fresh maps, and into those of a lab that is changed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from memory_maps import maps_in_memory

from testbed.base.datapath.abi import PROBABILITY_ONE
from testbed.base.datapath.maps import LabMaps
from testbed.lab.core.deploy.links.changes import declared_values
from testbed.lab.core.deploy.links.wires import change_wires, fill_wires, forget_wires, probability
from testbed.lab.core.fabric import generate_fabric
from testbed.lab.core.fabric.params import FabricParams
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.link_delays import delay_operation

A, B = "a:x", "b:y"
"""Two ports, 1 and 2, of one link."""


def wired(*, loss: float = 0.0, delay_ns: int = 0) -> LabPlan:
    """A plan of one link, on which `a` loses a share of what it sends, and receives the rest so late."""
    port = plan_lab(generate_fabric(FabricParams(design="rail-only", hosts=2, gpus=1), name="x"), k=1).ports[0]
    ports = (replace(port, node="a", name="x", peer=B, loss=loss), replace(port, node="b", name="y", peer=A))
    delay = delay_operation(ports[0], 1, rate_bps=1, delay_ns=delay_ns, jitter_ns=0, has_qos=True)
    operations = (delay,) if delay_ns else ()
    return cast(LabPlan, SimpleNamespace(ports=ports, operations=operations, port_numbers={A: 1, B: 2}))


def filled(plan: LabPlan) -> LabMaps:
    maps = maps_in_memory(2)
    fill_wires(maps, plan)
    return maps


def test_declared_losses_and_delays_are_in_fresh_maps() -> None:
    plan = wired(loss=0.01, delay_ns=1)
    maps = filled(plan)
    assert list(maps.ports["loss"]) == [0, 0, probability(0.01)]
    (delay,) = cast(Any, plan).operations
    assert list(maps.ports["delay_ifindex"]) == [0, delay.ifb_ifindex, 0]
    assert declared_values(plan.ports[0]).loss == 0.01


@pytest.mark.parametrize("old", [wired(), wired(loss=0.01), wired(delay_ns=5), wired(loss=0.5, delay_ns=5)])
@pytest.mark.parametrize("new", [wired(), wired(loss=0.01), wired(delay_ns=9), wired(loss=0.1, delay_ns=9)])
def test_a_changed_wire_is_the_one_that_is_meant(old: LabPlan, new: LabPlan) -> None:
    maps = filled(old)
    forget_wires(maps, old, new)
    change_wires(maps, old, new)
    assert maps.ports.tolist() == filled(new).ports.tolist()


def test_a_delay_is_left_before_its_interface_goes() -> None:
    maps = filled(wired(delay_ns=5))
    forget_wires(maps, wired(delay_ns=5), wired())
    assert not maps.ports["delay_ifindex"].any()


def test_a_loss_that_was_set_by_hand_stays_where_the_topology_says_what_it_said() -> None:
    maps = filled(wired(loss=0.01))
    maps.ports["loss"][2] = 77
    change_wires(maps, wired(loss=0.01), wired(loss=0.01, delay_ns=5))
    assert maps.ports["loss"][2] == 77


@pytest.mark.parametrize(("share", "number"), [(0.0, 0), (1e-12, 1), (0.5, 1 << 31), (1.0, PROBABILITY_ONE)])
def test_probability(share: float, number: int) -> None:
    assert probability(share) == number
