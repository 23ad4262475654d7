"""The payload of a probe: which stream it belongs to and which packet of it this is.

    magic "TBP1" | key, 8 bytes | stream, 32 bits | sequence number, 32 bits          (network byte order)

The key is drawn for each run, so that nobody's packets, nor late ones of the run before, are taken for this run's.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

MAGIC = b"TBP1"
KEY_BYTES = 8
_PAYLOAD = struct.Struct(f"!4s{KEY_BYTES}sII")
PAYLOAD_BYTES = _PAYLOAD.size
FRAME_BYTES = 14 + 20 + 8 + PAYLOAD_BYTES
"""With the Ethernet, IPv4 and UDP headers that a shaped port counts. Too short to be trimmed."""


class ProbeNumber(NamedTuple):
    stream: int
    sequence: int


def encode_probe(key: bytes, number: ProbeNumber) -> bytes:
    """The payload. Raises `struct.error` for numbers of more than 32 bits."""
    return _PAYLOAD.pack(MAGIC, key, number.stream, number.sequence)


def decode_probe(key: bytes, payload: bytes) -> ProbeNumber | None:
    """Return what a payload of this key says; None for whatever else arrives. Raises nothing, whatever the bytes."""
    if len(payload) != PAYLOAD_BYTES:
        return None
    magic, of, stream, sequence = _PAYLOAD.unpack(payload)
    return ProbeNumber(stream, sequence) if magic == MAGIC and of == key else None
