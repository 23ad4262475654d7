"""Losses and delays that a topology declares: written into fresh maps, and into those of a lab that is changed."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from memory_maps import maps_in_memory

from testbed.base.datapath.abi import PROBABILITY_ONE
from testbed.base.datapath.maps import LabMaps
from testbed.lab.core.deploy.links.changes import declared_values
from testbed.lab.core.deploy.links.wires import change_losses, fill_wires, lead_to_delays, probability
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


def test_losses_of_a_lab_that_is_up_are_written_where_they_are_met() -> None:
    maps = filled(wired(loss=0.01))
    change_losses(maps, wired(loss=0.01), wired())
    assert not maps.ports["loss"].any()
    maps.ports["loss"][1] = 77
    change_losses(maps, wired(), wired(loss=0.5))
    assert list(maps.ports["loss"]) == [0, 77, probability(0.5)], "what was set by hand elsewhere stays"


def test_the_loss_of_a_wire_is_that_of_the_port_which_is_at_its_end_now() -> None:
    """The same port sends the same share into nothing, and another one receives it."""
    old = wired(loss=0.5)
    sender, receiver = old.ports
    more = (replace(receiver, name="z"), replace(receiver, node="c", name="w", peer=B))
    ports = (replace(sender, peer="b:z"), replace(receiver, peer="c:w"), *more)
    new = cast(LabPlan, SimpleNamespace(ports=ports, operations=(), port_numbers={A: 1, B: 2, "b:z": 3, "c:w": 4}))
    maps = maps_in_memory(4)
    fill_wires(maps, old)
    change_losses(maps, old, new)
    assert list(maps.ports["loss"]) == [0, 0, 0, probability(0.5), 0]


def test_arrivals_are_led_to_an_interface_that_is_there_and_past_one_that_goes() -> None:
    maps = filled(wired())
    operations = cast(Any, wired(delay_ns=5)).operations
    lead_to_delays(maps, operations, there=True)
    assert maps.ports.tolist() == filled(wired(delay_ns=5)).ports.tolist()
    lead_to_delays(maps, operations, there=False)
    assert maps.ports.tolist() == filled(wired()).ports.tolist()


@pytest.mark.parametrize(("share", "number"), [(0.0, 0), (1e-12, 1), (0.5, 1 << 31), (1.0, PROBABILITY_ONE)])
def test_probability(share: float, number: int) -> None:
    assert probability(share) == number
