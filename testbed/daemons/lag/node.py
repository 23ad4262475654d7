"""The loop of a node with link groups over its sockets and timers, and its status for others to read."""

from __future__ import annotations

import dataclasses
import json
import os
import select
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from testbed.base.linux.processes import has_ended
from testbed.daemons.kit import configuration
from testbed.daemons.kit.process import hear_signal
from testbed.daemons.lag.configuration import NodeConfiguration
from testbed.daemons.lag.kernel import Kernel
from testbed.daemons.lag.ports import GroupPorts
from testbed.protocols.lacp.lacp import MemberStatus
from testbed.protocols.lacp.pair import PairStatus

_FOREVER = float("inf")
_MANY = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """A link group at a node: its name (a host's NIC, or at a leaf the host) and its members there.

    `seed` is what the hash begins with by which a host chooses a member; 0 at a leaf, and where the kernel chooses.
    """

    name: str
    members: tuple[MemberStatus, ...]
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LagNodeStatus:
    """The state of the link groups of a node. `pair` is None at a host, and `pid`, the process that serves them, 0
    where the kernel does."""

    node: str
    groups: tuple[GroupStatus, ...]
    pair: PairStatus | None = None
    pid: int = 0

    @property
    def is_served(self) -> bool:
        """Tell whether what serves these link groups is still there: the status of a process outlives it."""
        return not self.pid or not has_ended(self.pid)


def read_status(directory: Path, node: str) -> LagNodeStatus | None:
    """The status that a node has written; None where it has not yet."""
    try:
        return configuration.read(directory / f"{node}.json", LagNodeStatus)
    except FileNotFoundError:
        return None


class GroupNode(ABC):
    """A node with link groups, in its network namespace."""

    def __init__(self, node: str, directory: Path, kernel: Kernel, ports: GroupPorts) -> None:
        self.node = node
        self.kernel = kernel
        self.ports = ports
        self._directory = directory
        self._epoll = select.epoll()
        self._sockets = ports.descriptors()
        for descriptor in (kernel.fileno(), *self._sockets):
            self._epoll.register(descriptor, select.EPOLLIN)
        self._written: LagNodeStatus | None = None
        self._hangups = -1
        self._reread: Callable[[], NodeConfiguration | None] = lambda: None

    def add_ports(self, ports: GroupPorts) -> None:
        """Hear LACP at these ports, too."""
        self.ports.take(ports)
        for descriptor, ifindex in ports.descriptors().items():
            self._epoll.register(descriptor, select.EPOLLIN)
            self._sockets[descriptor] = ifindex

    def drop_port(self, ifindex: int) -> None:
        """Hear nothing at a port any more. A descriptor that is closed is not waited for."""
        del self._sockets[self.ports.drop(ifindex)]

    def listen(self, descriptor: int) -> None:
        """Wake up for another descriptor, too, and hand it to `readable`."""
        self._epoll.register(descriptor, select.EPOLLIN)

    @abstractmethod
    def arrived(self, ifindex: int, payload: bytes, now: float) -> None:
        """Take a frame of LACP."""

    @abstractmethod
    def changed(self, now: float) -> None:
        """Take the changes that the kernel tells."""

    def readable(self, descriptor: int, now: float) -> None:
        """Take what another descriptor has. Raises `LookupError` for one that was not asked for."""
        raise LookupError(descriptor)

    @abstractmethod
    def become(self, configuration: NodeConfiguration, now: float) -> None:
        """Serve what a changed configuration of the node says; what it says as before keeps its state.

        Raises `ValueError` for what only a new process can serve.
        """

    @abstractmethod
    def act(self, now: float) -> float:
        """Send what is to be sent and set what follows; when to act again."""

    @abstractmethod
    def status(self, now: float) -> LagNodeStatus:
        """Return the state of the node."""

    def start(self) -> None:
        """Act once on what is there: from here on others see a status."""
        self.step(0.0)

    def run(self, reread: Callable[[], NodeConfiguration | None]) -> None:
        """Work until this process is ended. At SIGHUP the configuration is read again."""
        self._hangups = hear_signal(signal.SIGHUP)
        self._epoll.register(self._hangups, select.EPOLLIN)
        self._reread = reread
        due = 0.0
        while True:
            due = self.step(due)

    def _hung_up(self, now: float) -> None:
        os.read(self._hangups, _MANY)
        if (changed := self._reread()) is not None:
            self.become(changed, now)

    def step(self, due: float) -> float:
        """Wait for something to happen, until `due`, and act on it."""
        wait_s = max(0.0, due - time.monotonic())
        events = self._epoll.poll(None if wait_s == _FOREVER else wait_s)
        now = time.monotonic()
        for descriptor, _ in events:
            if descriptor == self.kernel.fileno():
                self.changed(now)
            elif descriptor == self._hangups:
                self._hung_up(now)
            elif (ifindex := self._sockets.get(descriptor)) is not None:
                for payload in self.ports.received(ifindex):
                    self.arrived(ifindex, payload, now)
            else:
                self.readable(descriptor, now)
        due = self.act(now)
        self._tell(now)
        return due

    def _tell(self, now: float) -> None:
        status = dataclasses.replace(self.status(now), pid=os.getpid())
        if status != self._written:
            self._written = status
            configuration.write(self._directory / f"{self.node}.json", status)
            with (self._directory / f"{self.node}.log").open("a") as log:
                log.write(json.dumps({"at": time.time(), **dataclasses.asdict(status)}) + "\n")
