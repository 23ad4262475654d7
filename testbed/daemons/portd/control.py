"""The agent's control socket: JSON lines, a request and an answer each, from this user and root alone.

Nothing that a client does can hold the agent up: lines are bounded, reads and writes never wait, and a client that
does not take its answers is dropped.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from testbed.base.errors import TestbedError

MAX_LINE_BYTES = 4096
MAX_UNSENT_BYTES = 16 << 20
MAX_CLIENTS = 16
SOCKET_NAME = "portd.sock"

_CREDENTIALS = struct.Struct("=iII")

Handler = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Answers a request; raises `TestbedError` to refuse it."""


def socket_path(directory_fd: int, name: str = SOCKET_NAME) -> str:
    """The socket in the run directory, by a path that always fits sockaddr_un (unix(7): 108 bytes)."""
    return f"/proc/self/fd/{directory_fd}/{name}"


def answer(line: bytes, handler: Handler) -> dict[str, Any]:
    """The answer to one line, whatever it is: `ok`, and either the handler's fields or `error`, `kind` and `hint`."""
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        return {"ok": False, "kind": "request", "error": "not a line of JSON", "hint": None}
    if not isinstance(request, dict):
        return {"ok": False, "kind": "request", "error": "not a JSON object", "hint": None}
    try:
        return {"ok": True, **handler(request)}
    except TestbedError as error:
        return {"ok": False, "kind": type(error).__name__, "error": error.message, "hint": error.hint}


class Client:
    """A connection. `receive` and `send_more` say whether it is still there."""

    def __init__(self, item: socket.socket, handler: Handler) -> None:
        self._socket = item
        self._handler = handler
        self._received = bytearray()
        self._unsent = bytearray()

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def receive(self) -> bool:
        """Read what is there and answer the lines that are complete."""
        try:
            data = self._socket.recv(MAX_LINE_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            return False
        self._received += data
        *lines, rest = self._received.split(b"\n")
        self._received = rest
        for line in lines:
            if len(line) > MAX_LINE_BYTES:
                return False
            self._unsent += json.dumps(answer(bytes(line), self._handler)).encode() + b"\n"
        if len(rest) > MAX_LINE_BYTES or len(self._unsent) > MAX_UNSENT_BYTES:
            return False
        return self.send_more()

    def send_more(self) -> bool:
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent, socket.MSG_NOSIGNAL)]
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True

    def finish(self, timeout_s: float) -> None:
        """Send what is left, waiting at most so long, as the last thing."""
        self._socket.settimeout(timeout_s)
        try:
            self._socket.sendall(self._unsent)
        except OSError:
            self._unsent.clear()


class Connections:
    """The clients that are connected, at most `MAX_CLIENTS`, whoever has been silent for longest first."""

    def __init__(self) -> None:
        self._by_descriptor: dict[int, Client] = {}

    def __iter__(self) -> Iterator[Client]:
        return iter(list(self._by_descriptor.values()))

    def get(self, descriptor: int) -> Client | None:
        return self._by_descriptor.get(descriptor)

    def crowded_out(self) -> Client | None:
        """Return who has to go before another one may come; None while there is room."""
        return next(iter(self)) if len(self._by_descriptor) >= MAX_CLIENTS else None

    def heard(self, client: Client) -> None:
        """A client has come or has sent something."""
        self._by_descriptor.pop(client.fileno(), None)
        self._by_descriptor[client.fileno()] = client

    def remove(self, client: Client) -> None:
        del self._by_descriptor[client.fileno()]


def listen(directory_fd: int, name: str, kind: socket.SocketKind, backlog: int) -> socket.socket:
    """A listening socket in a run directory, mode 0600, in the place of one that was left behind. Raises `OSError`."""
    remove_socket(directory_fd, name)
    item = socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    mask = os.umask(0o177)
    try:
        item.bind(socket_path(directory_fd, name))
    finally:
        os.umask(mask)
    item.listen(backlog)
    return item


def accept_trusted(listening: socket.socket) -> socket.socket | None:
    """Who connects, if it is this user or root; None where nobody does."""
    try:
        item, _ = listening.accept()
    except OSError:
        return None
    item.setblocking(False)
    credentials = item.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    if _CREDENTIALS.unpack(credentials)[1] in (0, os.geteuid()):
        return item
    item.close()
    return None


def remove_socket(directory_fd: int, name: str) -> None:
    """Remove a socket from a run directory, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory_fd)


class ControlSocket:
    """The listening socket in a run directory, `portd.sock` unless it is another process's, mode 0600."""

    def __init__(self, directory_fd: int, name: str = SOCKET_NAME) -> None:
        """Replaces a socket that an agent left behind: the caller knows that none is there."""
        self._directory_fd = directory_fd
        self._name = name
        self._socket = listen(directory_fd, name, socket.SOCK_STREAM, MAX_CLIENTS)

    def fileno(self) -> int:
        return self._socket.fileno()

    def accept(self, handler: Handler) -> Client | None:
        """A client that may speak to us; None where there is none."""
        item = accept_trusted(self._socket)
        return None if item is None else Client(item, handler)

    def remove(self) -> None:
        remove_socket(self._directory_fd, self._name)

    def close(self) -> None:
        self._socket.close()
