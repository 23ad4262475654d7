"""Datagrams of sFlow version 5, in XDR (RFC 4506): bytes out, and no I/O.

Sources: sFlow Version 5 (sflow_version_5.txt, sFlow.org, July 2004) for datagrams, flow and counter samples;
sflow_drops.txt for discarded packets and egress queues; sflow_transit.txt for the depth of a queue. The numbers of
structures are those of sFlow.org's list (structures.php).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address

VERSION = 5
PORT = 6343
"""The UDP port of collectors (IANA, sflow)."""
MAX_DATAGRAM_BYTES = 1400
"""The most that a datagram has, as the specification advises against fragments."""
SUB_AGENT = 0
_IPV4 = 1
_FLOW_SAMPLE, _COUNTERS_SAMPLE, _DISCARDED_PACKET = 1, 2, 5
_SAMPLED_HEADER, _EGRESS_QUEUE, _FUNCTION, _QUEUE_DEPTH = 1, 1036, 1038, 1040
_GENERIC_COUNTERS, _PORT_NAME = 1, 1005
_ETHERNET_ISO88023 = 1
_FCS_BYTES = 4
INTERNAL = 0x3FFF_FFFF
"""The interface of packets that the switch itself sends or takes."""
_U32 = 0xFFFF_FFFF


class DropReason:
    """Numbers of `enum drop_reason` (sflow_drops.txt). All below 256 are codes of ICMP."""

    NO_BUFFER_SPACE = 259
    RED = 260
    TRAFFIC_SHAPING = 261
    UNKNOWN_BUFFER = 287


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceCounters:
    """The generic counters of an interface (if_counters)."""

    ifindex: int
    name: str
    speed_bps: int
    up: bool
    in_octets: int
    in_packets: int
    in_discards: int
    out_octets: int
    out_packets: int
    out_discards: int


def datagram(agent: IPv4Address, sequence: int, uptime_ms: int, samples: Sequence[bytes]) -> bytes:
    """A datagram of samples, as `flow_sample` and its siblings make them. Numbers go on from 0 behind 2^32."""
    head = struct.pack(
        ">II4sIIII", VERSION, _IPV4, agent.packed, SUB_AGENT, sequence & _U32, uptime_ms & _U32, len(samples)
    )
    return head + b"".join(samples)


HEADER_BYTES = len(datagram(IPv4Address(0), 0, 0, []))


def flow_sample(  # noqa: PLR0913  # the fields of the structure
    *,
    sequence: int,
    source: int,
    rate: int,
    pool: int,
    drops: int,
    ingress: int,
    egress: int,
    records: Sequence[bytes],
) -> bytes:
    """A packet that was sampled at the interface `source`, one in `rate` of the `pool` that there were."""
    head = struct.pack(
        ">IIIIIIII", sequence & _U32, source, rate, pool & _U32, drops & _U32, ingress, egress, len(records)
    )
    return _tagged(_FLOW_SAMPLE, head + b"".join(records))


def discarded_packet(
    *, sequence: int, source: int, drops: int, ingress: int, egress: int, reason: int, records: Sequence[bytes]
) -> bytes:
    """A packet that was dropped; `drops` are those that nobody was told of, for there were too many."""
    head = struct.pack(">IIIIIIII", sequence & _U32, 0, source, drops & _U32, ingress, egress, reason, len(records))
    return _tagged(_DISCARDED_PACKET, head + b"".join(records))


def counters_sample(*, sequence: int, counters: InterfaceCounters) -> bytes:
    """The counters of an interface, with its name."""
    up = 3 if counters.up else 0  # bit 0: ifAdminStatus, bit 1: ifOperStatus
    generic = struct.pack(
        ">IIQIIQIIIIIIQIIIIII",
        *(counters.ifindex, 6, counters.speed_bps, 1, up),  # 6: ethernetCsmacd; 1: full duplex
        *(counters.in_octets, counters.in_packets & _U32, 0, 0, counters.in_discards & _U32, 0, 0),
        *(counters.out_octets, counters.out_packets & _U32, 0, 0, counters.out_discards & _U32, 0),
        0,
    )
    records = [_tagged(_GENERIC_COUNTERS, generic), _tagged(_PORT_NAME, _opaque(counters.name.encode()))]
    head = struct.pack(">III", sequence & _U32, counters.ifindex, len(records))
    return _tagged(_COUNTERS_SAMPLE, head + b"".join(records))


def sampled_header(header: bytes, frame_bytes: int) -> bytes:
    """The first bytes of an Ethernet frame, whose length is told with the check sequence that it had on the wire."""
    head = struct.pack(">III", _ETHERNET_ISO88023, frame_bytes + _FCS_BYTES, _FCS_BYTES)
    return _tagged(_SAMPLED_HEADER, head + _opaque(header))


def egress_queue(queue: int) -> bytes:
    """The number of the queue that was chosen for the packet (extended_egress_queue)."""
    return _tagged(_EGRESS_QUEUE, struct.pack(">I", queue))


def queue_depth(depth_bytes: int) -> bytes:
    """The bytes that were in that queue (extended_queue)."""
    return _tagged(_QUEUE_DEPTH, struct.pack(">I", min(depth_bytes, _U32)))


def function(symbol: str) -> bytes:
    """The name of what dropped the packet (extended_function)."""
    return _tagged(_FUNCTION, _opaque(symbol.encode()))


def _tagged(number: int, content: bytes) -> bytes:
    """A structure of sFlow.org (enterprise 0) with its number and length."""
    return struct.pack(">II", number, len(content)) + content


def _opaque(content: bytes) -> bytes:
    """Bytes of any number, filled up to a multiple of four."""
    return struct.pack(">I", len(content)) + content + bytes(-len(content) % 4)
