"""The control socket, by which scenarios drive an agent: a Unix stream socket of mode 0600, one JSON object a line.

Only processes of the same user, or of root, are heard (SO_PEERCRED). Several clients may be connected; what they open
is the agent's, remains when they go, and all see the same.

A request is `{"id": NUMBER OR STRING, "do": NAME, ...}`, a line of at most 1 MiB. It is answered, in order, by
`{"id": THE SAME, "ok": true, ...}` or by `{"id": THE SAME, "ok": false, "error": {"code", "message", "line",
"offset" | "field"}}`, where `line` counts the lines of this connection, `offset` the bytes in it, and `code` is one of

    json      the line is not a JSON object; `offset` tells where
    field     a field is missing, unknown or wrong; `field` tells which ("config.mpr")
    unknown   there is no such request
    usage     what is asked for can never work, or names what there is not
    limit     more memory or operations than an agent gives
    os        the operating system refuses

Nothing that a client sends ends the agent but `shutdown`. One that does not read 16 MiB of answers is disconnected.

Requests (fields with a `=` have that default, those with `?` are optional):

    open       address, config={} (fields of UetConfig), delay_ns=0, trace=false -> address, sees_trimmed
    endpoint   address, job_id, pid_on_fep=0, resource_index=1 -> endpoint (a number), name ("ip/pid/ri")
    register   address, bytes, access (list of remote_read, remote_write, remote_atomic), key?, job_id?, pattern? -> key
    verify     address, key, offset=0, bytes, pattern, start=0 -> verified, first_difference
    recv       endpoint, bytes, count=1, tag?, ignore=0, source?, pattern? -> operations (numbers)
    send       endpoint, to, bytes, count=1, pattern=0, mode="RUD", tag?, header_data?, how="eager" -> operations
    write      endpoint, to, key, offset=0, bytes, count=1, pattern=0, mode="RUD", header_data? -> operations
    read       endpoint, to, key, offset=0, bytes, count=1, pattern?, mode="RUD" -> operations
    atomic     endpoint, to, key, offset=0, opcode, datatype, operand (hex), compare?, fetch=false, count=1,
               mode="RUD" -> operations
    cancel     operation -> cancelled
    counters   address? -> by address: fep, sockets, overflows, pdcs
    trace      address, on -> (forgets the events so far)
    dump       address, path -> events, dropped: writes the trace as JSON lines
    list       -> pid, feps, endpoints, operations (how many are under way)
    close      address | endpoint | (address and key) -> for a FEP answered when its PDCs are closed
    shutdown   -> the agent closes everything and ends

`to` and `source` are `ip` (process 0, resource index 1) or `ip/pid/ri`. Data is the pattern of a seed (`pattern`,
`testbed.agent.pattern`); a receive or read with `pattern` is checked against it when it ends.

When an operation ends, the client that asked for it hears of it, if it is still there:
`{"event": "completion", "operation", "endpoint", "kind", "status", "error", "length", "tag", "source", "header_data",
"started_ns", "finished_ns", "verified", "first_difference", "result"}`. `operation` is null for a peer's write with
header data, of which the client hears that made the endpoint. `verified` is null where nothing was to be checked,
`result` the hexadecimal value that an atomic operation fetched. Times are those of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import errno
import json
import os
import select
import socket
import struct
from pathlib import Path

from testbed.agent.agent import Agent
from testbed.agent.commands import MEMORY_LIMIT, Commands
from testbed.agent.requests import LONGEST_LINE, Json, RequestError, parse_line

MOST_UNREAD = 16 << 20
_CHUNK = 1 << 16
_CREDENTIALS = struct.Struct("3i")


class _Client:
    """A connection."""

    __slots__ = ("discarding", "incoming", "lines", "outgoing", "socket", "waiting_for_room")

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.incoming = bytearray()
        self.outgoing = bytearray()
        self.lines = 0
        self.discarding = False
        """The present line was too long; its rest is of no account."""
        self.waiting_for_room = False


class ControlServer:
    """Listens at `path` and carries out what clients ask of `agent`.

    Raises `OSError` if the socket cannot be made; one that nobody listens at any longer is replaced.
    """

    def __init__(self, agent: Agent, path: str | Path, *, memory_limit: int = MEMORY_LIMIT) -> None:
        self.path = Path(path)
        self.stopping = False
        """A client has asked for the end, or `stop` was called."""
        self._agent = agent
        self._clients: dict[int, _Client] = {}
        self.commands = Commands(agent, self._reply, memory_limit)
        self._listener = _listen(self.path)
        self._identity = _identity(self.path)
        agent.loop.watch(self._listener.fileno(), self._accept)

    def run(self) -> None:
        """Serve until `stop` or `shutdown`."""
        while not self.stopping:
            self._agent.loop.run_once(self.commands.deadline)
            self.report()

    def stop(self) -> None:
        """Make `run` return. May be called from signal handlers."""
        self.stopping = True
        self._agent.loop.wake()

    def report(self) -> None:
        """Tell what has ended. To be called after every turn of the loop."""
        self.commands.collect()
        if self.commands.shutdown:
            self.stopping = True
        for fd in list(self._clients):
            client = self._clients[fd]
            if len(client.outgoing) > MOST_UNREAD:
                self._disconnect(fd)
            elif client.outgoing and not client.waiting_for_room:
                self._flush(fd, client)

    def close(self) -> None:
        """Disconnect everybody, and remove the socket."""
        self.report()
        for fd in list(self._clients):
            self._disconnect(fd)
        self._agent.loop.unwatch(self._listener.fileno())
        self._listener.close()
        if _identity(self.path) == self._identity:
            self.path.unlink()

    # --- connections -------------------------------------------------------------------------------------

    def _accept(self, events: int) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, uid, _ = _CREDENTIALS.unpack(credentials)
        if uid not in (0, os.geteuid()):
            connection.close()
            return
        connection.setblocking(False)
        fd = connection.fileno()
        self._clients[fd] = _Client(connection)
        self._agent.loop.watch(fd, lambda mask: self._serve(fd, mask))

    def _disconnect(self, fd: int) -> None:
        client = self._clients.pop(fd)
        self._agent.loop.unwatch(fd)
        client.socket.close()
        self.commands.forget_client(fd)

    def _serve(self, fd: int, mask: int) -> None:
        client = self._clients[fd]
        if mask & select.EPOLLOUT:
            self._flush(fd, client)
            if fd not in self._clients:
                return
        if not mask & ~select.EPOLLOUT:
            return
        try:
            chunk = client.socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self._disconnect(fd)
            return
        client.incoming += chunk
        self._take_lines(fd, client)

    def _take_lines(self, fd: int, client: _Client) -> None:
        *lines, rest = client.incoming.split(b"\n")
        client.incoming = bytearray(rest)
        for line in lines:
            client.lines += 1
            if client.discarding:
                client.discarding = False
            elif len(line) > LONGEST_LINE:
                self._refuse_length(fd, client.lines)
            elif line.strip():
                self._carry_out(fd, client.lines, bytes(line))
        if len(client.incoming) > LONGEST_LINE:
            if not client.discarding:
                self._refuse_length(fd, client.lines + 1)
            client.discarding = True
            client.incoming.clear()

    def _refuse_length(self, fd: int, line: int) -> None:
        error = RequestError("json", f"a line has at most {LONGEST_LINE} bytes", offset=LONGEST_LINE)
        self._reply(fd, _failure(None, line, error))

    def _carry_out(self, fd: int, number: int, line: bytes) -> None:
        identity: Json = None
        try:
            values = parse_line(line)
            identity = values.pop("id", None)
            answer = self.commands.execute(fd, identity, values)
        except RequestError as error:
            self._reply(fd, _failure(identity, number, error))
            return
        if answer is not None:
            self._reply(fd, {"id": identity, "ok": True, **answer})

    def _reply(self, fd: int, answer: dict[str, Json]) -> None:
        """Put a line into the queue of a client, if there still is one."""
        client = self._clients.get(fd)
        if client is not None:
            client.outgoing += json.dumps(answer, separators=(",", ":")).encode() + b"\n"

    def _flush(self, fd: int, client: _Client) -> None:
        try:
            sent = client.socket.send(client.outgoing)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._disconnect(fd)
            return
        del client.outgoing[:sent]
        waiting = bool(client.outgoing)
        if waiting is not client.waiting_for_room:
            client.waiting_for_room = waiting
            self._agent.loop.modify(fd, select.EPOLLIN | (select.EPOLLOUT if waiting else 0))


def _failure(identity: Json, line: int, error: RequestError) -> dict[str, Json]:
    where: dict[str, Json] = {"line": line}
    if error.offset is not None:
        where["offset"] = error.offset
    if error.field is not None:
        where["field"] = error.field
    return {"id": identity, "ok": False, "error": {"code": error.code, "message": error.message, **where}}


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file it is, so that nobody else's is removed."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # the file must not be open to others even for a moment
    try:
        try:
            listener.bind(str(path))
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not _is_abandoned(path):
                raise
            path.unlink()
            listener.bind(str(path))
        listener.listen(16)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
    return listener


def _is_abandoned(path: Path) -> bool:
    """Whether it is a socket that nobody listens at."""
    if not path.is_socket():
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(path)) == errno.ECONNREFUSED
