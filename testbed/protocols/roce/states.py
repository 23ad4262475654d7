"""The states of a queue pair, and the steps between them.

A queue pair is made in RESET and can do nothing. INIT: receives can be posted. RTR, ready to receive: it knows its
peer, and executes what arrives. RTS, ready to send: it sends requests too. SQD, send queue drained: requests that have
begun go on to their end, others wait. SQE, send queue error: a request of an unreliable service has failed; it still
receives. ERR: every request, posted before or later, ends as flushed, and packets are dropped.

Source: InfiniBand Architecture Specification, volume 1, release 1.4, section 10.3.1 (figure 124).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class QpState(StrEnum):
    RESET = "RESET"
    INIT = "INIT"
    RTR = "RTR"
    RTS = "RTS"
    SQD = "SQD"
    SQE = "SQE"
    ERR = "ERR"


STEPS: Final[dict[QpState, frozenset[QpState]]] = {
    QpState.RESET: frozenset({QpState.INIT}),
    QpState.INIT: frozenset({QpState.RTR}),
    QpState.RTR: frozenset({QpState.RTS}),
    QpState.RTS: frozenset({QpState.SQD, QpState.SQE}),
    QpState.SQD: frozenset({QpState.RTS}),
    QpState.SQE: frozenset({QpState.RTS}),
    QpState.ERR: frozenset(),
}
"""By state: those that `QueuePair.modify` takes it to. RESET and ERR can be had from every state."""


def may_step(state: QpState, new: QpState) -> bool:
    """Tell whether a queue pair in `state` may become `new`."""
    return new in (QpState.RESET, QpState.ERR) or new in STEPS[state]


def state_diagram() -> str:
    """The steps as a Mermaid state diagram. RESET and ERR, which every state leads to, are told in a note."""
    lines = ["stateDiagram-v2", f"    [*] --> {QpState.RESET}"]
    lines += [f"    {state} --> {new}" for state in QpState for new in QpState if new in STEPS[state]]
    lines += [f"    note right of {QpState.ERR} : every state leads here, and to {QpState.RESET}"]
    return "\n".join(lines) + "\n"
