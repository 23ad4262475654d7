"""The states of a queue pair: the steps of figure 124, and the diagram of them."""

from __future__ import annotations

import itertools

import pytest

from testbed.protocols.roce.states import STEPS, QpState, may_step, state_diagram


@pytest.mark.parametrize("state", QpState)
def test_every_state_leads_to_reset_and_to_the_error(state: QpState) -> None:
    assert may_step(state, QpState.RESET) and may_step(state, QpState.ERR)


def test_a_queue_pair_comes_to_send_in_three_steps() -> None:
    way = [QpState.RESET, QpState.INIT, QpState.RTR, QpState.RTS]
    assert all(may_step(state, new) for state, new in itertools.pairwise(way))
    assert not may_step(QpState.RESET, QpState.RTS)
    assert not may_step(QpState.ERR, QpState.RTS)


def test_the_diagram_has_every_step_once() -> None:
    lines = state_diagram().splitlines()
    assert lines[0] == "stateDiagram-v2"
    steps = [line.split() for line in lines if "-->" in line and "[*]" not in line]
    assert {(QpState(first), QpState(last)) for first, _, last in steps} == {
        (state, new) for state in QpState for new in STEPS[state]
    }
    assert len(steps) == sum(map(len, STEPS.values()))
