"""A connection of a program: the domain that it has opened, without its socket. Bytes go in, and bytes come out.

It is closed by whoever has the socket; a `ProviderWireError` out of `receive` is a reason to. What is under way then
goes on to its end at the endpoint, and is told to nobody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from testbed.endpoints.libfabric.atomic_codes import decode_atomic
from testbed.endpoints.libfabric.fabric_errors import LibfabricError, error_of
from testbed.endpoints.libfabric.operations import ProgramReceive, SentOperation, name_of, remote_buffer, wire_key
from testbed.endpoints.libfabric.program_memory import PlacedMemory, ProgramRegion, room_for
from testbed.endpoints.libfabric.rails import ProvidedRail
from testbed.endpoints.libfabric.wire import (
    BODY_BYTES,
    ENDPOINTS,
    INLINE_BYTES,
    KEY_BITS,
    MESSAGE_BYTES,
    PLACE,
    RAIL_BYTES,
    RECEIVES,
    REQUEST,
    TRANSMITS,
    VERSION,
    ProviderReply,
    ProviderRequest,
    ProviderWireError,
    ReplyKind,
    RequestKind,
    WireFlag,
    address_bytes,
    decode_places,
    encode_done,
    encode_rail,
)
from testbed.protocols.errors import UsageError
from testbed.protocols.uet.addressing import FepAddress
from testbed.protocols.uet.atomics import Amo
from testbed.protocols.uet.fep import Fep
from testbed.protocols.uet.matching import UnexpectedMessage
from testbed.protocols.uet.memory import Access
from testbed.protocols.uet.packets.codes import Mode, ReturnCode
from testbed.protocols.uet.semantics.endpoint import Endpoint, TaggedMessage
from testbed.protocols.uet.semantics.operations import Operation, OpKind

MOST_LOADED_BYTES: Final = 64 << 20
"""The data that operations of a connection may have in this process at a time, or that of one operation: what is asked
for beyond waits in its program, in order."""
MOST_REGIONS: Final = 65_536
MOST_CLAIMED: Final = 4096
_OWN_KEYS: Final = 1 << KEY_BITS - 1
_ACCESS: Final = int(Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC)
_INLINE, _HAS_DATA, _DIRECTED, _MULTI, _CLAIM, _DISCARD, _FETCH, _COMPARE, _ORDERED, _LAST, _OWN_KEY = map(
    int, WireFlag
)
_SEND: Final = int(RequestKind.SEND)
_TAGGED_SEND: Final = int(RequestKind.TAGGED_SEND)
_TAGGED_RECEIVE: Final = int(RequestKind.TAGGED_RECEIVE)
_PEEK: Final = int(RequestKind.PEEK)
_CANCEL: Final = int(RequestKind.CANCEL)
_READ: Final = int(RequestKind.READ)
_ATOMIC: Final = int(RequestKind.ATOMIC)
_TRANSMITS: Final = frozenset({_SEND, _TAGGED_SEND, int(RequestKind.WRITE), _READ, _ATOMIC})
_RECEIVES: Final = frozenset({int(RequestKind.RECEIVE), _TAGGED_RECEIVE, _PEEK})
# Numbers: the `&` of IntFlag makes an object, and takes as long as ten of the lines around it.


class ProgramEndpoint:
    """An endpoint of a domain: a resource index."""

    def __init__(self, core: Endpoint, mode: Mode) -> None:
        self.core = core
        self.mode = mode
        self.posted: dict[int, ProgramReceive] = {}
        """Receives that wait, by the number that the program has given them."""
        self.claimed: dict[int, UnexpectedMessage] = {}
        """Messages that were claimed, by what the program knows them by."""
        self.sends = 0
        """Operations that send, and have not ended."""
        self.is_closed = False
        """The program has closed it: its memory may have another use by now, and is written no longer."""


class ProgramConnection:
    """`rails` are those of the program's host, `memory` is that of the program. The clock is whose calls have `now`."""

    def __init__(self, rails: Sequence[ProvidedRail], memory: PlacedMemory) -> None:
        self._rails = rails
        self._memory = memory
        self._rest = b""
        self._rail: ProvidedRail | None = None
        self._pid = 0
        self._endpoints: dict[int, ProgramEndpoint] = {}
        self._closing: list[ProgramEndpoint] = []
        """Endpoints that were closed while operations were under way."""
        self._keys: dict[int, int] = {}
        """The key of each region on the wire, by the one that the program knows."""
        self._next_key = _OWN_KEYS
        self._transmits = 0
        self._receives = 0
        self.loaded_bytes = 0
        """The data of its operations that this process has."""
        self._waiting: deque[tuple[ProviderRequest, bytes]] = deque()
        self.output = bytearray()
        """The bytes that are to be written to the program."""
        self.requests = 0
        """Requests that were carried out."""

    @property
    def fep(self) -> Fep | None:
        """Return what its operations give work to; None before HELLO."""
        return None if self._rail is None else self._rail.fep

    # --- what comes in -----------------------------------------------------------------------------------

    def receive(self, data: bytes, now: int) -> None:
        """Carry out what a program asks for. Raises `ProviderWireError` for what none of our providers says."""
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        while end - at >= REQUEST.size:
            request = ProviderRequest._make(REQUEST.unpack_from(data, at))
            start = at + REQUEST.size
            stop = start + request.body
            if request.body > BODY_BYTES:
                raise ProviderWireError(f"a body of {request.body} bytes")
            if stop > end:
                break
            self._carry_out(request, data[start:stop], now)
            at = stop
        self._rest = data[at:]

    def _carry_out(self, request: ProviderRequest, body: bytes, now: int) -> None:
        self.requests += 1
        kind = request.kind
        if kind in _TRANSMITS:
            self._transmits += 1
            if self._transmits > TRANSMITS:
                raise ProviderWireError(f"more than {TRANSMITS} operations under way")
            if self._waiting:
                self._waiting.append((request, body))
            else:
                self._transmit(request, body, now)
        elif kind in _RECEIVES:
            self._receives += 1
            if self._receives > RECEIVES:
                raise ProviderWireError(f"more than {RECEIVES} receives that wait")
            if kind == _PEEK:
                self._peek(request, body, now)
            else:
                self._post(request, body, now)
        elif kind == _CANCEL:
            self._cancel(request, now)
        elif kind in _QUESTIONS:
            if self._rail is None and kind not in _GREETINGS:
                raise ProviderWireError(f"{RequestKind(kind).name} before HELLO")
            _QUESTIONS[kind](self, request, body, now)
        else:
            raise ProviderWireError(f"no such request: {kind}")

    def _tell(self, reply: ProviderReply) -> None:
        self.output += reply.encode()

    # --- questions ---------------------------------------------------------------------------------------

    def _tell_rail(self, request: ProviderRequest, body: bytes, now: int) -> None:
        if request.tag >= len(self._rails):
            self._answer(request, LibfabricError.NO_ENTRY)
            return
        rail = self._rails[request.tag]
        self.output += encode_rail(rail.name, rail.fep.address)

    def _hello(self, request: ProviderRequest, body: bytes, now: int) -> None:
        if self._rail is not None:
            raise ProviderWireError("HELLO for a second time")
        if request.data != VERSION:
            self._answer(request, LibfabricError.PROTOCOL)
            return
        if len(body) > RAIL_BYTES:
            raise ProviderWireError(f"the name of a rail has {len(body)} bytes")
        rail = next((item for item in self._rails if item.name.encode() == body), None)
        if rail is None:
            self._answer(request, LibfabricError.NO_DEVICE)
            return
        try:
            self._pid = rail.take_pid()
        except UsageError:
            self._answer(request, LibfabricError.BUSY)
            return
        self._rail = rail
        name = (address_bytes(rail.fep.address), self._pid, 0)
        self._tell(ProviderReply(kind=ReplyKind.ANSWER, id=request.id, length=rail.fep.payload_bytes, peer=name))

    def _open_endpoint(self, request: ProviderRequest, body: bytes, now: int) -> None:
        assert self._rail is not None
        index = next((number for number in range(1, ENDPOINTS + 1) if number not in self._endpoints), 0)
        if not index:
            self._answer(request, LibfabricError.BUSY)
            return
        core = self._rail.fep.endpoint(job_id=self._rail.job_id, pid_on_fep=self._pid, resource_index=index)
        mode = Mode.ROD if request.flags & _ORDERED else Mode.RUD
        self._endpoints[index] = ProgramEndpoint(core, mode)
        self._tell(ProviderReply(kind=ReplyKind.ANSWER, id=request.id, endpoint=index))

    def _close_endpoint(self, request: ProviderRequest, body: bytes, now: int) -> None:
        endpoint = self._endpoints.pop(request.endpoint, None)
        if endpoint is None:
            self._answer(request, LibfabricError.INVALID)
            return
        kept: deque[tuple[ProviderRequest, bytes]] = deque()
        for waiting, data in self._waiting:
            if waiting.endpoint == request.endpoint:
                self._end_transmit(waiting.id, LibfabricError.CANCELLED)
            else:
                kept.append((waiting, data))
        self._waiting = kept
        endpoint.is_closed = True
        endpoint.core.close(now)
        self._collect_from(request.endpoint, endpoint, now)
        if endpoint.sends or endpoint.posted:
            self._closing.append(endpoint)
        self._answer(request, 0)

    def _register(self, request: ProviderRequest, body: bytes, now: int) -> None:
        assert self._rail is not None
        places = decode_places(body, request.places)
        key = request.tag
        if request.flags & _OWN_KEY:
            key, self._next_key = self._next_key, self._next_key + 1
        if not places or request.data & ~_ACCESS or len(self._keys) >= MOST_REGIONS:
            self._answer(request, LibfabricError.INVALID)
        elif key >> KEY_BITS:
            self._answer(request, LibfabricError.KEY_REJECTED)
        elif key in self._keys:
            self._answer(request, LibfabricError.NO_KEY)  # which fi_mr(3) has for a key that is in use
        else:
            region = ProgramRegion(self._memory, places)
            on_wire = wire_key(self._pid, key)
            access = Access(request.data)
            self._rail.fep.register_copied(region, access, self._rail.job_id, base=request.ignore, key=on_wire)
            self._keys[key] = on_wire
            self._tell(ProviderReply(kind=ReplyKind.ANSWER, id=request.id, tag=key))

    def _deregister(self, request: ProviderRequest, body: bytes, now: int) -> None:
        assert self._rail is not None
        on_wire = self._keys.pop(request.tag, None)
        if on_wire is None:
            self._answer(request, LibfabricError.NO_KEY)
            return
        self._rail.fep.retire(on_wire)
        self._answer(request, 0)

    def _answer(self, request: ProviderRequest, error: int) -> None:
        self._tell(ProviderReply(kind=ReplyKind.ANSWER, id=request.id, error=error))

    # --- operations that send ----------------------------------------------------------------------------

    def _transmit(self, request: ProviderRequest, body: bytes, now: int) -> None:
        """Begin an operation, or keep it until others have let go of enough memory."""
        endpoint = self._endpoints.get(request.endpoint)
        if endpoint is None or self._rail is None:
            self._end_transmit(request.id, LibfabricError.INVALID)
            return
        length = request.length
        if length > MESSAGE_BYTES:
            raise ProviderWireError(f"a message of {length} bytes")
        if self.loaded_bytes and self.loaded_bytes + length > MOST_LOADED_BYTES:
            self._waiting.append((request, body))
            return
        sent = SentOperation(request.id, length)
        self.loaded_bytes += length
        try:
            peer = self._rail.peer(request.peer)
            if request.kind == _ATOMIC:
                self._atomic(endpoint, request, body, sent, peer, now)
            elif request.kind == _READ:
                self._read(endpoint, request, body, sent, peer, now)
            else:
                self._send(endpoint, request, body, sent, peer, now)
        except UsageError:
            self._give_up(sent, LibfabricError.INVALID)
        except MemoryError:
            self._give_up(sent, LibfabricError.NO_MEMORY)
        except OSError:
            self._give_up(sent, LibfabricError.FAULT)
        else:
            endpoint.sends += 1

    def _give_up(self, sent: SentOperation, error: int) -> None:
        self.loaded_bytes -= sent.length
        self._end_transmit(sent.id, error)

    def _end_transmit(self, id: int, error: int, code: int = 0) -> None:
        self._transmits -= 1
        self.output += encode_done(id, error=error, code=code)

    def _data(self, request: ProviderRequest, body: bytes) -> bytes:
        """The bytes that an operation sends: those that came with it, or those in the program's memory."""
        if request.flags & _INLINE:
            if request.places or len(body) != request.length or len(body) > INLINE_BYTES:
                raise ProviderWireError(f"{len(body)} bytes of data for {request.length}")
            return body
        places = decode_places(body, request.places)
        if sum(length for _, length in places) != request.length:
            raise ProviderWireError(f"places that are not {request.length} bytes")
        if len(places) == 1:
            return self._memory.load(*places[0])
        return b"".join(self._memory.load(address, length) for address, length in places)

    def _send(
        self,
        endpoint: ProgramEndpoint,
        request: ProviderRequest,
        body: bytes,
        sent: SentOperation,
        peer: FepAddress,
        now: int,
    ) -> None:
        data = self._data(request, body)
        told = request.data if request.flags & _HAS_DATA else None
        core, mode = endpoint.core, endpoint.mode
        if request.kind == _TAGGED_SEND:
            core.tsend(peer, TaggedMessage(data, request.tag, told), now, mode=mode, context=sent)
        elif request.kind == _SEND:
            core.send(peer, data, now, mode=mode, header_data=told, context=sent)
        else:
            core.write(peer, data, remote_buffer(request, peer), now, mode=mode, header_data=told, context=sent)

    def _read(
        self,
        endpoint: ProgramEndpoint,
        request: ProviderRequest,
        body: bytes,
        sent: SentOperation,
        peer: FepAddress,
        now: int,
    ) -> None:
        sent.places = decode_places(body, request.places)
        if sum(length for _, length in sent.places) != request.length:
            raise ProviderWireError(f"places that are not {request.length} bytes")
        room = room_for(request.length) if request.length else memoryview(bytearray(0))
        endpoint.core.read(peer, room, remote_buffer(request, peer), now, mode=endpoint.mode, context=sent)

    def _atomic(
        self,
        endpoint: ProgramEndpoint,
        request: ProviderRequest,
        body: bytes,
        sent: SentOperation,
        peer: FepAddress,
        now: int,
    ) -> None:
        op, datatype, length = request.data & 0xFF, request.data >> 8, request.length
        compares, fetches = bool(request.flags & _COMPARE), bool(request.flags & _FETCH)
        operands = length * (2 if compares else 1)
        if length > INLINE_BYTES or operands > len(body) or request.places * PLACE.size != len(body) - operands:
            raise ProviderWireError(f"an atomic operation of {length} bytes with {len(body)} behind it")
        sent.places = decode_places(body[operands:], request.places)
        if fetches and sum(size for _, size in sent.places) != length:
            raise ProviderWireError(f"places that are not {length} bytes")
        opcode, kind = decode_atomic(op, datatype, compares=compares)
        amo = Amo(opcode, kind, body[:length], body[length:operands])
        fetch = bytearray(length) if fetches else None
        remote = remote_buffer(request, peer)
        endpoint.core.atomic(peer, amo, remote, now, fetch=fetch, mode=endpoint.mode, context=sent)

    # --- receives ----------------------------------------------------------------------------------------

    def _post(self, request: ProviderRequest, body: bytes, now: int) -> None:
        endpoint = self._endpoints.get(request.endpoint)
        places = decode_places(body, request.places)
        length = sum(size for _, size in places)
        if length != request.length:
            raise ProviderWireError(f"places that are not {request.length} bytes")
        posted = ProgramReceive(request.id, places, tagged=request.kind == _TAGGED_RECEIVE)
        if request.flags & _MULTI:
            if posted.tagged or len(places) != 1:
                raise ProviderWireError("a receive of several messages is one buffer, without a tag")
            posted.least_room = max(1, request.data)
        if endpoint is None or self._rail is None:
            self._end_receive(posted, LibfabricError.INVALID)
            return
        try:
            posted.source = self._rail.peer(request.peer) if request.flags & _DIRECTED else None
        except UsageError:
            self._end_receive(posted, LibfabricError.INVALID)
            return
        try:
            posted.room = room_for(min(length, MESSAGE_BYTES))
            if request.flags & _CLAIM:
                self._take_claimed(endpoint, request, posted, now)
                return
            posted.tag, posted.ignore = request.tag, request.ignore
            endpoint.posted[posted.id] = posted
            posted.post(endpoint.core, now)
        except UsageError:
            endpoint.posted.pop(posted.id, None)
            self._end_receive(posted, LibfabricError.AGAIN)
        except (MemoryError, OSError):
            endpoint.posted.pop(posted.id, None)
            self._end_receive(posted, LibfabricError.NO_MEMORY)

    def _take_claimed(
        self, endpoint: ProgramEndpoint, request: ProviderRequest, posted: ProgramReceive, now: int
    ) -> None:
        found = endpoint.claimed.pop(request.data, None)
        if found is None:
            self._end_receive(posted, LibfabricError.NO_MESSAGE)
        elif request.flags & _DISCARD:
            self._end_receive(posted, 0)
        else:
            endpoint.posted[posted.id] = posted
            posted.operation = endpoint.core.take(found, posted.room, now, context=posted)

    def _end_receive(self, posted: ProgramReceive, error: int) -> None:
        self._receives -= 1
        flags = _LAST if posted.least_room else 0
        self.output += encode_done(posted.id, error=error, flags=flags)

    def _peek(self, request: ProviderRequest, body: bytes, now: int) -> None:
        endpoint = self._endpoints.get(request.endpoint)
        self._receives -= 1
        if body:
            raise ProviderWireError("a peek has no body")
        found = None
        if endpoint is not None and self._rail is not None:
            try:
                source = self._rail.peer(request.peer) if request.flags & _DIRECTED else None
                found = endpoint.core.peek(request.tag, ignore=request.ignore, source=source)
            except UsageError:
                found = None
        if endpoint is None or found is None:
            self._end_peek(request, LibfabricError.NO_MESSAGE)
            return
        message = found.content
        if request.flags & _DISCARD:
            endpoint.core.claim(found)
        elif request.flags & _CLAIM:
            if len(endpoint.claimed) >= MOST_CLAIMED or request.data in endpoint.claimed:
                self._end_peek(request, LibfabricError.BUSY)
                return
            endpoint.core.claim(found)
            endpoint.claimed[request.data] = found
        self.output += encode_done(
            request.id,
            flags=0 if message.header_data is None else _HAS_DATA,
            length=message.total,
            tag=found.tag,
            data=message.header_data or 0,
            peer=name_of(message.source),
        )

    def _end_peek(self, request: ProviderRequest, error: int) -> None:
        self.output += encode_done(request.id, error=error, tag=request.tag)

    def _cancel(self, request: ProviderRequest, now: int) -> None:
        endpoint = self._endpoints.get(request.endpoint)
        posted = None if endpoint is None else endpoint.posted.get(request.data)
        if endpoint is not None and posted is not None and posted.operation is not None:
            posted.is_cancelled = not endpoint.core.cancel(posted.operation, now)

    # --- what has ended ----------------------------------------------------------------------------------

    def collect(self, now: int) -> bool:
        """Tell the program what has ended at its endpoints; whether anything has."""
        found = False
        for index, endpoint in self._endpoints.items():
            if endpoint.core.completions:
                self._collect_from(index, endpoint, now)
                found = True
        if self._closing:
            for endpoint in self._closing:
                if endpoint.core.completions:
                    self._collect_from(0, endpoint, now)
                    found = True
            self._closing = [endpoint for endpoint in self._closing if endpoint.sends or endpoint.posted]
        while self._waiting:
            length = self._waiting[0][0].length
            if self.loaded_bytes and self.loaded_bytes + length > MOST_LOADED_BYTES:
                break
            request, body = self._waiting.popleft()
            self._transmit(request, body, now)
            found = True
        return found

    def _collect_from(self, index: int, endpoint: ProgramEndpoint, now: int) -> None:
        completions = endpoint.core.completions
        while completions:
            operation = completions.popleft()
            context = operation.context
            if isinstance(context, SentOperation):
                self._sent(endpoint, context, operation)
            elif isinstance(context, ProgramReceive):
                self._received(endpoint, context, operation, now)
            elif operation.kind is OpKind.REMOTE_WRITE and operation.ok and not endpoint.is_closed:
                self._tell(
                    ProviderReply(
                        kind=ReplyKind.WRITTEN,
                        flags=_HAS_DATA,
                        length=operation.length,
                        data=operation.header_data or 0,
                        endpoint=index,
                        peer=name_of(operation.source),
                    )
                )

    def _sent(self, endpoint: ProgramEndpoint, sent: SentOperation, operation: Operation) -> None:
        endpoint.sends -= 1
        self.loaded_bytes -= sent.length
        code = operation.status or ReturnCode.NULL
        error = error_of(code)
        if code is ReturnCode.TOO_LONG and operation.kind in (OpKind.SEND, OpKind.TSEND):
            error = 0  # it has arrived, and is longer than its receive: which is who receives it to be told
        if not error and sent.places and operation.buffer is not None and not endpoint.is_closed:
            try:
                self._store(sent.places, operation.buffer)
            except OSError:
                error = LibfabricError.FAULT
        self._end_transmit(sent.id, error, code)

    def _store(self, places: Sequence[tuple[int, int]], data: memoryview) -> None:
        done = 0
        for address, length in places:
            if done >= len(data):
                return
            part = data[done : done + length]
            self._memory.store(address, part)
            done += len(part)

    def _received(self, endpoint: ProgramEndpoint, posted: ProgramReceive, operation: Operation, now: int) -> None:
        code = operation.status or ReturnCode.NULL
        error, length, at = error_of(code), operation.length, posted.at
        if not error and length and not endpoint.is_closed:
            try:
                if posted.least_room:
                    self._memory.store(posted.places[0][0] + at, posted.room[at : at + length])
                else:
                    self._store(posted.places, posted.room[:length])
            except OSError:
                error = LibfabricError.FAULT
        flags = 0 if operation.header_data is None else _HAS_DATA
        if posted.least_room:
            posted.at += length
            full = len(posted.room) - posted.at < posted.least_room
            last = bool(error) or full or posted.is_cancelled or endpoint.is_closed
            flags |= _LAST if last else 0
        else:
            last = True
        if last:
            self._receives -= 1
            endpoint.posted.pop(posted.id, None)
        self.output += encode_done(
            posted.id,
            error=error,
            flags=flags,
            length=0 if error else length,
            tag=operation.tag,
            data=operation.header_data or 0,
            offset=operation.excess if error else at,
            code=code,
            peer=name_of(operation.source),
        )
        if not last:
            posted.post(endpoint.core, now)

    # --- the end -----------------------------------------------------------------------------------------

    def close(self, now: int) -> None:
        """Free all that the program had. What it sent goes on."""
        if self._rail is not None:
            for endpoint in self._endpoints.values():
                endpoint.core.close(now)
            for key in self._keys.values():
                self._rail.fep.retire(key)
            self._rail.give_pid(self._pid)
        self._endpoints.clear()
        self._closing.clear()
        self._keys.clear()
        self._waiting.clear()
        self._rail = None
        self._memory.close()


_Question = Callable[[ProgramConnection, ProviderRequest, bytes, int], None]
_GREETINGS: Final = frozenset({RequestKind.RAIL, RequestKind.HELLO})
_QUESTIONS: Final[dict[int, _Question]] = {
    RequestKind.RAIL: ProgramConnection._tell_rail,
    RequestKind.HELLO: ProgramConnection._hello,
    RequestKind.OPEN_ENDPOINT: ProgramConnection._open_endpoint,
    RequestKind.CLOSE_ENDPOINT: ProgramConnection._close_endpoint,
    RequestKind.REGISTER: ProgramConnection._register,
    RequestKind.DEREGISTER: ProgramConnection._deregister,
}
