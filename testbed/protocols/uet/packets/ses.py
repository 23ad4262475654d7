"""SES headers: the semantic sublayer's part of a packet.

Requests are here; `ses_extensions` has what follows some of them, `responses` what answers them. Source: UE
Specification 1.0.1, section 3.4, tables 3-8 and 3-9 (standard header, 44 bytes), 3-17 (opcodes); the medium header has
32 bytes (Wireshark reads it shifted by one), the small one 20.

`decode_ses` raises `DecodeError` and nothing else: for opcodes and return codes that are reserved, versions other than
0, and headers that end early. A request whose opcode, or whose extension's, is reserved or a vendor's raises
`UnsupportedRequest`, and `request_identity` then has what its answer needs. Reserved bits are ignored.
Requests are encoded where they are sent (`semantics.messages`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from testbed.protocols.errors import DecodeError, truncated
from testbed.protocols.uet.errors import UnsupportedRequest
from testbed.protocols.uet.packets.codes import NextHeader, Opcode, RequestBit
from testbed.protocols.uet.packets.prologue import Data
from testbed.protocols.uet.packets.responses import (
    Response,
    ResponseData,
    ResponseDataSmall,
    ResponseHeader,
    decode_response,
    decode_response_data,
    decode_response_data_small,
)
from testbed.protocols.uet.packets.ses_extensions import (
    ATOMIC_OPCODES,
    RENDEZVOUS_OPCODES,
    AtomicExtension,
    CswapExtension,
    Extension,
    RendezvousExtension,
    decode_extension,
)

__all__ = [
    "AtomicExtension",
    "CswapExtension",
    "DeferrableTokens",
    "Extension",
    "MediumRequest",
    "RendezvousExtension",
    "RequestHeader",
    "Response",
    "ResponseData",
    "ResponseDataSmall",
    "ResponseHeader",
    "SesHeader",
    "SmallRequest",
    "StandardRequest",
    "decode_ses",
    "request_identity",
]

_STANDARD: Final = struct.Struct("!BBHIHHQIQQI")
_MEDIUM: Final = struct.Struct("!BBHIHHQIQ")
_SMALL: Final = struct.Struct("!BBHIHHQ")
_IDENTITY: Final = struct.Struct("!HI")
_unpack_standard: Final = _STANDARD.unpack_from
_unpack_medium: Final = _MEDIUM.unpack_from
_unpack_small: Final = _SMALL.unpack_from
_new: Final = tuple.__new__  # a named tuple in half the time that its own constructor takes

# Plain integers: arithmetic on IntFlag costs more than decoding a header.
_SOM: Final = int(RequestBit.SOM)
_HD: Final = int(RequestBit.HD)
_WHOLE: Final = int(RequestBit.SOM | RequestBit.EOM)
_WHOLE_OF_VERSION: Final = 0xC0 | _WHOLE

_EXTENDED: Final[frozenset[int]] = ATOMIC_OPCODES | RENDEZVOUS_OPCODES
_OPCODES: Final[tuple[Opcode | None, ...]] = (*Opcode, *(None for _ in range(len(Opcode), 64)))
_BARE_OPCODES: Final[tuple[Opcode | None, ...]] = tuple(None if opcode in _EXTENDED else opcode for opcode in _OPCODES)
"""Opcodes that no extension header follows, by number."""


class StandardRequest(NamedTuple):
    """The standard request header (tables 3-8 and 3-9), 44 bytes, and its extension."""

    opcode: Opcode
    flags: int
    """`RequestBit`s."""
    message_id: int
    """16 bits."""
    ri_generation: int
    """8 bits."""
    job_id: int
    """24 bits."""
    pid_on_fep: int
    """12 bits."""
    resource_index: int
    """12 bits."""
    buffer_offset: int
    """64 bits; DEFERRABLE_SEND and DEFERRABLE_TSEND: `DeferrableTokens`."""
    initiator: int
    """32 bits."""
    memory_key: int
    """64 bits: memory key or match bits, as the operation has it; DEFERRABLE_RTR: `DeferrableTokens`."""
    header_data: int
    """SOM alone: 64 bits, valid with HD."""
    payload_length: int
    """Without SOM alone: bytes of this packet, 14 bits."""
    message_offset: int
    """Without SOM alone: where in the message they belong, 32 bits."""
    request_length: int
    """Bytes of the whole message, 32 bits."""
    extension: Extension | None = None

    @property
    def tokens(self) -> DeferrableTokens | None:
        """Restart tokens of the three DEFERRABLE opcodes."""
        if self.opcode in (Opcode.DEFERRABLE_SEND, Opcode.DEFERRABLE_TSEND):
            return DeferrableTokens.from_word(self.buffer_offset)
        return DeferrableTokens.from_word(self.memory_key) if self.opcode == Opcode.DEFERRABLE_RTR else None


class MediumRequest(NamedTuple):
    """The medium request header, 32 bytes, and its extension: one packet is the message (SOM and EOM are set)."""

    opcode: Opcode
    flags: int
    """`RequestBit`s."""
    request_length: int
    """Bytes of the message, 14 bits."""
    ri_generation: int
    """8 bits."""
    job_id: int
    """24 bits."""
    pid_on_fep: int
    """12 bits."""
    resource_index: int
    """12 bits."""
    buffer_offset: int
    """Without HD alone: 64 bits."""
    header_data: int
    """With HD alone: 64 bits, in the place of `buffer_offset`."""
    initiator: int
    """32 bits."""
    memory_key: int
    """64 bits: memory key or match bits, as the operation has it."""
    extension: Extension | None = None


class SmallRequest(NamedTuple):
    """The small request header, 20 bytes, and its extension: one packet is the message, and nothing is matched."""

    opcode: Opcode
    flags: int
    """`RequestBit`s."""
    request_length: int
    """Bytes of the message, 14 bits."""
    ri_generation: int
    """8 bits."""
    job_id: int
    """24 bits."""
    pid_on_fep: int
    """12 bits."""
    resource_index: int
    """12 bits."""
    buffer_offset: int
    """64 bits."""
    extension: Extension | None = None

    @property
    def memory_key(self) -> int:
        """The resource index, which takes the place of a key (an optimised, non-matching memory region)."""
        return self.resource_index


class DeferrableTokens(NamedTuple):
    """Restart tokens of a deferrable send, by which either side finds it again."""

    initiator: int
    """32 bits."""
    target: int
    """32 bits; 0 until the target has given one."""

    @classmethod
    def from_word(cls, word: int) -> DeferrableTokens:
        return cls(word >> 32, word & 0xFFFF_FFFF)

    @property
    def word(self) -> int:
        """Return the bits as a header carries them: 64 of them."""
        return self.initiator << 32 | self.target


RequestHeader = StandardRequest | MediumRequest | SmallRequest
SesHeader = RequestHeader | ResponseHeader


def decode_ses(next_header: NextHeader, data: Data, offset: int) -> tuple[SesHeader, int]:
    """The SES header at `offset` of a packet, and the offset of the payload behind it (and its extension).

    Raises `DecodeError`, with offsets from the start of `data`; for NONE too.
    """
    return _DECODERS[next_header](data, offset)


def request_identity(next_header: NextHeader, data: Data, offset: int) -> tuple[int, int]:
    """message_id (0 where the header has none) and JobID of a request for which `UnsupportedRequest` was raised."""
    message_id, job = _IDENTITY.unpack_from(data, offset + 2)
    return message_id if next_header is NextHeader.REQUEST_STD else 0, job & 0xFF_FFFF


def _decode_standard(data: Data, offset: int) -> tuple[StandardRequest, int]:
    first: int
    flags: int
    job: int
    pid: int
    index: int
    try:
        first, flags, message_id, job, pid, index, buffer_offset, initiator, memory_key, word, length = (
            _unpack_standard(data, offset)
        )
    except struct.error:
        raise truncated("REQUEST_STD", _STANDARD.size, len(data), offset) from None
    opcode = _BARE_OPCODES[first & 0x3F]
    extension: Extension | None = None
    end = offset + 44
    if opcode is None or flags > 0x3F:
        opcode = _checked_opcode(first, flags, offset)
        extension, end = decode_extension(opcode, data, end)
    if flags & _SOM:
        header_data = word
        payload_length = message_offset = 0
    else:
        header_data = 0
        payload_length = word >> 32 & 0x3FFF
        message_offset = word & 0xFFFF_FFFF
    fields = (
        opcode,
        flags,
        message_id,
        job >> 24,
        job & 0xFF_FFFF,
        pid & 0xFFF,
        index & 0xFFF,
        buffer_offset,
        initiator,
        memory_key,
        header_data,
        payload_length,
        message_offset,
        length,
        extension,
    )
    return _new(StandardRequest, fields), end


def _decode_medium(data: Data, offset: int) -> tuple[MediumRequest, int]:
    try:
        first, flags, length, job, pid, index, word, initiator, memory_key = _unpack_medium(data, offset)
    except struct.error:
        raise truncated("REQUEST_MEDIUM", _MEDIUM.size, len(data), offset) from None
    opcode, extension, end = _decode_single(first, flags, data, offset, offset + 32)
    buffer_offset, header_data = (0, word) if flags & _HD else (word, 0)
    fields = (
        opcode,
        flags,
        length & 0x3FFF,
        job >> 24,
        job & 0xFF_FFFF,
        pid & 0xFFF,
        index & 0xFFF,
        buffer_offset,
        header_data,
        initiator,
        memory_key,
        extension,
    )
    return _new(MediumRequest, fields), end


def _decode_small(data: Data, offset: int) -> tuple[SmallRequest, int]:
    try:
        first, flags, length, job, pid, index, buffer_offset = _unpack_small(data, offset)
    except struct.error:
        raise truncated("REQUEST_SMALL", _SMALL.size, len(data), offset) from None
    opcode, extension, end = _decode_single(first, flags, data, offset, offset + 20)
    fields = (
        opcode,
        flags,
        length & 0x3FFF,
        job >> 24,
        job & 0xFF_FFFF,
        pid & 0xFFF,
        index & 0xFFF,
        buffer_offset,
        extension,
    )
    return _new(SmallRequest, fields), end


def _decode_nothing(data: Data, offset: int) -> tuple[SesHeader, int]:
    raise DecodeError(offset, "next_hdr NONE: no SES header follows")


_DECODERS: Final[tuple[Callable[[Data, int], tuple[SesHeader, int]], ...]] = (
    _decode_nothing,
    _decode_small,
    _decode_medium,
    _decode_standard,
    decode_response,
    decode_response_data,
    decode_response_data_small,
)
"""By `NextHeader`."""


def _decode_single(first: int, flags: int, data: Data, offset: int, end: int) -> tuple[Opcode, Extension | None, int]:
    """Return what medium and small headers have in common: `end` is where the extension begins."""
    opcode = _BARE_OPCODES[first & 0x3F]
    if opcode is not None and flags & _WHOLE_OF_VERSION == _WHOLE:
        return opcode, None, end
    opcode = _checked_opcode(first, flags, offset)
    if flags & _WHOLE != _WHOLE:
        raise DecodeError(offset + 1, "SOM and EOM must be set in a medium or small header")
    if opcode in RENDEZVOUS_OPCODES:
        raise UnsupportedRequest(offset, f"{opcode.name} needs a message_id, and with it a standard header")
    extension, end = decode_extension(opcode, data, end)
    return opcode, extension, end


def _checked_opcode(first: int, flags: int, offset: int) -> Opcode:
    if flags > 0x3F:  # what follows may be laid out otherwise, so that it cannot be answered
        raise DecodeError(offset + 1, f"version {flags >> 6} is unknown")
    number = first & 0x3F
    opcode = _OPCODES[number]
    if opcode is None:
        whose = "reserved" if number < 0x30 else "extended" if number == 0x3F else "a vendor's"
        raise UnsupportedRequest(offset, f"opcode 0x{number:02x} is {whose}")
    return opcode
