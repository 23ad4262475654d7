"""RoCEv2 packets of a capture. A document has `roce` with the fields as the codec's `describe` has them, whether the
ICRC is right, and whether the same packet was seen before.

A packet is taken for a retransmission when its PSN was seen before on its way to that queue pair, among requests or
among responses; what was lost before the place of the capture is not seen twice.

The ICRC covers the identification of the IPv4 header. Senders of this project compute it for identification 0, and the
kernel numbers the packets of a run that it cuts (UDP_SEGMENT) from 0 on: `icrc_identification` says for which it is.

Of a packet that the capture cut within its headers the fields are shown whose bytes are all there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
from testbed.protocols.roce.packets.headers import BTH_BYTES, PSN_MASK
from testbed.protocols.roce.packets.icrc import ICRC_BYTES, check_icrc
from testbed.protocols.roce.packets.opcodes import LAYOUTS, UDP_PORT, Layout, Opcode, Operation
from testbed.protocols.roce.packets.packet import RocePacket, decode_roce, describe, describe_syndrome
from testbed.protocols.roce.packets.syndrome import NAK, RNR_NAK, kind_of

REMEMBERED_PSNS: Final = 1 << 16
"""The latest PSNs of each flow are remembered; a packet that is repeated later than that counts as new."""
_REQUESTS: Final = frozenset(
    {Operation.SEND, Operation.WRITE, Operation.READ_REQUEST, Operation.COMPARE_SWAP, Operation.FETCH_ADD}
)
_RESPONSES: Final = frozenset({Operation.READ_RESPONSE, Operation.ATOMIC_ACKNOWLEDGE})
_BTH_FIELDS: Final = {
    "opcode": 1,
    "solicited": 2,
    "pad_bytes": 2,
    "payload_bytes": 2,
    "becn": 5,
    "dest_qp": 8,
    "ack_request": 9,
    "psn": BTH_BYTES,
}
"""Bytes of a packet after which each field of the BTH is there, by the names that `describe` has for them; how long the
payload is follows from the padding."""
_EXTENDED_FIELDS: Final[tuple[tuple[str, dict[str, int]], ...]] = (
    ("deth", {"qkey": 4, "source_qp": 8}),
    ("reth", {"virtual_address": 8, "rkey": 12, "dma_length": 16}),
    ("atomic", {"virtual_address": 8, "rkey": 12, "swap_or_add": 20, "compare": 28}),
    ("aeth", {"syndrome": 1, "msn": 4}),
    ("atomic_ack", {"original": 8}),
    ("immediate", {"immediate": 4}),
    ("ieth", {"invalidated_rkey": 4}),
)
"""Bytes after which the fields of the headers behind the BTH are there, by the headers' names in `Layout`, in order."""


def field_ends(layout: Layout) -> dict[str, int]:
    """After how many bytes of a packet each field of its headers is there."""
    ends, at = dict(_BTH_FIELDS), BTH_BYTES
    for header, fields in _EXTENDED_FIELDS:
        if getattr(layout, header):
            ends |= {name: at + end for name, end in fields.items()}
            at += max(fields.values())
    return ends


@dataclass(frozen=True, slots=True)
class RoceCapture(CapturedPacket):
    """A datagram to RoCEv2's port, and what it was found to be."""

    content: RocePacket | DecodeError | None
    """With zeros where the capture has no more; None: not even the opcode is there."""
    icrc_good: bool | None
    """True if the ICRC is that of what is there; None: not all of it is."""
    icrc_identification: int
    """The identification for which a good one was computed: that of the IP header, or 0."""
    seen_before: bool
    transport: ClassVar[str] = "RoCE"

    @property
    def kind(self) -> str:
        if isinstance(self.content, RocePacket):
            return Opcode(self.content.bth.opcode).name
        return CUT if self.content is None else MALFORMED

    @property
    def text(self) -> str:
        packet = self.content
        if isinstance(packet, DecodeError):
            return f"MALFORMED {packet}"
        if packet is None or self._header_bytes > len(self.datagram.payload):
            known = self._known()
            names = {"opcode": "", "dest_qp": "QP ", "psn": "PSN "}
            return " ".join(names.get(name, f"{name} ") + str(value) for name, value in known.items()) or CUT
        marks = [
            *(["ACKREQ"] if packet.bth.ack_request else ()),
            *(["SE"] if packet.bth.solicited else ()),
            *(["AGAIN"] if self.seen_before else ()),
            *(["BAD ICRC"] if self.icrc_good is False else ()),
            *(["ICRC OF ID 0"] if self.icrc_good and self.icrc_identification != self.datagram.identification else ()),
        ]
        text = f"{self.kind} {self.flow} PSN {packet.bth.psn}" + (f" [{' '.join(marks)}]" if marks else "")
        extended = ", ".join(_extended(packet))
        return f"{text} | {extended}" if extended else text

    def fields(self) -> Document:
        packet = self.content
        if isinstance(packet, DecodeError):
            return error_fields(packet)
        described = self._known()
        if packet is None:
            return {"roce": described}
        if packet.bth.opcode == Opcode.SELECTIVE_ACKNOWLEDGE:
            described["selective_psns"] = selective_psns(packet)
        described["icrc_good"] = self.icrc_good
        if self.icrc_good:
            described["icrc_identification"] = self.icrc_identification
        described["retransmitted"] = self.seen_before
        return {"roce": described}

    @property
    def _header_bytes(self) -> int:
        """Bytes that its headers have by its opcode."""
        layout = LAYOUTS[self.content.bth.opcode] if isinstance(self.content, RocePacket) else None
        return 0 if layout is None else max(field_ends(layout).values())

    def _known(self) -> Document:
        """The fields whose bytes are all there."""
        if not isinstance(self.content, RocePacket):
            return {}
        there, layout = len(self.datagram.payload), LAYOUTS[self.content.bth.opcode]
        assert layout is not None
        ends = field_ends(layout) | {"icrc": self.datagram.length}
        return {name: value for name, value in describe(self.content).items() if ends[name] <= there}

    @property
    def flow(self) -> str:
        """The queue pair that it is for."""
        known = self._known().get("dest_qp")
        return f"QP {known}" if known is not None else ""

    @property
    def payload_bytes(self) -> int:
        packet = self.content
        if not isinstance(packet, RocePacket) or "payload_bytes" not in self._known():
            return 0
        if packet.bth.opcode in (Opcode.CNP, Opcode.SELECTIVE_ACKNOWLEDGE):
            return 0
        return len(packet.payload)

    @property
    def repeated(self) -> bool:
        return self.seen_before

    @property
    def notifies(self) -> bool:
        return isinstance(self.content, RocePacket) and self.content.bth.opcode == Opcode.CNP

    @property
    def refusal(self) -> Refusal | None:
        aeth = self.content.aeth if isinstance(self.content, RocePacket) else None
        if aeth is None or "syndrome" not in self._known():
            return None
        return {NAK: Refusal.NAK, RNR_NAK: Refusal.NOT_READY}.get(kind_of(aeth.syndrome))

    @property
    def damaged(self) -> bool:
        return self.icrc_good is False


def _extended(packet: RocePacket) -> Iterator[str]:
    if packet.deth is not None:
        yield f"from QP {packet.deth.source_qp:#08x}"
    remote = packet.reth or packet.atomic
    if remote is not None:
        yield f"VA {remote.virtual_address:#x} rkey {remote.rkey:#010x}"
    if packet.reth is not None:
        yield f"of {packet.reth.length}"
    if packet.atomic is not None:
        values = f"swap or add {packet.atomic.swap_or_add} compare {packet.atomic.compare}"
        yield values if packet.bth.opcode == Opcode.RC_COMPARE_SWAP else f"add {packet.atomic.swap_or_add}"
    if packet.aeth is not None:
        yield f"{describe_syndrome(packet.aeth.syndrome)} MSN {packet.aeth.msn}"
    if packet.original is not None:
        yield f"was {packet.original}"
    if packet.immediate is not None:
        yield f"immediate {packet.immediate:#010x}"
    if packet.invalidated_rkey is not None:
        yield f"invalidates {packet.invalidated_rkey:#010x}"
    if packet.bth.opcode == Opcode.SELECTIVE_ACKNOWLEDGE:
        yield f"SACK {selective_psns(packet) or '-'}"
    elif len(packet.payload) and packet.bth.opcode != Opcode.CNP:
        yield f"{len(packet.payload)} B"


def selective_psns(packet: RocePacket) -> str:
    """The PSNs behind its own that a selective acknowledgement says have arrived: "5,7-9"."""
    bitmap = int.from_bytes(packet.payload, "little")
    runs: list[tuple[int, int]] = []
    for bit in range(bitmap.bit_length()):
        if not bitmap >> bit & 1:
            continue
        if runs and runs[-1][1] == bit - 1:
            runs[-1] = (runs[-1][0], bit)
        else:
            runs.append((bit, bit))
    base = packet.bth.psn + 1
    ends = [((base + first) & PSN_MASK, (base + last) & PSN_MASK) for first, last in runs]
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)


class RoceDecoder:
    """Decodes the packets of one capture, in their order, as `make` has them. `has_icrc_for` tells whether the ICRC of
    a whole packet is the one of an IP header with an identification."""

    def __init__(self, make: type[RoceCapture], has_icrc_for: Callable[[int, CapturedDatagram], bool]) -> None:
        self._make, self._has_icrc_for = make, has_icrc_for
        self._psns: dict[tuple[str, str, str, int, bool], dict[int, None]] = {}
        """By VLANs and tunnels, source, destination, queue pair and whether they are responses: PSNs that were seen,
        oldest first."""

    def __call__(self, datagram: CapturedDatagram) -> RoceCapture:
        there = len(datagram.payload)
        missing = datagram.length - there
        if datagram.snapped and not there:
            return self._make(datagram, None, None, 0, False)
        try:
            packet = decode_roce(datagram.payload + bytes(missing))
            headers = datagram.length - len(packet.payload) - packet.bth.pad_bytes - ICRC_BYTES
            if there < headers and not (datagram.snapped or datagram.fragment):
                raise DecodeError(there, f"{headers} bytes of headers are cut short")
        except DecodeError as error:
            return self._make(datagram, error, None, 0, False)
        seen_before = there >= BTH_BYTES and self._seen(datagram, packet)
        if missing or datagram.optioned:  # no RoCE packet has options, and nothing says how an ICRC covers them
            return self._make(datagram, packet, None, 0, seen_before)
        own = datagram.identification
        good = next((number for number in dict.fromkeys((own, 0)) if self._has_icrc_for(number, datagram)), None)
        return self._make(datagram, packet, good is not None, good or 0, seen_before)

    def _seen(self, datagram: CapturedDatagram, packet: RocePacket) -> bool:
        """Tell whether it was seen before, and remember it."""
        layout = LAYOUTS[packet.bth.opcode]
        assert layout is not None
        is_response = layout.operation in _RESPONSES
        if packet.deth is not None or not (is_response or layout.operation in _REQUESTS):
            return False  # datagrams are never repeated, and acknowledgements have the PSNs of others
        key = (datagram.inside, datagram.source, datagram.destination, packet.bth.dest_qp, is_response)
        psns = self._psns.setdefault(key, {})
        if packet.bth.psn in psns:
            return True
        psns[packet.bth.psn] = None
        if len(psns) > REMEMBERED_PSNS:
            del psns[next(iter(psns))]
        return False


def _has_icrc_for(identification: int, datagram: CapturedDatagram) -> bool:
    """Tell whether the ICRC is the one of an IP header with this identification."""
    try:
        check_icrc(
            datagram.source,
            datagram.destination,
            datagram.source_port,
            datagram.payload,
            identification,
            datagram.flags,
        )
    except DecodeError:
        return False
    return True


TRANSPORT = CapturedTransport(
    name=RoceCapture.transport, port=UDP_PORT, make_decoder=lambda: RoceDecoder(RoceCapture, _has_icrc_for)
)
