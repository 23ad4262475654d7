"""UET packets of a capture: each as one line and as a document, malformed ones with where and why they are.

A document begins with what was seen of the datagram. Then follow `pds`, `ses` and `payload_length` as the codec's
`describe` has them; or `tss` and `encrypted_length` where the packet is encrypted; or `error`, with the byte of the UDP
payload where decoding ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from testbed.collect.datagrams import CapturedDatagram
from testbed.transport.errors import DecodeError
from testbed.transport.uet.packets.codes import PdsType
from testbed.transport.uet.packets.packet import Packet, decode_packet, describe, summary
from testbed.transport.uet.security.tss import ICV_BYTES
from testbed.transport.uet.security.tss_header import TssHeader, is_protected

Document = dict[str, object]

ECN_NAMES = ("-", "ECT1", "ECT0", "CE")
"""RFC 3168, by the two bits."""


@dataclass(frozen=True, slots=True)
class ProtectedPacket:
    """A packet that TSS encrypted."""

    header: TssHeader
    encrypted_length: int
    """Bytes of ciphertext that are there, without the ICV."""


@dataclass(frozen=True, slots=True)
class UetCapture:
    """A datagram to UET's port, and what it was found to be."""

    datagram: CapturedDatagram
    content: Packet | ProtectedPacket | DecodeError

    @property
    def kind(self) -> str:
        """Type of the packet by the specification's name, or "malformed"."""
        match self.content:
            case Packet(pds=pds):
                return pds.type.name
            case ProtectedPacket():
                return PdsType.TSS.name
            case _:
                return "malformed"

    @property
    def cut(self) -> str:
        """Return how much of it is missing, and why; "" if nothing is."""
        seen = self.datagram
        why = "trimmed" if seen.trimmed else "fragment" if seen.fragment else "captured" if seen.snapped else ""
        return f"{why}: {len(seen.payload)} of {seen.length} B" if why else ""

    def line(self) -> str:
        """The packet in one line, without when and where it was seen."""
        match self.content:
            case Packet() as packet:
                text = summary(packet)
            case ProtectedPacket(header=header, encrypted_length=length):
                ssi = "" if header.ssi is None else f" SSI 0x{header.ssi:08x}"
                text = f"TSS SDI {header.sdi}{ssi} AN {header.an} TSC {header.epoch}.{header.counter} | {length} B"
            case error:
                text = f"MALFORMED {error}"
        return f"{text} ({self.cut})" if self.cut else text

    def document(self) -> Document:
        """All there is to say."""
        seen = self.datagram
        document: Document = {
            "frame": seen.frame,
            "time_ns": seen.time_ns,
            "src": seen.source,
            "dst": seen.destination,
            "ev": seen.source_port,
            "dscp": seen.dscp,
            "ecn": ECN_NAMES[seen.ecn],
            "udp_length": seen.length + 8,
            "captured_length": len(seen.payload),
            "trimmed": seen.trimmed,
            "fragment": seen.fragment,
            "malformed": isinstance(self.content, DecodeError),
        }
        match self.content:
            case Packet() as packet:
                document |= describe(packet)
            case ProtectedPacket(header=header, encrypted_length=length):
                document |= {"tss": header._asdict(), "encrypted_length": length}
            case error:
                document["error"] = {"offset": error.offset, "reason": error.reason}
        return document


def decode_datagram(datagram: CapturedDatagram) -> UetCapture:
    """Return what a datagram to UET's port is. Raises nothing: what is wrong is part of the answer."""
    data = datagram.payload
    whole = len(data) == datagram.length
    try:
        if is_protected(data):
            return UetCapture(datagram, _decode_protected(data, whole=whole))
        return UetCapture(datagram, decode_packet(data, trimmed=not whole))
    except DecodeError as error:
        return UetCapture(datagram, error)


def _decode_protected(data: bytes, *, whole: bool) -> ProtectedPacket:
    header = TssHeader.decode(data)
    length = len(data) - header.size - (ICV_BYTES if whole else 0)
    if length < 0:
        raise DecodeError(len(data), f"the ICV has {ICV_BYTES} bytes, {len(data) - header.size} are there")
    return ProtectedPacket(header, length)


def flatten(document: Document, above: str = "") -> Iterator[tuple[str, object]]:
    """Every field with its dotted name: `pds.psn`, `ses.extension.amo_opcode`."""
    for name, value in document.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
