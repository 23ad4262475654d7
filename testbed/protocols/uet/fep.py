"""A fabric endpoint (FEP): all PDCs of one fabric address, their timers, and who is asked to send next.

Datagrams and `now` go in; datagrams, completions and the next timer come out. Source: UE Specification 1.0, sections
2.2 (FEP), 3.5.8 (which PDC a packet belongs to). Time is in nanoseconds of any clock that does not go back.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Sequence
from random import Random
from typing import Final

from testbed.protocols.datagram import Incoming, Outgoing
from testbed.protocols.errors import DecodeError, UsageError
from testbed.protocols.uet.addressing import FepAddress
from testbed.protocols.uet.config import UetConfig
from testbed.protocols.uet.congestion.credit import CREDIT_SHIFT, CreditGrants
from testbed.protocols.uet.congestion.registry import CONTROLLERS
from testbed.protocols.uet.delivery.pdc import REQUEST_TYPES, Pdc
from testbed.protocols.uet.delivery.pdc_table import PdcTable
from testbed.protocols.uet.delivery.receiver import encode_nack
from testbed.protocols.uet.delivery.start_psn import SECRET_BYTES
from testbed.protocols.uet.delivery.states import PdcState
from testbed.protocols.uet.delivery.window import PacketSource
from testbed.protocols.uet.memory import Access, CopiedMemory, MemoryRegion, MemoryTable
from testbed.protocols.uet.packets.acks import Ack, Nack
from testbed.protocols.uet.packets.codes import (
    ControlFlag,
    ControlType,
    Mode,
    NackCode,
    NackFlag,
    NextHeader,
    RequestFlag,
    ResponseOpcode,
)
from testbed.protocols.uet.packets.pds import ControlPacket, Request, RudiPacket, Uud, decode_pds
from testbed.protocols.uet.packets.psn import psn_distance
from testbed.protocols.uet.peers import PeerCounters
from testbed.protocols.uet.security.protection import Protection, count_refusal
from testbed.protocols.uet.security.tss import SecureDomain, SecurityError
from testbed.protocols.uet.semantics.endpoint import Endpoint
from testbed.protocols.uet.semantics.target import TargetSemantics
from testbed.protocols.uet.semantics.transfers import PdcTransfers, check_response
from testbed.protocols.uet.trace import Trace

_CP_SYN: Final = int(ControlFlag.SYN)
_NACK_RUDI: Final = int(NackFlag.RUDI)
_REQ_SYN: Final = int(RequestFlag.SYN)
_NO_HEADER: Final = NextHeader.NONE
_DEFAULT_RESPONSE: Final = int(ResponseOpcode.DEFAULT_RESPONSE)
_MOST_CONTROL: Final = 1 << 14
"""Acknowledgements and the like that wait to be sent; who makes us want to send more loses them."""


class Fep:
    """Raises nothing for anything that arrives; what is wrong is dropped and counted in `counters`."""

    def __init__(
        self,
        address: str,
        config: UetConfig,
        random: Random,
        now: int,
        *,
        trace: Trace | None = None,
        security: SecureDomain | None = None,
        secret: bytes | None = None,
    ) -> None:
        """`secret` is a key of this life of the endpoint alone, by which it recognises the Start_PSNs that it demands;
        None: out of `random`, whose values others can predict who have seen enough of them."""
        self.address = address
        self.config = config
        self.trace = trace
        self.counters: Counter[str] = Counter()
        """Counts of events by name: `timeout`, `duplicate`, `trimmed`, `malformed`, `invalid-ack`, ..."""
        self.memory = MemoryTable()
        self._protection = Protection(address, security) if config.crc or security is not None else None
        self.overhead_bytes = 0 if self._protection is None else self._protection.overhead_bytes
        """The bytes that TSS or a CRC adds to each packet."""
        self.encrypts = security is not None
        """By TSS: what it has not proven genuine is believed nowhere, and no PDC of it lives for ever."""
        self.payload_bytes = config.payload_bytes - self.overhead_bytes
        """The payload of a full packet: so much less than configured that packets do not become longer."""
        self.random = random
        self.semantics = TargetSemantics(self)
        self.now = now
        """The latest time that was handed in."""
        self._endpoints: dict[tuple[int, int, int], Endpoint] = {}
        self.table = PdcTable(self, config, random, random.randbytes(SECRET_BYTES) if secret is None else secret)
        self._pdcs = self.table.by_pdcid
        self._targets = self.table.targets
        self.peers = PeerCounters(self.counters, self._pdcs)
        self._control: deque[Outgoing] = deque()
        self._ready: deque[Pdc] = deque()
        self._timers: list[tuple[int, int, Pdc]] = []
        self._timer_number = 0
        self._credits: CreditGrants | None = None
        make_grants = CONTROLLERS[config.cc].make_grants
        if make_grants is not None:
            follows_fabric = config.oversubscribed_cc and config.cc == "rccc"  # with NSCC, that does
            self._credits = make_grants(config.nscc(), now, follows_fabric)
        self._rudi = self.semantics.rudi
        self._deferred = self.semantics.deferred
        self._partial = self.semantics.partial

    # --- local objects -----------------------------------------------------------------------------------

    def endpoint(self, *, job_id: int, pid_on_fep: int = 0, resource_index: int = 1) -> Endpoint:
        """Open an endpoint, as a process of a job would. Raises `UsageError` if there is one of this name."""
        address = FepAddress(self.address, pid_on_fep, resource_index, job_id)
        key = (job_id, pid_on_fep, resource_index)
        if key in self._endpoints:
            raise UsageError(f"{address} is in use")
        endpoint = self._endpoints[key] = Endpoint(self, self.semantics, address)
        return endpoint

    def find_endpoint(self, job_id: int, pid_on_fep: int, resource_index: int) -> Endpoint | None:
        return self._endpoints.get((job_id, pid_on_fep, resource_index))

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        return list(self._endpoints.values())

    def remove_endpoint(self, endpoint: Endpoint) -> None:
        address = endpoint.address
        self._endpoints.pop((address.job_id, address.pid_on_fep, address.resource_index), None)

    def register(
        self, buffer: bytearray | memoryview, access: Access, job_id: int | None, key: int | None = None
    ) -> MemoryRegion:
        """Let the peers of a job at this memory; None: of any job."""
        return self.memory.register(buffer, access, job_id, key=key, random=self.random)

    def register_copied(
        self, memory: CopiedMemory, access: Access, job_id: int | None, *, base: int = 0, key: int | None = None
    ) -> MemoryRegion:
        """Do as `register`, for memory that is reached by copies; `base` is the buffer offset of its first byte."""
        return self.memory.register_copied(memory, access, job_id, base=base, key=key, random=self.random)

    def retire(self, key: int) -> None:
        """Close this memory again; what is on its way from it still arrives."""
        self.memory.deregister(key)

    @property
    def target(self) -> TargetSemantics:
        return self.semantics

    @property
    def pdcs(self) -> Sequence[Pdc]:
        return list(self._pdcs.values())

    # --- what PDCs ask of their owner --------------------------------------------------------------------

    def emit(self, datagram: Outgoing) -> None:
        if len(self._control) >= _MOST_CONTROL:
            self.count("control-overflow")
            return
        self._control.append(datagram)

    def count(self, what: str) -> None:
        self.counters[what] += 1

    def count_of(self, pdc: Pdc, what: str, number: int) -> None:
        self.peers.count(what, (pdc.remote, pdc.initiator), number)

    def wake(self, pdc: Pdc) -> None:
        if not pdc.queued and not pdc.held:
            pdc.queued = True
            self._ready.append(pdc)

    def schedule(self, pdc: Pdc, deadline: int) -> None:
        self._timer_number += 1
        heapq.heappush(self._timers, (deadline, self._timer_number, pdc))

    @property
    def most_responses_unconfirmed(self) -> int:
        return self._targets.most_responses_unconfirmed

    def granted_credit(self, pdc: Pdc) -> int | None:
        if self._credits is None or self.config.cc != "rccc":
            return None
        return self._credits.credit_of(pdc)

    def ended(self, pdc: Pdc, reason: str, now: int) -> None:
        """Forget a PDC; its identity is kept for a while, so that a late SYN does not open it again."""
        self.table.end(pdc, now)
        if self._credits is not None:
            self._credits.remove(pdc)
        if reason:
            self.count("pdc-failed")
        if pdc.transfers is not None:
            pdc.transfers.fail(reason or "the peer has closed", now)
        if self.trace is not None:
            self.trace.record(now, pdc.local_pdcid, "ended", reason=reason)

    def submit(self, remote: str, job_id: int, mode: Mode, now: int) -> Pdc:
        """The PDC for the next message to a peer: an open one, or a new one; `UsageError` if there are too many."""
        return self.table.submit(remote, job_id, mode, now)

    # --- what arrives ------------------------------------------------------------------------------------

    def receive(self, datagrams: Sequence[Incoming], now: int) -> None:
        """Take what arrived."""
        self.now = now
        protection = self._protection
        for incoming in datagrams:
            data = incoming.data
            try:
                if protection is not None:
                    if incoming.length and incoming.trimmed:
                        data = protection.open_trimmed(incoming)
                        if self.encrypts:
                            self._on_hint(incoming, data, now)
                            continue
                    else:
                        data = protection.open(incoming)
                header, offset = decode_pds(data)
                if isinstance(header, Request):
                    self._on_request(header, incoming, data, offset, now)
                elif isinstance(header, Ack):
                    self._on_ack(header, incoming, data, offset, now)
                elif isinstance(header, Nack):
                    self._on_nack(header, incoming, now)
                elif isinstance(header, ControlPacket):
                    self._on_control(header, incoming, now)
                elif isinstance(header, RudiPacket):
                    self._rudi.on_packet(header, incoming, data, offset, now)
                elif isinstance(header, Uud):
                    self.semantics.on_datagram(header, incoming, data, offset, now)
            except DecodeError as error:
                self.count("malformed")
                if self.trace is not None:
                    self.trace.record(now, 0, "malformed", offset=error.offset, reason=error.reason)
            except SecurityError as refusal:
                count_refusal(refusal, self.counters)

    def _on_hint(self, incoming: Incoming, data: bytes | memoryview, now: int) -> None:
        """A trimmed packet under TSS. Nothing in it is proven: it may hasten a NACK, and nothing else."""
        header, offset = decode_pds(data)
        if isinstance(header, RudiPacket):
            self._rudi.on_packet(header, incoming, data, offset, now)
        elif isinstance(header, Request):
            if header.flags & _REQ_SYN:
                pdc = self._targets.get((incoming.remote, header.spdcid))
                if pdc is None:
                    self.table.refuse_trimmed(header, incoming)
                    return
            else:
                pdc = self._pdcs.get(header.dpdcid)
            if pdc is not None and (pdc.remote, pdc.remote_pdcid) == (incoming.remote, header.spdcid):
                pdc.receiver.on_request(header, incoming, data, offset, now)
        else:
            self.count("trimmed-control")

    def _on_request(
        self, request: Request, incoming: Incoming, data: bytes | memoryview, offset: int, now: int
    ) -> None:
        mode = REQUEST_TYPES[request.type]
        if request.flags & _REQ_SYN:
            pdc = self.table.find(request, incoming)
            if pdc is None:
                pdc = self.table.accept(request, incoming, mode, now)
                if pdc is None:
                    return
                try:
                    self._deliver(pdc, request, incoming, data, offset, now)
                except DecodeError:
                    self.table.take_back(pdc)
                    if self._credits is not None:
                        self._credits.remove(pdc)
                    raise
                return
        else:
            pdc = self._pdcs.get(request.dpdcid)
            if pdc is None:
                self.table.refuse(NackCode.INV_DPDCID, request, incoming)
                return
            if pdc.remote != incoming.remote:
                self.table.refuse(NackCode.PDC_HDR_MISMATCH, request, incoming)
                return
            if pdc.remote_pdcid != request.spdcid:
                if not pdc.creating:
                    self.table.refuse(NackCode.PDC_HDR_MISMATCH, request, incoming)
                    return
                # The return direction has overtaken the first ACK.
                if not 0 <= psn_distance(request.psn, pdc.start_psn) < self.config.mp_range or not len(
                    pdc.sender.window
                ):
                    self.count("stray-request")
                    return
                pdc.meet(request.spdcid, now)
            if pdc.unconfirmed_since >= 0:
                self._targets.confirm(pdc)
        if pdc.mode is not mode:
            self.table.refuse(NackCode.PDC_MODE_MISMATCH, request, incoming)
            return
        self._deliver(pdc, request, incoming, data, offset, now)

    def _deliver(
        self, pdc: Pdc, request: Request, incoming: Incoming, data: bytes | memoryview, offset: int, now: int
    ) -> None:
        pdc.last_used = now
        if self._credits is not None and request.req_cc_state is not None:
            self._credits.on_arrival(incoming, now)
            if incoming.trimmed:
                self._credits.on_trimmed(pdc, incoming.length, now)
            self._credits.on_target(pdc, request.req_cc_state.credit_target, now)
        pdc.receiver.on_request(request, incoming, data, offset, now)
        if pdc.state is PdcState.QUIESCE:
            pdc.go_on(now)  # that may have been what a read waited for

    def _on_ack(self, ack: Ack, incoming: Incoming, data: bytes | memoryview, offset: int, now: int) -> None:
        pdc = self._pdcs.get(ack.dpdcid)
        if pdc is None or pdc.remote != incoming.remote:
            self.count("stray-ack")
            return
        response: bytes | memoryview = b""
        if ack.next_header is not _NO_HEADER:
            if incoming.trimmed:
                self.count("trimmed-ack")  # the response is what it is about: it will be asked for again
                return
            response = data[offset:]
            if not len(response) or response[0] & 0x3F != _DEFAULT_RESPONSE:
                check_response(ack.next_header, data, offset)
        if pdc.unconfirmed_since >= 0 and ack.spdcid == pdc.remote_pdcid:
            self._targets.confirm(pdc)
        pdc.on_ack(ack, incoming, response, now)

    def _on_nack(self, nack: Nack, incoming: Incoming, now: int) -> None:
        if nack.flags & _NACK_RUDI:
            self._rudi.on_nack(nack, incoming, now)
            return
        pdc = self._pdcs.get(nack.dpdcid)
        if (
            pdc is None
            or pdc.remote != incoming.remote
            or (nack.spdcid not in (0, pdc.remote_pdcid) and not pdc.creating)
        ):
            self.count("stray-nack")
            return
        pdc.sender.on_nack(nack, incoming.entropy, now)
        if pdc.sender.has_work:
            self.wake(pdc)

    def _on_control(self, packet: ControlPacket, incoming: Incoming, now: int) -> None:
        if packet.flags & _CP_SYN:
            self.count("control-syn")
            return
        pdc = self._pdcs.get(packet.dpdcid)
        if pdc is not None and pdc.creating and pdc.remote == incoming.remote:
            self.count("early-control")  # before the first ACK: it comes again, if it matters
            return
        if pdc is None or pdc.remote != incoming.remote or pdc.remote_pdcid != packet.spdcid:
            self.count("stray-control")
            if packet.control_type in (ControlType.CLOSE_CMD, ControlType.ACK_REQ, ControlType.CREDIT_REQ):
                self.emit(encode_nack(NackCode.INV_DPDCID, packet.psn, 0, packet.spdcid, incoming))
            return
        if pdc.unconfirmed_since >= 0:
            self._targets.confirm(pdc)
        if packet.control_type == ControlType.CREDIT_REQ and self._credits is not None:
            self._credits.on_request(pdc, packet.payload & 0xFF_FFFF, now)
        pdc.on_control(packet, incoming, now)

    # --- what is to be sent ------------------------------------------------------------------------------

    @property
    def urgent(self) -> int:
        """Acknowledgements and the like that wait to be sent: `transmit` has them first."""
        return len(self._control)

    def transmit(self, now: int, limit: int = 64) -> list[Outgoing]:
        """Return what is to be sent now, at most `limit` datagrams; acknowledgements first, then PDCs in turn, by as
        many packets as share an entropy value.

        One short message goes before the acknowledgements: somebody waits for it, and nobody for them so urgently as
        to notice a single small packet.

        Fewer than `limit`: there is nothing more for the time being.
        """
        self.now = now
        out: list[Outgoing] = []
        control = self._control
        if control and self._ready and limit > 1:
            self._transmit_short(now, out)
        while control and len(out) < limit:
            out.append(control.popleft())
        self._rudi.transmit(now, out, limit)
        ready = self._ready
        burst = self.config.packets_per_entropy
        while ready and len(out) < limit:
            pdc = ready.popleft()
            if pdc.ended:
                continue
            room = min(len(out) + burst, limit) if ready else limit
            pdc.transmit(now, out, room)
            if len(out) >= room and pdc.sender.has_work:
                ready.append(pdc)
            else:
                pdc.queued = False
        while control and len(out) < limit:  # probes
            out.append(control.popleft())
        return out if self._protection is None else self._protection.seal(out, self.counters)

    def _transmit_short(self, now: int, out: list[Outgoing]) -> None:
        """Append a packet of the next PDC in turn, if it begins a short message."""
        pdc = self._ready[0]
        # No other state: what closes a PDC must not overtake what acknowledges its packets.
        if pdc.state is PdcState.ESTABLISHED and pdc.initiator and pdc.sender.next_is_short:
            self._ready.popleft()
            pdc.transmit(now, out, 1)
            if pdc.sender.has_work:
                self._ready.append(pdc)
            else:
                pdc.queued = False

    # --- time --------------------------------------------------------------------------------------------

    def next_timer(self) -> int | None:
        """Return when `handle_timer` is to be called; None for never."""
        timers = self._timers
        deadline: int | None = None
        while timers:
            due, _, pdc = timers[0]
            if pdc.deadline == due:
                deadline = due
                break
            heapq.heappop(timers)
        other = self._rudi.next_timer()
        if other is not None and (deadline is None or other < deadline):
            deadline = other
        other = self._deferred.next_timer()
        if other is not None and (deadline is None or other < deadline):
            deadline = other
        other = self._partial.next_timer()
        if other is not None and (deadline is None or other < deadline):
            deadline = other
        other = self._targets.next_timer()
        if other is not None and (deadline is None or other < deadline):
            deadline = other
        if self._credits is not None:
            other = self._credits.next_grant_time()
            if other is not None and (deadline is None or other < deadline):
                deadline = other
        return deadline

    def handle_timer(self, now: int) -> None:
        """Do what is due."""
        self.now = now
        timers = self._timers
        while timers and timers[0][0] <= now:
            deadline, _, pdc = heapq.heappop(timers)
            if pdc.deadline == deadline and not pdc.ended:
                pdc.handle_timer(now)
        self._targets.handle_timer(now)
        self._rudi.handle_timer(now)
        self._deferred.handle_timer(now)
        self._partial.handle_timer(now)
        if self._credits is not None:
            for sender, credit in self._credits.grant(now):
                assert isinstance(sender, Pdc)
                sender.send_control(ControlType.CREDIT, 0, now, payload=(credit & 0xFF_FFFF) << CREDIT_SHIFT)

    @property
    def idle(self) -> bool:
        """Tell whether nothing is to be sent and nothing is unacknowledged."""
        return not self._control and all(pdc.sender.idle for pdc in self._pdcs.values())

    def close(self, now: int) -> None:
        """Close all PDCs of ours in order; those of the peers end when they close them."""
        for pdc in list(self._pdcs.values()):
            pdc.close(now)

    def start(self, pdc: Pdc, source: PacketSource, now: int) -> None:
        """Send a message on a PDC, and listen for what it brings back."""
        if pdc.transfers is None:
            self.transfers(pdc)
        pdc.submit(source, now)

    def transfers(self, pdc: Pdc) -> PdcTransfers:
        kept = pdc.transfers
        if kept is None:
            kept = pdc.transfers = PdcTransfers(self.payload_bytes, self.config.patience_ns)
        assert isinstance(kept, PdcTransfers)
        return kept
