"""The invariant CRC of RoCEv2, which covers what no switch may change, from the IP header to the end of the padding.

Source: InfiniBand Architecture Specification, volume 1, annex A17.3.3, and section 7.8.1: CRC-32 of Ethernet over eight
bytes of ones in place of the local routing header, the IP and UDP headers with what changes on the way replaced by
ones (IPv4: type of service, time to live and header checksum; IPv6: traffic class, flow label and hop limit; the UDP
checksum; byte 4 of the BTH, which has FECN and BECN), and the rest as it is. It is sent with its low byte first.

The second word of an IPv4 header is covered too: identification, flags and fragment offset. Linux gives packets that
must not be fragmented the identification 0; other senders (its soft RDMA among them) count, so that who checks must
have seen the IP header.
"""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache
from ipaddress import ip_address
from typing import Final

from testbed.protocols.datagram import DONT_FRAGMENT
from testbed.protocols.errors import DecodeError, UsageError, truncated
from testbed.protocols.roce.packets.headers import BTH_BYTES
from testbed.protocols.roce.packets.opcodes import UDP_PORT

try:
    from testbed.protocols.roce.packets import crc32
except ImportError:  # interpreted
    crc32 = None  # type: ignore[assignment]

HAS_CRC32: Final = crc32 is not None

ICRC_BYTES: Final = 4

_UDP_BYTES: Final = 8
_IPV4_BYTES: Final = 20
_IPV4: Final = struct.Struct("!8sBBHHHBBH8s")
_IPV6: Final = struct.Struct("!8sIHBB32s")
_UDP: Final = struct.Struct("!HHHH")
_LOCAL_ROUTING: Final = b"\xff" * 8
_PROTOCOL_UDP: Final = 17
_IPV4_VERSION: Final = 0x45
_IPV6_VERSION: Final = 0x6FFF_FFFF
"""Version 6; traffic class and flow label as ones."""
_VARIANT_AT: Final = 4
"""The byte of the BTH with FECN and BECN."""


@lru_cache(maxsize=4096)
def _packed(source: str, destination: str) -> bytes:
    """Source and destination as on the wire: 8 bytes for IPv4, 32 for IPv6. Raises `UsageError`."""
    try:
        first, second = ip_address(source), ip_address(destination)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if first.version != second.version:
        raise UsageError(f"{source} and {destination} are not of one address family")
    return first.packed + second.packed


@lru_cache(maxsize=4096)
def _state_before_bth(source: str, destination: str, source_port: int, udp_bytes: int, second_word: int) -> int:
    """The CRC of what is covered before the BTH, the same for all packets of a flow that are of one size.

    `second_word`: of the IPv4 header. Raises `UsageError`.
    """
    addresses = _packed(source, destination)
    try:
        udp = _UDP.pack(source_port, UDP_PORT, udp_bytes, 0xFFFF)
        if len(addresses) == 8:
            network = _IPV4.pack(
                _LOCAL_ROUTING,
                _IPV4_VERSION,
                0xFF,
                _IPV4_BYTES + udp_bytes,
                second_word >> 16,
                second_word & 0xFFFF,
                0xFF,
                _PROTOCOL_UDP,
                0xFFFF,
                addresses,
            )
        else:
            network = _IPV6.pack(_LOCAL_ROUTING, _IPV6_VERSION, udp_bytes, _PROTOCOL_UDP, 0xFF, addresses)
    except struct.error as error:
        raise UsageError(f"no IP packet holds port {source_port} and {udp_bytes} bytes of UDP: {error}") from None
    return zlib.crc32(network + udp)


def compute_icrc(
    source: str,
    destination: str,
    source_port: int,
    header: bytes,
    payload: bytes | memoryview,
    identification: int = 0,
    flags: int = DONT_FRAGMENT,
) -> int:
    """The ICRC of a packet from `source` (an IP address) to `destination`, as a number.

    `header` is what the UDP payload begins with, from the BTH on; `payload` the rest, padding included, up to where the
    ICRC stands. `identification` is that of the IPv4 header, `flags` what follows it there, fragment offset included.
    Raises `UsageError` for addresses that are none.
    """
    udp_bytes = _UDP_BYTES + len(header) + len(payload) + ICRC_BYTES
    state = _state_before_bth(source, destination, source_port, udp_bytes, identification << 16 | flags)
    return zlib.crc32(payload, zlib.crc32(_covered(header), state))


def encode_icrc(icrc: int) -> bytes:
    """The four bytes that follow the padding."""
    return icrc.to_bytes(ICRC_BYTES, "little")


class Icrc:
    """Seals or checks packets. Those of a flow come in runs, and what is covered before their BTH is the same: that of
    the last packet is kept."""

    def __init__(self) -> None:
        self._seal = _seal if crc32 is None else crc32.seal
        self._intact = _intact if crc32 is None else crc32.intact
        self._source: str = ""
        self._destination: str = ""
        self._entropy: int = 0
        self._udp_bytes: int = 0
        self._second_word: int = 0
        self._state: int = 0

    def _find_state(self, source: str, destination: str, entropy: int, udp_bytes: int, second_word: int) -> int:
        if (
            entropy != self._entropy
            or udp_bytes != self._udp_bytes
            or second_word != self._second_word
            or destination != self._destination
            or source != self._source
        ):
            self._state = _state_before_bth(source, destination, entropy, udp_bytes, second_word)
            self._source, self._destination, self._entropy = source, destination, entropy
            self._udp_bytes, self._second_word = udp_bytes, second_word
        return self._state

    def seal(
        self, source: str, destination: str, source_port: int, header: bytes, payload: bytes | memoryview, padding: int
    ) -> bytes:
        """Return what follows `header` in a packet: payload, `padding` bytes of zeros and ICRC. Raises `UsageError`."""
        udp_bytes = _UDP_BYTES + len(header) + len(payload) + padding + ICRC_BYTES
        state = self._find_state(source, destination, source_port, udp_bytes, DONT_FRAGMENT)
        return self._seal(state, header, payload, padding)

    def check(
        self,
        source: str,
        destination: str,
        source_port: int,
        data: bytes | memoryview,
        second_word: int = DONT_FRAGMENT,
    ) -> None:
        """Raise `DecodeError` unless the UDP payload `data`, BTH to ICRC, arrived as it was sent.

        `second_word`: that of the IPv4 header, with the identification.
        """
        size = len(data)
        if size < BTH_BYTES + ICRC_BYTES:
            raise truncated("a BTH with its ICRC", BTH_BYTES + ICRC_BYTES, size)
        if not self._intact(self._find_state(source, destination, source_port, _UDP_BYTES + size, second_word), data):
            raise DecodeError(size - ICRC_BYTES, "the ICRC is wrong")


class LaterIcrc(Icrc):
    """Leaves the ICRC to the port, which makes and checks it: that of an InfiniBand frame covers its LRH instead of IP
    and UDP (`testbed.protocols.infiniband.local_routing`)."""

    def seal(
        self, source: str, destination: str, source_port: int, header: bytes, payload: bytes | memoryview, padding: int
    ) -> bytes:
        """Return payload, padding and room for an ICRC."""
        return b"".join((payload, bytes(padding + ICRC_BYTES)))

    def check(
        self,
        source: str,
        destination: str,
        source_port: int,
        data: bytes | memoryview,
        second_word: int = DONT_FRAGMENT,
    ) -> None:
        """Raise `DecodeError` for a packet without room for BTH and ICRC: its port has checked the rest."""
        if len(data) < BTH_BYTES + ICRC_BYTES:
            raise truncated("a BTH with its ICRC", BTH_BYTES + ICRC_BYTES, len(data))


def check_icrc(
    source: str,
    destination: str,
    source_port: int,
    data: bytes | memoryview,
    identification: int = 0,
    flags: int = DONT_FRAGMENT,
) -> None:
    """Raise `DecodeError` unless the UDP payload `data`, BTH to ICRC, arrived as it was sent."""
    Icrc().check(source, destination, source_port, data, identification << 16 | flags)


def _covered(header: bytes | memoryview) -> bytes:
    """A header as the ICRC covers it."""
    return b"".join((header[:_VARIANT_AT], b"\xff", header[_VARIANT_AT + 1 :]))


def _seal(state: int, header: bytes, payload: bytes | memoryview, padding: int) -> bytes:
    """Do as `crc32.seal`, with zlib."""
    padded = b"".join((payload, bytes(padding))) if padding else payload
    return b"".join((padded, encode_icrc(zlib.crc32(padded, zlib.crc32(_covered(header), state)))))


def _intact(state: int, data: bytes | memoryview) -> bool:
    """Do as `crc32.intact`, with zlib."""
    view = memoryview(data)
    state = zlib.crc32(_covered(view[:BTH_BYTES]), state)
    return zlib.crc32(view[BTH_BYTES:-ICRC_BYTES], state) == int.from_bytes(view[-ICRC_BYTES:], "little")
