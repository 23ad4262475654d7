"""A captured frame, and the innermost thing in it: a datagram, a frame of a link protocol, or what is left alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

CE = 3
"""Congestion experienced (RFC 3168), of the two bits of the ECN field."""
INFINIBAND: Final = 0x1_0000
"""Stands for the EtherType of a frame of InfiniBand, which has none: larger than any."""


@dataclass(frozen=True, slots=True)
class CapturedFrame:
    """A frame as a capture has it."""

    number: int
    """From 1, as Wireshark counts."""
    time_ns: int | None
    """Since 1970; None where the file does not say (simple packet blocks)."""
    link_type: int
    """LINKTYPE_ number of what `data` begins with."""
    data: bytes
    length: int
    """Bytes it had on the wire; more than `len(data)` where the capture was limited (snaplen)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encapsulation:
    """A header around a packet that is not the packet's own: a VLAN tag or a tunnel."""

    kind: str
    """The name that people know it by."""
    number: int | None = None
    """VLAN ID, VNI, key of GRE, or session of ERSPAN; None: it has none."""
    source: str = ""
    """The sender of the IP packet that carries a tunnel; "": a tag has no addresses."""
    destination: str = ""
    details: dict[str, object] = field(default_factory=dict)
    """Other fields of its header, by the names of its specification."""
    is_mirror: bool = False
    """It carries a copy, so that what befell it on its way did not befall the packet."""

    @property
    def label(self) -> str:
        """ "VXLAN 5010"."""
        return self.kind if self.number is None else f"{self.kind} {self.number}"

    def __str__(self) -> str:
        marked = " CE" if self.details.get("ecn") == CE else ""
        return f"{self.label} of {self.source} > {self.destination}{marked}" if self.source else self.label

    def document(self) -> dict[str, object]:
        """For JSON."""
        shown: dict[str, object] = {"kind": self.kind}
        if self.number is not None:
            shown["id"] = self.number
        if self.source:
            shown |= {"src": self.source, "dst": self.destination}
        return shown | self.details


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
    """The capture, or a mirror on the way to it, ends before the packet does."""
    fragment: bool
    """The first fragment of a datagram; the others are not found."""
    optioned: bool = False
    """Its IPv4 header has options, or extension headers are behind that of IPv6."""
    identification: int = 0
    """A field of the IPv4 header that the ICRC of RoCE covers, as it does the next; both are 0 over IPv6."""
    flags: int = 0
    """The 16 bits behind the identification: flags, and the fragment offset."""
    around: tuple[Encapsulation, ...] = ()
    """The encapsulations around it, the outermost first."""

    @property
    def marked(self) -> bool:
        """A switch marked it with "congestion experienced": it, or the tunnel that it was in (RFC 6040)."""
        tunnels = []
        for one in reversed(self.around):
            if one.is_mirror:
                break
            tunnels.append(one.details.get("ecn") == CE)
        return self.ecn == CE or any(tunnels)

    @property
    def inside(self) -> str:
        """Return the tunnels that the packet is in: "VLAN 5, VXLAN 5010"; "" for none."""
        return ", ".join(one.label for one in self.around)


@dataclass(frozen=True, slots=True)
class LinkFrame:
    """The content of a frame by its EtherType, above which there is no IP.

    `seen` has the bytes behind the EtherType, Ethernet addresses ("" where the capture has none), and nothing of IP and
    UDP.
    """

    ethertype: int
    seen: CapturedDatagram
    ethernet: CapturedFrame | None
    """The Ethernet frame itself, also where a tunnel carries it; None: it has tags, or the capture lacks its header."""


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """A frame that carries nothing that was asked for."""

    kind: str
    """The name of what it is instead."""


Found = CapturedDatagram | LinkFrame | LeftAlone
