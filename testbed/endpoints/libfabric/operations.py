"""The operations of programs, as the endpoint's completions give them back: what sends, and what waits for messages."""

from __future__ import annotations

from testbed.endpoints.libfabric.wire import KEY_BITS, Place, ProviderRequest, address_bytes
from testbed.protocols.errors import UsageError
from testbed.protocols.uet.addressing import FepAddress
from testbed.protocols.uet.memory import RemoteBuffer
from testbed.protocols.uet.semantics.endpoint import Endpoint
from testbed.protocols.uet.semantics.operations import Operation


class SentOperation:
    """An operation that sends. `id` is the number that the program has given it."""

    __slots__ = ("id", "length", "places")

    def __init__(self, id: int, length: int) -> None:
        self.id = id
        self.length = length
        """Bytes that it has in this process."""
        self.places: tuple[Place, ...] = ()
        """The places in the program's memory that what comes back goes to."""


class ProgramReceive:
    """A receive that a program has posted, for one message or for several, one behind the other in its buffer."""

    __slots__ = (
        "at",
        "id",
        "ignore",
        "is_cancelled",
        "least_room",
        "operation",
        "places",
        "room",
        "source",
        "tag",
        "tagged",
    )

    def __init__(self, id: int, places: tuple[Place, ...], *, tagged: bool) -> None:
        self.id = id
        self.places = places
        self.tagged = tagged
        self.tag = 0
        self.ignore = 0
        self.source: FepAddress | None = None
        self.least_room = 0
        """The room that a buffer for several messages must have left to take another; 0: it takes one."""
        self.at = 0
        """The bytes of it that are filled."""
        self.is_cancelled = False
        """It was to be cancelled when it had met a message: a buffer for several takes no more after that one."""
        self.room = memoryview(b"")
        self.operation: Operation | None = None

    def post(self, endpoint: Endpoint, now: int) -> None:
        """Wait for the next message. Raises `UsageError` where too many receives wait at the endpoint."""
        room = self.room[self.at :] if self.at else self.room
        if self.tagged:
            self.operation = endpoint.trecv(room, self.tag, now, ignore=self.ignore, source=self.source, context=self)
        else:
            self.operation = endpoint.recv(room, now, source=self.source, context=self)


def wire_key(pid: int, key: int) -> int:
    """Return the memory key (64 bits) that packets have for the key of a program: those of programs do not collide."""
    return pid << KEY_BITS | key


def remote_buffer(request: ProviderRequest, peer: FepAddress) -> RemoteBuffer:
    """Return the memory of a peer that a request names. Raises `UsageError` for a key that cannot be one."""
    if request.tag >> KEY_BITS:
        raise UsageError(f"a memory key of this provider has {KEY_BITS} bits")
    return RemoteBuffer(wire_key(peer.pid_on_fep, request.tag), request.ignore)


def name_of(address: FepAddress | None) -> tuple[bytes, int, int]:
    """Return an endpoint's name as programs have it: address, PIDonFEP, resource index; zeros for none."""
    if address is None:
        return bytes(16), 0, 0
    return address_bytes(address.ip), address.pid_on_fep, address.resource_index
