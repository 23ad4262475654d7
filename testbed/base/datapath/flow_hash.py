"""The hash of a flow at a switch port, as the ingress program sets it (`balance` of `programs/port.bpf.c`)."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from ipaddress import IPv4Address

_WORD = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FiveTuple:
    """`protocol` is the IP protocol: 6 TCP, 17 UDP."""

    source: IPv4Address
    destination: IPv4Address
    protocol: int
    source_port: int
    destination_port: int


def port_hash(five: FiveTuple, seed: int) -> int:
    """The hash that the kernel is told of a packet, 32 bits, at a port whose switch has this seed."""
    addresses = _loaded(five.source.packed) << 32 | _loaded(five.destination.packed)
    ports = _loaded(five.source_port.to_bytes(2, "big") + five.destination_port.to_bytes(2, "big"))
    flow = _mix(addresses ^ seed << 17)
    return _mix((flow + (ports << 8 | five.protocol) + seed) & _WORD) >> 32


def _loaded(data: bytes) -> int:
    """As the program reads bytes of the packet into a number."""
    return int.from_bytes(data, sys.byteorder)


def _mix(x: int) -> int:
    """The finaliser of MurmurHash3."""
    x ^= x >> 33
    x = x * 0xFF51AFD7ED558CCD & _WORD
    x ^= x >> 33
    x = x * 0xC4CEB9FE1A85EC53 & _WORD
    return x ^ x >> 33
