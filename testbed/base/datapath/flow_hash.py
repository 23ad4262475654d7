"""The hash of a flow at a switch port, as the ingress program sets it (`balance` of `programs/port.bpf.c`)."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv4Address

from testbed.base.datapath.abi import FIVE_TUPLE, HashField

ROCE_PORT = 4791
"""The UDP destination port of RoCEv2 (InfiniBand volume 1, annex A17.9)."""
_UDP = 17
_WORD = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FiveTuple:
    """`protocol` is the IP protocol: 6 TCP, 17 UDP. `queue_pair` is the destination's, of a RoCE packet; 0 for none."""

    source: IPv4Address
    destination: IPv4Address
    protocol: int
    source_port: int
    destination_port: int
    queue_pair: int = 0

    @property
    def is_roce(self) -> bool:
        """Tell whether its packets are RoCEv2's, and so have a queue pair."""
        return self.protocol == _UDP and self.destination_port == ROCE_PORT


def port_hash(five: FiveTuple, seed: int, fields: Collection[HashField] = FIVE_TUPLE) -> int:
    """The hash that the kernel is told of a packet, 32 bits, at a port whose switch has this seed and heeds `fields`.

    A field that is not heeded counts as 0.
    """

    def heeded(field: HashField, value: int) -> int:
        return value if field in fields else 0

    source = heeded(HashField.SOURCE, _loaded(five.source.packed))
    destination = heeded(HashField.DESTINATION, _loaded(five.destination.packed))
    source_port = heeded(HashField.SOURCE_PORT, five.source_port)
    destination_port = heeded(HashField.DESTINATION_PORT, five.destination_port)
    ports = _loaded(source_port.to_bytes(2, "big") + destination_port.to_bytes(2, "big"))
    flow = _mix((source << 32 | destination) ^ seed << 17)
    flow = _mix((flow + (ports << 8 | heeded(HashField.PROTOCOL, five.protocol)) + seed) & _WORD)
    queue_pair = heeded(HashField.ROCE_QP, five.queue_pair) if five.is_roce else 0
    return (_mix(flow ^ queue_pair << 32) if queue_pair else flow) >> 32


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
