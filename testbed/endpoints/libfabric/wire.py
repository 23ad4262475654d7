"""The words between a provider in a program and the process with the endpoints: fixed headers, little endian.

`testbed/native/libfabric/wire.h` is the same in C, and says what each field means to each kind; a contract test
compares both.
"""

from __future__ import annotations

import struct
from enum import IntEnum, IntFlag
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple

VERSION: Final = 1
INLINE_BYTES: Final = 4096
PLACES: Final = 8
BODY_BYTES: Final = 8448
TRANSMITS: Final = 4096
RECEIVES: Final = 16384
ENDPOINTS: Final = 15
MESSAGE_BYTES: Final = 1 << 28
KEY_BITS: Final = 48
RAIL_BYTES: Final = 16


class RequestKind(IntEnum):
    """The questions and operations of a provider."""

    RAIL = 1
    HELLO = 2
    OPEN_ENDPOINT = 3
    CLOSE_ENDPOINT = 4
    REGISTER = 5
    DEREGISTER = 6
    SEND = 7
    TAGGED_SEND = 8
    RECEIVE = 9
    TAGGED_RECEIVE = 10
    PEEK = 11
    CANCEL = 12
    WRITE = 13
    READ = 14
    ATOMIC = 15


class ReplyKind(IntEnum):
    """The replies that a provider gets."""

    ANSWER = 1
    DONE = 2
    WRITTEN = 3


class WireFlag(IntFlag):
    """The flags of requests and replies."""

    INLINE = 1
    HAS_DATA = 2
    DIRECTED = 4
    MULTI = 8
    CLAIM = 16
    DISCARD = 32
    FETCH = 64
    COMPARE = 128
    ORDERED = 256
    LAST = 512
    OWN_KEY = 1024


_DONE: Final = int(ReplyKind.DONE)
REQUEST: Final = struct.Struct("<HHIQQQQQHH16sHH")
REPLY: Final = struct.Struct("<HHIQQQQQHH16sHH")
PLACE: Final = struct.Struct("<QQ")

Place = tuple[int, int]
"""An address of a program's memory, and how many bytes are there."""
PeerName = tuple[bytes, int, int]
"""The IP address as 16 bytes, PIDonFEP and resource index of an endpoint."""
NOBODY: Final[PeerName] = (bytes(16), 0, 0)


class ProviderRequest(NamedTuple):
    """The header of a request, in the order of its fields."""

    kind: int
    flags: int
    body: int
    id: int
    length: int
    tag: int
    ignore: int
    data: int
    endpoint: int
    places: int
    address: bytes
    pid: int
    resource: int

    @property
    def peer(self) -> PeerName:
        """Return the name of the peer that it is about."""
        return self.address, self.pid, self.resource


class ProviderReply(NamedTuple):
    """A reply, in the order of its fields."""

    kind: int
    flags: int = 0
    error: int = 0
    id: int = 0
    length: int = 0
    tag: int = 0
    data: int = 0
    offset: int = 0
    endpoint: int = 0
    code: int = 0
    peer: PeerName = NOBODY

    def encode(self) -> bytes:
        """Return it as bytes."""
        return REPLY.pack(*self[:10], *self.peer)


def encode_done(  # noqa: PLR0913  # the fields of a reply
    id: int,
    *,
    error: int = 0,
    flags: int = 0,
    length: int = 0,
    tag: int = 0,
    data: int = 0,
    offset: int = 0,
    code: int = 0,
    peer: PeerName = NOBODY,
) -> bytes:
    """Return the reply that an operation has ended: what most replies are, so no object is made of it."""
    return REPLY.pack(_DONE, flags, error, id, length, tag, data, offset, 0, code, *peer)


class ProviderWireError(Exception):
    """A provider says what none of ours does: its connection ends."""


def decode_places(body: bytes, count: int) -> tuple[Place, ...]:
    """Return the places that a body consists of. Raises `ProviderWireError`."""
    if count > PLACES or len(body) != count * PLACE.size:
        raise ProviderWireError(f"{len(body)} bytes are not {count} places")
    return (PLACE.unpack(body),) if count == 1 else tuple(PLACE.iter_unpack(body))


@lru_cache(maxsize=4096)
def address_bytes(text: str) -> bytes:
    """Return an IP address as the 16 bytes that names have: those of IPv4 as ::ffff:a.b.c.d."""
    address = ip_address(text)
    return address.packed if isinstance(address, IPv6Address) else b"\0" * 10 + b"\xff\xff" + address.packed


def address_text(packed: bytes) -> str:
    """Return the IP address that 16 bytes of a name are, as text."""
    mapped = IPv6Address(packed).ipv4_mapped
    return str(IPv6Address(packed)) if mapped is None else str(IPv4Address(mapped))


def encode_rail(name: str, address: str) -> bytes:
    """Return the answer to RAIL: the interface's name, and the address of its endpoint."""
    packed = name.encode().ljust(RAIL_BYTES, b"\0")
    tag, data = struct.unpack("<QQ", packed[:RAIL_BYTES])
    return ProviderReply(kind=ReplyKind.ANSWER, tag=tag, data=data, peer=(address_bytes(address), 0, 0)).encode()
