"""What the requests of the control socket do to an agent: the names of its objects, and the operations under way.

The requests and their answers are described in `testbed.agent.control`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path

from testbed.agent.agent import CLOSE_PATIENCE_NS, Agent, begin_closing
from testbed.agent.pattern import SEED_LIMIT, first_difference, make_pattern
from testbed.agent.requests import Fields, Json, RequestError
from testbed.transport.uet.addressing import JOB_LIMIT, PID_LIMIT
from testbed.transport.uet.config import UetConfig
from testbed.transport.uet.errors import UsageError
from testbed.transport.uet.fep import Fep
from testbed.transport.uet.memory import KEY_LIMIT, Access
from testbed.transport.uet.packets.codes import AmoOpcode, AmoType, Mode, ReturnCode
from testbed.transport.uet.semantics.endpoint import LONGEST_MESSAGE, Endpoint, SendKind
from testbed.transport.uet.semantics.operations import Operation, OpKind
from testbed.transport.uet.trace import Trace

MEMORY_LIMIT = 256 << 20
"""Bytes of registered memory and of buffers of operations under way."""
OPERATION_LIMIT = 65_536
"""Operations under way."""
TRACE_LIMIT = 200_000
"""Events that a trace keeps: some 100 MB."""
_DELAY_LIMIT = 10**12
_WORD = 1 << 64
_MODES = tuple(mode.name for mode in Mode)
_ACCESSES = ("remote_read", "remote_write", "remote_atomic")
_RECEIVES = (OpKind.RECV, OpKind.TRECV)
Answer = dict[str, Json]


class _Opened:
    """An endpoint that a client opened."""

    __slots__ = ("address", "client", "core", "number", "under_way")

    def __init__(self, number: int, client: int, core: Endpoint, address: str) -> None:
        self.number = number
        self.client = client
        self.core = core
        self.address = address
        """Of its FEP."""
        self.under_way = 0


class _Tracked:
    """An operation under way."""

    __slots__ = ("client", "number", "opened", "result", "seed", "size")

    def __init__(self, number: int, client: int, opened: _Opened, size: int, seed: int | None) -> None:
        self.number = number
        self.client = client
        self.opened = opened
        self.size = size
        """Bytes of its own buffer."""
        self.seed = seed
        """What arrives is checked against this pattern."""
        self.result: bytearray | None = None


class _Closing:
    """A FEP whose PDCs are being closed, and who waits for it."""

    __slots__ = ("client", "deadline", "identity")

    def __init__(self, client: int, identity: Json, deadline: int) -> None:
        self.client = client
        self.identity = identity
        self.deadline = deadline


class Commands:
    """`tell` takes a client (any number that names it) and what it is to be told."""

    def __init__(self, agent: Agent, tell: Callable[[int, Answer], None], memory_limit: int = MEMORY_LIMIT) -> None:
        self.shutdown = False
        """A client has asked for the end."""
        self._agent = agent
        self._tell = tell
        self._free_bytes = memory_limit
        self._names = 0
        self._endpoints: dict[int, _Opened] = {}
        self._ended_endpoints: list[_Opened] = []
        """Closed, with operations that go on to their end."""
        self._under_way: dict[Operation, _Tracked] = {}
        self._regions: dict[tuple[str, int], bytearray] = {}
        self._closing: dict[str, _Closing] = {}
        self._requests: dict[str, Callable[[int, Fields], Answer]] = {
            "open": self._open,
            "endpoint": self._endpoint,
            "register": self._register,
            "verify": self._verify,
            "recv": self._recv,
            "send": self._send,
            "write": self._write,
            "read": self._read,
            "atomic": self._atomic,
            "cancel": self._cancel,
            "counters": self._counters,
            "trace": self._trace,
            "dump": self._dump,
            "list": self._list,
            "shutdown": self._shut_down,
        }

    def execute(self, client: int, identity: Json, values: dict[str, Json]) -> Answer | None:
        """Carry out a request; None: it is answered later. Raises `RequestError`, whatever the values."""
        if not isinstance(identity, int | str | None):
            raise RequestError("field", "must be a number or a string", field="id")
        request = Fields(values)
        name = request.text("do")
        if name == "close" and request.has("address") and not request.has("key"):
            self._close_fep(client, identity, request)
            return None
        handler = self._close if name == "close" else self._requests.get(name)
        if handler is None:
            raise RequestError("unknown", f"no such request: {name}", field="do")
        try:
            return handler(client, request)
        except (UsageError, ValueError) as error:
            raise RequestError("usage", str(error)) from None
        except OSError as error:
            raise RequestError("os", str(error)) from None
        except MemoryError:
            raise RequestError("limit", "there is not so much memory") from None

    # --- names -------------------------------------------------------------------------------------------

    def _name(self) -> int:
        self._names += 1
        return self._names

    def _find_fep(self, request: Fields) -> Fep:
        address = request.text("address")
        fep = self._agent.feps.get(address)
        if fep is None or address in self._closing:
            raise RequestError("usage", f"{address} is not open", field="address")
        return fep

    def _find_endpoint(self, request: Fields) -> _Opened:
        number = request.integer("endpoint", 0, _WORD)
        opened = self._endpoints.get(number)
        if opened is None:
            raise RequestError("usage", f"there is no endpoint {number}", field="endpoint")
        return opened

    def adopt(self, fep: Fep, core: Endpoint) -> int:
        """Give an endpoint that was opened otherwise a number for clients."""
        opened = _Opened(self._name(), -1, core, fep.address)
        self._endpoints[opened.number] = opened
        return opened.number

    # --- FEPs, endpoints and memory ----------------------------------------------------------------------

    def _open(self, client: int, request: Fields) -> Answer:
        address = request.text("address")
        config = self._config(request)
        delay_ns = request.integer("delay_ns", 0, _DELAY_LIMIT, 0)
        trace = Trace(TRACE_LIMIT) if request.flag("trace", False) else None
        request.finish()
        fep = self._agent.open(address, config, delay_ns=delay_ns, trace=trace)
        return {"address": fep.address, "sees_trimmed": self._agent.sockets(fep.address).sees_trimmed}

    @staticmethod
    def _config(request: Fields) -> UetConfig:
        given = request.object("config")
        values = Fields(given, "config.")
        chosen: dict[str, object] = {}
        for item in fields(UetConfig):
            if item.name not in given:
                continue
            if isinstance(item.default, bool):
                chosen[item.name] = values.flag(item.name)
            elif isinstance(item.default, int):
                chosen[item.name] = values.integer(item.name, 0, 10**15)
            elif isinstance(item.default, str):
                chosen[item.name] = values.text(item.name)
            else:
                raise RequestError("field", "cannot be set here", field=f"config.{item.name}")
        values.finish()
        return UetConfig(**chosen)  # type: ignore[arg-type]

    def _endpoint(self, client: int, request: Fields) -> Answer:
        fep = self._find_fep(request)
        job_id = request.integer("job_id", 0, JOB_LIMIT - 1)
        pid_on_fep = request.integer("pid_on_fep", 0, PID_LIMIT - 1, 0)
        resource_index = request.integer("resource_index", 0, PID_LIMIT - 1, 1)
        request.finish()
        core = fep.endpoint(job_id=job_id, pid_on_fep=pid_on_fep, resource_index=resource_index)
        opened = _Opened(self._name(), client, core, fep.address)
        self._endpoints[opened.number] = opened
        return {"endpoint": opened.number, "name": str(core.address)}

    def _register(self, client: int, request: Fields) -> Answer:
        fep = self._find_fep(request)
        size = request.integer("bytes", 0, LONGEST_MESSAGE)
        access = Access(0)
        for name in request.choices("access", _ACCESSES):
            access |= Access[name.upper()]
        key = request.optional("key", 0, KEY_LIMIT - 1)
        job_id = request.optional("job_id", 0, JOB_LIMIT - 1)
        seed = request.optional("pattern", 0, SEED_LIMIT - 1)
        request.finish()
        self._take_bytes(size)
        try:
            buffer = bytearray(size) if seed is None else bytearray(make_pattern(seed, size))
            region = fep.register(buffer, access, job_id, key)
        except (UsageError, MemoryError):
            self._free_bytes += size
            raise
        self._regions[fep.address, region.key] = buffer
        return {"key": region.key}

    def _verify(self, client: int, request: Fields) -> Answer:
        fep = self._find_fep(request)
        key = request.integer("key", 0, KEY_LIMIT - 1)
        offset = request.integer("offset", 0, LONGEST_MESSAGE, 0)
        size = request.integer("bytes", 0, LONGEST_MESSAGE)
        seed = request.integer("pattern", 0, SEED_LIMIT - 1)
        start = request.integer("start", 0, _WORD, 0)
        request.finish()
        region = self._regions.get((fep.address, key))
        if region is None:
            raise RequestError("usage", f"no memory is registered under key {key}", field="key")
        if offset + size > len(region):
            raise RequestError("usage", f"the region has {len(region)} bytes", field="bytes")
        found = first_difference(memoryview(region)[offset : offset + size], seed, start)
        return {"verified": found is None, "first_difference": found}

    def _close(self, client: int, request: Fields) -> Answer:
        if request.has("key"):
            fep = self._find_fep(request)
            key = request.integer("key", 0, KEY_LIMIT - 1)
            request.finish()
            fep.retire(key)
            self._free_bytes += len(self._regions.pop((fep.address, key), b""))
            return {}
        opened = self._find_endpoint(request)
        request.finish()
        self._end_endpoint(opened)
        return {}

    def _end_endpoint(self, opened: _Opened) -> None:
        opened.core.close(time.monotonic_ns())
        del self._endpoints[opened.number]
        self._ended_endpoints.append(opened)

    def _close_fep(self, client: int, identity: Json, request: Fields) -> None:
        fep = self._find_fep(request)
        request.finish()
        now = time.monotonic_ns()
        for opened in list(self._endpoints.values()):
            if opened.address == fep.address:
                self._end_endpoint(opened)
        begin_closing(fep, now)
        self._closing[fep.address] = _Closing(client, identity, now + CLOSE_PATIENCE_NS)

    def _shut_down(self, client: int, request: Fields) -> Answer:
        request.finish()
        self.shutdown = True
        return {}

    # --- operations --------------------------------------------------------------------------------------

    def _take_bytes(self, size: int) -> None:
        if size > self._free_bytes:
            raise RequestError("limit", f"{self._free_bytes} bytes of memory are left", field="bytes")
        self._free_bytes -= size

    def _count(self, request: Fields) -> int:
        count = request.integer("count", 1, OPERATION_LIMIT, 1)
        if len(self._under_way) + count > OPERATION_LIMIT:
            raise RequestError("limit", f"{len(self._under_way)} operations are under way", field="count")
        return count

    def _repeat(
        self,
        client: int,
        opened: _Opened,
        request: Fields,
        size: int,
        start: Callable[[_Tracked, int], Operation],
        seed: int | None = None,
        shared: int = 0,
    ) -> Answer:
        """Start as many operations of `size` bytes each, and `shared` bytes of all, as the request asks for.

        All are started or, where one fails, those before it.
        """
        count = self._count(request)
        request.finish()
        size += -(-shared // count)
        self._take_bytes(size * count)
        numbers: list[Json] = []
        for begun in range(count):
            tracked = _Tracked(self._name(), client, opened, size, seed)
            try:
                operation = start(tracked, time.monotonic_ns())
            except (UsageError, MemoryError):
                self._free_bytes += size * (count - begun)
                if begun:
                    break
                raise
            opened.under_way += 1
            self._under_way[operation] = tracked
            numbers.append(tracked.number)
        return {"operations": numbers}

    def _recv(self, client: int, request: Fields) -> Answer:
        opened = self._find_endpoint(request)
        core = opened.core
        size = request.integer("bytes", 0, LONGEST_MESSAGE)
        tag = request.optional("tag", 0, _WORD - 1)
        ignore = request.integer("ignore", 0, _WORD - 1, 0)
        source = request.address("source", core.address.job_id) if request.has("source") else None
        seed = request.optional("pattern", 0, SEED_LIMIT - 1)

        def start(tracked: _Tracked, now: int) -> Operation:
            if tag is None:
                return core.recv(bytearray(size), now)
            return core.trecv(bytearray(size), tag, now, ignore=ignore, source=source)

        return self._repeat(client, opened, request, size, start, seed)

    def _send(self, client: int, request: Fields) -> Answer:
        opened = self._find_endpoint(request)
        core = opened.core
        to = request.address("to", core.address.job_id)
        mode = Mode[request.choice("mode", _MODES, "RUD")]
        tag = request.optional("tag", 0, _WORD - 1)
        header_data = request.optional("header_data", 0, _WORD - 1)
        how = SendKind(request.choice("how", tuple(SendKind), "eager"))
        data = self._data(request)

        def start(tracked: _Tracked, now: int) -> Operation:
            if tag is None:
                return core.send(to, data, now, mode=mode, header_data=header_data, how=how)
            return core.tsend(to, data, tag, now, mode=mode, header_data=header_data, how=how)

        return self._repeat(client, opened, request, 0, start, shared=len(data))

    def _data(self, request: Fields) -> bytes:
        """What is to be sent."""
        size = request.integer("bytes", 0, LONGEST_MESSAGE)
        seed = request.integer("pattern", 0, SEED_LIMIT - 1, 0)
        if size > self._free_bytes:
            raise RequestError("limit", f"{self._free_bytes} bytes of memory are left", field="bytes")
        return make_pattern(seed, size)

    def _write(self, client: int, request: Fields) -> Answer:
        opened = self._find_endpoint(request)
        core = opened.core
        to = request.address("to", core.address.job_id)
        key = request.integer("key", 0, KEY_LIMIT - 1)
        offset = request.integer("offset", 0, _WORD - 1, 0)
        mode = Mode[request.choice("mode", _MODES, "RUD")]
        header_data = request.optional("header_data", 0, _WORD - 1)
        data = self._data(request)
        return self._repeat(
            client,
            opened,
            request,
            0,
            lambda tracked, now: core.write(to, data, key, offset, now, mode=mode, header_data=header_data),
            shared=len(data),
        )

    def _read(self, client: int, request: Fields) -> Answer:
        opened = self._find_endpoint(request)
        core = opened.core
        to = request.address("to", core.address.job_id)
        key = request.integer("key", 0, KEY_LIMIT - 1)
        offset = request.integer("offset", 0, _WORD - 1, 0)
        mode = Mode[request.choice("mode", _MODES, "RUD")]
        size = request.integer("bytes", 0, LONGEST_MESSAGE)
        seed = request.optional("pattern", 0, SEED_LIMIT - 1)
        return self._repeat(
            client,
            opened,
            request,
            size,
            lambda tracked, now: core.read(to, bytearray(size), key, offset, now, mode=mode),
            seed,
        )

    def _atomic(self, client: int, request: Fields) -> Answer:
        opened = self._find_endpoint(request)
        core = opened.core
        to = request.address("to", core.address.job_id)
        key = request.integer("key", 0, KEY_LIMIT - 1)
        offset = request.integer("offset", 0, _WORD - 1, 0)
        mode = Mode[request.choice("mode", _MODES, "RUD")]
        opcode = AmoOpcode[request.choice("opcode", [item.name for item in AmoOpcode])]
        datatype = AmoType[request.choice("datatype", [item.name for item in AmoType])]
        operand = request.octets("operand")
        compare = request.octets("compare")
        fetches = request.flag("fetch", False)

        def start(tracked: _Tracked, now: int) -> Operation:
            if fetches:
                tracked.result = bytearray(len(operand))
            return core.atomic(
                to, opcode, datatype, operand, key, offset, now, fetch=tracked.result, compare=compare, mode=mode
            )

        return self._repeat(client, opened, request, 0, start)

    def _cancel(self, client: int, request: Fields) -> Answer:
        number = request.integer("operation", 0, _WORD)
        request.finish()
        for operation, tracked in self._under_way.items():
            if tracked.number == number:
                cancelled = operation.kind in _RECEIVES and tracked.opened.core.cancel(operation, time.monotonic_ns())
                return {"cancelled": cancelled}
        return {"cancelled": False}

    # --- what there is to see ----------------------------------------------------------------------------

    def _counters(self, client: int, request: Fields) -> Answer:
        feps = {"": self._find_fep(request)} if request.has("address") else self._agent.feps
        request.finish()
        answer: Answer = {}
        for fep in feps.values():
            group = self._agent.sockets(fep.address)
            fep.peers.settle()
            answer[fep.address] = {
                "fep": dict(fep.counters),
                "sockets": asdict(group.counters),
                "overflows": group.overflows,
                "pdcs": len(fep.pdcs),
            }
        return answer

    def _trace(self, client: int, request: Fields) -> Answer:
        fep = self._find_fep(request)
        on = request.flag("on")
        request.finish()
        fep.trace = Trace(TRACE_LIMIT) if on else None
        for pdc in fep.pdcs:
            pdc.trace = fep.trace
        return {}

    def _dump(self, client: int, request: Fields) -> Answer:
        fep = self._find_fep(request)
        path = request.text("path")
        request.finish()
        if fep.trace is None:
            raise RequestError("usage", "the trace is off", field="address")
        with Path(path).open("w") as file:
            file.writelines(f"{line}\n" for line in fep.trace.json_lines())
        return {"events": len(fep.trace), "dropped": fep.trace.dropped}

    def _list(self, client: int, request: Fields) -> Answer:
        request.finish()
        endpoints: list[Json] = [
            {"endpoint": item.number, "name": str(item.core.address), "job_id": item.core.address.job_id}
            for item in self._endpoints.values()
        ]
        feps: list[Json] = list(self._agent.feps)
        return {"pid": os.getpid(), "feps": feps, "endpoints": endpoints, "operations": len(self._under_way)}

    # --- what has ended ----------------------------------------------------------------------------------

    @property
    def deadline(self) -> int | None:
        """When `collect` is to be called at the latest."""
        return min((item.deadline for item in self._closing.values()), default=None)

    def collect(self) -> None:
        """Tell the clients what has ended."""
        for opened in (*self._endpoints.values(), *self._ended_endpoints):
            completions = opened.core.completions
            while completions:
                self._ended(opened, completions.popleft())
        if self._ended_endpoints:
            self._ended_endpoints = [item for item in self._ended_endpoints if item.under_way]
        for address, closing in list(self._closing.items()):
            self._end_fep(address, closing)

    def _end_fep(self, address: str, closing: _Closing) -> None:
        if self._agent.feps[address].pdcs and time.monotonic_ns() < closing.deadline:
            return
        self._agent.forget(address)
        del self._closing[address]
        now = time.monotonic_ns()
        for operation, tracked in list(self._under_way.items()):
            if tracked.opened.address == address:
                operation.complete(ReturnCode.CANCELLED, 0, now, "the endpoint is closed")
                tracked.opened.core.completions.remove(operation)
                self._ended(tracked.opened, operation)
        for place in [place for place in self._regions if place[0] == address]:
            self._free_bytes += len(self._regions.pop(place))
        self._tell(closing.client, {"id": closing.identity, "ok": True})

    def _ended(self, opened: _Opened, operation: Operation) -> None:
        tracked = self._under_way.pop(operation, None)
        client = opened.client
        found: int | None = None
        verified: bool | None = None
        result: str | None = None
        if tracked is not None:
            client = tracked.client
            opened.under_way -= 1
            self._free_bytes += tracked.size
            if tracked.seed is not None and operation.ok and operation.buffer is not None:
                found = first_difference(operation.buffer[: operation.length], tracked.seed)
                verified = found is None
            if tracked.result is not None and operation.ok:
                result = tracked.result.hex()
        assert operation.status is not None
        self._tell(
            client,
            {
                "event": "completion",
                "operation": None if tracked is None else tracked.number,
                "endpoint": opened.number,
                "kind": operation.kind.value,
                "status": operation.status.name,
                "error": operation.error,
                "length": operation.length,
                "tag": operation.tag,
                "source": None if operation.source is None else str(operation.source),
                "header_data": operation.header_data,
                "started_ns": operation.started_ns,
                "finished_ns": operation.finished_ns,
                "verified": verified,
                "first_difference": found,
                "result": result,
            },
        )

    def forget_client(self, client: int) -> None:
        """It has gone: nobody is to be told in its place. What it opened remains."""
        for opened in self._endpoints.values():
            if opened.client == client:
                opened.client = -1
        for tracked in self._under_way.values():
            if tracked.client == client:
                tracked.client = -1
        for closing in self._closing.values():
            if closing.client == client:
                closing.client = -1
