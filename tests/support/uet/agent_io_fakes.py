"""Addresses of this test run alone, a fake endpoint, and a socket whose sends fail by script."""

import itertools
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest

from testbed.base.linux import socket_options as options
from testbed.protocols.datagram import Incoming, Outgoing, Priority

_numbers = itertools.count(1)
EV = 50_000


def own_address() -> str:
    """A loopback address that no other test and no other run of them uses at the same time."""
    pid = os.getpid()
    return f"127.{pid >> 8 & 127 | 64}.{pid & 255}.{next(_numbers) % 250 + 1}"


def free_port(address: str) -> int:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as item:
        item.bind((address, 0))
        return int(item.getsockname()[1])


def datagram(
    remote: str, number: int = 0, size: int = 1000, entropy: int = EV, priority: Priority = Priority.DATA
) -> Outgoing:
    """`size` bytes, of which the first four are `number`."""
    content = number.to_bytes(4) + bytes(number % 251 for _ in range(size - 4))
    return Outgoing(remote, entropy, priority, content[:12], memoryview(content)[12:])


def forbid_raw_sockets(patch: pytest.MonkeyPatch) -> None:
    """Have sending fall back on UDP sockets, as where CAP_NET_RAW is missing."""
    open_socket = options.open_socket

    def open_other(address: str, kind: int, protocol: int = socket.IPPROTO_UDP) -> socket.socket:
        if protocol == socket.IPPROTO_RAW:
            raise PermissionError
        return open_socket(address, kind, protocol)

    patch.setattr(options, "open_socket", open_other)


class FakeEndpoint:
    """Sends what is in `outbox`, keeps copies of what arrives, has the timer it is told."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.address = address
        self.outbox: list[Outgoing] = []
        self.inbox: list[Incoming] = []
        self.received_at: list[int] = []
        self.timer: int | None = None
        self.fired: list[int] = []
        self.pulls = 0
        self.timer_asked = 0
        self.on_receive: Callable[[Incoming], None] = lambda item: None

    @property
    def urgent(self) -> int:
        return sum(item.priority is Priority.CONTROL for item in self.outbox)

    def receive(self, datagrams: Sequence[Incoming], now: int) -> None:
        for item in datagrams:
            self.inbox.append(item._replace(data=bytes(item.data)))
            self.received_at.append(now)
            self.on_receive(self.inbox[-1])

    def transmit(self, now: int, limit: int = 64) -> list[Outgoing]:
        self.pulls += 1
        chosen, self.outbox = self.outbox[:limit], self.outbox[limit:]
        return chosen

    def next_timer(self) -> int | None:
        self.timer_asked += 1
        return self.timer

    def handle_timer(self, now: int) -> None:
        self.fired.append(now)
        self.timer = None


class ScriptedSocket(socket.socket):
    """A UDP socket whose next sends fail with the errno values in `script`; 0 lets one pass."""

    script: ClassVar[list[int]] = []

    def sendmsg(self, *arguments: Any) -> int:
        if self.script and (reason := self.script.pop(0)):
            raise OSError(reason, os.strerror(reason))
        return super().sendmsg(*arguments)
