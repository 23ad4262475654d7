"""The sending half of a PDC: what goes out when, what is acknowledged, and what is sent again.

Source: UE Specification 1.0, sections 3.5.11 (windows and ACKs), 3.5.12 (retransmission), 3.6.12.3 (what congestion
control is told). The inference of losses from SACKs is an implementation's choice (see `Sender._infer_losses`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from struct import Struct
from typing import TYPE_CHECKING, Final

from testbed.protocols.datagram import Outgoing, Priority
from testbed.protocols.uet.congestion.context import CongestionContext
from testbed.protocols.uet.delivery.bursts import Bursts
from testbed.protocols.uet.delivery.clearing import Clearing
from testbed.protocols.uet.delivery.demand import CreditDemand
from testbed.protocols.uet.delivery.nacks import NACK_ACTIONS, TRIMMING, NackAction
from testbed.protocols.uet.delivery.probing import Probing
from testbed.protocols.uet.delivery.refusals import Refusals
from testbed.protocols.uet.delivery.round_trips import RoundTrips
from testbed.protocols.uet.delivery.window import NOMINAL_HEADER_BYTES, PacketSource, PacketState, SendWindow, TxPacket
from testbed.protocols.uet.packets.acks import Ack, CreditState, Nack, NsccState
from testbed.protocols.uet.packets.codes import (
    AckFlag,
    ControlFlag,
    Mode,
    NackCode,
    NackFlag,
    NextHeader,
    PdsType,
    RequestFlag,
)
from testbed.protocols.uet.packets.psn import psn_add, psn_distance
from testbed.protocols.uet.paths import PathFeedback, PathSelector, SinglePath, judge_nack
from testbed.protocols.uet.trace import Trace

if TYPE_CHECKING:
    from testbed.protocols.uet.delivery.pdc import Pdc

_ACK_MARKED: Final = int(AckFlag.MARKED)
_ACK_PROBE: Final = int(AckFlag.PROBE)
_ACK_REQ_CLEAR: Final = int(AckFlag.REQ_CLEAR)
_ACK_RETX: Final = int(AckFlag.RETX)
_CP_AR: Final = int(ControlFlag.AR)
_CP_RETX: Final = int(ControlFlag.RETX)
_CP_SYN: Final = int(ControlFlag.SYN)
_NACK_MARKED: Final = int(NackFlag.MARKED)
_NACK_RETX: Final = int(NackFlag.RETX)
_REQ_AR: Final = int(RequestFlag.AR)
_REQ_SYN: Final = int(RequestFlag.SYN)
_ROD: Final = Mode.ROD
_DATA: Final = Priority.DATA
_RETRANSMISSION: Final = Priority.RETRANSMISSION
_new: Final = tuple.__new__  # a named tuple in half the time that its own constructor takes
_HEADER: Final = Struct("!HhIHH")
_CC_STATE: Final = Struct("!I")
_CONTROL: Final = Struct("!HHIHHI")
_RETX_AR: Final = int(RequestFlag.RETX | RequestFlag.AR)
_SYN_RANGE: Final = 0xFFF
"""`psn_offset` of a SYN has 12 bits."""
_RCVD_BYTES_MASK: Final = 0xFF_FFFF
_RCVD_BYTES_UNIT: Final = 256
_SERVICE_UNIT_NS: Final = 128
_SHORT_BYTES: Final = NOMINAL_HEADER_BYTES + 1024
"""Nominal size of a message that counts as short: it takes the time of a few acknowledgements."""
_NACKED: Final = {code: f"nacked-{code.name.lower().replace('_', '-')}" for code in NackCode}
_IN_FLIGHT: Final = PacketState.IN_FLIGHT
_LOST: Final = PacketState.LOST
_WAITING: Final = PacketState.WAITING
_SACKED: Final = PacketState.SACKED
_DONE: Final = PacketState.DONE


class Sender:
    """One direction's packets of a PDC, from their sources to their acknowledgements."""

    def __init__(self, pdc: Pdc, congestion: CongestionContext, paths: PathSelector, start_psn: int) -> None:
        self._pdc = pdc
        self.congestion = congestion
        self.paths = paths
        self.window = SendWindow(start_psn)
        # An empty deque has 600 bytes, and most PDCs are idle.
        self._sources: deque[PacketSource] | None = None
        self._again: deque[TxPacket] | None = None
        self._refusals: Refusals | None = None
        # Under TSS the first packet asks for the Start_PSN, and what went with it would go twice.
        self._peer_range = 1 if pdc.encrypted and pdc.initiator else min(pdc.config.mp_range, _SYN_RANGE)
        self._round_trips = RoundTrips(pdc.config.rto_ns)
        self._rcvd_units = 0
        """Rcvd_Bytes as last heard, without its wrapping."""
        self._sent_bytes = 0
        """Nominal bytes of all transmissions."""
        self._last_sack_base = start_psn
        self._last_bitmap = 0
        self.highest_sacked = psn_add(start_psn, -1)
        self._inferred_to = psn_add(start_psn, -1)
        self._rewound_at = -1
        self.clearing = Clearing(pdc, self.window)
        self._probing: Probing | None = None
        self._bursts = Bursts(pdc.config, congestion, paths)
        self._unasked = False
        """The latest packet did not ask for an ACK."""
        with_credit = congestion.rccc_enabled
        self._demand = CreditDemand(pdc, self) if with_credit else None
        if pdc.mode is _ROD:
            self._type_bits = (PdsType.ROD_CC_REQ if with_credit else PdsType.ROD_REQ) << 11
        else:
            self._type_bits = (PdsType.RUD_CC_REQ if with_credit else PdsType.RUD_REQ) << 11

    # --- what there is to send ---------------------------------------------------------------------------

    def submit(self, source: PacketSource) -> None:
        """Take a message: its packets go out after those of the messages before it."""
        if self._sources is None:
            self._sources = deque()
        self._sources.append(source)

    @property
    def idle(self) -> bool:
        """Tell whether nothing is to be sent, and everything that was sent is acknowledged."""
        return not self._sources and not len(self.window)

    @property
    def has_work(self) -> bool:
        """Something waits to be sent, whether or not it may be now."""
        return bool(self._again or self._sources)

    @property
    def next_is_short(self) -> bool:
        """Tell whether what is to be sent next is the end of a message, or all of it, and short."""
        sources = self._sources
        return False if self._again or not sources else sources[0].remaining_bytes <= _SHORT_BYTES

    @property
    def sources(self) -> Iterable[PacketSource]:
        """Messages that are not wholly sent, in their order."""
        return self._sources or ()

    @property
    def retransmit_bytes(self) -> int:
        """Return the bytes of packets to be sent again."""
        return sum(packet.size for packet in self._again or () if packet.state is _LOST)

    def transmit(self, now: int, out: list[Outgoing], limit: int) -> None:
        """Append what may be sent now to `out`, until it has `limit` entries."""
        congestion = self.congestion
        window = self.window
        sources = self._sources
        again = self._again
        while len(out) < limit:
            if again:
                if not congestion.can_send() and self._blocked(now):
                    return
                packet = again.popleft()
                if packet.state is _LOST:
                    self._send(packet, now, out, _RETX_AR)
                continue
            if not sources:
                break
            outstanding = (window.next_psn - 1 - window.cack_psn) & 0xFFFF_FFFF
            if (outstanding >= self._peer_range or not congestion.can_send()) and self._blocked(now):
                return
            if window.sent >= self._pdc.most_packets:
                self._pdc.wear_out(now)
                return
            source = sources[0]
            fresh = source.next_packet()
            if fresh is None:
                sources.popleft()
                continue
            if source.exhausted:
                sources.popleft()
            window.add(fresh)
            self._send(fresh, now, out, 0 if sources else _REQ_AR)
        if not again and not sources:
            self._sources = self._again = None

    def _blocked(self, now: int) -> bool:
        """There is data, but no room; False if there is some after all.

        If no packet under way asks for an ACK (the window has shrunk), a probe does. If nothing is under way at all,
        nothing would ever make room: then what is held to be in flight is not (the peer has counted it wrongly), or
        the peer has cleared its window without a word, and is asked for it.
        """
        if self.clearing.pinned and self.window.outstanding >= self._peer_range:
            self.clearing.make_room(now, self._peer_range)
        if not self.window.any_under_way:
            self.congestion.on_nothing_in_flight()
            if self.window.outstanding >= self._peer_range:
                self.probing.send(now)
                self._pdc.arm(now + self._pdc.config.rto_ns)
                return True
            if self.congestion.can_send():
                return False
        if self._demand is not None:
            self._demand.blocked(now)
        if self._unasked:
            self._unasked = False
            self.probing.send(now)
        return True

    def _send(self, packet: TxPacket, now: int, out: list[Outgoing], flags: int) -> None:
        pdc = self._pdc
        window = self.window
        congestion = self.congestion
        psn = packet.psn
        again = packet.transmissions > 0
        payload = packet.payload
        last = pdc.remote_pdcid
        if pdc.creating:
            flags |= _REQ_SYN
            last = (psn - window.start_psn) & 0xFFF
            if pdc.obedience is not None and pdc.obedience.since < 0:
                pdc.obedience.since = now
        if packet.size == 0:
            long = congestion.rccc_enabled or packet.control is not None
            overhead = pdc.overhead_bytes + (16 if long else 12)
            packet.size = overhead + len(packet.body) + len(payload)
        self._sent_bytes += packet.size
        congestion.on_send(now, packet.size)
        if packet.control is not None:
            control_flags = _CP_AR | (_CP_RETX if again else 0) | pdc.control_flags
            if flags & _REQ_SYN:
                control_flags |= _CP_SYN
            prologue = PdsType.CP << 11 | packet.control << 7 | control_flags
            header = _CONTROL.pack(prologue, 0, psn, pdc.local_pdcid, last, 0)
        else:
            if not flags & _REQ_AR and (congestion.ack_request() or window.outstanding + 1 >= self._peer_range):
                flags |= _REQ_AR
            self._unasked = not flags & _REQ_AR
            prologue = self._type_bits | packet.next_header << 7 | flags
            header = _HEADER.pack(prologue, psn_distance(window.clear_psn, psn), psn, pdc.local_pdcid, last)
            if self.clearing.pinned:
                self.clearing.carried()
            if self._demand is not None:
                self._demand.tell()
                header += _CC_STATE.pack(self.congestion.credit_target() & 0xFF_FFFF)
            header += packet.body
        packet.entropy = entropy = self._bursts.choose(now, again)
        packet.sent_at = now
        packet.transmissions += 1
        packet.state = _IN_FLIGHT
        out.append(_new(Outgoing, (pdc.remote, entropy, _RETRANSMISSION if again else _DATA, header, payload)))
        due = now + self._round_trips.timeout(packet.timeouts)
        if due < pdc.deadline or pdc.deadline == 0:
            pdc.arm(due)
        if pdc.trace is not None:
            self._trace(pdc.trace, now, "retransmitted" if again else "sent", psn=psn, ev=entropy)

    def _trace(self, trace: Trace, now: int, kind: str, **values: int) -> None:
        """Record an event, and how much was in flight then."""
        congestion = self.congestion
        cwnd, inflight = congestion.cwnd_bytes, congestion.inflight_bytes
        trace.record(now, self._pdc.local_pdcid, kind, **values, cwnd_bytes=cwnd, inflight_bytes=inflight)

    # --- what the peer says ------------------------------------------------------------------------------

    def believes(self, ack: Ack) -> bool:
        """Tell whether an ACK speaks of what was sent."""
        window = self.window
        cack = ack.cack_psn
        return window.may_be_cumulative(cack) and (
            bool(ack.flags & _ACK_PROBE) or window.was_sent((cack + ack.ack_psn_offset) & 0xFFFF_FFFF)
        )

    def on_ack(self, ack: Ack, entropy: int, response: bytes | memoryview, now: int) -> bool:
        """Take an ACK that came with `entropy` and an SES response. False if it speaks of what was never sent."""
        if not self.believes(ack):
            return False
        window = self.window
        cack = ack.cack_psn
        probe = bool(ack.flags & _ACK_PROBE)
        trigger = cack if probe else (cack + ack.ack_psn_offset) & 0xFFFF_FFFF
        marked = bool(ack.flags & _ACK_MARKED)
        packet = window.get(trigger)
        rtt, acked_bytes, acked_packets = -1, 0, 0
        if probe:
            elapsed = self.probing.answered(ack.probe_opaque, now)
            if elapsed >= 0:
                self.congestion.on_probe_ack(now, elapsed)
                self._probing = None
        elif packet is not None and packet.state is not _DONE:
            service = 0
            if isinstance(ack.cc_state, NsccState):
                service = ack.cc_state.service_time * _SERVICE_UNIT_NS
            resent = bool(ack.flags & _ACK_RETX)
            if packet.transmissions == (2 if resent else 1) and not packet.asked:
                elapsed = now - packet.sent_at
                if service == 0 or service < elapsed:  # else it claims to have kept the packet longer than it had it
                    rtt = max(elapsed - service, 1)
                    self._round_trips.take(rtt)
            acked_bytes, acked_packets = packet.size, 1
            self._found(packet)
            packet.state = _DONE
            self._done(packet, ack.next_header, response, now)
        for acked in window.cumulative(cack):
            acked_bytes += acked.size
            acked_packets += 1
            self._found(acked)
            acked.state = _DONE
            self._done(acked, NextHeader.NONE, b"", now)
        if ack.sack_bitmap:
            self._take_sack(psn_add(cack, ack.sack_psn_offset), ack.sack_bitmap, now)
            if self._pdc.config.loss_inference and not self._pdc.config.trimming:
                self._infer_losses(now)
        if ack.mpr:
            self._peer_range = ack.mpr * 128
        self.congestion.on_ack(now, self._newly_received(ack, acked_bytes, now), marked, rtt)
        if not probe:
            covered = self._bursts.covered(acked_packets)
            self.paths.feedback(entropy, PathFeedback.MARKED if marked else PathFeedback.GOOD, now, covered)
        if ack.flags & _ACK_REQ_CLEAR:
            self.clearing.keep(trigger, now)
        if self.clearing.pinned:
            self.clearing.take_cack(now)
        trace = self._pdc.trace
        if trace is not None:
            self._trace(trace, now, "acked", psn=trigger, cack=cack, ev=entropy, marked=int(marked), rtt_ns=rtt)
        return True

    def _newly_received(self, ack: Ack, acked_bytes: int, now: int) -> int:
        """Nominal bytes received since the ACK before: what the peer counts, or else what it acknowledges."""
        state = ack.cc_state
        if isinstance(state, NsccState):
            units = (state.rcvd_bytes - self._rcvd_units) & _RCVD_BYTES_MASK
            if units >= _RCVD_BYTES_MASK >> 1:
                return 0  # it is older than what was heard before
            if (self._rcvd_units + units - 1) * _RCVD_BYTES_UNIT > self._sent_bytes:
                # More than was ever sent. To believe it once would make all that follows look old.
                self._pdc.count("invalid-received-bytes")
                return acked_bytes
            self._rcvd_units += units
            return units * _RCVD_BYTES_UNIT
        if isinstance(state, CreditState):
            self.on_credit(state.credit, now)
        return acked_bytes

    def on_credit(self, counter: int, now: int) -> None:
        """The cumulative credit of an ACK or a CREDIT packet."""
        if self._demand is not None:
            self._demand.heard()
        self.congestion.on_credit(now, counter)

    def _found(self, packet: TxPacket) -> None:
        """The peer has it. If it was taken for lost and not sent again yet, it counts as in flight again: what the peer
        says it received includes it."""
        if packet.state in (_LOST, _WAITING):
            self.congestion.on_found(packet.size)

    def _done(self, packet: TxPacket, next_header: NextHeader, response: bytes | memoryview, now: int) -> None:
        if packet.source is not None:
            packet.source.packet_acked(packet, next_header, response, now)
        else:
            self._pdc.control_acked(packet, now)

    def _take_sack(self, base: int, bitmap: int, now: int) -> None:
        window = self.window
        shift = psn_distance(base, self._last_sack_base)
        known = self._last_bitmap >> shift if 0 <= shift < 64 else 0
        highest = psn_add(base, bitmap.bit_length() - 1)
        if not window.was_sent(highest):
            return
        self._last_sack_base = base
        self._last_bitmap = bitmap
        if psn_distance(highest, self.highest_sacked) > 0:
            self.highest_sacked = highest
        bits = bitmap & ~known
        while bits:
            low = bits & -bits
            bits ^= low
            packet = window.get((base + low.bit_length() - 1) & 0xFFFF_FFFF)
            if packet is not None and packet.state is not _SACKED and packet.state is not _DONE:
                self._found(packet)
                packet.state = _SACKED
                if self.clearing.pins(packet):
                    self.clearing.ask(packet, now)

    def _infer_losses(self, now: int) -> None:
        """Packets so far behind the highest one SACKed that spraying does not explain it.

        The threshold is the UEC simulator's, 1.5 windows and 5 packets at least. What it does beyond that, taking the
        whole window for lost, resends more in vain and finds fewer losses of an incast before they time out.
        """
        window = self.window
        packet_bytes = self._pdc.config.payload_bytes
        if isinstance(self.paths, SinglePath):
            reordering = 3
        else:
            reordering = max(int(1.5 * self.congestion.cwnd_bytes) // packet_bytes, 5)
        psn = self._inferred_to
        if psn_distance(window.clear_psn, psn) > 0:
            psn = window.clear_psn
        for _ in range(psn_distance(self.highest_sacked, psn) - reordering):
            psn = (psn + 1) & 0xFFFF_FFFF
            packet = window.get(psn)
            if packet is not None and packet.state is _IN_FLIGHT and packet.transmissions == 1:
                self._lose(packet, now, "inferred-loss")
        self._inferred_to = psn

    def _lose(self, packet: TxPacket, now: int, why: str) -> None:
        self._send_again(packet)
        if why == "timeout":
            self.congestion.on_timeout(now, packet.size)
        else:
            self.congestion.on_inferred_loss(now, packet.size)
        self.paths.feedback(packet.entropy, PathFeedback.TIMEOUT, now)
        self._pdc.count(why)
        trace = self._pdc.trace
        if trace is not None:
            trace.record(now, self._pdc.local_pdcid, why, psn=packet.psn, ev=packet.entropy)

    def on_nack(self, nack: Nack, entropy: int, now: int) -> None:
        """Take a NACK; one of a packet outside the window, or of an earlier transmission, changes nothing."""
        packet = self.window.get(nack.nack_psn)
        if packet is None or packet.state is _DONE:
            return
        code = NackCode(nack.nack_code)
        action = NACK_ACTIONS[code]
        marked = bool(nack.flags & _NACK_MARKED)
        trace = self._pdc.trace
        if trace is not None:
            trace.record(now, self._pdc.local_pdcid, "nacked", psn=packet.psn, code=code.name, ev=entropy)
        if action is NackAction.FATAL:
            self._pdc.fail(f"the peer says {code.name}", now)
            return
        if action is NackAction.RENUMBER:
            self._pdc.renumber(nack.payload, now)
            return
        stale = packet.transmissions > 1 and not nack.flags & _NACK_RETX and code != NackCode.PKT_NOT_RCVD
        if stale or action in (NackAction.IGNORE, NackAction.WAIT) or packet.state not in (_IN_FLIGHT, _SACKED):
            return
        if action is NackAction.GO_BACK_N:
            self._go_back(packet, now)
            return
        self._pdc.count(_NACKED[code])
        rtt = now - packet.sent_at if packet.transmissions == 1 else -1
        self.congestion.on_nack(now, code, packet.size, rtt, not self._pdc.creating)
        self.paths.feedback(entropy, judge_nack(code, marked), now)
        if code not in TRIMMING:
            packet.nacks += 1
            if packet.nacks > self._pdc.config.max_nack_retx:
                self._pdc.fail(f"refused {packet.nacks} times, with {code.name} at last", now)
                return
        if action is NackAction.RETRANSMIT_LATER:
            if self._refusals is None:
                self._refusals = Refusals(self._pdc.config, self._pdc.local_pdcid)
            self._pdc.arm(self._refusals.add(packet, now))
        else:
            self._send_again(packet)

    def _send_again(self, packet: TxPacket) -> None:
        packet.state = _LOST
        if self._again is None:
            self._again = deque()
        self._again.append(packet)

    def _go_back(self, nacked: TxPacket, now: int) -> None:
        """ROD: send everything again from the first packet that the peer lacks (section 3.5.7)."""
        if nacked.sent_at <= self._rewound_at:
            return  # it was sent before we went back the last time
        self._rewound_at = now
        self._pdc.count("rewound", self._all_again())
        self.congestion.on_nack(now, NackCode.ROD_OOO, 0, -1, not self._pdc.creating)

    def renumber(self, start_psn: int, now: int) -> None:
        """Before the first ACK: send everything again, with PSNs from `start_psn` on (table 3-58)."""
        self._pdc.count("renumbered", self._all_again(waiting=True))
        self.window.renumber(start_psn)
        for packet in self.window:
            packet.timeouts = 0  # the peer lives
        self._last_sack_base = start_psn
        self.highest_sacked = self._inferred_to = psn_add(start_psn, -1)
        self._peer_range = min(self._pdc.config.mp_range, _SYN_RANGE)
        self.clearing.carried()
        self.congestion.on_nack(now, NackCode.NEW_START_PSN, 0, -1, False)

    def _all_again(self, waiting: bool = False) -> int:
        """Take what is in flight for lost, and have everything that is sent again in the order of its PSNs, with or
        without what is `waiting` to be. Return how many packets were in flight."""
        again = []
        rewound = 0
        for packet in self.window:
            if packet.state is _IN_FLIGHT:
                rewound += 1
                self.congestion.on_discarded(packet.size)
                packet.state = _LOST
            elif waiting and packet.state is _WAITING:
                packet.state = _LOST
            if packet.state is _LOST:
                again.append(packet)
        self._again = deque(again)
        return rewound

    # --- time --------------------------------------------------------------------------------------------

    def handle_timer(self, now: int) -> int:
        """Do what is due; when to come again, 0 for never."""
        deadline = 0
        if self._refusals is not None:
            for packet in self._refusals.due(now):
                self._send_again(packet)
            deadline = self._refusals.next_due
        asked = expired = False
        for packet in self.window:
            state = packet.state
            if state not in (_IN_FLIGHT, _SACKED):
                continue
            due = packet.sent_at + self._round_trips.timeout(packet.timeouts)
            if due <= now:
                if packet.timeouts >= self._pdc.config.max_rto_retx:
                    self._pdc.fail(f"no acknowledgement after {packet.timeouts + 1} time-outs", now)
                    return 0
                if state is _IN_FLIGHT:
                    packet.timeouts += 1
                    self._lose(packet, now, "timeout")
                    expired = True
                    continue
                if asked and not self.clearing.pins(packet):
                    continue  # CACK_PSN will reach it
                asked = True
                packet.timeouts += 1
                packet.sent_at = now
                self.clearing.ask(packet, now)
                due = now + self._round_trips.timeout(packet.timeouts)
            elif state is _SACKED and asked and not self.clearing.pins(packet):
                continue
            asked = asked or state is _SACKED
            deadline = due if deadline == 0 or due < deadline else deadline
        for due in (self.clearing.handle_timer(now), self._probing.handle_timer(now) if self._probing else 0):
            if due and (deadline == 0 or due < deadline):
                deadline = due
        if self._again and (expired or self._pdc.mode is _ROD):
            # The oldest first: ROD needs it, and a dead peer is known when one packet has used up its time-outs, not
            # when all in turn have, one at a time through a window that has shrunk.
            self._again = deque(packet for packet in self.window if packet.state is _LOST)
        if self._demand is not None:
            due = self._demand.handle_timer(now)
            if due and (deadline == 0 or due < deadline):
                deadline = due
        return deadline

    @property
    def probing(self) -> Probing:
        """Return the probes that are not answered; most PDCs have none at most times."""
        if self._probing is None:
            self._probing = Probing(self._pdc)
        return self._probing

    def abandon(self, reason: str, now: int) -> None:
        """The PDC ends: everything under way or not yet sent fails."""
        sources = dict.fromkeys(packet.source for packet in self.window.abandon() if packet.source is not None)
        sources |= dict.fromkeys(self._sources or ())
        self._sources = self._again = self._refusals = None
        for source in sources:
            source.failed(reason, now)
