"""The sender's reaction to a NACK of one of its packets, by its code.

Source: UE Specification 1.0, table 3-58. The actions are confirmed by two sources, the codes by five.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from testbed.protocols.uet.packets.codes import NackCode


class NackAction(Enum):
    RETRANSMIT = "retransmit at once"
    RETRANSMIT_LATER = "retransmit after NACK_Retx_Time, and after longer each time"
    GO_BACK_N = "retransmit from this PSN on"
    RENUMBER = "retransmit everything with the Start_PSN that it tells, before the first ACK"
    ASK = "retransmit, since the peer never received it"
    FATAL = "the PDC ends; operations under way end in errors"
    WAIT = "received; its response is to come"
    IGNORE = "no action"


TRIMMING: Final = frozenset({NackCode.TRIMMED, NackCode.TRIMMED_LASTHOP})
"""A switch has trimmed the packet, which its target never refused: these count towards no limit."""

NACK_ACTIONS: Final[dict[NackCode, NackAction]] = {
    NackCode.TRIMMED: NackAction.RETRANSMIT,
    NackCode.TRIMMED_LASTHOP: NackAction.RETRANSMIT,
    NackCode.TRIMMED_ACK: NackAction.IGNORE,  # of 1.0.2 and older; reserved since 1.0.3
    NackCode.NO_PDC_AVAIL: NackAction.RETRANSMIT_LATER,
    NackCode.NO_CCC_AVAIL: NackAction.RETRANSMIT_LATER,
    NackCode.NO_BITMAP: NackAction.RETRANSMIT_LATER,
    NackCode.NO_PKT_BUFFER: NackAction.RETRANSMIT_LATER,
    NackCode.NO_GTD_DEL_AVAIL: NackAction.RETRANSMIT_LATER,
    NackCode.NO_SES_MSG_AVAIL: NackAction.RETRANSMIT_LATER,
    NackCode.NO_RESOURCE: NackAction.RETRANSMIT_LATER,
    NackCode.PSN_OOR_WINDOW: NackAction.RETRANSMIT_LATER,
    NackCode.ROD_OOO: NackAction.GO_BACK_N,
    NackCode.INV_DPDCID: NackAction.FATAL,
    NackCode.PDC_HDR_MISMATCH: NackAction.FATAL,
    NackCode.CLOSING: NackAction.FATAL,
    NackCode.CLOSING_IN_ERR: NackAction.FATAL,
    NackCode.PKT_NOT_RCVD: NackAction.ASK,
    NackCode.GTD_RESP_UNAVAIL: NackAction.FATAL,
    NackCode.ACK_WITH_DATA: NackAction.RETRANSMIT,
    NackCode.INVALID_SYN: NackAction.FATAL,
    NackCode.PDC_MODE_MISMATCH: NackAction.FATAL,
    NackCode.NEW_START_PSN: NackAction.RENUMBER,
    NackCode.RCVD_SES_PROCG: NackAction.WAIT,
    NackCode.UNEXP_EVENT: NackAction.FATAL,
    NackCode.RCVR_INFER_LOSS: NackAction.RETRANSMIT,
    NackCode.EXP_NACK_NORMAL: NackAction.IGNORE,
    NackCode.EXP_NACK_ERR: NackAction.RETRANSMIT,
    NackCode.EXP_NACK_FATAL: NackAction.FATAL,
}
