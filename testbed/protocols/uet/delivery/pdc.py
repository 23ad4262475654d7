"""A packet delivery context: its identity and states, and its two halves.

Source: UE Specification 1.0, section 3.5.8 (identity, 0-RTT establishment), 3.5.9 (teardown). Packets with SYN go out
until the first ACK tells the target's PDCID; the return direction has a PSN space of its own from the same Start_PSN.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from testbed.protocols.datagram import Incoming, Outgoing, Priority
from testbed.protocols.uet.config import PSNS_OF_SECURE_PDC, UetConfig
from testbed.protocols.uet.congestion.context import CongestionContext
from testbed.protocols.uet.congestion.credit import CREDIT_SHIFT
from testbed.protocols.uet.delivery.receiver import Receiver, Semantics, encode_nack
from testbed.protocols.uet.delivery.sender import Sender
from testbed.protocols.uet.delivery.start_psn import StartPsnObedience
from testbed.protocols.uet.delivery.states import ENDED, PdcEvent, PdcState, next_state
from testbed.protocols.uet.delivery.window import NOMINAL_HEADER_BYTES, PacketSource, TxPacket
from testbed.protocols.uet.packets.acks import Ack
from testbed.protocols.uet.packets.codes import (
    NOMINAL_OVERHEAD_BYTES,
    UDP_HEADER_BYTES,
    ControlFlag,
    ControlType,
    Mode,
    NackCode,
    NextHeader,
    PdsType,
)
from testbed.protocols.uet.packets.pds import ControlPacket
from testbed.protocols.uet.paths import PathSelector
from testbed.protocols.uet.trace import Trace

_CP_AR: Final = int(ControlFlag.AR)
_CP_ISROD: Final = int(ControlFlag.ISROD)


class PdcOwner(Protocol):
    """The endpoint that a PDC belongs to."""

    config: UetConfig
    trace: Trace | None

    overhead_bytes: int
    """The bytes that TSS or a CRC adds to each packet."""

    encrypts: bool
    """Its PDCs must end before Start_PSN + 2**31."""

    @property
    def target(self) -> Semantics:
        """Return who executes what arrives."""

    def emit(self, datagram: Outgoing) -> None:
        """Send this before any data."""

    def schedule(self, pdc: Pdc, deadline: int) -> None:
        """Call `handle_timer` of this PDC at that time."""

    def wake(self, pdc: Pdc) -> None:
        """Ask this PDC to transmit."""

    def ended(self, pdc: Pdc, reason: str, now: int) -> None:
        """It is closed (no reason) or was given up."""

    def count_of(self, pdc: Pdc, what: str, number: int) -> None:
        """Something has happened, so many times."""

    @property
    def most_responses_unconfirmed(self) -> int:
        """Guaranteed responses that may be kept on a PDC whose initiator has not shown yet that it hears us."""

    def granted_credit(self, pdc: Pdc) -> int | None:
        """Cumulative credit of this PDC's peer in units of 256 bytes; None without receiver credits."""


class PdcSemantics(Protocol):
    """The part of a PDC's state that semantics keeps, as far as the PDC is concerned."""

    @property
    def waiting(self) -> bool:
        """Tell whether data is to come back."""

    def expect(self, now: int) -> int:
        """There is progress: the time by which more must come."""

    def handle_timer(self, now: int) -> int:
        """End what has waited too long; when to come again, 0 for never."""

    def renumber(self, by: int) -> None:
        """All packets sent so far have other PSNs now, so much higher modulo 2**32."""

    def fail(self, reason: str, now: int) -> None:
        """The PDC has ended."""


class Establishment(NamedTuple):
    """The data of a PDC to be established, by a SYN that we are about to send or one that has come (section 3.5.8)."""

    mode: Mode
    remote: str
    """IP address of the peer."""
    local_pdcid: int
    remote_pdcid: int
    """0 where the peer has not told it yet."""
    start_psn: int
    """The first PSN of both directions."""
    initiator: bool
    """We open it, and we close it."""


class Pdc:
    """One packet delivery context with one peer."""

    def __init__(
        self,
        owner: PdcOwner,
        establishment: Establishment,
        congestion: CongestionContext,
        paths: PathSelector,
        now: int,
    ) -> None:
        mode, remote, local_pdcid, remote_pdcid, start_psn, initiator = establishment
        self._owner = owner
        self.config = owner.config
        self.semantics: Semantics = owner.target
        self.trace = owner.trace
        self.overhead_bytes = UDP_HEADER_BYTES + NOMINAL_OVERHEAD_BYTES + owner.overhead_bytes
        """The bytes around a packet in congestion control's arithmetic (section 3.6.12)."""
        self.encrypted = owner.encrypts
        self.most_packets = PSNS_OF_SECURE_PDC - 1 if self.encrypted else 1 << 63
        """PSNs that it may use: those of its own direction, and the peer those of the other one."""
        self.initiator = initiator
        self.mode = mode
        self.remote = remote
        self.local_pdcid = local_pdcid
        self.remote_pdcid = remote_pdcid
        """0 until the peer has told it."""
        self.start_psn = start_psn
        self.state = PdcState.CLOSED
        self.creating = initiator
        self.control_flags = _CP_ISROD if mode == Mode.ROD else 0
        self.close_wanted = False
        """Target: ACKs ask the initiator to close."""
        self.close_deadline = 0
        self.deadline = 0
        """When `handle_timer` is to be called; 0 for never."""
        self.held = False
        """It sends nothing before another one has ended."""
        self.queued = False
        """The owner will call `transmit`."""
        self.last_used = now
        self.unconfirmed_since = -1 if initiator else now
        """Target: since when nothing has come that only an initiator can send who hears us; -1: it has."""
        self.transfers: PdcSemantics | None = None
        """The state of semantics for this PDC, which makes it when it needs it."""
        self.obedience = StartPsnObedience(self.config.syn_memory_ns, self.config.max_nack_retx) if initiator else None
        """Initiator: None after the first ACK."""
        self.receiver = Receiver(self, start_psn)
        self.sender = Sender(self, congestion, paths, start_psn)
        if not initiator:
            self.state = next_state(False, self.state, PdcEvent.RECEIVE_SYN)

    # --- the owner's services, for the halves ------------------------------------------------------------

    def emit(self, datagram: Outgoing) -> None:
        self._owner.emit(datagram)

    def count(self, what: str, number: int = 1) -> None:
        self._owner.count_of(self, what, number)

    @property
    def most_responses_unconfirmed(self) -> int:
        return self._owner.most_responses_unconfirmed

    def granted_credit(self) -> int | None:
        return self._owner.granted_credit(self)

    def arm(self, deadline: int) -> None:
        """Have `handle_timer` called at `deadline` at the latest."""
        if self.deadline == 0 or deadline < self.deadline:
            self.deadline = deadline
            self._owner.schedule(self, deadline)

    def send_control(
        self, kind: ControlType, psn: int, now: int, *, payload: int = 0, opaque: int = 0, acknowledge: bool = False
    ) -> None:
        """Send a control packet that has no PSN of its own; nothing before the peer's PDCID is known."""
        if self.remote_pdcid == 0:
            return
        flags = self.control_flags | (_CP_AR if acknowledge else 0)
        packet = ControlPacket(
            control_type=kind,
            flags=flags,
            probe_opaque=opaque,
            psn=psn,
            spdcid=self.local_pdcid,
            dpdcid=self.remote_pdcid,
            pdc_info=0,
            psn_offset=0,
            payload=payload,
        )
        entropy = self.sender.paths.next_entropy(now)
        self.emit(Outgoing(self.remote, entropy, Priority.CONTROL, packet.encode(), b""))

    def send_nack(self, code: NackCode, psn: int, incoming: Incoming, *, flags: int = 0, payload: int = 0) -> None:
        self.emit(encode_nack(code, psn, self.local_pdcid, self.remote_pdcid, incoming, flags, payload))

    # --- life --------------------------------------------------------------------------------------------

    def _enter(self, event: PdcEvent, now: int) -> None:
        self.state = next_state(self.initiator, self.state, event)
        if self.trace is not None:
            self.trace.record(now, self.local_pdcid, "state", state=self.state.value)

    @property
    def open(self) -> bool:
        """Tell whether it takes new messages."""
        return self.state in (PdcState.CLOSED, PdcState.CREATING, PdcState.ESTABLISHED) and not self.close_wanted

    @property
    def ended(self) -> bool:
        """Closed or given up, after it had been open."""
        return self.state is PdcState.ERROR or (self.state is PdcState.CLOSED and not self.creating)

    def submit(self, source: PacketSource, now: int) -> None:
        """Send the packets of a message."""
        self.last_used = now
        if self.state is PdcState.CLOSED:
            self._enter(PdcEvent.SEND_SYN, now)
        self.sender.submit(source)
        if self.encrypted and self.initiator and self.sender.window.sent >= self.config.secure_pdc_packets:
            self.close(now)  # the next message finds it closing, and goes to another
        self._owner.wake(self)

    def wear_out(self, now: int) -> None:
        """All PSNs are used, though there was time to close it before."""
        self.fail("its packet sequence numbers are used up", now)

    def transmit(self, now: int, out: list[Outgoing], limit: int) -> None:
        self.sender.transmit(now, out, limit)

    def on_ack(self, ack: Ack, incoming: Incoming, response: bytes | memoryview, now: int) -> None:
        """Take an ACK that names this PDC."""
        if self.creating:
            if not len(self.sender.window) or not self.sender.believes(ack):
                self.count("invalid-ack")
                return
            self.meet(ack.spdcid, now)
        elif ack.spdcid != self.remote_pdcid:
            self.count("invalid-ack")
            return
        if not self.sender.on_ack(ack, incoming.entropy, response, now):
            self.count("invalid-ack")
            return
        if self.transfers is not None and self.transfers.waiting:
            self.transfers.expect(now)
        if ack.flags & 0x06 == 0x04 and self.initiator:  # REQ_CLOSE
            self.close(now)
        self.go_on(now)

    def meet(self, remote_pdcid: int, now: int) -> None:
        """Initiator: the target has said which PDCID it gave."""
        self.remote_pdcid = remote_pdcid
        self.creating = False
        self.obedience = None
        self._enter(PdcEvent.RECEIVE_ACK, now)
        self.sender.probing.confirm(now)

    def renumber(self, start_psn: int, now: int) -> None:
        """Initiator: the target demands another Start_PSN (`start_psn`). Everything goes out again with it."""
        if self.obedience is None or start_psn == self.start_psn:
            return  # it was asked for before it came
        problem = self.obedience.problem(now)
        if problem:
            self.fail(problem, now)
            return
        if self.transfers is not None:
            self.transfers.renumber(start_psn - self.start_psn)
        self.start_psn = start_psn
        self.receiver = Receiver(self, start_psn)
        self.sender.renumber(start_psn, now)

    def go_on(self, now: int) -> None:
        """Something has arrived: send on, or close when nothing is left to wait for."""
        sender = self.sender
        if sender.has_work:
            self._owner.wake(self)
            return
        if sender.idle:
            sender.paths.on_idle(now)
        if self.state is PdcState.QUIESCE:
            self._quiet(now)

    def close(self, now: int) -> None:
        """Initiator: take no more messages, and close when everything is acknowledged (section 3.5.9)."""
        if not self.initiator or self.state not in (PdcState.CREATING, PdcState.ESTABLISHED):
            return
        self._enter(PdcEvent.CLOSE, now)
        self._quiet(now)

    def _quiet(self, now: int) -> None:
        if self.sender.idle and not (self.transfers is not None and self.transfers.waiting):
            self._enter(PdcEvent.QUIET, now)
            self.sender.submit(ControlSource(ControlType.CLOSE_CMD))
            self._owner.wake(self)

    def ask_to_close(self, now: int) -> None:
        """Target: ask the initiator to close; it is given Close_REQ_Time for it."""
        if self.initiator or self.state is not PdcState.ESTABLISHED:
            return
        self._enter(PdcEvent.CLOSE_REQ, now)
        self.close_wanted = True
        self.close_deadline = now + self.config.close_wait_ns
        self.arm(self.close_deadline)
        self.sender.submit(ControlSource(ControlType.CLOSE_REQ))
        self._owner.wake(self)

    def control_acked(self, packet: TxPacket, now: int) -> None:
        """A control packet with a PSN of its own is acknowledged."""
        if packet.control is ControlType.CLOSE_CMD and self.state is PdcState.ACK_WAIT:
            self._enter(PdcEvent.CLOSE_ACKED, now)
            self._owner.ended(self, "", now)

    def on_control(self, packet: ControlPacket, incoming: Incoming, now: int) -> None:
        """Take a control packet that names this PDC."""
        match packet.control_type:
            case ControlType.ACK_REQ:
                self.receiver.on_ack_request(packet, incoming)
            case ControlType.CLEAR_CMD:
                self.receiver.on_clear(packet, incoming)
            case ControlType.CLEAR_REQ:
                self.sender.clearing.tell(now)
            case ControlType.PROBE:
                self.receiver.on_probe(packet, incoming)
            case ControlType.CREDIT:
                self.sender.on_credit(packet.payload >> CREDIT_SHIFT, now)
                self.go_on(now)
            case ControlType.CLOSE_CMD:
                if not self.initiator and self.receiver.on_control(packet, incoming):
                    self._enter(PdcEvent.CLOSE_CMD, now)
                    self.sender.abandon("its initiator has closed it", now)
                    self._owner.ended(self, "", now)
            case ControlType.CLOSE_REQ:
                if self.initiator:
                    self.receiver.on_control(packet, incoming)
                    self.close(now)
            case ControlType.NOOP | ControlType.NEGOTIATION:
                self.receiver.on_control(packet, incoming)
            case ControlType.CREDIT_REQ:
                pass  # the owner has taken the target from it
        self.last_used = now

    def fail(self, reason: str, now: int) -> None:
        """Give up: what is on its way ends in errors."""
        if self.state in ENDED and not self.creating:
            return
        if self.state is PdcState.CLOSED:
            self.creating = False
            return
        quiet = self.state is PdcState.ACK_WAIT
        self._enter(PdcEvent.FATAL, now)
        self.creating = False
        self.sender.abandon(reason, now)
        self._owner.ended(self, "" if quiet else reason, now)

    def handle_timer(self, now: int) -> None:
        """Do what is due, and arm again for what comes next."""
        self.deadline = 0
        deadline = self.sender.handle_timer(now)
        if self.state in ENDED and not self.creating:
            return
        if self.close_deadline:
            if self.close_deadline <= now:
                self.close_deadline = 0
                self.fail("the initiator does not close it", now)
                return
            deadline = self.close_deadline if deadline == 0 else min(deadline, self.close_deadline)
        if self.transfers is not None:
            due = self.transfers.handle_timer(now)
            if due:
                deadline = due if deadline == 0 else min(deadline, due)
        if deadline:
            self.arm(deadline)
        if self.sender.has_work:
            self._owner.wake(self)


class ControlSource:
    """A single control packet that has a PSN and must arrive."""

    def __init__(self, kind: ControlType) -> None:
        self._kind: ControlType | None = kind

    @property
    def exhausted(self) -> bool:
        return self._kind is None

    @property
    def remaining_bytes(self) -> int:
        return 0 if self._kind is None else NOMINAL_HEADER_BYTES

    def next_packet(self) -> TxPacket | None:
        kind, self._kind = self._kind, None
        return None if kind is None else TxPacket(None, NextHeader.NONE, b"", control=kind)

    def packet_acked(self, packet: TxPacket, next_header: NextHeader, response: bytes | memoryview, now: int) -> None:
        raise AssertionError("control packets are acknowledged to their PDC")

    def failed(self, reason: str, now: int) -> None:
        """Nobody waits for it."""


REQUEST_TYPES: Final = {
    PdsType.RUD_REQ: Mode.RUD,
    PdsType.RUD_CC_REQ: Mode.RUD,
    PdsType.ROD_REQ: Mode.ROD,
    PdsType.ROD_CC_REQ: Mode.ROD,
}
"""Mode of a PDC by the type of its requests."""
