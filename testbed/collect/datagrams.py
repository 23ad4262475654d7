"""UDP datagrams in captured frames, and what switches did to them: Ethernet, Linux cooked or raw IP below IPv4 or IPv6.

Source: RFC 768 (UDP), 791 (IPv4), 8200 (IPv6), 2474 (DSCP), 3168 (ECN); tcpdump's LINKTYPE_ pages. A trimming switch
shortens a packet and leaves UDP's length as it was (UE Specification 1.0, section 4.1), by which it is recognised here.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from testbed.collect.pcap import CapturedFrame

UDP_HEADER_BYTES = 8

ETHERNET = 1
LINUX_COOKED = 113
LINUX_COOKED_2 = 276
RAW_IP = frozenset((12, 14, 101, 228, 229))
"""LINKTYPE_RAW with what some systems write for it, LINKTYPE_IPV4 and LINKTYPE_IPV6."""
_LINK_HEADERS = {ETHERNET: (12, 14), LINUX_COOKED: (14, 16), LINUX_COOKED_2: (0, 20)}
"""Where the EtherType stands, and bytes in all."""
LINK_TYPES = frozenset(_LINK_HEADERS) | RAW_IP
"""Those that are understood here."""

_IPV4 = 0x0800
_IPV6 = 0x86DD
_VLAN_TAGS = frozenset((0x8100, 0x88A8, 0x9100))
_UDP = 17

_HOP_BY_HOP, _ROUTING, _FRAGMENT, _AUTHENTICATION, _DESTINATION = 0, 43, 44, 51, 60
_MOBILITY, _HIP, _SHIM6 = 135, 139, 140
_SIZED_IN_EIGHTS = frozenset((_HOP_BY_HOP, _ROUTING, _DESTINATION, _MOBILITY, _HIP, _SHIM6))


@dataclass(frozen=True, slots=True)
class CapturedDatagram:
    """A UDP datagram, and what was seen of it on its way."""

    frame: int
    """`CapturedFrame.number`."""
    time_ns: int | None
    source: str
    destination: str
    source_port: int
    """The entropy value of a UET packet."""
    destination_port: int
    dscp: int
    ecn: int
    """0 not ECT, 1 ECT(1), 2 ECT(0), 3 CE."""
    length: int
    """Bytes of payload that UDP's length announces."""
    payload: bytes
    """As much of them as is there."""
    trimmed: bool
    """The IP packet ends before the datagram does: a switch trimmed it."""
    snapped: bool
    """The capture ends before the packet does."""
    fragment: bool
    """The first fragment of a datagram; the others are not found."""
    identification: int = 0
    """Of the IPv4 header, which the ICRC of RoCE covers, as it does the next; both are 0 over IPv6."""
    flags: int = 0
    """The 16 bits behind the identification: flags, and the fragment offset."""


@dataclass(frozen=True, slots=True)
class _Carrier:
    """An IP packet's header as far as its payload is concerned."""

    source: str
    destination: str
    traffic_class: int
    payload_at: int
    payload_end: int
    """In the frame on the wire; past the end of the data where the capture was limited."""
    fragment: bool
    identification: int
    flags: int


def find_datagram(frame: CapturedFrame, *ports: int) -> CapturedDatagram | None:
    """The datagram to one of the UDP ports `ports` that `frame` carries.

    None: another protocol or port, a later fragment, headers that are cut or broken before the ports, a link type that
    is not of `LINK_TYPES`.

    A length below 8 in the UDP header counts as 8, but 0 as all that is there (RFC 2675, segmentation offload).
    """
    data = frame.data
    start = _network_start(frame)
    if start is None:
        return None
    protocol, at = start
    carrier = _ipv4(frame, at) if protocol == _IPV4 else _ipv6(frame, at) if protocol == _IPV6 else None
    if carrier is None or len(data) < carrier.payload_at + UDP_HEADER_BYTES:
        return None
    source_port, destination_port, length, _ = struct.unpack_from("!HHHH", data, carrier.payload_at)
    if destination_port not in ports:
        return None
    there = max(carrier.payload_end - carrier.payload_at, UDP_HEADER_BYTES)
    sent = max(length, UDP_HEADER_BYTES) if length else there
    whole = min(sent, there)
    payload = data[carrier.payload_at + UDP_HEADER_BYTES : carrier.payload_at + whole]
    return CapturedDatagram(
        frame=frame.number,
        time_ns=frame.time_ns,
        source=carrier.source,
        destination=carrier.destination,
        source_port=source_port,
        destination_port=destination_port,
        dscp=carrier.traffic_class >> 2,
        ecn=carrier.traffic_class & 3,
        length=sent - UDP_HEADER_BYTES,
        payload=payload,
        trimmed=sent > there and not carrier.fragment,
        snapped=len(payload) < whole - UDP_HEADER_BYTES,
        fragment=carrier.fragment,
        identification=carrier.identification,
        flags=carrier.flags,
    )


def _network_start(frame: CapturedFrame) -> tuple[int, int] | None:
    """EtherType of the network layer, and where it begins."""
    data = frame.data
    if frame.link_type in RAW_IP:
        return (_IPV6 if data[:1] >= b"\x60" else _IPV4), 0
    if frame.link_type not in _LINK_HEADERS:
        return None
    place, at = _LINK_HEADERS[frame.link_type]
    if len(data) < at:
        return None
    protocol = int.from_bytes(data[place : place + 2], "big")
    while protocol in _VLAN_TAGS:
        if len(data) < at + 4:
            return None
        protocol = int.from_bytes(data[at + 2 : at + 4], "big")
        at += 4
    return protocol, at


def _ipv4(frame: CapturedFrame, at: int) -> _Carrier | None:
    data = frame.data
    if len(data) < at + 20 or data[at] >> 4 != 4:
        return None
    header = (data[at] & 15) * 4
    length, fragment = int.from_bytes(data[at + 2 : at + 4], "big"), int.from_bytes(data[at + 6 : at + 8], "big")
    if header < 20 or data[at + 9] != _UDP or fragment & 0x1FFF:
        return None
    # 0: the interface was left to cut it into segments.
    end = at + length if length else frame.length
    return _Carrier(
        source=str(IPv4Address(data[at + 12 : at + 16])),
        destination=str(IPv4Address(data[at + 16 : at + 20])),
        traffic_class=data[at + 1],
        payload_at=at + header,
        payload_end=min(end, frame.length),
        fragment=bool(fragment & 0x2000),
        identification=int.from_bytes(data[at + 4 : at + 6], "big"),
        flags=fragment,
    )


def _ipv6(frame: CapturedFrame, at: int) -> _Carrier | None:
    data = frame.data
    if len(data) < at + 40 or data[at] >> 4 != 6:
        return None
    length, following = int.from_bytes(data[at + 4 : at + 6], "big"), data[at + 6]
    end = at + 40 + length if length else frame.length  # 0: a jumbogram
    place = at + 40
    fragment = False
    while following != _UDP:
        if len(data) < place + 8:
            return None
        kind, following = following, data[place]
        if kind in _SIZED_IN_EIGHTS:
            place += 8 * (data[place + 1] + 1)
        elif kind == _AUTHENTICATION:
            place += 4 * (data[place + 1] + 2)
        elif kind == _FRAGMENT:
            where = int.from_bytes(data[place + 2 : place + 4], "big")
            if where >> 3:
                return None
            fragment = fragment or bool(where & 1)
            place += 8
        else:
            return None
    return _Carrier(
        source=str(IPv6Address(data[at + 8 : at + 24])),
        destination=str(IPv6Address(data[at + 24 : at + 40])),
        traffic_class=(data[at] & 15) << 4 | data[at + 1] >> 4,
        payload_at=place,
        payload_end=min(end, frame.length),
        fragment=fragment,
        identification=0,
        flags=0,
    )
