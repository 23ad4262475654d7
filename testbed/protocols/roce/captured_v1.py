"""RoCEv1 packets of a capture: InfiniBand's global routing header and what follows it, in an Ethernet frame.

Source: InfiniBand Architecture Specification, volume 1, annex A16 (EtherType 0x8915) and section 8.3 (GRH, 40 bytes,
with the layout of an IPv6 header and the next header 0x1B). Its addresses are GIDs. The ICRC (section 7.8.1) covers the
GRH with traffic class, flow label and hop limit as ones, behind eight bytes of ones for the local routing header.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from ipaddress import IPv6Address
from typing import ClassVar, Final

from testbed.protocols.captured.content import CapturedDatagram, LinkFrame
from testbed.protocols.captured.packet import ECN_NAMES, CapturedLink, Document
from testbed.protocols.errors import DecodeError, truncated
from testbed.protocols.roce.captured import RoceCapture, RoceDecoder

NAME: Final = "RoCEv1"
ETHERTYPE: Final = 0x8915
GRH_BYTES: Final = 40
_BTH_FOLLOWS: Final = 0x1B
_VARIANT_AT: Final = 4
"""The byte of the BTH with FECN and BECN."""


@dataclass(frozen=True, slots=True)
class RoceV1Capture(RoceCapture):
    """A frame with RoCEv1's EtherType. `datagram` has what follows the GRH, between GIDs; without a GRH, MACs."""

    transport: ClassVar[str] = NAME

    @property
    def carried(self) -> str:
        seen = self.datagram
        return f"DSCP {seen.dscp:2} {ECN_NAMES[seen.ecn]:4}"

    def envelope(self) -> Document:
        seen = self.datagram
        return {
            "dscp": seen.dscp,
            "ecn": ECN_NAMES[seen.ecn],
            "payload_length": seen.length,
            "captured_length": len(seen.payload),
        }


class RoceV1Decoder:
    """Decodes the packets of one capture, in their order."""

    def __init__(self) -> None:
        self._decoder = RoceDecoder(RoceV1Capture, has_icrc_for=_has_icrc)

    def __call__(self, frame: LinkFrame) -> RoceCapture:
        seen = frame.seen
        data = seen.payload
        if len(data) < GRH_BYTES:
            wrong = None if seen.snapped else truncated("a GRH", GRH_BYTES, len(data))
            return RoceV1Capture(seen, wrong, None, 0, False)
        length = int.from_bytes(data[4:6], "big")
        wrong = _wrong_grh(data, length, None if seen.fragment else seen.length - GRH_BYTES)
        traffic_class = (data[0] & 15) << 4 | data[1] >> 4
        payload = data[GRH_BYTES : GRH_BYTES + length]
        inner = replace(
            seen,
            source=str(IPv6Address(data[8:24])),
            destination=str(IPv6Address(data[24:40])),
            dscp=traffic_class >> 2,
            ecn=traffic_class & 3,
            length=length,
            payload=payload,
            snapped=seen.snapped and len(payload) < length,
        )
        return RoceV1Capture(inner, wrong, None, 0, False) if wrong else self._decoder(inner)


def _wrong_grh(data: bytes, length: int, there: int | None) -> DecodeError | None:
    """Return the fault of a GRH, behind which are `there` bytes, if that is known; None where there is none."""
    if data[0] >> 4 != 6:
        return DecodeError(0, f"version {data[0] >> 4} of the GRH")
    if data[6] != _BTH_FOLLOWS:
        return DecodeError(6, f"next header {data[6]:#04x} behind the GRH")
    if there is not None and length > there:
        return DecodeError(4, f"the GRH announces {length} bytes, {there} are there")
    return None


def _has_icrc(_identification: int, seen: CapturedDatagram) -> bool:
    """Tell whether the ICRC is right; there is no identification that it could cover."""
    grh = b"\x6f\xff\xff\xff" + seen.length.to_bytes(2, "big") + bytes((_BTH_FOLLOWS, 0xFF))
    addresses = IPv6Address(seen.source).packed + IPv6Address(seen.destination).packed
    covered = seen.payload[:-4]
    covered = covered[:_VARIANT_AT] + b"\xff" + covered[_VARIANT_AT + 1 :]
    right = zlib.crc32(b"\xff" * 8 + grh + addresses + covered)
    return right == int.from_bytes(seen.payload[-4:], "little")


LINK: Final = CapturedLink(name=NAME, ethertype=ETHERTYPE, make_decoder=RoceV1Decoder)
