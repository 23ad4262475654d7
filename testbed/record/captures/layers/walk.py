"""Walks through the headers of a captured frame, tags and tunnels included, to what they carry.

A frame has a link header, VLAN tags (IEEE 802.1Q), and IPv4 (RFC 791) or IPv6 with extension headers (RFC 8200). Inside
of IP may be IP again (RFC 2003, 4213, 2473), GRE (RFC 2784, 2890) with IP, Ethernet (RFC 7637) or a mirror's copy
(ERSPAN, draft-foschiano-erspan), VXLAN (RFC 7348), VXLAN-GPE (draft-ietf-nvo3-vxlan-gpe) and GENEVE (RFC 8926). Of
UDP (RFC 768) DSCP (RFC 2474) and the ECN field (RFC 3168) are seen, too. Link types are tcpdump's LINKTYPE_ numbers.

A trimming switch shortens a packet and leaves UDP's length as it was (UE Specification 1.0, section 4.1), by which it
is recognised here. What the capture has not (snaplen) is told from what is missing on the wire everywhere.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from testbed.protocols.captured.content import (
    INFINIBAND,
    CapturedDatagram,
    CapturedFrame,
    Encapsulation,
    Found,
    LeftAlone,
    LinkFrame,
)
from testbed.record.captures import erf
from testbed.record.captures.layers.names import name_ethertype, name_protocol, name_tcp, name_udp

UDP_HEADER_BYTES = 8
MAX_HEADERS: Final = 16
"""Tags and tunnels that are looked into: what is nested deeper is somebody's attack."""

ETHERNET = 1
LINUX_COOKED = 113
LINUX_COOKED_2 = 276
LOOPBACK = frozenset((0, 108))
"""LINKTYPE_NULL and LINKTYPE_LOOP, of BSD and macOS."""
RAW_IP = frozenset((12, 14, 101, 228, 229))
"""LINKTYPE_RAW with what some systems write for it, LINKTYPE_IPV4 and LINKTYPE_IPV6."""
INFINIBAND_LINK = 247
LINK_TYPES = frozenset((ETHERNET, LINUX_COOKED, LINUX_COOKED_2, erf.LINK_TYPE, INFINIBAND_LINK)) | RAW_IP | LOOPBACK
"""The link types that are understood here."""

_IPV4, _IPV6, _BRIDGED = 0x0800, 0x86DD, 0x6558
_TAGS = {0x8100: "VLAN", 0x88A8: "S-VLAN", 0x9100: "S-VLAN"}
_ERSPAN, _ERSPAN_3 = 0x88BE, 0x22EB
_ERSPAN_ETHERNET, _ERSPAN_IP = 0, 2
"""Frame types of ERSPAN III."""
_IP_IN_IP, _IPV6_IN_IP, _TCP, _UDP, _GRE = 4, 41, 6, 17, 47
_VXLAN_PORTS = (4789, 8472)
"""IANA's, and the one that Linux takes where none is named."""
_VXLAN_GPE_PORT, _GENEVE_PORT = 4790, 6081
_GPE_PROTOCOLS = {1: _IPV4, 2: _IPV6, 3: _BRIDGED}

_HOP_BY_HOP, _ROUTING, _FRAGMENT, _AUTHENTICATION, _DESTINATION = 0, 43, 44, 51, 60
_MOBILITY, _HIP, _SHIM6 = 135, 139, 140
_SIZED_IN_EIGHTS = frozenset((_HOP_BY_HOP, _ROUTING, _DESTINATION, _MOBILITY, _HIP, _SHIM6))
_LONGEST_PACKET = 65_535


class _Ended(Exception):
    """The walk is at its end without what it was for."""


@dataclass(frozen=True, slots=True)
class _Network:
    """An IP header, as far as its payload is concerned."""

    source: str
    destination: str
    traffic_class: int
    identification: int = 0
    flags: int = 0

    def tunnel(
        self, kind: str, number: int | None = None, *, is_mirror: bool = False, **details: object
    ) -> Encapsulation:
        details |= {"dscp": self.traffic_class >> 2, "ecn": self.traffic_class & 3}
        return Encapsulation(
            kind=kind,
            number=number,
            source=self.source,
            destination=self.destination,
            details=details,
            is_mirror=is_mirror,
        )


def find_content(frame: CapturedFrame, ports: Collection[int], ethertypes: Collection[int] = ()) -> Found:
    """The innermost thing that `frame` carries: a datagram to one of the UDP ports `ports`, a frame with one of
    `ethertypes`, or the kind of what is there instead.

    A length below 8 in the UDP header counts as 8, but 0 as all that is there (RFC 2675, segmentation offload). Raises
    nothing, whatever the bytes.
    """
    try:
        return _Walk(frame, ports, ethertypes).start()
    except _Ended as ended:
        return LeftAlone(str(ended))


def find_datagram(frame: CapturedFrame, *ports: int) -> CapturedDatagram | None:
    """The datagram to one of the UDP ports `ports` that `frame` carries; None: there is none."""
    found = find_content(frame, ports)
    return found if isinstance(found, CapturedDatagram) else None


class _Walk:
    """One frame. Each method reads a header at byte `at` and goes on to the next one."""

    def __init__(self, frame: CapturedFrame, ports: Collection[int], ethertypes: Collection[int]) -> None:
        self._frame = frame
        self._data = frame.data
        self._ports = ports
        self._ethertypes = ethertypes
        self._end = frame.length
        """The offset at which what was reached ends on the wire; past the end of the data where the capture was
        limited."""
        self._fragment = False
        self._in_packet = False
        self._optioned = False
        self._around: list[Encapsulation] = []

    def start(self) -> Found:
        link_type, data = self._frame.link_type, self._data
        if link_type == ETHERNET:
            return self._ethernet(0)
        if link_type == LINUX_COOKED:
            self._need(0, 16, "Linux cooked header")
            return self._tagged(self._number(14), 16, ("", data[6:12].hex(":")))
        if link_type == LINUX_COOKED_2:
            self._need(0, 20, "Linux cooked header")
            return self._tagged(self._number(0), 20, ("", data[12:18].hex(":")))
        if link_type in RAW_IP:
            return self._ip(0)
        if link_type in LOOPBACK:
            return self._ip(4)
        if link_type == INFINIBAND_LINK:
            return self._infiniband(0)
        if link_type == erf.LINK_TYPE:
            return self._erf()
        raise _Ended(f"link type {link_type}")

    def _need(self, at: int, count: int, what: str) -> None:
        """Go on if the bytes are there; else say which header lacks them, and whose doing that is."""
        if len(self._data) >= at + count and self._end >= at + count:
            return
        if self._end >= at + count:
            raise _Ended(f"{what} cut by the capture")
        raise _Ended(f"{what} in a fragment" if self._fragment else f"malformed {what}")

    def _number(self, at: int, count: int = 2) -> int:
        return int.from_bytes(self._data[at : at + count], "big")

    def _enter(self, around: Encapsulation) -> None:
        if len(self._around) == MAX_HEADERS:
            raise _Ended(f"nested in more than {MAX_HEADERS} tags and tunnels")
        self._around.append(around)

    def _ethernet(self, at: int) -> Found:
        self._need(at, 14, "Ethernet header")
        data = self._data
        return self._tagged(
            self._number(at + 12), at + 14, (data[at : at + 6].hex(":"), data[at + 6 : at + 12].hex(":")), at
        )

    def _erf(self) -> Found:
        """A record of ERF: its header, extensions of that, and of what kind its frame is."""
        self._need(0, erf.HEADER_BYTES, "ERF header")
        kind, at = self._data[8], erf.HEADER_BYTES
        more = kind & erf.MORE
        while more:
            self._need(at, erf.EXTENSION_BYTES, "ERF extension header")
            if at >= erf.HEADER_BYTES + erf.MOST_EXTENSIONS * erf.EXTENSION_BYTES:
                raise _Ended(f"more than {erf.MOST_EXTENSIONS} ERF extension headers")
            more, at = self._data[at] & erf.MORE, at + erf.EXTENSION_BYTES
        if kind & ~erf.MORE != erf.INFINIBAND:
            raise _Ended(f"ERF type {kind & ~erf.MORE}")
        self._end = at + self._number(14)
        return self._infiniband(at)

    def _infiniband(self, at: int) -> Found:
        if INFINIBAND not in self._ethertypes:
            raise _Ended("InfiniBand")
        return self._link_frame(INFINIBAND, at, ("", ""), None)

    def _tagged(self, ethertype: int, at: int, addresses: tuple[str, str], start: int | None = None) -> Found:
        """`start` is where the Ethernet header begins; None: there is none, or it has tags."""
        while ethertype in _TAGS:
            self._need(at, 4, "VLAN tag")
            tag = self._number(at)
            details: dict[str, object] = {"pcp": tag >> 13, "dei": bool(tag & 0x1000)}
            self._enter(Encapsulation(kind=_TAGS[ethertype], number=tag & 0xFFF, details=details))
            ethertype, at, start = self._number(at + 2), at + 4, None
        if ethertype in self._ethertypes:
            return self._link_frame(ethertype, at, addresses, start)
        return self._network(ethertype, at)

    def _link_frame(self, ethertype: int, at: int, addresses: tuple[str, str], start: int | None) -> LinkFrame:
        frame = self._frame
        payload = self._data[at : self._end]
        seen = CapturedDatagram(
            frame=frame.number,
            time_ns=frame.time_ns,
            source=addresses[1],
            destination=addresses[0],
            source_port=0,
            destination_port=0,
            dscp=0,
            ecn=0,
            length=self._end - at,
            payload=payload,
            trimmed=False,
            snapped=len(payload) < self._end - at,
            fragment=self._fragment,
            around=tuple(self._around),
        )
        whole = None
        if start is not None:
            bare = self._data[start : self._end]
            whole = CapturedFrame(frame.number, frame.time_ns, ETHERNET, bare, self._end - start)
        return LinkFrame(ethertype, seen, whole)

    def _network(self, ethertype: int, at: int) -> Found:
        if ethertype == _IPV4:
            return self._ipv4(at)
        if ethertype == _IPV6:
            return self._ipv6(at)
        raise _Ended(name_ethertype(ethertype))

    def _ip(self, at: int) -> Found:
        """IPv4 or IPv6 by its version, where nothing before it says which."""
        self._need(at, 1, "IP header")
        version = self._data[at] >> 4
        if version not in (4, 6):
            raise _Ended("malformed IP header")
        return self._ipv4(at) if version == 4 else self._ipv6(at)

    def _ipv4(self, at: int) -> Found:
        self._need(at, 20, "IPv4 header")
        data = self._data
        header, length, fragment = (data[at] & 15) * 4, self._number(at + 2), self._number(at + 6)
        if data[at] >> 4 != 4 or header < 20 or 0 < length < header:
            raise _Ended("malformed IPv4 header")
        if fragment & 0x1FFF:
            raise _Ended("IPv4 fragment")
        if length:  # 0: the interface was left to cut it into segments
            self._end_at(at + length)
        self._fragment |= bool(fragment & 0x2000)
        self._optioned = header > 20
        carrier = _Network(
            source=str(IPv4Address(data[at + 12 : at + 16])),
            destination=str(IPv4Address(data[at + 16 : at + 20])),
            traffic_class=data[at + 1],
            identification=self._number(at + 4),
            flags=fragment,
        )
        return self._extended(data[at + 9], at + header, carrier, "IPv4")

    def _ipv6(self, at: int) -> Found:
        self._need(at, 40, "IPv6 header")
        data = self._data
        if data[at] >> 4 != 6:
            raise _Ended("malformed IPv6 header")
        length = self._number(at + 4)
        if length:  # 0: a jumbogram
            self._end_at(at + 40 + length)
        self._optioned = False
        carrier = _Network(
            source=str(IPv6Address(data[at + 8 : at + 24])),
            destination=str(IPv6Address(data[at + 24 : at + 40])),
            traffic_class=(data[at] & 15) << 4 | data[at + 1] >> 4,
        )
        return self._extended(data[at + 6], at + 40, carrier, "IPv6")

    def _end_at(self, end: int) -> None:
        """An IP packet says where it ends. The outermost one that goes on behind its frame was cut on its way here, by
        a mirror or a packet broker: no NIC hands such a frame on. What is inside of another one was cut with that."""
        beyond = end > self._frame.length and not self._in_packet
        self._end = end if beyond else min(self._end, end)
        self._in_packet = True

    def _extended(self, protocol: int, at: int, carrier: _Network, family: str) -> Found:
        """Return the content behind extension headers, of which IPv4 has one, authentication (RFC 4302)."""
        extensions = {_AUTHENTICATION} if family == "IPv4" else {_AUTHENTICATION, _FRAGMENT, *_SIZED_IN_EIGHTS}
        self._optioned |= protocol in extensions
        while protocol in extensions:
            self._need(at, 8, f"{family} extension header")
            kind, protocol = protocol, self._data[at]
            if kind == _AUTHENTICATION:
                at += 4 * (self._data[at + 1] + 2)
            elif kind == _FRAGMENT:
                where = self._number(at + 2)
                if where >> 3:
                    raise _Ended("IPv6 fragment")
                self._fragment |= bool(where & 1)
                at += 8
            else:
                at += 8 * (self._data[at + 1] + 1)
        return self._carried(protocol, at, carrier)

    def _carried(self, protocol: int, at: int, carrier: _Network) -> Found:
        if protocol == _UDP:
            return self._udp(at, carrier)
        if protocol == _GRE:
            return self._gre(at, carrier)
        if protocol in (_IP_IN_IP, _IPV6_IN_IP):
            self._enter(carrier.tunnel("IP-in-IP"))
            return self._ipv4(at) if protocol == _IP_IN_IP else self._ipv6(at)
        if protocol == _TCP:
            self._need(at, 4, "TCP header")
            raise _Ended(name_tcp(self._number(at), self._number(at + 2)))
        raise _Ended(name_protocol(protocol))

    def _udp(self, at: int, carrier: _Network) -> Found:
        self._need(at, 4, "UDP header")
        source_port, destination_port = self._number(at), self._number(at + 2)
        if destination_port in self._ports:
            self._need_of_udp(at)
            return self._datagram(at, carrier, source_port, destination_port)
        body = at + UDP_HEADER_BYTES
        if destination_port in _VXLAN_PORTS or destination_port == _VXLAN_GPE_PORT:
            return self._vxlan(body, carrier, extended=destination_port == _VXLAN_GPE_PORT)
        if destination_port == _GENEVE_PORT:
            return self._geneve(body, carrier)
        raise _Ended(name_udp(source_port, destination_port))

    def _need_of_udp(self, at: int) -> None:
        """A capture, or a wire, that ends within the header of a datagram for us."""
        if len(self._data) < at + UDP_HEADER_BYTES:
            cut = self._end >= at + UDP_HEADER_BYTES
            raise _Ended("UDP header cut by the capture" if cut else "malformed UDP header")

    def _datagram(self, at: int, carrier: _Network, source_port: int, destination_port: int) -> CapturedDatagram:
        length = self._number(at + 4)
        there = max(self._end - at, UDP_HEADER_BYTES)
        sent = max(length, UDP_HEADER_BYTES) if length else there
        whole = min(sent, there)
        payload = self._data[at + UDP_HEADER_BYTES : at + whole]
        return CapturedDatagram(
            frame=self._frame.number,
            time_ns=self._frame.time_ns,
            source=carrier.source,
            destination=carrier.destination,
            source_port=source_port,
            destination_port=destination_port,
            dscp=carrier.traffic_class >> 2,
            ecn=carrier.traffic_class & 3,
            length=sent - UDP_HEADER_BYTES,
            payload=payload,
            trimmed=sent > there and not self._fragment,
            snapped=len(payload) < whole - UDP_HEADER_BYTES,
            fragment=self._fragment,
            optioned=self._optioned,
            identification=carrier.identification,
            flags=carrier.flags,
            around=tuple(self._around),
        )

    def _vxlan(self, at: int, carrier: _Network, *, extended: bool) -> Found:
        name = "VXLAN-GPE" if extended else "VXLAN"
        self._need(at, 8, f"{name} header")
        if not self._data[at] & 0x08:  # the VNI is valid (RFC 7348, section 5)
            raise _Ended(f"malformed {name} header")
        self._enter(carrier.tunnel(name, self._number(at + 4, 3)))
        if not extended or not self._data[at] & 0x04:
            return self._ethernet(at + 8)
        protocol = self._data[at + 3]
        return self._payload(_GPE_PROTOCOLS.get(protocol), at + 8, f"VXLAN-GPE protocol {protocol}")

    def _geneve(self, at: int, carrier: _Network) -> Found:
        self._need(at, 8, "GENEVE header")
        if self._data[at] >> 6:
            raise _Ended(f"GENEVE version {self._data[at] >> 6}")
        self._enter(carrier.tunnel("GENEVE", self._number(at + 4, 3)))
        protocol, options = self._number(at + 2), 4 * (self._data[at] & 0x3F)
        return self._payload(protocol, at + 8 + options, name_ethertype(protocol))

    def _payload(self, ethertype: int | None, at: int, name: str) -> Found:
        """Return the content of a tunnel that names it by an EtherType."""
        if ethertype == _BRIDGED:
            return self._ethernet(at)
        if ethertype in (_IPV4, _IPV6):
            return self._network(ethertype, at)
        raise _Ended(name)

    def _gre(self, at: int, carrier: _Network) -> Found:
        self._need(at, 4, "GRE header")
        flags, protocol = self._number(at), self._number(at + 2)
        has_checksum, has_routing, has_key, has_sequence = (bool(flags << bit & 0x8000) for bit in range(4))
        if flags & 7 or has_routing:
            raise _Ended(f"GRE version {flags & 7}" if flags & 7 else "GRE with source routes")
        key_at = at + 4 + 4 * has_checksum
        end = key_at + 4 * (has_key + has_sequence)
        self._need(at, end - at, "GRE header")
        if protocol == _ERSPAN:
            return self._erspan_2(end, carrier) if has_sequence else self._erspan_1(end, carrier)
        if protocol == _ERSPAN_3:
            return self._erspan_3(end, carrier)
        self._enter(carrier.tunnel("GRE", self._number(key_at, 4) if has_key else None))
        return self._payload(protocol, end, name_ethertype(protocol))

    def _erspan_1(self, at: int, carrier: _Network) -> Found:
        self._enter(carrier.tunnel("ERSPAN I", is_mirror=True))
        return self._ethernet(at)

    def _erspan_2(self, at: int, carrier: _Network) -> Found:
        self._need(at, 8, "ERSPAN header")
        if self._data[at] >> 4 != 1:
            raise _Ended(f"ERSPAN version {self._data[at] >> 4}")
        self._mirror("ERSPAN II", at, carrier)
        return self._ethernet(at + 8)

    def _erspan_3(self, at: int, carrier: _Network) -> Found:
        self._need(at, 12, "ERSPAN header")
        if self._data[at] >> 4 != 2:
            raise _Ended(f"ERSPAN version {self._data[at] >> 4}")
        last = self._number(at + 10)
        kind = last >> 10 & 31
        end = at + 12 + (8 if last & 1 else 0)  # a subheader of the platform's
        if kind not in (_ERSPAN_ETHERNET, _ERSPAN_IP):
            raise _Ended(f"ERSPAN III frame type {kind}")
        self._mirror("ERSPAN III", at, carrier)
        return self._ethernet(end) if kind == _ERSPAN_ETHERNET else self._ip(end)

    def _mirror(self, name: str, at: int, carrier: _Network) -> None:
        """A session of ERSPAN by its header's first words. One that copies the beginnings of packets alone (bit T) cuts
        as a capture does: the wire had more."""
        words = self._number(at), self._number(at + 2)
        details: dict[str, object] = {"vlan": words[0] & 0xFFF, "cos": words[1] >> 13}
        self._enter(carrier.tunnel(name, words[1] & 0x3FF, is_mirror=True, **details))
        if words[1] & 0x400:
            self._end = len(self._data) + _LONGEST_PACKET
