"""Header of the transport security sublayer: which key and which IV a packet is protected with.

Source: UE Specification 1.0, table 3-90, as the reference provider reads it; older drafts had 20 bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from testbed.protocols.errors import DecodeError, UsageError
from testbed.protocols.uet.packets.codes import PdsType

SHORT_BYTES: Final = 12
"""Header without an SSI."""
LONG_BYTES: Final = 16
"""Header with one."""
SHORT: Final = struct.Struct(">IQ")
LONG: Final = struct.Struct(">IIQ")

TYPE_BITS: Final[int] = PdsType.TSS << 27
SP: Final = 1 << 26
AN_SHIFT: Final = 24
COUNTER_BITS: Final = 48
TSC_BITS: Final = 64
MAX_SDI: Final = 0xFF_FFFF
MAX_SSI: Final = 0xFFFF_FFFF
MAX_EPOCH: Final = 0xFFFF
MAX_COUNTER: Final = 0xFFFF_FFFF_FFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Tsc:
    """The TSC of a TSS header: the part of the IV that differs from packet to packet of one sender."""

    epoch: int = 0
    """16 bits."""
    counter: int
    """48 bits."""


class TssHeader(NamedTuple):
    """Table 3-90: `type:5 | sp:1 | rsvd:1 | an:1 | sdi:24`, `ssi:32` if sp, `epoch:16 | counter:48`."""

    an: int
    """Association number, 0 or 1: which of the domain's two keys."""
    sdi: int
    """Secure domain identifier, 24 bits."""
    ssi: int | None
    """Secure source identifier, 32 bits; None: the source is its IP address."""
    epoch: int
    counter: int

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return SHORT_BYTES if self.ssi is None else LONG_BYTES

    def encode(self) -> bytes:
        """12 or 16 bytes; UsageError if a field does not hold its value."""
        if not (0 <= self.an <= 1 and 0 <= self.sdi <= MAX_SDI and 0 <= self.epoch <= MAX_EPOCH):
            raise UsageError(f"no TSS header holds {self}")
        if not 0 <= self.counter <= MAX_COUNTER or not 0 <= (self.ssi or 0) <= MAX_SSI:
            raise UsageError(f"no TSS header holds {self}")
        word = TYPE_BITS | self.an << AN_SHIFT | self.sdi
        tsc = self.epoch << COUNTER_BITS | self.counter
        if self.ssi is None:
            return SHORT.pack(word, tsc)
        return LONG.pack(word | SP, self.ssi, tsc)

    @classmethod
    def decode(cls, data: bytes | memoryview) -> TssHeader:
        """Reads the header at the start of `data`; the reserved bit is ignored. DecodeError if none is there."""
        if not is_protected(data):
            raise DecodeError(0, "no TSS header")
        if len(data) < SHORT_BYTES:
            raise DecodeError(len(data), "the TSS header is cut short")
        ssi: int | None = None
        word, tsc = SHORT.unpack_from(data)
        if word & SP:
            if len(data) < LONG_BYTES:
                raise DecodeError(len(data), "the TSS header is cut short")
            word, ssi, tsc = LONG.unpack_from(data)
        return cls(word >> AN_SHIFT & 1, word & MAX_SDI, ssi, tsc >> COUNTER_BITS, tsc & MAX_COUNTER)


def is_protected(data: bytes | memoryview) -> bool:
    """Does this UDP payload begin with a TSS header, by its type?"""
    return len(data) > 0 and data[0] >> 3 == PdsType.TSS
