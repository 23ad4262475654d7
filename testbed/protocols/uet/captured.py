"""UET packets of a capture. A document has `pds`, `ses` and `payload_length` as the codec's `describe` has them; or
`tss` and `encrypted_length` where the packet is encrypted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final

from testbed.protocols.captured.content import CapturedDatagram
from testbed.protocols.captured.packet import (
    CUT,
    MALFORMED,
    CapturedPacket,
    CapturedTransport,
    Document,
    Refusal,
    error_fields,
)
from testbed.protocols.errors import DecodeError
from testbed.protocols.uet.packets.codes import UDP_PORT, NextHeader, Opcode, PdsType
from testbed.protocols.uet.packets.packet import Packet, decode_packet, describe, summary
from testbed.protocols.uet.packets.pds import Ack, ControlPacket, Nack, Request, RudiPacket, Uud, decode_pds
from testbed.protocols.uet.packets.prologue import TYPES
from testbed.protocols.uet.packets.ses_extensions import ATOMIC_OPCODES, RENDEZVOUS_OPCODES
from testbed.protocols.uet.security.packet_cipher import ICV_BYTES
from testbed.protocols.uet.security.tss_header import TssHeader, is_protected

_REQUESTS: Final = frozenset({NextHeader.REQUEST_SMALL, NextHeader.REQUEST_MEDIUM, NextHeader.REQUEST_STD})
_EXTENDED: Final = ATOMIC_OPCODES | RENDEZVOUS_OPCODES
"""Whose extension headers say themselves how long they are."""
_PROLOGUE_BYTES: Final = 2
"""Before them nothing says what follows."""


@dataclass(frozen=True, slots=True)
class ProtectedPacket:
    """A packet that TSS encrypted."""

    header: TssHeader
    encrypted_length: int
    """Bytes of ciphertext, without the ICV; of a trimmed packet those that are there."""


@dataclass(frozen=True, slots=True)
class CutPacket:
    """A packet that the capture, or its being the first fragment, cut within its headers."""

    kind: str
    """The type of its PDS header, or `CUT`."""
    pds: Packet | None = None
    """Its PDS header with nothing behind it; None: not all of it is there."""
    opcode: str = ""
    """The opcode of the request in its SES header; "": not there, or no request."""
    payload_length: int | None = None
    """Bytes behind its headers, by their lengths; None: those are not known."""


@dataclass(frozen=True, slots=True)
class UetCapture(CapturedPacket):
    """A datagram to UET's port, and what it was found to be."""

    content: Packet | ProtectedPacket | CutPacket | DecodeError
    transport: ClassVar[str] = "UET"

    @property
    def kind(self) -> str:
        match self.content:
            case Packet(pds=pds):
                return pds.type.name
            case ProtectedPacket():
                return PdsType.TSS.name
            case CutPacket(kind=kind):
                return kind
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
            case CutPacket(pds=Packet() as packet, opcode=opcode, payload_length=length):
                return " | ".join(part for part in (summary(packet), opcode, length and f"{length} B") if part)
            case DecodeError() as error:
                return f"MALFORMED {error}"
            case _:
                return self.kind

    def fields(self) -> Document:
        match self.content:
            case Packet() as packet:
                return describe(packet)
            case ProtectedPacket(header=header, encrypted_length=length):
                return {"tss": header._asdict(), "encrypted_length": length}
            case CutPacket(pds=Packet() as packet, opcode=opcode, payload_length=length):
                ses = {"opcode": opcode} if opcode else None
                return {"pds": describe(packet)["pds"], "ses": ses, "payload_length": length}
            case DecodeError() as error:
                return error_fields(error)
            case _:
                return {"pds": {"type": self.kind} if self.kind != CUT else None}

    @property
    def _headers(self) -> Packet | None:
        """The packet as far as its PDS header, where that is there in the clear."""
        match self.content:
            case Packet() as packet:
                return packet
            case CutPacket(pds=packet):
                return packet
            case _:
                return None

    @property
    def flow(self) -> str:
        """The PDCID that the sender has given."""
        match self._headers:
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
            case CutPacket(payload_length=int() as length):
                return length
            case _:
                return 0

    @property
    def repeated(self) -> bool:
        described = None if self._headers is None else describe(self._headers)["pds"]
        return isinstance(described, dict) and "RETX" in described.get("flags", ())

    @property
    def refusal(self) -> Refusal | None:
        headers = self._headers
        return Refusal.NAK if headers is not None and isinstance(headers.pds, Nack) else None


def decode_datagram(datagram: CapturedDatagram) -> UetCapture:
    """Return what a datagram to UET's port is. Raises nothing: what is wrong is part of the answer."""
    data = datagram.payload
    try:
        if datagram.snapped or datagram.fragment:
            return UetCapture(datagram, _decode_cut(data, datagram))
        return UetCapture(datagram, _decode(data, trimmed=len(data) < datagram.length))
    except DecodeError as error:
        return UetCapture(datagram, error)


def _decode(data: bytes, *, trimmed: bool) -> Packet | ProtectedPacket:
    if not is_protected(data):
        return decode_packet(data, trimmed=trimmed)
    header = TssHeader.decode(data)
    length = len(data) - header.size - (0 if trimmed else ICV_BYTES)
    if length < 0:
        raise DecodeError(len(data), f"the ICV has {ICV_BYTES} bytes, {len(data) - header.size} are there")
    return ProtectedPacket(header, length)


def _decode_cut(data: bytes, datagram: CapturedDatagram) -> Packet | ProtectedPacket | CutPacket:
    """Decode the captured start of a packet. Raises `DecodeError` for what no end of it could mend."""
    if not data:
        return CutPacket(CUT)
    ends = [data.ljust(datagram.length, filling) for filling in (b"\0", b"\xff")]
    attempts: list[Packet | ProtectedPacket | DecodeError] = []
    for whole in ends:
        try:
            attempts.append(_decode(whole, trimmed=datagram.trimmed))
        except DecodeError as error:
            attempts.append(error)
    errors = [attempt for attempt in attempts if isinstance(attempt, DecodeError)]
    certain = [error for error in errors if error.offset < len(data) or error.offset == datagram.length]
    if len(certain) == len(ends) and len(data) >= _PROLOGUE_BYTES:
        raise certain[0]
    content = attempts[0]
    if not isinstance(content, DecodeError) and len(data) >= _header_bytes(content, datagram):
        return content
    cut = _decode_headers(data)
    if cut.opcode and Opcode[cut.opcode] not in _EXTENDED and isinstance(content, Packet):
        return replace(cut, payload_length=len(content.payload))
    return cut


def _header_bytes(content: Packet | ProtectedPacket, datagram: CapturedDatagram) -> int:
    return content.header.size if isinstance(content, ProtectedPacket) else datagram.length - len(content.payload)


def _decode_headers(data: bytes) -> CutPacket:
    """As much as is there of a packet whose headers are cut."""
    try:
        header, end = decode_pds(data)
    except DecodeError:
        kind = TYPES[data[0] >> 3]
        return CutPacket(CUT if kind is None else kind.name)
    opcode = ""
    if isinstance(header, Request | RudiPacket | Uud) and header.next_header in _REQUESTS and len(data) > end:
        opcode = next((item.name for item in Opcode if item.value == data[end] & 0x3F), "")
    return CutPacket(header.type.name, Packet(header, None, memoryview(b"")), opcode)


TRANSPORT = CapturedTransport(name=UetCapture.transport, port=UDP_PORT, make_decoder=lambda: decode_datagram)
