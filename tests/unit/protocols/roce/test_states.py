"""The diagram of the states of a queue pair (figure 124)."""

from testbed.protocols.roce.states import STEPS, QpState, state_diagram


def test_the_diagram_has_every_step_once() -> None:
    lines = state_diagram().splitlines()
    assert lines[0] == "stateDiagram-v2"
    steps = [line.split() for line in lines if "-->" in line and "[*]" not in line]
    assert {(QpState(first), QpState(last)) for first, _, last in steps} == {
        (state, new) for state in QpState for new in STEPS[state]
    }
    assert len(steps) == sum(map(len, STEPS.values()))
