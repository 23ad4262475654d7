"""The process: it hears the kernel and the other machines, and sets the stubs of cut links up and down."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Iterator

from testbed.base.cleanup import on_failure
from testbed.base.linux import rtnetlink
from testbed.base.linux.namespaces import enter_namespace
from testbed.base.linux.rtnetlink import RouteSocket
from testbed.daemons.kit import configuration
from testbed.daemons.kit.events import EventLog
from testbed.daemons.wires.beats import BEAT_S, LARGEST_BYTES, Beats, Hearing
from testbed.daemons.wires.configuration import WiredLink, WiresConfiguration, WiresStatus

_HEARD_AT_ONCE = 256
"""Messages that are read before this machine's own is due again: a flood of them must not make it silent."""


class _Ports:
    """The ports of cut links in one namespace, and which of them are down."""

    def __init__(self, links: list[WiredLink]) -> None:
        """Opened in the namespace of the calling thread."""
        self.links = {link.ifindex: link for link in links}
        self.socket = RouteSocket(groups=(rtnetlink.RTNLGRP_LINK,))
        self._query = RouteSocket()
        self.down: set[int] = set(self.links)
        self.read()

    def read(self) -> None:
        """Ask the kernel for all of them. One that is not there is down."""
        found = self._query.dump(rtnetlink.RTM_GETLINK, rtnetlink.IFINFOMSG.pack(0, 0, 0, 0, 0))
        up = {ifindex for ifindex, flags in map(_flags, found) if flags & rtnetlink.IFF_UP}
        self.down = set(self.links) - up

    def drain(self) -> None:
        """Take what the kernel has told."""
        with contextlib.suppress(BlockingIOError):
            while True:
                for kind, _, _, body in rtnetlink.messages(self.socket.receive_now()):
                    if kind not in (rtnetlink.RTM_NEWLINK, rtnetlink.RTM_DELLINK):
                        continue
                    ifindex, flags = _flags(body)
                    if ifindex not in self.links:
                        continue
                    if kind == rtnetlink.RTM_NEWLINK and flags & rtnetlink.IFF_UP:
                        self.down.discard(ifindex)
                    else:
                        self.down.add(ifindex)


def _flags(body: memoryview) -> tuple[int, int]:
    _, _, ifindex, flags, _ = rtnetlink.IFINFOMSG.unpack_from(body)
    return ifindex, flags


class Wires:
    """Keeps the carrier of cut links. Lives in the network namespace of the stubs once it was made."""

    def __init__(self, told: WiresConfiguration, beats: socket.socket) -> None:
        """`beats` is a socket of the machine's own namespace. Raises `DriverError`, `OSError`."""
        self._told = told
        self._socket = beats
        self._events = EventLog(told.events, told.lab)
        others = [machine.name for machine in told.machines]
        self._beats = Beats(told.machine, told.key.read_bytes(), others, time.time_ns())
        self._targets = [(machine.address, told.port) for machine in told.machines]
        self._epoll = select.epoll()
        self._epoll.register(beats, select.EPOLLIN)
        self._ports: dict[int, _Ports] = {}
        by_namespace: dict[str, list[WiredLink]] = {}
        for link in told.links:
            by_namespace.setdefault(link.namespace, []).append(link)
        for namespace, links in by_namespace.items():
            enter_namespace(namespace)
            ports = _Ports(links)
            self._ports[ports.socket.fileno()] = ports
            self._epoll.register(ports.socket, select.EPOLLIN)
        enter_namespace(told.namespace)
        self._stubs = RouteSocket()
        self._up: dict[int, bool] = {}
        self._tell_status()

    def run(self) -> None:
        """Work until this process is ended."""
        due = time.monotonic()
        while True:
            news = False
            for descriptor, _ in self._epoll.poll(max(0.0, due - time.monotonic())):
                if descriptor == self._socket.fileno():
                    news = self._hear()
                elif self._note(self._ports[descriptor]):
                    due = 0.0  # the others are told at once
            now = time.monotonic()
            if news or now >= due:
                self._look(now)
            if now >= due:
                self._beat()
                due = now + BEAT_S

    def _hear(self) -> bool:
        """Take the messages that wait, a number of them at once; tell whether one of them says anything new."""
        news = False
        with contextlib.suppress(BlockingIOError):
            for _ in range(_HEARD_AT_ONCE):
                news |= self._beats.hear(self._socket.recv(LARGEST_BYTES + 1), time.monotonic())
        return news

    def _note(self, ports: _Ports) -> bool:
        before = set(ports.down)
        try:
            ports.drain()
        except OSError:  # ENOBUFS: some of it was lost
            ports.read()
        return ports.down != before

    def _beat(self) -> None:
        down = [ports.links[index].number for ports in self._ports.values() for index in ports.down]
        message = self._beats.beat(down)
        for target in self._targets:
            with contextlib.suppress(OSError):  # a machine that is not reached says nothing, and is lost
                self._socket.sendto(message, target)

    def _look(self, now: float) -> None:
        """Set the stubs to what the others say, and tell of what has changed."""
        news = self._beats.look(now)
        for name, heard in news:
            subject = f"{self._told.machine} to {name}"
            self._events.write(heard, subject=subject, detail="" if heard is Hearing.HEARD else "its links are down")
        changed = list(self._changed())
        if changed:
            self._stubs.submit([rtnetlink.set_link_state(link.stub, up) for link, up in changed])
            self._up |= {link.stub: up for link, up in changed}
        if changed or news:
            self._tell_status()

    def _changed(self) -> Iterator[tuple[WiredLink, bool]]:
        for link in self._told.links:
            up = self._beats.carries(link.machine, link.number)
            if self._up.get(link.stub) is not up:
                yield link, up

    def _tell_status(self) -> None:
        heard = set(self._beats.heard)
        status = WiresStatus(
            heard=tuple(sorted(heard)),
            silent=tuple(machine.name for machine in self._told.machines if machine.name not in heard),
            down=tuple(link.port for link in self._told.links if not self._up.get(link.stub)),
        )
        with contextlib.suppress(OSError):
            configuration.write(self._told.status, status)


def open_beats(told: WiresConfiguration) -> socket.socket:
    """Return the socket that machines hear each other by, at this one's address on the underlay. Raises `OSError`."""
    item = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    with on_failure(item.close):
        item.bind((told.address, told.port))
    return item
