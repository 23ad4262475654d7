"""The headers of transactions that a scale-up frame carries, out of its bytes.

Three are known: the reliability header of Scale-Up Ethernet (SUE, OCP v1.0.0), and the request and the response of
UALink_200 Rev 1.0 (tables 5-27 to 5-38), whose fields of a transaction-layer flit stand in the frame as they stand in
the flit. Everything is big-endian, the first field in the highest bits. Reserved and spare bits are
ignored. `decode_header` raises `DecodeError` and nothing else.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from testbed.protocols.errors import DecodeError, truncated

Data = bytes | bytearray | memoryview
"""Bytes to be decoded; a memoryview is one of bytes."""


class HeaderKind(enum.IntEnum):
    """The kind of header behind the link prefix of a frame, 2 bits. The numbers are the lab's own."""

    CC_UPDATE = 0
    SUE = 1
    UALINK_REQUEST = 2
    UALINK_RESPONSE = 3


class UaCommand(enum.IntEnum):
    """The operation of a request of UALink, 6 bits. Those that a switch executes have codes of UALink's for vendors."""

    READ = 0x03
    LOAD_REDUCE = 0x08
    WRITE = 0x28
    WRITE_FULL = 0x29
    MESSAGE = 0x2A
    MULTICAST = 0x2C
    JOIN = 0x2D
    ATOMIC = 0x30


class SueHeader(NamedTuple):
    """The reliability header of SUE, 8 bytes."""

    operation: int
    """2 bits: 0 for an ACK, 1 for a NACK, or reserved. Public descriptions name the two; their numbers are assumed."""
    xpu: int
    """10 bits: the accelerator (XPU) that the frame is for."""
    next_psn: int
    """16 bits: the sequence number of this PDU."""
    vc: int
    """2 bits: the virtual channel of the transport."""
    partition: int
    """10 bits."""
    acked_psn: int
    """16 bits: the last PDU that has arrived in order the other way."""
    version: int = 0
    """2 bits."""


class UaRequest(NamedTuple):
    """An uncompressed request of UALink (FTYPE 1), 16 bytes: four sectors."""

    command: int
    """6 bits: UPLI ReqCmd, such as 0x03 read, 0x28 write, 0x29 write full, 0x30 atomic."""
    vc: int
    """2 bits."""
    address_space: int
    """2 bits (ASI)."""
    tag: int
    """11 bits."""
    pool: int
    """1 bit: the credit was taken of the pool."""
    attributes: int
    """8 bits: for an atomic its operation."""
    length: int
    """6 bits: doublewords less one."""
    metadata: int
    """8 bits."""
    address: int
    """57 bits, a multiple of 4 bytes: the two lowest do not travel."""
    source: int
    """10 bits: the accelerator that asks."""
    destination: int
    """10 bits: the accelerator that is asked."""
    cache_load: int = 0
    """1 bit: the receiver is to keep the address for compressed requests."""
    cache_way: int = 0
    """2 bits."""
    beats: int = 0
    """2 bits: beats of 64 bytes less one."""


class UaResponse(NamedTuple):
    """An uncompressed response of UALink (FTYPE 2), 8 bytes: two sectors."""

    vc: int
    """2 bits."""
    tag: int
    """11 bits: the request's."""
    pool: int
    """1 bit."""
    length: int
    """2 bits: beats of 64 bytes less one."""
    offset: int
    """2 bits: the first beat."""
    status: int
    """4 bits."""
    is_write: int
    """1 bit: 0 answers a read, 1 a write."""
    last: int
    """1 bit."""
    source: int
    """10 bits: the accelerator that answers."""
    destination: int
    """10 bits: the accelerator that asked."""


Header = SueHeader | UaRequest | UaResponse


@dataclass(frozen=True, slots=True)
class _Layout:
    """The fields of a header from the highest bit on; a number in place of a name is that many reserved bits."""

    name: str
    size: int
    fields: tuple[tuple[str, int], ...]
    make: Callable[..., Header]
    constant: int | None = None
    """The value of the field "ftype", which says which flit field this is."""


_RESERVED: Final = ""
_FTYPE: Final = "ftype"
_ADDRESS: Final = "address"

_LAYOUTS: Final = MappingProxyType(
    {
        HeaderKind.SUE: _Layout(
            "a SUE reliability header",
            8,
            (
                ("version", 2),
                ("operation", 2),
                (_RESERVED, 2),
                ("xpu", 10),
                ("next_psn", 16),
                ("vc", 2),
                (_RESERVED, 4),
                ("partition", 10),
                ("acked_psn", 16),
            ),
            SueHeader,
        ),
        HeaderKind.UALINK_REQUEST: _Layout(
            "a UALink request",
            16,
            (
                (_FTYPE, 4),
                ("command", 6),
                ("vc", 2),
                ("address_space", 2),
                ("tag", 11),
                ("pool", 1),
                ("attributes", 8),
                ("length", 6),
                ("metadata", 8),
                (_ADDRESS, 55),
                ("source", 10),
                ("destination", 10),
                ("cache_load", 1),
                ("cache_way", 2),
                ("beats", 2),
            ),
            UaRequest,
            constant=1,
        ),
        HeaderKind.UALINK_RESPONSE: _Layout(
            "a UALink response",
            8,
            (
                (_FTYPE, 4),
                ("vc", 2),
                ("tag", 11),
                ("pool", 1),
                ("length", 2),
                ("offset", 2),
                ("status", 4),
                ("is_write", 1),
                ("last", 1),
                ("source", 10),
                ("destination", 10),
                (_RESERVED, 16),
            ),
            UaResponse,
            constant=2,
        ),
    }
)
_KINDS: Final[dict[type, HeaderKind]] = {
    SueHeader: HeaderKind.SUE,
    UaRequest: HeaderKind.UALINK_REQUEST,
    UaResponse: HeaderKind.UALINK_RESPONSE,
}


def kind_of(header: Header) -> HeaderKind:
    """Return the kind that the link prefix names for a frame with this header."""
    return _KINDS[type(header)]


def command_of(header: Header) -> str:
    """The name of what a request asks for, a number where it has none; "" for what is no request."""
    if not isinstance(header, UaRequest):
        return ""
    return UaCommand(header.command).name if header.command in set(UaCommand) else f"command {header.command:#04x}"


def destination_of(header: Header) -> int:
    """The accelerator that a frame with this header is for, 10 bits: what a switch looks at."""
    return header.xpu if isinstance(header, SueHeader) else header.destination


def header_bytes(kind: HeaderKind) -> int:
    """The size of a header of a kind other than CC_UPDATE."""
    return _LAYOUTS[kind].size


def decode_header(kind: HeaderKind, data: Data, offset: int) -> Header:
    """The header of a kind other than CC_UPDATE that stands at `offset` of `data`. Raises `DecodeError`."""
    layout = _LAYOUTS[kind]
    if len(data) < offset + layout.size:
        raise truncated(layout.name, layout.size, len(data), offset)
    word = int.from_bytes(data[offset : offset + layout.size], "big")
    values: dict[str, int] = {}
    left = layout.size * 8
    for name, bits in layout.fields:
        left -= bits
        value = word >> left & ((1 << bits) - 1)
        if name == _FTYPE:
            if value != layout.constant:
                raise DecodeError(offset, f"FTYPE {value} is not that of {layout.name}")
        elif name == _ADDRESS:
            values[name] = value << 2
        elif name != _RESERVED:
            values[name] = value
    return layout.make(**values)
