"""The receiving half of a PDC: what is taken, refused or known already, and when an acknowledgement is due.

Source: UE Specification 1.0, sections 3.5.11 (ACK generation), 3.5.13 (responses), 3.5.20 (guaranteed delivery),
3.6.12.3 and tables 3-74, 3-78 (what the destination tells congestion control).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from testbed.protocols.datagram import Incoming, Outgoing, Priority
from testbed.protocols.uet.delivery.tracker import ReceiveTracker, StoredResponse
from testbed.protocols.uet.packets.acks import ACK_CC, NACK
from testbed.protocols.uet.packets.codes import (
    NOMINAL_OVERHEAD_BYTES,
    UDP_HEADER_BYTES,
    AckFlag,
    CcType,
    ControlFlag,
    Mode,
    NackCode,
    NackFlag,
    NextHeader,
    PdsType,
    RequestFlag,
)
from testbed.protocols.uet.packets.pds import ControlPacket, Request
from testbed.protocols.uet.packets.psn import psn_distance

if TYPE_CHECKING:
    from testbed.protocols.uet.delivery.pdc import Pdc

_ACK_MARKED: Final = int(AckFlag.MARKED)
_ACK_PROBE: Final = int(AckFlag.PROBE)
_ACK_REQ_CLEAR: Final = int(AckFlag.REQ_CLEAR)
_ACK_REQ_CLOSE: Final = int(AckFlag.REQ_CLOSE)
_ACK_RETX: Final = int(AckFlag.RETX)
_CP_AR: Final = int(ControlFlag.AR)
_CP_RETX: Final = int(ControlFlag.RETX)
_NACK_MARKED: Final = int(NackFlag.MARKED)
_NACK_RETX: Final = int(NackFlag.RETX)
_REQ_AR: Final = int(RequestFlag.AR)
_REQ_RETX: Final = int(RequestFlag.RETX)
_NOMINAL: Final = UDP_HEADER_BYTES + NOMINAL_OVERHEAD_BYTES
_CONTROL: Final = Priority.CONTROL
_ROD: Final = Mode.ROD
_ACK_CC: Final = PdsType.ACK_CC << 11
_CC_CREDIT: Final = CcType.CREDIT << 4
_NACK: Final = PdsType.NACK << 11
_pack_ack_cc: Final = ACK_CC.pack
_pack_nack: Final = NACK.pack
_new: Final = tuple.__new__  # a named tuple in half the time that its own constructor takes
_OLDEST: Final = -0x8000
"""An ACK cannot name a PSN further behind, and no sender has one under way that is."""


class Answer(NamedTuple):
    """The reply of semantics to a request: a response, or a NACK by which the packet counts as not received."""

    next_header: NextHeader
    body: bytes
    """SES response header, with data if it has some."""
    guaranteed: bool = False
    """It must arrive: it is kept until cleared (gtd_del, section 3.5.20)."""
    nack: NackCode | None = None


class Semantics(Protocol):
    """The SES layer, as the receiving half calls it."""

    def on_request(
        self, pdc: Pdc, psn: int, next_header: NextHeader, data: bytes | memoryview, offset: int, now: int
    ) -> Answer:
        """Execute the request whose SES header begins at `offset`. Raises `DecodeError`, having done nothing."""

    def default_response(self, next_header: NextHeader, data: bytes | memoryview, offset: int) -> Answer:
        """The default response to a request that was executed before (table 3-43)."""


class Receiver:
    """One direction's arrivals of a PDC."""

    def __init__(self, pdc: Pdc, start_psn: int) -> None:
        self._pdc = pdc
        self.tracker = ReceiveTracker(start_psn)
        self.rcvd_bytes = 0
        """Nominal bytes of packets neither trimmed nor received before (table 3-78)."""
        self._ack_bytes = 0
        self._first = True
        self._asked = -1
        """An ACK was asked for up to here, but there was a gap before it: another is due when that is filled."""
        self._nacked_at = -1
        self._ce_packets = self._late_packets = 0

    def take_counts(self) -> Iterable[tuple[str, int]]:
        """Return what was counted since this was called the last time: packets with CE, and packets that arrived, not
        sent again, after one of a higher PSN (the reordered ones of RFC 4737, section 4.2)."""
        counts = [
            (what, number)
            for what, number in (("ce-marked", self._ce_packets), ("out-of-order", self._late_packets))
            if number
        ]
        self._ce_packets = self._late_packets = 0
        return counts

    def on_request(self, request: Request, incoming: Incoming, data: bytes | memoryview, offset: int, now: int) -> None:
        """Take a request of this PDC; `data[offset:]` is what follows its PDS header."""
        pdc = self._pdc
        tracker = self.tracker
        psn = request.psn
        flags = request.flags
        ahead = psn_distance(psn, tracker.contiguous)
        if ahead < _OLDEST:
            pdc.count("out-of-window")
            return
        if incoming.length > len(incoming.data):
            self._on_trimmed(request, incoming)
            return
        tracker.clear((psn + request.clear_psn_offset) & 0xFFFF_FFFF)
        if ahead <= 0 or (tracker.bitmap and tracker.has(psn)):
            self._again(request, incoming, data, offset)
            return
        if ahead > pdc.config.mp_range:
            pdc.count("out-of-window")
            self.nack(NackCode.PSN_OOR_WINDOW, request, incoming)
            return
        if pdc.encrypted and (psn - pdc.start_psn) & 0xFFFF_FFFF >= pdc.most_packets:
            pdc.wear_out(now)
            return
        if tracker.holds and (
            psn_distance(psn, tracker.cack_psn) > pdc.config.mp_range
            or (pdc.unconfirmed_since >= 0 and tracker.holds >= pdc.most_responses_unconfirmed)
        ):
            # The window counts from CACK_PSN, which waits for CLEAR: so it bounds the responses that are kept.
            pdc.count("no-room-for-responses")
            self.nack(NackCode.NO_GTD_DEL_AVAIL, request, incoming)
            return
        if ahead > 1 and pdc.mode is _ROD:
            pdc.count("rod-out-of-order")
            if self._nacked_at != tracker.contiguous or flags & _REQ_RETX:
                self._nacked_at = tracker.contiguous
                self.nack(NackCode.ROD_OOO, request, incoming, payload=(tracker.contiguous + 1) & 0xFFFF_FFFF)
            return
        answer = pdc.semantics.on_request(pdc, psn, request.next_header, data, offset, now)
        if answer.nack is not None:
            pdc.count("refused")
            self.nack(answer.nack, request, incoming)
            return
        if ahead < tracker.bitmap.bit_length() and not flags & _REQ_RETX:
            self._late_packets += 1
        if incoming.ce:
            self._ce_packets += 1
        tracker.add(psn)
        length = incoming.length or len(incoming.data)
        self.rcvd_bytes += length + _NOMINAL
        if answer.guaranteed:
            tracker.hold(psn, StoredResponse(answer.next_header, answer.body))
        config = pdc.config
        least = config.ack_min_packet_bytes
        self._ack_bytes += length if length > least else least
        if (
            flags & (_REQ_AR | _REQ_RETX)
            or self._first
            or tracker.holds  # CACK_PSN waits for a CLEAR, and would not acknowledge it with others
            or self._ack_bytes >= config.ack_trigger_bytes
            or answer.guaranteed
            or (incoming.ce and config.ack_on_ecn)
            or config.ack_per_packet
        ):
            self._first = False
            self.acknowledge(psn, bool(flags & _REQ_RETX), incoming, answer)
            if tracker.bitmap and flags & _REQ_AR:
                self._asked = tracker.highest
        elif self._asked >= 0 and psn_distance(tracker.contiguous, self._asked) >= 0:
            self._asked = -1
            self.acknowledge(psn, False, incoming, answer)

    def _on_trimmed(self, request: Request, incoming: Incoming) -> None:
        self._pdc.count("trimmed")
        if self.tracker.has(request.psn):  # it was sent again, for its ACK was lost or late
            self._repeat(request.psn, bool(request.flags & _REQ_RETX), incoming)
            return
        self.nack(trimming_code(incoming), request, incoming)

    def on_control(self, packet: ControlPacket, incoming: Incoming) -> bool:
        """Take a control packet that consumes a PSN. False if it had arrived before; it is acknowledged either way."""
        fresh = False
        ahead = psn_distance(packet.psn, self.tracker.contiguous)
        if ahead > self._pdc.config.mp_range:
            return False
        if ahead > 0 and not self.tracker.has(packet.psn):
            if ahead > 1 and self._pdc.mode is _ROD:
                return False
            fresh = self.tracker.add(packet.psn)
            self.rcvd_bytes += len(incoming.data) + _NOMINAL
        self.acknowledge(packet.psn, bool(packet.flags & _CP_RETX), incoming, None)
        return fresh

    def _again(self, request: Request, incoming: Incoming, data: bytes | memoryview, offset: int) -> None:
        """A duplicate: its stored response, or the default one; semantics does not see it (section 3.5.12.5)."""
        pdc = self._pdc
        pdc.count("duplicate")
        stored = self.tracker.held(request.psn)
        if stored is not None:
            answer = Answer(stored.next_header, stored.body, guaranteed=True)
        else:
            answer = pdc.semantics.default_response(request.next_header, data, offset)
        self.acknowledge(request.psn, bool(request.flags & _REQ_RETX), incoming, answer)

    def on_probe(self, packet: ControlPacket, incoming: Incoming) -> None:
        """PROBE: the answer goes at once, and an ACK follows it when the latest packet of the peer has arrived."""
        self.acknowledge(packet.payload, False, incoming, None, probe_opaque=packet.probe_opaque)
        if 0 < psn_distance(packet.psn, self.tracker.contiguous) <= self._pdc.config.mp_range:
            self._asked = packet.psn

    def on_ack_request(self, packet: ControlPacket, incoming: Incoming) -> None:
        """ACK_REQ: the peer asks about one PSN."""
        if self.tracker.has(packet.psn):
            self._repeat(packet.psn, False, incoming)
        else:
            self._pdc.send_nack(NackCode.PKT_NOT_RCVD, packet.psn, incoming)

    def on_clear(self, packet: ControlPacket, incoming: Incoming) -> None:
        """CLEAR_CMD: forget responses, and say how far CACK_PSN has moved by it, if it has or that is asked for."""
        tracker = self.tracker
        before = tracker.cack_psn
        tracker.clear(packet.payload)
        cack = tracker.cack_psn
        if cack != before or packet.flags & _CP_AR:
            # Under the cleared PSN, so that it measures no round trip of a packet that has waited for it.
            self.acknowledge(packet.payload if psn_distance(packet.payload, cack) < 0 else cack, False, incoming, None)

    def _repeat(self, psn: int, again: bool, incoming: Incoming) -> None:
        """Acknowledge what was received before, with its stored response if it has one."""
        stored = self.tracker.held(psn)
        answer = None if stored is None else Answer(stored.next_header, stored.body, guaranteed=True)
        self.acknowledge(psn, again, incoming, answer)

    def acknowledge(
        self, psn: int, again: bool, incoming: Incoming, answer: Answer | None, probe_opaque: int | None = None
    ) -> None:
        """Send an ACK_CC for `psn`, on the path that its packet took (section 3.6.16.4)."""
        pdc = self._pdc
        tracker = self.tracker
        cack = tracker.cack_psn
        flags = (_ACK_MARKED if incoming.ce else 0) | (_ACK_RETX if again else 0)
        if answer is not None and answer.guaranteed:
            flags |= _ACK_REQ_CLEAR
        if pdc.close_wanted:
            flags |= _ACK_REQ_CLOSE
            flags &= ~_ACK_REQ_CLEAR
        if probe_opaque is not None:
            flags |= _ACK_PROBE
            offset = probe_opaque - 0x10000 if probe_opaque & 0x8000 else probe_opaque
        elif psn == cack:
            offset = 0
        else:
            offset = psn_distance(psn, cack)
            if not -0x8000 <= offset <= 0x7FFF:
                offset = 0
        base_offset = bitmap = disorder = 0
        if tracker.bitmap or cack != tracker.contiguous:
            base, bitmap = tracker.sack(psn)
            base_offset = psn_distance(base, cack)
            disorder = min(tracker.out_of_order, 0xFFFE)
        credit = pdc.granted_credit()
        if credit is None:
            kind = first = 0
            middle = (self.rcvd_bytes + 255) >> 8 & 0xFF_FFFF
        else:
            kind, first, middle = _CC_CREDIT, credit >> 8 & 0xFFFF, (credit & 0xFF) << 24
        header = _pack_ack_cc(
            (_ACK_CC if answer is None else _ACK_CC | answer.next_header << 7) | flags,
            offset,
            cack,
            pdc.local_pdcid,
            pdc.remote_pdcid,
            kind,
            pdc.config.mpr,
            base_offset,
            bitmap,
            first,
            middle,
            disorder,
        )
        self._ack_bytes = 0
        if answer is not None:
            header += answer.body
        pdc.emit(_new(Outgoing, (pdc.remote, incoming.entropy, _CONTROL, header, b"")))

    def nack(self, code: NackCode, request: Request, incoming: Incoming, payload: int | None = None) -> None:
        """Refuse a request's packet."""
        flags = _NACK_RETX if request.flags & _REQ_RETX else 0
        highest = (self.tracker.highest + 1) & 0xFFFF_FFFF if payload is None else payload
        self._pdc.send_nack(code, request.psn, incoming, flags=flags, payload=highest)


def trimming_code(incoming: Incoming) -> NackCode:
    """The code for a trimmed packet, by where it was trimmed (section 3.6.12.3)."""
    return NackCode.TRIMMED_LASTHOP if incoming.last_hop else NackCode.TRIMMED


def encode_nack(
    code: NackCode, psn: int, spdcid: int, dpdcid: int, incoming: Incoming, flags: int = 0, payload: int = 0
) -> Outgoing:
    """A NACK back to where `incoming` came from, on its path."""
    if incoming.ce:
        flags |= _NACK_MARKED
    header = _pack_nack(_NACK | flags, code, 0, psn, spdcid, dpdcid, payload)
    return _new(Outgoing, (incoming.remote, incoming.entropy, _CONTROL, header, b""))
