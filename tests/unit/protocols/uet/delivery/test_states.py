"""The state tables of a PDC: every state can be reached and left, and the diagram says what the tables say."""

import re

import pytest

from testbed.protocols.uet.delivery.states import (
    ENDED,
    INITIATOR,
    TARGET,
    PdcEvent,
    PdcState,
    TransitionError,
    next_state,
    state_diagram,
)

Table = dict[tuple[PdcState, PdcEvent], PdcState]
SIDES = pytest.mark.parametrize(("initiator", "table"), [(True, INITIATOR), (False, TARGET)])


def reachable(table: Table, start: PdcState) -> set[PdcState]:
    found = {start}
    while True:
        more = {target for (state, _), target in table.items() if state in found} - found
        if not more:
            return found
        found |= more


@SIDES
def test_every_state_is_reached_and_every_one_has_an_end(initiator: bool, table: Table) -> None:
    states = {state for state, _ in table} | set(table.values())
    assert reachable(table, PdcState.CLOSED) == states
    for state in states - {PdcState.CLOSED}:
        assert reachable(table, state) & ENDED


def test_the_two_sides_have_all_states_between_them() -> None:
    assert {state for state, _ in INITIATOR | TARGET} | set((INITIATOR | TARGET).values()) == set(PdcState)
    assert {event for _, event in INITIATOR | TARGET} == set(PdcEvent)


def test_only_the_initiator_sends_close_cmd() -> None:
    assert not any(state in (PdcState.QUIESCE, PdcState.ACK_WAIT) for state, _ in TARGET)
    assert not any(event is PdcEvent.CLOSE_CMD for _, event in INITIATOR)


@SIDES
def test_every_open_state_survives_a_fatal_nack(initiator: bool, table: Table) -> None:
    for state in {state for state, _ in table} - {PdcState.CLOSED}:
        assert table[state, PdcEvent.FATAL] in ENDED


@SIDES
def test_what_is_not_in_the_table_is_refused(initiator: bool, table: Table) -> None:
    for state in PdcState:
        for event in PdcEvent:
            if (state, event) in table:
                assert next_state(initiator, state, event) is table[state, event]
            else:
                with pytest.raises(TransitionError, match=f"in state {state.value}: {event.value}"):
                    next_state(initiator, state, event)


def test_the_diagram_has_each_transition_once() -> None:
    text = state_diagram()
    assert text.startswith("stateDiagram-v2\n")
    arrows = re.findall(r"^ +(\w)_(\w+) --> \w_(\w+) : (.+)$", text, re.MULTILINE)
    expected = [
        (side, state.name.lower(), target.name.lower(), event.value)
        for side, table in (("i", INITIATOR), ("t", TARGET))
        for (state, event), target in table.items()
    ]
    assert sorted(arrows) == sorted(expected)
    assert text.count("[*] -->") == 2
    assert text.count("{") == text.count("}") == 2
