"""The sending end of dynamic connections: destinations that work is posted to, and initiators (DCI) that carry it.

`dynamic` tells the story.
"""

from __future__ import annotations

import struct
from collections import Counter, deque
from typing import TYPE_CHECKING, Final

from testbed.protocols.datagram import Outgoing, Priority
from testbed.protocols.roce.packets.headers import Bth, Deth
from testbed.protocols.roce.packets.opcodes import Opcode, Service
from testbed.protocols.roce.packets.syndrome import NakCode, nak
from testbed.protocols.roce.qp import QueuePair
from testbed.protocols.roce.requester import distance
from testbed.protocols.roce.states import QpState
from testbed.protocols.roce.work import CompletionQueue, SendQueue, WorkRequest, WorkStatus

if TYPE_CHECKING:
    from testbed.protocols.roce.dynamic import DynamicConnections
    from testbed.protocols.roce.rnic import Rnic

CONNECT_BODY: Final = struct.Struct("!QI")
"""Session and path MTU."""
SESSION_BODY: Final = struct.Struct("!Q")
_PSN_MASK: Final = 0xFF_FFFF


class Destination(SendQueue):
    """A target of a peer, as who posts work names it. `DynamicConnections.destination` makes it."""

    def __init__(
        self,
        connections: DynamicConnections,
        remote_ip: str,
        number: int,
        key: int,
        completions: CompletionQueue,
        entropy: int,
        first_psn: int,
    ) -> None:
        self._connections: Final[DynamicConnections] = connections
        self.remote_ip: Final[str] = remote_ip
        self.number: Final[int] = number
        """The number of the target (DCTN), 24 bits."""
        self.key: Final[int] = key
        """The target's access key, 32 bits."""
        self.completions: Final[CompletionQueue] = completions
        self.entropy: Final[int] = entropy
        """The UDP source port of its packets."""
        self.error: str = ""
        """Why nothing can be posted any more."""
        self.waiting: deque[WorkRequest] = deque()
        """Requests that no initiator has taken yet."""
        self.initiator: DynamicInitiator | None = None
        """Which one is attached."""
        self.next_psn: int = first_psn & _PSN_MASK
        """The PSN of the next connection's first request: ahead of all that earlier ones have sent."""
        self.in_line: bool = False
        """It waits for an initiator."""
        self.notifications: int = 0
        """CNPs received."""
        self.counts: Counter[str] = Counter()
        """Events, by the names of `Rnic.counters`."""
        self._acked_bytes: int = 0
        self._sent: int = 0
        self._retransmitted: int = 0
        self._least_rtt_ns: int = 0
        self._latest_rtt_ns: int = 0

    def _post(self, request: WorkRequest, fence: bool, now: int) -> WorkRequest:
        request.fence = fence
        if self.error:
            self.complete(request, WorkStatus.FLUSHED, "", now)
            return request
        self._connections.take(self, request, now)
        return request

    def complete(self, request: WorkRequest, status: WorkStatus, error: str, now: int) -> None:
        request.status = status
        request.error = error
        request.finished_ns = now
        self.completions.append(request)

    @property
    def posted(self) -> int:
        """Requests that have not ended."""
        return len(self.waiting) + (0 if self.initiator is None else self.initiator.requester.posted)

    # What its connections have done, the present one included.

    @property
    def acked_bytes(self) -> int:
        """Bytes of messages that the peer has acknowledged."""
        return self._acked_bytes + (0 if self.initiator is None else self.initiator.requester.acked_bytes)

    @property
    def sent(self) -> int:
        """Packets, those sent again included."""
        return self._sent + (0 if self.initiator is None else self.initiator.requester.sent)

    @property
    def retransmitted(self) -> int:
        """Packets that were sent again."""
        return self._retransmitted + (0 if self.initiator is None else self.initiator.requester.retransmitted)

    @property
    def latest_rtt_ns(self) -> int:
        attached = 0 if self.initiator is None else self.initiator.latest_rtt_ns
        return attached or self._latest_rtt_ns

    @property
    def least_rtt_ns(self) -> int:
        attached = 0 if self.initiator is None else self.initiator.least_rtt_ns
        return min(attached, self._least_rtt_ns) if attached and self._least_rtt_ns else attached or self._least_rtt_ns

    def settle(self) -> None:
        """Keep what the connection has counted, which ends."""
        initiator = self.initiator
        assert initiator is not None
        self._acked_bytes = self.acked_bytes
        self._sent = self.sent
        self._retransmitted = self.retransmitted
        self._latest_rtt_ns = self.latest_rtt_ns
        self._least_rtt_ns = self.least_rtt_ns
        self.next_psn = (initiator.requester.recovery.top + 1) & _PSN_MASK
        self.initiator = None


class DynamicInitiator(QueuePair):
    """A DCI: a queue pair that has a peer while it has work for it."""

    def __init__(self, connections: DynamicConnections, rnic: Rnic, number: int) -> None:
        super().__init__(rnic, number, Service.RC, deque(), 0)
        self.connections: Final[DynamicConnections] = connections
        self.destination: Destination | None = None
        self.idle_at: int = 0
        """When it detaches for want of work; 0: it has some, or is not attached."""
        self.session: int = 0
        self._first_psn: int = 0
        self._connect_is_due: bool = False
        self._forgotten: bool = False
        """The target has said so since the last timeout, after it had acknowledged something."""
        self._asked_to_connect: bool = False
        """The target has said once, since the last timeout, that it knows nothing of this connection."""

    def attach(self, destination: Destination, session: int) -> None:
        """Begin a connection: its congestion control is that of a new flow."""
        self.destination = destination
        destination.initiator = self
        self.session = session
        self._first_psn = destination.next_psn
        self.entropy = destination.entropy
        self.renew_control()
        self.latest_rtt_ns = 0
        self.least_rtt_ns = 0
        self.idle_at = 0
        self._connect_is_due = True
        self._asked_to_connect = False
        self._forgotten = False
        self.connect(destination.remote_ip, destination.number, send_psn=self._first_psn)

    def detach(self, now: int) -> None:
        """End the connection; the target is told."""
        destination = self.destination
        assert destination is not None
        self.count("disconnects")
        header = Bth(Opcode.DC_DISCONNECT, destination.number, self.requester.una & _PSN_MASK).encode()
        header += Deth(destination.key, self.number).encode() + SESSION_BODY.pack(self.session)
        self.emit(self.answer_datagram(header, Priority.DATA))
        destination.settle()
        self.destination = None
        self.idle_at = 0
        self._connect_is_due = False
        self.modify(QpState.RESET, now=now)
        self.remote_ip = ""

    def take(self, request: WorkRequest) -> None:
        """Carry a request of the destination that it is attached to."""
        self.idle_at = 0
        self.requester.post(request)
        self.wake()

    @property
    def is_confirmed(self) -> bool:
        """Tell whether the target has acknowledged anything of this connection."""
        return self.requester.una != self._first_psn

    def on_unattached(self, psn: int, now: int) -> None:
        """The target knows nothing of this connection."""
        requester = self.requester
        number = requester.una + distance(psn, requester.una)
        if not requester.una <= number < requester.recovery.top:
            self.count("stray")
        elif self.is_confirmed:  # or the packet has overtaken the connect, which the next attempts will show
            self._forgotten = True
        elif not self._asked_to_connect:
            self._asked_to_connect = True
            self._connect_is_due = True
            requester.on_acknowledge(requester.una & _PSN_MASK, nak(NakCode.PSN_SEQUENCE_ERROR), now)

    # --- as a queue pair ----------------------------------------------------------------------------------

    def pull(self, now: int) -> Outgoing | None:
        """The connect, where it is due; else the next packet of a request."""
        if self.requester.idle:
            self.connections.on_idle(self, now)
        if self._connect_is_due:
            if self.limiter.next_at > now:
                self.control.update(now)
                self.limiter.wait(now, self.control.rate_bps)
                self.arm(self.limiter.due)
                return None
            self._connect_is_due = False
            return self._connect_packet(now)
        return super().pull(now)

    def _connect_packet(self, now: int) -> Outgoing:
        destination = self.destination
        assert destination is not None
        self.count("connects")
        header = Bth(Opcode.DC_CONNECT, destination.number, self._first_psn).encode()
        header += Deth(destination.key, self.number).encode() + CONNECT_BODY.pack(self.session, self.mtu)
        return self.data_datagram(header, b"", 0, now)

    def on_timeout(self, now: int) -> None:
        super().on_timeout(now)
        self._forgotten = False
        self._asked_to_connect = False
        if not self.is_confirmed:
            self._connect_is_due = True

    def on_notification(self, now: int) -> None:
        super().on_notification(now)
        if self.destination is not None:
            self.destination.notifications += 1

    def count(self, what: str) -> None:
        super().count(what)
        if self.destination is not None:
            self.destination.counts[what] += 1

    def complete(self, request: WorkRequest, status: WorkStatus, error: str, now: int) -> None:
        assert self.destination is not None
        self.destination.complete(request, status, error, now)

    def fail(self, failed: WorkRequest | None, status: WorkStatus, error: str, now: int) -> None:
        """The destination fails with its connection; the initiator serves others."""
        if self.state is QpState.ERR:
            return
        if self._forgotten and status is WorkStatus.RETRY_EXCEEDED:
            error = "the target has forgotten the connection"
        super().fail(failed, status, error, now)
        if self.destination is not None:
            self.connections.on_failed(self, self.destination, now)

    def next_timer(self) -> int:
        deadline = super().next_timer()
        return min(deadline, self.idle_at) if deadline and self.idle_at else deadline or self.idle_at

    def handle_timer(self, now: int) -> None:
        super().handle_timer(now)
        if self.idle_at and now >= self.idle_at and self.destination is not None:
            self.detach(now)
