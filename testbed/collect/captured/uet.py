"""UET packets of a capture. A document has `pds`, `ses` and `payload_length` as the codec's `describe` has them; or
`tss` and `encrypted_length` where the packet is encrypted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from testbed.collect.captured.packet import MALFORMED, CapturedPacket, CapturedTransport, Document, Refusal
from testbed.collect.datagrams import CapturedDatagram
from testbed.transport.errors import DecodeError
from testbed.transport.uet.packets.codes import UDP_PORT, PdsType
from testbed.transport.uet.packets.packet import Packet, decode_packet, describe, summary
from testbed.transport.uet.packets.pds import Ack, ControlPacket, Nack, Request
from testbed.transport.uet.security.packet_cipher import ICV_BYTES
from testbed.transport.uet.security.tss_header import TssHeader, is_protected


@dataclass(frozen=True, slots=True)
class ProtectedPacket:
    """A packet that TSS encrypted."""

    header: TssHeader
    encrypted_length: int
    """Bytes of ciphertext that are there, without the ICV."""


@dataclass(frozen=True, slots=True)
class UetCapture(CapturedPacket):
    """A datagram to UET's port, and what it was found to be."""

    content: Packet | ProtectedPacket | DecodeError
    transport: ClassVar[str] = "UET"

    @property
    def kind(self) -> str:
        match self.content:
            case Packet(pds=pds):
                return pds.type.name
            case ProtectedPacket():
                return PdsType.TSS.name
            case _:
                return MALFORMED

    @property
    def text(self) -> str:
        match self.content:
            case Packet() as packet:
                return summary(packet)
            case ProtectedPacket(header=header, encrypted_length=length):
                ssi = "" if header.ssi is None else f" SSI 0x{header.ssi:08x}"
                return f"TSS SDI {header.sdi}{ssi} AN {header.an} TSC {header.epoch}.{header.counter} | {length} B"
            case error:
                return f"MALFORMED {error}"

    def fields(self) -> Document:
        match self.content:
            case Packet() as packet:
                return describe(packet)
            case ProtectedPacket(header=header, encrypted_length=length):
                return {"tss": header._asdict(), "encrypted_length": length}
            case error:
                return {"error": {"offset": error.offset, "reason": error.reason}}

    @property
    def flow(self) -> str:
        """The PDCID that the sender has given."""
        match self.content:
            case Packet(pds=Request() | Ack() | Nack() | ControlPacket() as pds):
                return f"PDC {pds.spdcid}"
            case _:
                return ""

    @property
    def payload_bytes(self) -> int:
        match self.content:
            case Packet(payload=payload):
                return len(payload)
            case ProtectedPacket(encrypted_length=length):
                return length
            case _:
                return 0

    @property
    def repeated(self) -> bool:
        match self.content:
            case Packet() as packet:
                described = describe(packet)["pds"]
                return isinstance(described, dict) and "RETX" in described.get("flags", ())
            case _:
                return False

    @property
    def refusal(self) -> Refusal | None:
        match self.content:
            case Packet(pds=Nack()):
                return Refusal.NAK
            case _:
                return None


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


TRANSPORT = CapturedTransport(name=UetCapture.transport, port=UDP_PORT, make_decoder=lambda: decode_datagram)
