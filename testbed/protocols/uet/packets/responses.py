"""SES response headers: what a target answers to a request, without and with data.

Source: UE Specification 1.0.1, table 3-11 (RESPONSE, 12 bytes), RESPONSE_DATA (20 bytes), RESPONSE_DATA_SMALL (12
bytes), tables 3-18 (opcodes) and 3-19 (return codes). `payload_length` has 14 bits; xdp2 alone declares 12. Opcodes and
return codes that are reserved are refused, for they decide what an answer says; the reserved lists are taken.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from testbed.protocols.errors import DecodeError, truncated
from testbed.protocols.uet.packets.codes import ResponseList, ResponseOpcode, ReturnCode
from testbed.protocols.uet.packets.prologue import Data

RESPONSE: Final = struct.Struct("!BBHII")
RESPONSE_DATA: Final = struct.Struct("!BBHIHHII")
RESPONSE_DATA_SMALL: Final = struct.Struct("!BBHII")
"""The three headers, for who has their fields at hand and has made sure that they fit."""
_unpack_response: Final = RESPONSE.unpack_from
_unpack_response_data: Final = RESPONSE_DATA.unpack_from
_new: Final = tuple.__new__  # a named tuple in half the time that its own constructor takes

_HEADS: Final[tuple[tuple[ResponseList, ResponseOpcode] | None, ...]] = tuple(
    (ResponseList(byte >> 6), ResponseOpcode(byte & 0x3F)) if byte & 0x3F < 4 else None for byte in range(256)
)
"""By the first byte, `list:2 | opcode:6`."""
_RETURN_CODES: Final[dict[int, ReturnCode]] = {int(code): code for code in ReturnCode}
"""By the second byte, `ver:2 | return_code:6`, with version 0."""


class Response(NamedTuple):
    """RESPONSE (table 3-11), 12 bytes."""

    list: ResponseList
    opcode: ResponseOpcode
    return_code: ReturnCode
    message_id: int
    """16 bits: the request's."""
    job_id: int
    """24 bits."""
    modified_length: int
    """Bytes of the message that the target took, 32 bits."""
    ri_generation: int = 0
    """8 bits."""


class ResponseData(NamedTuple):
    """RESPONSE_DATA, 20 bytes, before data that a standard request asked for."""

    list: ResponseList
    opcode: ResponseOpcode
    return_code: ReturnCode
    message_id: int
    """16 bits: the response's own."""
    job_id: int
    """24 bits."""
    read_request_message_id: int
    """16 bits: the request's."""
    payload_length: int
    """Bytes that follow in this packet, 14 bits."""
    modified_length: int
    """Bytes of the whole answer, 32 bits."""
    message_offset: int
    """The offset at which the payload belongs, in bytes, 32 bits."""


class ResponseDataSmall(NamedTuple):
    """RESPONSE_DATA_SMALL, 12 bytes, before data that a small or medium request asked for."""

    list: ResponseList
    opcode: ResponseOpcode
    return_code: ReturnCode
    payload_length: int
    """Bytes that follow in this packet, 14 bits."""
    job_id: int
    """24 bits."""
    original_request_psn: int
    """PSN of the request, which has no message ID."""


ResponseHeader = Response | ResponseData | ResponseDataSmall


def decode_response(data: Data, offset: int) -> tuple[Response, int]:
    """The header at `offset`, and the offset behind it. Raises `DecodeError`."""
    try:
        first, second, message_id, job, modified_length = _unpack_response(data, offset)
    except struct.error:
        raise truncated("RESPONSE", RESPONSE.size, len(data), offset) from None
    head = _HEADS[first]
    return_code = _RETURN_CODES.get(second)
    if head is None or return_code is None:
        raise _bad_head(first, second, offset)
    place, opcode = head
    fields = (place, opcode, return_code, message_id, job & 0xFF_FFFF, modified_length, job >> 24)
    return _new(Response, fields), offset + 12


def decode_response_data(data: Data, offset: int) -> tuple[ResponseData, int]:
    """The header at `offset`, and the offset behind it. Raises `DecodeError`."""
    try:
        first, second, message_id, job, request, payload_length, modified_length, message_offset = (
            _unpack_response_data(data, offset)
        )
    except struct.error:
        raise truncated("RESPONSE_DATA", RESPONSE_DATA.size, len(data), offset) from None
    head = _HEADS[first]
    return_code = _RETURN_CODES.get(second)
    if head is None or return_code is None:
        raise _bad_head(first, second, offset)
    place, opcode = head
    job &= 0xFF_FFFF
    payload_length &= 0x3FFF
    fields = (place, opcode, return_code, message_id, job, request, payload_length, modified_length, message_offset)
    return _new(ResponseData, fields), offset + 20


def decode_response_data_small(data: Data, offset: int) -> tuple[ResponseDataSmall, int]:
    """The header at `offset`, and the offset behind it. Raises `DecodeError`."""
    try:
        first, second, payload_length, job, psn = RESPONSE_DATA_SMALL.unpack_from(data, offset)
    except struct.error:
        raise truncated("RESPONSE_DATA_SMALL", RESPONSE_DATA_SMALL.size, len(data), offset) from None
    head = _HEADS[first]
    return_code = _RETURN_CODES.get(second)
    if head is None or return_code is None:
        raise _bad_head(first, second, offset)
    place, opcode = head
    fields = (place, opcode, return_code, payload_length & 0x3FFF, job & 0xFF_FFFF, psn)
    return _new(ResponseDataSmall, fields), offset + 12


def _bad_head(first: int, second: int, offset: int) -> DecodeError:
    if _HEADS[first] is None:
        return DecodeError(offset, f"response opcode {first & 0x3F} is reserved")
    if second >> 6:
        return DecodeError(offset + 1, f"version {second >> 6} is unknown")
    return DecodeError(offset + 1, f"return code 0x{second:02x} is reserved")
