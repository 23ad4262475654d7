"""The exchange over TCP: what the two sides tell each other before, between and after measurements.

One JSON object a line. Each side says `hello` with its version, tool, options, address and what its endpoint says of
itself (numbers of queue pairs, keys of memory); then the client begins and ends each size. Whoever gives up says
`error` first.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections import deque
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, TypeVar

from testbed.endpoints.gpus.gpu_agent import GpuLoop
from testbed.endpoints.loop import Loop
from testbed.endpoints.perftest.errors import MismatchError, PeerGoneError, PerftestError
from testbed.endpoints.perftest.json_results import identify_file
from testbed.endpoints.perftest.options import Options

VERSION = 2
LOOPBACK = "127.0.0.1"
_LONGEST_LINE = 1 << 16
_CONNECT_PAUSE_S = 0.05
_REFUSED_PATIENCE_NS = 1_000_000_000
"""For a server that is being started at the same time."""
_IP_MTU = 14
_IPV6_MTU = 24
"""Options that Python has no names for (ip(7), ipv6(7))."""
_IPV4_BYTES, _IPV6_BYTES = 20, 40
_Told = TypeVar("_Told")


def source_address(host: str, port: int) -> tuple[str, str]:
    """(the address of this host that routes to `host`, the address of `host`).

    On a host that is its own peer the two differ: 127.0.0.1 and 127.0.0.2. Raises `PerftestError`.
    """
    try:
        family, _, _, _, name = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as item:
            item.connect(name)
            own, peer = str(item.getsockname()[0]), str(name[0])
    except OSError as error:
        raise PerftestError(f"no way to {host}: {error.strerror or error}") from None
    if own == peer:
        address = ip_address(own)
        if not address.is_loopback or address.version != 4:
            raise PerftestError(f"{host} is this host: give an address of its own to this side (-i)")
        own = str(address + 1)
    return own, peer


class ToolConnection:
    """A TCP connection to the other side. Messages that have arrived wait in `messages`."""

    def __init__(self, item: socket.socket) -> None:
        item.setblocking(False)
        item.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = item
        self._loop: Loop | GpuLoop | None = None
        self._unread = b""
        self._ended = False
        self.messages: deque[dict[str, Any]] = deque()

    # --- set-up ------------------------------------------------------------------------------------------

    @staticmethod
    def connect(host: str, port: int, source: str, timeout_ns: int) -> ToolConnection:
        """Connect to the server; one that starts a little later is waited for. Raises `PerftestError`."""
        end = time.monotonic_ns() + min(_REFUSED_PATIENCE_NS, timeout_ns)
        while True:
            try:
                return ToolConnection(socket.create_connection((host, port), timeout_ns / 1e9, (source, 0)))
            except ConnectionRefusedError:
                if time.monotonic_ns() >= end:
                    raise PeerGoneError(f"nobody listens at {host} port {port}: start the server first") from None
                time.sleep(_CONNECT_PAUSE_S)
            except OSError as error:
                raise PeerGoneError(f"{host} port {port} cannot be reached: {error.strerror or error}") from None

    @staticmethod
    def listen(address: str, port: int) -> socket.socket:
        """A listening socket. Raises `PerftestError`."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        item = socket.socket(family, socket.SOCK_STREAM)
        try:
            item.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            item.bind((address, port))
            item.listen(1)
        except OSError as error:
            item.close()
            raise PerftestError(f"cannot listen at {address} port {port}: {error.strerror or error}") from None
        return item

    @property
    def local_address(self) -> str:
        return str(self._socket.getsockname()[0])

    @property
    def peer_address(self) -> str:
        return str(self._socket.getpeername()[0])

    @property
    def link_mtu(self) -> tuple[int, int]:
        """(the MTU of the way to the other side as far as this host knows it, bytes that the IP header takes of it)."""
        if self._socket.family == socket.AF_INET6:
            return self._socket.getsockopt(socket.IPPROTO_IPV6, _IPV6_MTU), _IPV6_BYTES
        return self._socket.getsockopt(socket.IPPROTO_IP, _IP_MTU), _IPV4_BYTES

    def watch(self, loop: Loop | GpuLoop) -> None:
        """Take messages as they come while `loop` runs."""
        self._loop = loop
        loop.watch(self._socket.fileno(), self._readable)

    def close(self) -> None:
        self._stop_watching()
        self._socket.close()

    def _stop_watching(self) -> None:
        if self._loop is not None:
            self._loop.unwatch(self._socket.fileno())
            self._loop = None

    # --- messages ----------------------------------------------------------------------------------------

    def send(self, message: dict[str, Any]) -> None:
        """Raises `PeerGoneError`. Messages are far shorter than a socket buffer: sending does not wait."""
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise PeerGoneError(f"the other side has gone: {error.strerror or error}") from None

    def give_up(self, reason: str) -> None:
        """Tell the other side why, if it still listens."""
        with contextlib.suppress(PeerGoneError):
            self.send({"error": reason})

    def _readable(self, events: int) -> None:
        try:
            data = self._socket.recv(_LONGEST_LINE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end()
            return
        self._unread += data
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            try:
                message = json.loads(line)
            except ValueError:
                message = None
            if not isinstance(message, dict):
                self._end()
                return
            self.messages.append(message)
        if len(self._unread) > _LONGEST_LINE:
            self._end()

    def _end(self) -> None:
        self._ended = True
        self._stop_watching()

    @property
    def stirred(self) -> bool:
        """A message has come, or the other side has gone."""
        return bool(self.messages) or self._ended

    @property
    def failed(self) -> bool:
        """The other side has gone, or is about to."""
        return "error" in self.messages[0] if self.messages else self._ended

    def take(self, name: str) -> dict[str, Any]:
        """The next message, which must have `name`. Raises `PeerGoneError` if it is another or the other side went."""
        if not self.messages:
            raise PeerGoneError("the other side has gone, or is no tool of this kind")
        message = self.messages.popleft()
        if "error" in message:
            raise PeerGoneError(f"the other side says: {message['error']}")
        if name not in message:
            raise PeerGoneError(f"the other side does not say {name!r} but {sorted(message)}")
        return message


def hello(options: Options, address: str, introduction: Mapping[str, Any]) -> dict[str, Any]:
    """Return what one side says first. `introduction`: what its endpoint says of itself."""
    return {
        "hello": options.tool.name,
        "version": VERSION,
        "options": options.compared(),
        "address": address,
        "endpoint": dict(introduction),
        "json_file": identify_file(options.json_file),
    }


def check_hello(message: dict[str, Any], options: Options) -> None:
    """Raises `MismatchError` if the other side was not started as this one."""
    if message.get("version") != VERSION:
        raise MismatchError(f"version {message.get('version')} of the exchange there, {VERSION} here")
    if message["hello"] != options.tool.name:
        raise MismatchError(f"the two sides differ: {options.tool.name} here, {message['hello']} there")
    theirs = message.get("options")
    for name, value in options.compared().items():
        other = theirs.get(name) if isinstance(theirs, dict) else None
        if other == value:
            continue
        if name == "--tss":
            raise MismatchError("the two sides differ in --tss: one has no key, or another")
        raise MismatchError(f"the two sides differ in {name}: {value!r} here, {other!r} there")
    told(message, "address", str)
    told(message, "endpoint", dict)


def told(message: Mapping[str, Any], name: str, kind: type[_Told]) -> _Told:
    """Return what the other side says of `name`. Raises `MismatchError` where it says nothing, or something else."""
    value = message.get(name)
    if not isinstance(value, kind):
        raise MismatchError(f"the other side's hello lacks {name}")
    return value
