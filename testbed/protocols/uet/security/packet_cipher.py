"""AES-GCM-256 of the packets between one pair of addresses, under one key and epoch: from a PDS header and what follows
to a UDP payload, and back.

Source: UE Specification 1.0, section 3.7. It is done in C where the compiled modules and libcrypto are there, else by
the `cryptography` package. 4 KiB take 1.6 us to seal and 1.5 us to open in C (0.45 us of each, whatever the length),
and twice as long otherwise.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Final, Protocol

from testbed.protocols.datagram import Outgoing
from testbed.protocols.uet.packets.codes import UDP_HEADER_BYTES, UDP_PORT
from testbed.protocols.uet.packets.covered_header import MAX_UDP_PAYLOAD_BYTES
from testbed.protocols.uet.security.key_derivation import IV_BYTES

ICV_BYTES: Final = 16
MAX_UDP_PORT: Final = 0xFFFF
_COUNTER_BYTES: Final = 6
"""At the end of both the IV and the TSS header."""
_UDP_HEADER: Final = struct.Struct(">HHHH")
_new: Final = tuple.__new__  # a named tuple in half the time that its own constructor takes


class PacketCipher(Protocol):
    """Either of the two."""

    def seal(self, datagrams: list[Outgoing], start: int, most: int, counter: int, out: list[Outgoing]) -> int:
        """Append to `out` what is sent in the place of `datagrams[start:]`, and return how many that are.

        They are those that go to one address, at most `most`, up to one whose port or length no UDP header holds. The
        first has the packet counter `counter` (48 bits).
        """

    def counter_of(self, data: bytes | memoryview) -> int:
        """Return the counter in the TSS header that the UDP payload `data` begins with.

        It is -1 if that header differs from this cipher's in anything else, or none is there.
        """

    def open(self, source_port: int, data: bytes | memoryview) -> bytes | None:
        """Return the bytes that were sealed into the UDP payload `data`; None if its ICV is wrong.

        It is as long as TSS header and ICV at least, and a UDP header holds `source_port` and its length.
        """


class _PythonCipher:
    """By the `cryptography` package."""

    def __init__(self, key: bytes, iv: bytes, addresses: bytes, header: bytes) -> None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._aead = AESGCM(key)
        self._invalid_tag: type[Exception] = InvalidTag
        self._iv = int.from_bytes(iv, "big")
        self._addresses = addresses
        self._front = header[:-_COUNTER_BYTES]
        self._header = struct.Struct(f">{len(self._front)}sHI")

    def seal(self, datagrams: list[Outgoing], start: int, most: int, counter: int, out: list[Outgoing]) -> int:
        remote = datagrams[start].remote
        count = 0
        for destination, entropy, priority, header, payload in datagrams[start : start + most]:
            plain = header + payload if payload else header
            length = self._header.size + len(plain) + ICV_BYTES
            if destination != remote or not 0 <= entropy <= MAX_UDP_PORT or length > MAX_UDP_PAYLOAD_BYTES:
                break
            front = self._front + (counter + count).to_bytes(_COUNTER_BYTES, "big")
            covered = self._addresses + _UDP_HEADER.pack(entropy, UDP_PORT, UDP_HEADER_BYTES + length, 0) + front
            iv = (self._iv ^ counter + count).to_bytes(IV_BYTES, "big")
            sealed = front + self._aead.encrypt(iv, plain, covered)
            out.append(_new(Outgoing, (destination, entropy, priority, sealed, b"")))
            count += 1
        return count

    def counter_of(self, data: bytes | memoryview) -> int:
        if len(data) < self._header.size:
            return -1
        front, high, low = self._header.unpack_from(data)
        return high << 32 | low if front == self._front else -1

    def open(self, source_port: int, data: bytes | memoryview) -> bytes | None:
        size = self._header.size
        _, high, low = self._header.unpack_from(data)
        iv = (self._iv ^ (high << 32 | low)).to_bytes(IV_BYTES, "big")
        udp_header = _UDP_HEADER.pack(source_port, UDP_PORT, UDP_HEADER_BYTES + len(data), 0)
        try:
            return self._aead.decrypt(iv, data[size:], b"".join((self._addresses, udp_header, data[:size])))
        except self._invalid_tag:
            return None


def make_cipher(key: bytes, iv: bytes, addresses: bytes, header: bytes) -> PacketCipher:
    """Return the cipher under `key` (32 bytes) of packets between `addresses`, as `covered_addresses` has them.

    `iv` (12 bytes) and `header`, that of TSS, are those of the packet with counter 0, by which packets differ.
    """
    if has_native_cipher():
        from testbed.protocols.uet.security import aes_gcm

        return aes_gcm.Cipher(key, iv, addresses, UDP_PORT, header)
    return _PythonCipher(key, iv, addresses, header)


@cache
def has_native_cipher() -> bool:
    """Tell whether the cipher in C is there. libcrypto is loaded by this, where it is."""
    try:
        from testbed.protocols.uet.security import aes_gcm
    except ImportError:  # interpreted
        return False
    return aes_gcm.load()
