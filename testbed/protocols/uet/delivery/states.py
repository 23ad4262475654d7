"""The states of a PDC, as tables, and the diagram that is drawn from them.

Source: UE Specification 1.0, section 3.5.8 (establishment) and 3.5.9 (teardown). The initiator alone closes.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from testbed.protocols.errors import TransportError


class PdcState(Enum):
    CLOSED = "closed"
    CREATING = "creating"
    """Initiator: sends with SYN until the first ACK tells the target's PDCID."""
    ESTABLISHED = "established"
    QUIESCE = "quiesce"
    """Initiator: takes no new messages; waits until every PSN is acknowledged and cleared."""
    ACK_WAIT = "ack-wait"
    """Initiator: CLOSE_CMD is sent; waits for its ACK."""
    CLOSE_WAIT = "close-wait"
    """Target: has asked for the end (CLOSE_REQ) and waits for CLOSE_CMD."""
    ERROR = "error"
    """Given up; what was on its way ended in errors."""


class PdcEvent(Enum):
    SEND_SYN = "first packet is sent"
    RECEIVE_SYN = "packet with SYN arrives"
    RECEIVE_ACK = "first ACK arrives"
    CLOSE = "close is asked for"
    QUIET = "everything is acknowledged and cleared"
    CLOSE_ACKED = "ACK of CLOSE_CMD arrives"
    CLOSE_CMD = "CLOSE_CMD arrives"
    CLOSE_REQ = "target wants to close"
    FATAL = "fatal NACK, or retries are used up"


INITIATOR: Final[dict[tuple[PdcState, PdcEvent], PdcState]] = {
    (PdcState.CLOSED, PdcEvent.SEND_SYN): PdcState.CREATING,
    (PdcState.CREATING, PdcEvent.RECEIVE_ACK): PdcState.ESTABLISHED,
    (PdcState.CREATING, PdcEvent.CLOSE): PdcState.QUIESCE,
    (PdcState.CREATING, PdcEvent.FATAL): PdcState.ERROR,
    (PdcState.ESTABLISHED, PdcEvent.CLOSE): PdcState.QUIESCE,
    (PdcState.ESTABLISHED, PdcEvent.FATAL): PdcState.ERROR,
    (PdcState.QUIESCE, PdcEvent.RECEIVE_ACK): PdcState.QUIESCE,
    (PdcState.QUIESCE, PdcEvent.QUIET): PdcState.ACK_WAIT,
    (PdcState.QUIESCE, PdcEvent.FATAL): PdcState.ERROR,
    (PdcState.ACK_WAIT, PdcEvent.RECEIVE_ACK): PdcState.ACK_WAIT,
    (PdcState.ACK_WAIT, PdcEvent.CLOSE_ACKED): PdcState.CLOSED,
    (PdcState.ACK_WAIT, PdcEvent.FATAL): PdcState.CLOSED,
}
TARGET: Final[dict[tuple[PdcState, PdcEvent], PdcState]] = {
    (PdcState.CLOSED, PdcEvent.RECEIVE_SYN): PdcState.ESTABLISHED,
    (PdcState.ESTABLISHED, PdcEvent.CLOSE_CMD): PdcState.CLOSED,
    (PdcState.ESTABLISHED, PdcEvent.CLOSE_REQ): PdcState.CLOSE_WAIT,
    (PdcState.ESTABLISHED, PdcEvent.FATAL): PdcState.ERROR,
    (PdcState.CLOSE_WAIT, PdcEvent.CLOSE_CMD): PdcState.CLOSED,
    (PdcState.CLOSE_WAIT, PdcEvent.FATAL): PdcState.ERROR,
}
ENDED: Final = frozenset({PdcState.CLOSED, PdcState.ERROR})


class TransitionError(TransportError):
    """A state met an event that the tables do not have: a fault of ours, never of a packet."""


def next_state(initiator: bool, state: PdcState, event: PdcEvent) -> PdcState:
    """Raises `TransitionError` where the table has no such transition."""
    try:
        return (INITIATOR if initiator else TARGET)[state, event]
    except KeyError:
        side = "initiator" if initiator else "target"
        raise TransitionError(f"{side} in state {state.value}: {event.value}") from None


def state_diagram() -> str:
    """Both tables as a Mermaid state diagram."""
    lines = ["stateDiagram-v2"]
    for side, table in (("initiator", INITIATOR), ("target", TARGET)):
        lines.append(f"    state {side} {{")
        prefix = side[0]
        lines.append(f"        [*] --> {prefix}_closed")
        names = dict.fromkeys(state for (state, _), _ in table.items()) | dict.fromkeys(table.values())
        lines += [f'        state "{state.value}" as {prefix}_{state.name.lower()}' for state in names]
        for (state, event), target in table.items():
            lines.append(f"        {prefix}_{state.name.lower()} --> {prefix}_{target.name.lower()} : {event.value}")
        lines.append("    }")
    return "\n".join(lines) + "\n"
