"""Control ordered sets (CtlOS) of the link layer: 8 bytes each, which a real port inserts into a running frame.

| D0 | D1 | D2 to D4[7:4] | D4[3:0] | D5 to D7 |
|---|---|---|---|---|
| 0x5C | type | 20 bits: sequence number, or VC 5 and count 15 | 0x6 (O-code) | by type |

Of LLR_INIT and LLR_INIT_ECHO, D5 and D6 are `init_data`, low byte first; of CF_Update, D5 to D7[7:4] are the second
VC with its count. LINK_SIGNAL is the lab's own; D5 and D6 are as those of LLR_INIT. The rest is reserved, and ignored.
Source: Ultra Ethernet Specification 1.0.1, tables 5-7 and 5-8 (LLR), 5-20 and 5-21 (CF_Update), section 6.2, as public
descriptions quote them. `decode_ctlos` raises `DecodeError` and nothing else.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from testbed.protocols.errors import DecodeError, truncated
from testbed.protocols.scale_up.headers import Data

CTLOS_BYTES: Final = 8
CONTROL_CHARACTER: Final = 0x5C
O_CODE: Final = 0x6
COUNT_BITS: Final = 15
COUNT_MASK: Final = (1 << COUNT_BITS) - 1
"""The lowest bits of a counter of 20 bits, which are in a CF_Update."""
VCS: Final = 32


class CtlosType(enum.IntEnum):
    """D1."""

    LLR_ACK = 0x01
    LLR_NACK = 0x02
    LLR_INIT = 0x03
    LLR_INIT_ECHO = 0x04
    CF_UPDATE = 0x10
    LINK_SIGNAL = 0x7F


class Ack(NamedTuple):
    """LLR_ACK: every frame up to this one has arrived."""

    sequence: int
    """20 bits."""


class Nack(NamedTuple):
    """LLR_NACK: the frame after this one is missing, this one and those before have arrived."""

    sequence: int
    """20 bits."""


class Init(NamedTuple):
    """LLR_INIT: the sender of frames begins, with this sequence number."""

    sequence: int
    """20 bits: that of the first frame."""
    data: int
    """16 bits, by which the sender knows its echo."""


class InitEcho(NamedTuple):
    """LLR_INIT_ECHO: the receiver of frames has taken over what LLR_INIT said."""

    sequence: int
    data: int


class CfUpdate(NamedTuple):
    """CF_Update: the credits that the receiver has freed so far, of two VCs, which may be the same."""

    vc1: int
    """5 bits."""
    count1: int
    """15 bits: the lowest of the receiver's counter R_CF."""
    vc2: int
    count2: int


class LinkSignal(NamedTuple):
    """LINK_SIGNAL, the lab's own: what the wire is like where a real port would see it at its receiver.

    It comes first in each control frame of an end as long as it is so, and the other end does as it says.
    """

    level: int
    """20 bits: of 2**20 parts of the link's rate, so many are left; 0: there is no signal."""
    reason: int = 0
    """16 bits; 1: nobody serves this end any more."""


GONE: Final = LinkSignal(level=0, reason=1)


Ctlos = Ack | Nack | Init | InitEcho | CfUpdate | LinkSignal


def decode_ctlos(data: Data, offset: int = 0) -> Ctlos:
    """The ordered set at `offset`. Raises `DecodeError`, for a type that is not known, too."""
    if len(data) < offset + CTLOS_BYTES:
        raise truncated("a CtlOS", CTLOS_BYTES, len(data), offset)
    if data[offset] != CONTROL_CHARACTER:
        raise DecodeError(offset, f"control character {data[offset]:#04x} instead of {CONTROL_CHARACTER:#04x}")
    first = int.from_bytes(data[offset + 2 : offset + 5], "big")
    last = int.from_bytes(data[offset + 5 : offset + 8], "big")
    if first & 15 != O_CODE:
        raise DecodeError(offset + 4, f"O-code {first & 15:#x} instead of {O_CODE:#x}")
    first >>= 4
    match data[offset + 1]:
        case CtlosType.LLR_ACK:
            return Ack(first)
        case CtlosType.LLR_NACK:
            return Nack(first)
        case CtlosType.LLR_INIT:
            return Init(first, last >> 16 | last & 0xFF00)
        case CtlosType.LLR_INIT_ECHO:
            return InitEcho(first, last >> 16 | last & 0xFF00)
        case CtlosType.LINK_SIGNAL:
            return LinkSignal(first, last >> 16 | last & 0xFF00)
        case CtlosType.CF_UPDATE:
            last >>= 4
            return CfUpdate(first >> COUNT_BITS, first & COUNT_MASK, last >> COUNT_BITS, last & COUNT_MASK)
        case kind:
            raise DecodeError(offset + 1, f"type {kind:#04x} of a CtlOS is not known")
