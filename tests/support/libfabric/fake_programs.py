"""Programs with a libfabric provider, without programs: connections to two endpoints and the wire between them."""

from __future__ import annotations

import errno
from typing import Any

from wire_pair import MS, WirePair

from testbed.endpoints.libfabric.connection import ProgramConnection
from testbed.endpoints.libfabric.rails import ProvidedRail
from testbed.endpoints.libfabric.wire import (
    PLACE,
    REPLY,
    REQUEST,
    VERSION,
    PeerName,
    ProviderReply,
    ReplyKind,
    RequestKind,
    WireFlag,
    address_bytes,
)

JOB = 11
BASE = 0x7F00_0000_0000
"""The address of the memory that each program has."""


class FakeMemory:
    """The memory of a program that is none: `content` at `BASE`."""

    def __init__(self, size: int) -> None:
        self.content = bytearray(size)
        self.is_gone = False
        self.is_closed = False

    def load(self, address: int, length: int) -> bytes:
        at = self._at(address, length)
        return bytes(self.content[at : at + length])

    def store(self, address: int, data: memoryview) -> None:
        at = self._at(address, len(data))
        self.content[at : at + len(data)] = data

    def _at(self, address: int, length: int) -> int:
        at = address - BASE
        if self.is_gone or at < 0 or at + length > len(self.content):
            raise OSError(errno.EFAULT, "no such memory")
        return at

    def close(self) -> None:
        self.is_closed = True


class FakeProgram:
    """A program that says what a test has it say, and the replies that it got."""

    def __init__(self, pair: FakePair, rail: ProvidedRail, size: int) -> None:
        self.pair = pair
        self.memory = FakeMemory(size)
        self.connection = ProgramConnection([rail], self.memory)
        self.rail = rail
        self.name: PeerName = (bytes(16), 0, 0)
        self._id = 0

    def say(self, kind: int, body: bytes = b"", **fields: Any) -> int:
        """Make a request; its number. `peer` is a name, all else is a field of the wire."""
        self._id += 1
        peer = fields.pop("peer", (bytes(16), 0, 0))
        order = ("flags", "length", "tag", "ignore", "data", "endpoint", "places")
        values = {name: int(fields.pop(name, 0)) for name in order}
        id = int(fields.pop("id", self._id))
        assert not fields, fields
        header = REQUEST.pack(
            kind,
            values["flags"],
            len(body),
            id,
            values["length"],
            values["tag"],
            values["ignore"],
            values["data"],
            values["endpoint"],
            values["places"],
            *peer,
        )
        self.connection.receive(header + body, self.pair.wire.now)
        return id

    def replies(self) -> list[ProviderReply]:
        """Return what it was told since the last time."""
        self.connection.collect(self.pair.wire.now)
        data = bytes(self.connection.output)
        self.connection.output.clear()
        assert len(data) % REPLY.size == 0
        fields = REPLY.iter_unpack(data)
        return [ProviderReply(*item[:10], peer=(item[10], item[11], item[12])) for item in fields]

    def ask(self, kind: RequestKind, body: bytes = b"", **fields: Any) -> ProviderReply:
        """Ask, and return the answer."""
        id = self.say(kind, body, **fields)
        (reply,) = self.replies()
        assert reply.kind == ReplyKind.ANSWER and reply.id in (id, 0)
        return reply

    def open(self, *, ordered: bool = False) -> None:
        """Say hello, and open an endpoint; `name` is its name then."""
        hello = self.ask(RequestKind.HELLO, self.rail.name.encode(), data=VERSION)
        assert not hello.error
        flags = WireFlag.ORDERED if ordered else 0
        answer = self.ask(RequestKind.OPEN_ENDPOINT, flags=flags)
        assert not answer.error
        self.name = (hello.peer[0], hello.peer[1], answer.endpoint)

    def send(self, content: bytes, to: FakeProgram, tag: int | None = None, **fields: Any) -> int:
        """Send a message that goes with its request."""
        kind = RequestKind.SEND if tag is None else RequestKind.TAGGED_SEND
        flags = int(fields.pop("flags", 0)) | WireFlag.INLINE
        return self.say(
            kind, content, length=len(content), tag=tag or 0, flags=flags, endpoint=self.name[2], peer=to.name, **fields
        )

    def post(self, address: int, length: int, tag: int | None = None, **fields: Any) -> int:
        """Post a receive."""
        kind = RequestKind.RECEIVE if tag is None else RequestKind.TAGGED_RECEIVE
        body = PLACE.pack(BASE + address, length)
        return self.say(kind, body, length=length, places=1, tag=tag or 0, endpoint=self.name[2], **fields)

    def at(self, address: int, length: int) -> bytes:
        """Return what is in its memory."""
        return bytes(self.memory.content[address : address + length])


class FakePair:
    """A program at each of two endpoints that reach each other."""

    def __init__(self, size: int = 1 << 20, **settings: Any) -> None:
        self.wire = WirePair(**settings)
        self.rail_a = ProvidedRail("rail1", self.wire.a, JOB)
        self.rail_b = ProvidedRail("rail1", self.wire.b, JOB)
        self.a = FakeProgram(self, self.rail_a, size)
        self.b = FakeProgram(self, self.rail_b, size)

    @classmethod
    def opened(cls, *, ordered: bool = False, **settings: Any) -> FakePair:
        """Both have said hello, and have an endpoint."""
        pair = cls(**settings)
        pair.a.open(ordered=ordered)
        pair.b.open(ordered=ordered)
        return pair

    def run(self, milliseconds: int = 100) -> None:
        """Let time pass, and completions be told."""
        for _ in range(milliseconds // 5):
            self.a.connection.collect(self.wire.now)
            self.b.connection.collect(self.wire.now)
            self.wire.pass_time(5 * MS)


def name_at(address: str, pid: int, index: int) -> PeerName:
    """Return the name of an endpoint."""
    return address_bytes(address), pid, index
