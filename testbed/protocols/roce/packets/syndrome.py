"""The syndrome of an AETH: an acknowledgement with credits, "receiver not ready" with its timer, or a NAK with a code.

Source: InfiniBand Architecture Specification, volume 1, release 1.4, section 9.7.5.2.1 (tables 45 and 46) and section
9.7.5.2.8 (table 49, the timer codes of RNR NAK); end-to-end credits: section 9.7.7.2.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

ACK: Final = 0x00
RNR_NAK: Final = 0x20
NAK: Final = 0x60
_KIND: Final = 0x60
_VALUE: Final = 0x1F
UNLIMITED_CREDITS: Final = 0x1F
"""The responder gives no end-to-end credits: the requester need not count receives."""


class NakCode(IntEnum):
    """Why a request was refused."""

    PSN_SEQUENCE_ERROR = 0
    """A packet before this one is missing: send again from the PSN of the NAK on."""
    INVALID_REQUEST = 1
    REMOTE_ACCESS_ERROR = 2
    REMOTE_OPERATIONAL_ERROR = 3
    INVALID_RD_REQUEST = 4


RNR_TIMERS_NS: Final[tuple[int, ...]] = tuple(
    10_000 * hundredths
    for hundredths in (
        65_536,
        *(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192),
        *(256, 384, 512, 768, 1_024, 1_536, 2_048, 3_072, 4_096, 6_144, 8_192),
        *(12_288, 16_384, 24_576, 32_768, 49_152),
    )
)
"""The time that a requester waits after an RNR NAK, by its timer code: 0 is the longest, 655.36 ms; 1 is 10 us."""


def kind_of(syndrome: int) -> int:
    """`ACK`, `RNR_NAK` or `NAK`; any other value is reserved."""
    return syndrome & _KIND


def value_of(syndrome: int) -> int:
    """Return an ACK's credit count, an RNR NAK's timer code, or a NAK's code."""
    return syndrome & _VALUE


def ack(credit_count: int = UNLIMITED_CREDITS) -> int:
    """The syndrome of an acknowledgement."""
    return ACK | credit_count


def rnr_nak(timer_code: int) -> int:
    """The syndrome of "receiver not ready"."""
    return RNR_NAK | timer_code


def nak(code: NakCode) -> int:
    """The syndrome of a refusal."""
    return NAK | code
