"""The PDS prologue: the 16 bits that begin every packet, and what is wrong with them.

`type:5 | next_hdr:4 | flags:7`, with `ctl_type` for `next_hdr` in control packets. Source: UE Specification 1.0.1,
section 3.5 and table 3-16 (next_hdr).
"""

from __future__ import annotations

from typing import Final

from testbed.protocols.errors import DecodeError
from testbed.protocols.uet.packets.codes import NextHeader, PdsType

Data = bytes | memoryview
"""Bytes to be decoded; a memoryview is one of bytes."""

TYPES: Final[tuple[PdsType | None, ...]] = (
    None,
    *(PdsType(number) for number in range(PdsType.TSS, PdsType.ROD_CC_REQ + 1)),
    *(None for _ in range(PdsType.ROD_CC_REQ + 1, 32)),
)
"""By `type`; None: reserved."""
NEXT_HEADERS: Final[tuple[NextHeader | None, ...]] = (*NextHeader, *(None for _ in range(len(NextHeader), 16)))
"""By `next_hdr`; None: reserved."""


def peek_type(data: Data) -> PdsType:
    """The type of a packet, which a TSS header has in the same place. Raises `DecodeError`."""
    try:
        kind = TYPES[data[0] >> 3]
    except IndexError:
        raise DecodeError(0, "an empty packet") from None
    if kind is None:
        raise reserved_type(data)
    return kind


def reserved_type(data: Data) -> DecodeError:
    return DecodeError(0, f"type {data[0] >> 3} is reserved")


def reserved_next_header(word: int) -> DecodeError:
    """`word` is the prologue."""
    return DecodeError(0, f"next_hdr {word >> 7 & 15} is reserved")
