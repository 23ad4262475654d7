"""Dynamically connected transport (DC): reliable connections that come and go, from a pool of initiators.

A reliable connection keeps a queue pair at both ends, whether or not it has work. Here a NIC has a pool of initiators
(DCI) for its own work, and targets (DCT) for that of others. What is posted names its `Destination`: a target of a
peer. An initiator that is free attaches to it and carries its requests in order; it attaches to another one when all of
them have ended and others wait, and to none when nothing was posted for a while. A target makes the responder of a
connection when an initiator attaches, and forgets it when that detaches or is not heard of for long. So a NIC's state
is that of its pool and of who is sending to it just now, not of all its peers.

    initiator                                              target
    DC_CONNECT (key, own QPN, session, first PSN, MTU) ->  makes a responder, expecting that PSN
    requests, to the target's number                   ->  executed as those of any reliable connection
                                                       <-  answers, to the initiator's number
    DC_DISCONNECT (session)                            ->  forgets the responder

Requests follow the connect at once: attaching costs a packet and no round trip. Nothing answers a connect but what
answers the first request: a lost one has the target answer DC_UNATTACHED to that request, or nothing, and is sent again
before it, then or after the timeout. Sessions are numbered by the time of attaching: a target takes a connect of the
same session for a copy, one of an earlier or ended session for a late one, and a disconnect for one of its own session
alone. PSNs go on from connection to connection: where a late connect has brought an earlier session back, and the new
one's was lost, its requests are ahead of what that responder expects, and are not taken for answered ones. A peer has
one connection to a target at a time, since requests do not say whose they are. An initiator whose target has forgotten
a connection on which something was acknowledged cannot know what was executed: its requests fail.

The idea, and that an initiator serves one target at a time, whose requests must have ended before the next: NVIDIA's
documentation of dynamically connected QPs, the manual page mlx5dv_create_qp(3), and Linux' "RDMA/mlx5: Add DCS offload
support" (2021). The wire format is not public; the opcodes and the fields of these packets are ours.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from testbed.protocols.datagram import Incoming, Outgoing, Priority
from testbed.protocols.errors import DecodeError, UsageError
from testbed.protocols.roce.config import MTUS
from testbed.protocols.roce.dynamic_initiator import CONNECT_BODY, SESSION_BODY, Destination, DynamicInitiator
from testbed.protocols.roce.dynamic_target import DynamicResponder, DynamicTarget
from testbed.protocols.roce.packets.headers import BTH_BYTES, DETH_BYTES, Aeth, Bth, Deth, decode_deth
from testbed.protocols.roce.packets.icrc import ICRC_BYTES
from testbed.protocols.roce.packets.opcodes import LAYOUTS, REQUESTS, Opcode
from testbed.protocols.roce.packets.syndrome import RNR_TIMERS_NS, NakCode, nak
from testbed.protocols.roce.qp import QueuePair
from testbed.protocols.roce.state_size import state_bytes
from testbed.protocols.roce.states import QpState
from testbed.protocols.roce.work import CompletionQueue, WorkRequest, WorkStatus

if TYPE_CHECKING:
    from testbed.protocols.roce.rnic import Rnic

DEFAULT_INITIATORS: Final = 8
"""Initiators of a NIC: as many as UCX opens for an interface (UCX_DC_MLX5_NUM_DCI)."""
DETACH_RTTS: Final = 16
"""Base round trips after which an initiator without work detaches. Ours: that of NICs is not public."""
MOST_RESPONDERS: Final = 4096
"""Connections of all targets of a NIC; a connect beyond that is not answered, and comes again after a timeout."""
_SESSION_MASK: Final = (1 << 64) - 1
_SPARE_TIMEOUTS: Final = 2


class DynamicConnections:
    """The pool of initiators and the targets of an RNIC. Raises nothing for anything that arrives."""

    def __init__(
        self,
        rnic: Rnic,
        *,
        initiators: int = DEFAULT_INITIATORS,
        first_number: int | None = None,
        detach_ns: int | None = None,
        most_responders: int = MOST_RESPONDERS,
    ) -> None:
        """`first_number`: the QPN of the first initiator, which the others follow; None: those that are free.
        `detach_ns`: how long an initiator without work stays attached; None: `DETACH_RTTS` base round trips."""
        if initiators < 1 or most_responders < 1:
            raise UsageError("dynamic connections need an initiator, and room for a responder")
        config = rnic.config
        self._rnic: Final[Rnic] = rnic
        self.detach_ns: Final[int] = DETACH_RTTS * config.base_rtt_ns if detach_ns is None else detach_ns
        waits = (config.retry_count + _SPARE_TIMEOUTS) * config.timeout_ns
        not_ready = 2 * int(max(RNR_TIMERS_NS) * config.time_scale)
        self.forget_ns: Final[int] = max(4 * self.detach_ns, waits, not_ready)
        """A target forgets a connection that it has heard nothing of for so long: longer than a peer with work is
        silent between two attempts, or waits after an RNR NAK."""
        self._most_responders: Final[int] = most_responders
        self.responders_now: int = 0
        self.most_at_once: int = 0
        """Responders that there were at a time."""
        self._responder_bytes: int = 0
        self._targets: dict[int, DynamicTarget] = {}
        self._line: deque[Destination] = deque()
        """Destinations that wait for an initiator."""
        self._last_session: int = 0
        self._told: str = ""
        self._told_at: int = 0
        """Whom a missing connection was last told, and when: once in a round trip is enough."""
        self.initiators: Final[list[DynamicInitiator]] = []
        rnic.dynamic = self
        for index in range(initiators):
            number = rnic.free_number(None if first_number is None else first_number + index)
            initiator = DynamicInitiator(self, rnic, number)
            rnic.add_qp(initiator)
            self.initiators.append(initiator)

    # --- local objects ------------------------------------------------------------------------------------

    def create_target(
        self, key: int, *, number: int, domain: int = 0, completions: CompletionQueue | None = None
    ) -> DynamicTarget:
        """Let peers that know `key` (32 bits) attach. Raises `UsageError`."""
        self._rnic.free_number(number)
        if number in self._targets:
            raise UsageError(f"target {number:#x} is taken")
        target = DynamicTarget(
            number, key, domain, deque() if completions is None else completions, self._rnic.config.most_posted
        )
        self._targets[number] = target
        return target

    def destination(
        self,
        remote_ip: str,
        number: int,
        key: int,
        *,
        completions: CompletionQueue | None = None,
        entropy: int | None = None,
    ) -> Destination:
        """A target of a peer. There must be one alone for each, since a peer has one connection to a target."""
        port = self._rnic.next_entropy() if entropy is None else entropy
        queue: CompletionQueue = deque() if completions is None else completions
        return Destination(self, remote_ip, number, key, queue, port, self._rnic.draw_psn())

    @property
    def responders(self) -> list[DynamicResponder]:
        """The connections of peers."""
        return [one for target in self._targets.values() for one in target.responders.values()]

    def responder_bytes(self) -> int:
        """Bytes of the state of a responder: the mean of those there are, or the first one that was forgotten."""
        present = self.responders
        return state_bytes(present) // len(present) if present else self._responder_bytes

    @property
    def idle(self) -> bool:
        """Tell whether no destination waits, and no response is to be sent."""
        return not self._line and not any(one.responder.has_response for one in self.responders)

    # --- initiators ---------------------------------------------------------------------------------------

    def take(self, destination: Destination, request: WorkRequest, now: int) -> None:
        """A request for a destination: its initiator's at once, unless others wait for theirs."""
        most = self._rnic.config.most_posted
        if destination.posted >= most:
            raise UsageError(f"the send queue holds {most} requests")
        if destination.initiator is not None and not self._line:
            destination.initiator.take(request)
            return
        destination.waiting.append(request)
        if not destination.in_line:
            destination.in_line = True
            self._line.append(destination)
            self._serve(now)

    def on_idle(self, initiator: DynamicInitiator, now: int) -> None:
        """All of an initiator's requests have ended."""
        if self._line:
            self._serve(now)
        elif initiator.destination is not None and not initiator.idle_at:
            initiator.idle_at = now + self.detach_ns
            initiator.arm(initiator.idle_at)

    def on_failed(self, initiator: DynamicInitiator, destination: Destination, now: int) -> None:
        """A connection has failed: its destination has, and the initiator is there for others."""
        destination.error = initiator.error
        while destination.waiting:
            destination.complete(destination.waiting.popleft(), WorkStatus.FLUSHED, "", now)
        initiator.detach(now)
        self._serve(now)

    def _serve(self, now: int) -> None:
        """Give the destinations in the line their initiators, as far as there are any."""
        line = self._line
        while line:
            destination = line[0]
            if destination.waiting:
                initiator = destination.initiator or self._free_initiator(now)
                if initiator is None:
                    return
                if initiator.destination is not destination:
                    if initiator.destination is not None:
                        initiator.detach(now)
                    self._last_session = max(self._last_session + 1, now) & _SESSION_MASK
                    initiator.attach(destination, self._last_session)
                while destination.waiting:
                    initiator.take(destination.waiting.popleft())
            line.popleft()
            destination.in_line = False

    def _free_initiator(self, now: int) -> DynamicInitiator | None:
        """One that is not attached, or the one that has had no work for longest; None: all have work."""
        longest: DynamicInitiator | None = None
        since = 0
        for initiator in self.initiators:
            if initiator.destination is None:
                return initiator
            if initiator.requester.idle:
                idle_at = initiator.idle_at or now + self.detach_ns
                if longest is None or idle_at < since:
                    longest, since = initiator, idle_at
        return longest

    # --- targets ------------------------------------------------------------------------------------------

    def find_responder(self, bth: Bth, incoming: Incoming, now: int) -> QueuePair | None:
        """Whom a packet to the number of a target is for; None: there is no such target, or no connection to it, which
        its sender is told. Raises `DecodeError`."""
        target = self._targets.get(bth.dest_qp)
        if target is None:
            return None
        responder = target.responders.get(incoming.remote)
        if responder is not None:
            responder.heard_at = now
            return responder
        layout = LAYOUTS[bth.opcode]
        assert layout is not None
        if layout.operation not in REQUESTS:
            return None
        self._rnic.check(incoming)
        if incoming.remote != self._told or now - self._told_at >= self._rnic.config.base_rtt_ns:
            self._told = incoming.remote
            self._told_at = now
            self._rnic.counters["unattached"] += 1
            header = Bth(Opcode.DC_UNATTACHED, bth.dest_qp, bth.psn).encode() + Deth(0, bth.dest_qp).encode()
            self._answer(incoming.remote, header)
        return None

    def on_packet(self, bth: Bth, incoming: Incoming, now: int) -> None:
        """A packet that begins or ends a connection; its checksum has been checked. Raises `DecodeError`."""
        data = memoryview(incoming.data)[: len(incoming.data) - ICRC_BYTES]
        deth = decode_deth(data, BTH_BYTES)
        body = data[BTH_BYTES + DETH_BYTES :]
        if bth.opcode == Opcode.DC_UNATTACHED:
            for initiator in self.initiators:
                destination = initiator.destination
                if destination is None or destination.remote_ip != incoming.remote:
                    continue
                if destination.number == bth.dest_qp:
                    initiator.on_unattached(bth.psn, now)
                    return
            self._rnic.counters["stray"] += 1
            return
        layout = CONNECT_BODY if bth.opcode == Opcode.DC_CONNECT else SESSION_BODY
        if len(body) != layout.size:
            raise DecodeError(BTH_BYTES + DETH_BYTES, f"{len(body)} bytes where {layout.size} belong")
        target = self._targets.get(bth.dest_qp)
        if target is None:
            self._rnic.counters["unknown-qp"] += 1
        elif deth.qkey != target.key:
            self._refuse(deth.source_qp, bth.psn, incoming.remote, NakCode.REMOTE_ACCESS_ERROR)
        elif bth.opcode == Opcode.DC_CONNECT:
            session, mtu = CONNECT_BODY.unpack(body)
            self._on_connect(target, deth.source_qp, bth.psn, session, mtu, incoming.remote, now)
        else:
            responder = target.responders.get(incoming.remote)
            if responder is None or responder.session != SESSION_BODY.unpack(body)[0]:
                self._rnic.counters["late-disconnect"] += 1
            else:
                self.forget(responder, now)

    def _on_connect(
        self, target: DynamicTarget, source_qp: int, psn: int, session: int, mtu: int, remote: str, now: int
    ) -> None:
        if mtu not in MTUS or mtu > self._rnic.config.mtu:
            self._refuse(source_qp, psn, remote, NakCode.INVALID_REQUEST)
            return
        ended, until = target.ended.get(remote, (0, 0))
        if session <= ended and now < until:
            self._rnic.counters["late-connect"] += 1
            return
        known = target.responders.get(remote)
        if known is not None:
            if session <= known.session:
                known.count("duplicate-connect" if session == known.session else "late-connect")
                return
            self.forget(known, now)
        if self.responders_now >= self._most_responders:
            self._rnic.counters["responders-full"] += 1
            return
        responder = DynamicResponder(self, self._rnic, target, session)
        responder.modify(QpState.INIT)
        responder.modify(QpState.RTR, remote_ip=remote, remote_qpn=source_qp, receive_psn=psn, mtu=mtu)
        responder.heard_at = now
        target.responders[remote] = responder
        self.responders_now += 1
        self.most_at_once = max(self.most_at_once, self.responders_now)
        responder.count("attached")
        responder.arm(responder.next_timer())

    def forget(self, responder: DynamicResponder, now: int) -> None:
        """Drop a connection of a peer. A message that has begun leaves its receive to the next."""
        if not self._responder_bytes:
            self._responder_bytes = state_bytes([responder])
        target, remote = responder.target, responder.remote_ip
        counted = target.counts_of(remote)
        del target.responders[remote]
        target.ended.pop(remote, None)
        target.ended[remote] = (responder.session, now + self.forget_ns)
        target.counted[remote] = counted
        while len(target.ended) > self._most_responders:
            oldest = next(iter(target.ended))
            del target.ended[oldest], target.counted[oldest]
        self.responders_now -= 1
        responder.modify(QpState.RESET, now=now)
        responder.timer_at = responder.later_timer_at = 0

    def _refuse(self, source_qp: int, psn: int, remote: str, code: NakCode) -> None:
        self._rnic.counters["refusals"] += 1
        self._answer(remote, Bth(Opcode.RC_ACKNOWLEDGE, source_qp, psn).encode() + Aeth(nak(code), 0).encode())

    def _answer(self, remote: str, header: bytes) -> None:
        """Send an answer that is not of a connection."""
        rnic = self._rnic
        entropy = rnic.config.entropies[0]
        rnic.emit(Outgoing(remote, entropy, Priority.CONTROL, header, rnic.seal(remote, entropy, header, b"", 0)))
