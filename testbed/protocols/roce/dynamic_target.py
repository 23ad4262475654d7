"""The receiving end of dynamic connections: targets (DCT), and the responders of those that are attached to them.

`dynamic` tells the story.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Final

from testbed.protocols.errors import UsageError
from testbed.protocols.roce.packets.opcodes import Service
from testbed.protocols.roce.qp import QueuePair
from testbed.protocols.roce.work import Buffer, CompletionQueue, ReceiveRequest, writable_view

if TYPE_CHECKING:
    from testbed.protocols.roce.dynamic import DynamicConnections
    from testbed.protocols.roce.rnic import Rnic


class DynamicTarget:
    """A DCT: what initiators of peers attach to. Its receives are shared by all of them.

    `DynamicConnections.create_target` makes it.
    """

    def __init__(self, number: int, key: int, domain: int, completions: CompletionQueue, most_posted: int) -> None:
        self.number: Final[int] = number
        self.key: Final[int] = key
        self.domain: Final[int] = domain
        self.completions: Final[CompletionQueue] = completions
        self.most_posted: Final[int] = most_posted
        self.receives: deque[ReceiveRequest] = deque()
        self.responders: dict[str, DynamicResponder] = {}
        """By the address of the peer."""
        self.counted: dict[str, Counter[str]] = {}
        """By the address of the peer: what happened to packets of connections that have ended."""
        self.ended: dict[str, tuple[int, int]] = {}
        """By the address of the peer, oldest first: the session that was forgotten last, and until when a connect of it
        is taken for a late one, after which late requests would be executed again."""

    def counts_of(self, remote: str) -> Counter[str]:
        """Return what happened to packets of a peer, by the names of `Rnic.counters`, and `marked`."""
        found = Counter(self.counted.get(remote))
        responder = self.responders.get(remote)
        if responder is not None:
            found.update(responder.counts)
            found["marked"] += responder.marked
        return found

    def receive(self, buffer: Buffer, *, context: object = None) -> ReceiveRequest:
        """Post room for a message of any peer's. Raises `UsageError`."""
        request = ReceiveRequest(writable_view(buffer), context)
        if len(self.receives) >= self.most_posted:
            raise UsageError(f"the receive queue holds {self.most_posted} requests")
        self.receives.append(request)
        return request


class DynamicResponder(QueuePair):
    """The target's end of a connection: it executes requests until it is told, or has heard nothing for long."""

    def __init__(self, connections: DynamicConnections, rnic: Rnic, target: DynamicTarget, session: int) -> None:
        super().__init__(rnic, target.number, Service.RC, target.completions, target.domain)
        self.connections: Final[DynamicConnections] = connections
        self.target: Final[DynamicTarget] = target
        self.session: Final[int] = session
        self.heard_at: int = 0

    def take_receive(self) -> ReceiveRequest | None:
        receives = self.target.receives
        return receives.popleft() if receives else None

    def return_receive(self, request: ReceiveRequest) -> None:
        self.target.receives.appendleft(request)

    def next_timer(self) -> int:
        return self.heard_at + self.connections.forget_ns

    def handle_timer(self, now: int) -> None:
        super().handle_timer(now)
        if self.responder.has_response:
            self.heard_at = now  # it is us who keep the peer waiting
        elif now >= self.next_timer() and self.target.responders.get(self.remote_ip) is self:
            self.count("forgotten")
            self.connections.forget(self, now)
