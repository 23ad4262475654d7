"""AES-GCM-256 of the packets between one pair of addresses, under one key and epoch: from a PDS header and what follows
to a UDP payload, and back.

Source: UE Specification 1.0, section 3.7. It is done in C where the compiled modules and libcrypto are there, else by
the `cryptography` package, which takes longer.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Final, Protocol

from testbed.transport.uet.packets.codes import UDP_HEADER_BYTES, UDP_PORT
from testbed.transport.uet.security.key_derivation import IV_BYTES

ICV_BYTES: Final = 16
_TSC_BYTES: Final = 8
_UDP_HEADER: Final = struct.Struct(">HHHH")


class PacketCipher(Protocol):
    """Either of the two. It takes what it is given for checked: ports and lengths that a UDP header holds."""

    def seal(self, source_port: int, tsc: int, header: bytes, payload: bytes | memoryview) -> bytes:
        """The UDP payload: TSS header with `tsc` (64 bits), `header` and `payload` encrypted, and ICV."""
        ...

    def open(self, source_port: int, data: bytes | memoryview) -> bytes | None:
        """What was sealed into the UDP payload `data`, TSS header and ICV included; None if its ICV is wrong."""
        ...


class _PythonCipher:
    """By the `cryptography` package."""

    __slots__ = ("_addresses", "_aead", "_header", "_header_bytes", "_invalid_tag", "_iv")

    def __init__(self, key: bytes, iv: bytes, addresses: bytes, header: bytes) -> None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._aead = AESGCM(key)
        self._invalid_tag: type[Exception] = InvalidTag
        self._iv = int.from_bytes(iv, "big")
        self._addresses = addresses
        self._header = header[:-_TSC_BYTES]
        self._header_bytes = len(header)

    def seal(self, source_port: int, tsc: int, header: bytes, payload: bytes | memoryview) -> bytes:
        front = self._header + tsc.to_bytes(_TSC_BYTES, "big")
        plain = header + payload if payload else header
        length = UDP_HEADER_BYTES + len(front) + len(plain) + ICV_BYTES
        covered = self._addresses + _UDP_HEADER.pack(source_port, UDP_PORT, length, 0) + front
        return front + self._aead.encrypt((self._iv ^ tsc).to_bytes(IV_BYTES, "big"), plain, covered)

    def open(self, source_port: int, data: bytes | memoryview) -> bytes | None:
        size = self._header_bytes
        front = bytes(data[:size])
        covered = self._addresses + _UDP_HEADER.pack(source_port, UDP_PORT, UDP_HEADER_BYTES + len(data), 0) + front
        iv = self._iv ^ int.from_bytes(front[-_TSC_BYTES:], "big")
        try:
            return self._aead.decrypt(iv.to_bytes(IV_BYTES, "big"), memoryview(data)[size:], covered)
        except self._invalid_tag:
            return None


def make_cipher(key: bytes, iv: bytes, addresses: bytes, header: bytes) -> PacketCipher:
    """Return the cipher under `key` (32 bytes) of packets between `addresses`, as `covered_addresses` has them.

    `iv` (12 bytes) and `header`, that of TSS, are those of a packet with TSC 0, by which they differ from packet to
    packet.
    """
    if has_native_cipher():
        from testbed.transport.uet.security import aes_gcm

        return aes_gcm.Cipher(key, iv, addresses, UDP_PORT, header)
    return _PythonCipher(key, iv, addresses, header)


@cache
def has_native_cipher() -> bool:
    """Tell whether the cipher in C is there. libcrypto is loaded by this, where it is."""
    try:
        from testbed.transport.uet.security import aes_gcm
    except ImportError:  # interpreted
        return False
    return aes_gcm.load()
