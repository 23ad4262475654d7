"""The states of a packet delivery context and the actions of its sender, from the tables that the code works by."""

from __future__ import annotations

from collections.abc import Mapping

from reference.markdown import code, plain, table
from testbed.protocols.uet.config import UetConfig
from testbed.protocols.uet.delivery.nacks import NACK_ACTIONS, TRIMMING
from testbed.protocols.uet.delivery.states import INITIATOR, TARGET, PdcEvent, PdcState


def page() -> str:
    """Both state tables and the table of NACK codes."""
    text = (
        "# States of a PDC\n\n"
        "A packet delivery context is in one of these states. An event that a state does not list cannot happen in it;"
        " the code raises an error there. [Packet delivery](../internals/protocols/uet-delivery.md) tells the story."
        "\n\n"
    )
    for title, states in (("The initiator", INITIATOR), ("The target", TARGET)):
        text += f"## {title}\n\n" + _table(states)
    config = UetConfig()
    trimming = " and ".join(code(nack.name) for nack in NACK_ACTIONS if nack in TRIMMING)
    text += (
        "## What a sender does about a NACK\n\n"
        f"A packet is sent again at most {config.max_nack_retx} times because it was refused (Max_NACK_Retx_Cnt); at"
        f" the next refusal its PDC ends. {trimming} do not count, nor does going back. NACK_Retx_Time is two base"
        f" round trips unless it is set; each wait after it is {config.nack_wait_growth:.1f} times as long (with"
        " default times), spread by half.\n\n"
    )
    return text + table(
        ("Code", "Action"), ((code(nack.name), plain(action.value)) for nack, action in NACK_ACTIONS.items())
    )


def _table(states: Mapping[tuple[PdcState, PdcEvent], PdcState]) -> str:
    rows = ((code(state.value), plain(event.value), code(after.value)) for (state, event), after in states.items())
    return table(("State", "Event", "Next state"), rows)
