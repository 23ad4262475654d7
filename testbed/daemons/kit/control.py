"""A daemon's control socket: JSON lines, a request and an answer each, from this user and root alone.

Nothing that a client does can hold the daemon up: lines are bounded, reads and writes never wait, and a client that
does not take its answers is dropped.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
from collections.abc import Callable, Mapping
from typing import Any

from testbed.base.errors import TestbedError
from testbed.base.unix_sockets import peer_of, socket_path

MAX_LINE_BYTES = 4096
MAX_UNSENT_BYTES = 16 << 20
MAX_CLIENTS = 16


Handler = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Answers a request; raises `TestbedError` to refuse it."""


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
    if peer_of(item)[1] in (0, os.geteuid()):
        return item
    item.close()
    return None


def remove_socket(directory_fd: int, name: str) -> None:
    """Remove a socket from a run directory, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory_fd)


class ControlServer:
    """The control socket of a daemon, whoever is connected, and the signals that end it: SIGTERM and SIGINT.

    At most `MAX_CLIENTS` are connected; whoever has been silent for longest goes for the next one. `ending` is set by a
    signal, or by the handler.
    """

    def __init__(self, directory_fd: int, name: str, handler: Handler, epoll: select.epoll) -> None:
        """Replaces a socket that a daemon left behind: the caller knows that none is there. Raises `OSError`."""
        self.ending = False
        self._directory_fd = directory_fd
        self._name = name
        self._handler = handler
        self._epoll = epoll
        self._clients: dict[int, Client] = {}
        """By descriptor, whoever has been silent for longest first."""
        self._wake, self._wake_writer = socket.socketpair()
        for item in (self._wake, self._wake_writer):
            item.setblocking(False)
        self._socket = listen(directory_fd, name, socket.SOCK_STREAM, MAX_CLIENTS)
        epoll.register(self._socket, select.EPOLLIN)
        epoll.register(self._wake, select.EPOLLIN)

    def catch_signals(self) -> None:
        """Take signals from now on, which wake up whoever waits for the epoll."""
        signal.set_wakeup_fd(self._wake_writer.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, _number: int, _frame: object) -> None:
        self.ending = True

    def serve(self, descriptor: int) -> None:
        """Take an event of the epoll that is none of the daemon's own."""
        if (client := self._clients.get(descriptor)) is not None:
            self._serve(client)
        elif descriptor == self._socket.fileno():
            self._accept()
        else:
            with contextlib.suppress(BlockingIOError):
                self._wake.recv(4096)

    def _accept(self) -> None:
        if (item := accept_trusted(self._socket)) is None:
            return
        if len(self._clients) >= MAX_CLIENTS:
            self._drop(next(iter(self._clients.values())))
        client = Client(item, self._handler)
        self._clients[client.fileno()] = client
        self._epoll.register(client, select.EPOLLIN)

    def _serve(self, client: Client) -> None:
        if client.has_unsent:
            alive = client.send_more()
        else:
            self._clients[client.fileno()] = self._clients.pop(client.fileno())
            alive = client.receive()
        if self.ending:
            return
        if alive:
            self._epoll.modify(client, select.EPOLLOUT if client.has_unsent else select.EPOLLIN)
        else:
            self._drop(client)

    def _drop(self, client: Client) -> None:
        self._epoll.unregister(client)
        del self._clients[client.fileno()]
        client.close()

    def close(self) -> None:
        """Nobody comes any more, and who has asked gets the answer."""
        self._socket.close()
        remove_socket(self._directory_fd, self._name)
        for client in self._clients.values():
            client.finish(0.5)
            client.close()
        signal.set_wakeup_fd(-1)
        for item in (self._wake, self._wake_writer):
            item.close()
