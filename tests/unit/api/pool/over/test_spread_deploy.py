"""The two phases of a deploy over machines, as each of them is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from testbed.api.pool.over import messages
from testbed.api.pool.over.agreement import SpreadAgreement
from testbed.api.pool.over.deploy import SpreadOptions, _carry_out
from testbed.api.pool.over.machines import ANSWER_S, PartMachine
from testbed.api.pool.over.messages import PartLost
from testbed.api.pool.over.part_server import new_key
from testbed.api.pool.over.records import SpreadMachine
from testbed.lab.core.deploy.steps import ignore_steps
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.machines.part import LabPart

FABRIC = "name: asked\nfabric: {design: rail-optimized, segments: 2, hosts: 2, gpus: 1, spines: 2}\n"


class Answering:
    """A machine that answers as it should, and keeps what it was told and for how long it was waited for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.told: list[object] = []
        self.waited_s: dict[type, float] = {}

    def tell(self, message: object) -> None:
        self.told.append(message)

    def answer(
        self, kind: type, on_step: Callable[..., object] = lambda _: None, *, timeout_s: float = ANSWER_S
    ) -> object:
        self.waited_s[kind] = timeout_s
        return messages.Up(nodes=4, seconds=1.0) if kind is messages.Up else messages.Claimed()


def test_routing_may_take_as_long_as_was_asked_for_before_a_machine_is_taken_for_lost() -> None:
    part = LabPart(machine="a", places={}, address="10.0.0.1", device="eth0", peers={})
    agreement = SpreadAgreement(
        k=1000,
        reason="",
        slot=1,
        delay_by="",
        reaction_ns=1,
        parts={"a": part, "b": replace(part, machine="b")},
        key=new_key(),
    )
    parts: Any = [Answering("a"), Answering("b")]
    lab = load_topology_text(FABRIC, file="<text>")
    found = _carry_out(lab, agreement, parts, SpreadOptions(timeout_s=2000.0), ignore_steps)
    assert found == {"a": 4, "b": 4}
    for each in parts:
        assert each.waited_s == {messages.Claimed: ANSWER_S, messages.Up: ANSWER_S + 2000.0}
        asked, go = each.told
        assert asked.key == agreement.key and isinstance(go, messages.Go)


def test_a_machine_that_says_nothing_is_lost_after_the_time_that_it_has() -> None:
    machine = PartMachine(SpreadMachine(name="a", ssh="root@a"))
    with pytest.raises(PartLost, match="a has not answered within 0 s"):
        machine.answer(messages.Up, timeout_s=0.0)
    machine.end()
    machine.end()
