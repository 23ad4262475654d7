"""Sending real datagrams between NICs of a live lab and seeing which arrive.

Both ends' sockets are opened by this process, each in its host's namespace, so a probe is known to have
arrived without any daemon in the host, and one that was lost is known by name.
"""

from __future__ import annotations

import os
import resource
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from testbed.drivers.nodes import syscalls
from testbed.drivers.nodes.namespaces import enter_namespace
from testbed.names import namespace_name
from testbed.plan.operations import PortPlan

IP_HEADERS_BYTES = 28
"""IPv4 and UDP headers."""

_TOKEN = struct.Struct("!16sI")
ROUND_TIMEOUT_S = 1.5
ROUNDS = 2
BURST = 256
BURST_TIMEOUT_S = 0.3
IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2
SO_RCVBUFFORCE = 33
RECEIVE_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One datagram from `source` to `target`, `size_bytes` long at the IP layer, on its own source port if `entropy`.

    `entropy` chooses among the source sockets of the sender, and with it the path.
    """

    source: PortPlan
    target: PortPlan
    size_bytes: int = 64
    entropy: int = 0


class Prober:
    """Sockets on NICs, opened once for several rounds of probes."""

    def __init__(self, lab: str, nics: Sequence[PortPlan], *, sockets_per_nic: int = 1) -> None:
        _raise_descriptor_limit()
        self._secret = os.urandom(16)
        self._number = 0
        self._sockets: dict[tuple[str, str], list[socket.socket]] = {}
        by_node: dict[str, list[PortPlan]] = {}
        for nic in nics:
            by_node.setdefault(nic.node, []).append(nic)

        def open_sockets() -> None:
            for node, ports in by_node.items():
                enter_namespace(namespace_name(lab, node))
                for port in ports:
                    self._sockets[port.node, port.name] = [_udp_socket(port) for _ in range(sockets_per_nic)]

        try:
            syscalls.in_thread(open_sockets)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for sockets in self._sockets.values():
            for item in sockets:
                item.close()

    def lost(self, probes: Sequence[Probe]) -> list[Probe]:
        """Send every probe; those that did not arrive, even when sent again, come back."""
        waiting = dict(enumerate(probes))
        poller = select.epoll()
        listeners: dict[int, socket.socket] = {}
        try:
            for key in {(probe.target.node, probe.target.name) for probe in probes}:
                receiver = self._sockets[key][0]
                listeners[receiver.fileno()] = receiver
                poller.register(receiver.fileno(), select.EPOLLIN)
            for _ in range(ROUNDS):
                self._send_all(poller, listeners, waiting)
                self._receive(poller, listeners, waiting, ROUND_TIMEOUT_S)
                if not waiting:
                    break
        finally:
            poller.close()
        return list(waiting.values())

    def round_trip_ns(self, probe: Probe, timeout_s: float) -> int | None:
        """The time of a datagram there and of the same one back; None where it is lost for `timeout_s`."""
        there = self._sockets[probe.source.node, probe.source.name]
        sender = there[probe.entropy % len(there)]
        receiver = self._sockets[probe.target.node, probe.target.name][0]
        self._number += 1
        payload = _TOKEN.pack(self._secret, self._number & 0xFFFFFFFF).ljust(probe.size_bytes - IP_HEADERS_BYTES, b"\0")
        start = time.monotonic_ns()
        deadline = start + int(timeout_s * 1e9)
        for origin, end in ((sender, receiver), (receiver, sender)):
            try:
                origin.sendto(payload, end.getsockname())
            except OSError:
                return None  # unreachable, or its port is behind
            if not _await(end, payload, deadline):
                return None
        return time.monotonic_ns() - start

    def _send_all(self, poller: select.epoll, listeners: dict[int, socket.socket], waiting: dict[int, Probe]) -> None:
        """Send what is waited for, no faster than it arrives: slow ports drop what overflows their queues."""
        queue = deque(waiting.items())
        while queue:
            sent = 0
            held: list[tuple[int, Probe]] = []
            for _ in range(min(BURST, len(queue))):
                index, probe = queue.popleft()
                if self._send(index, probe):
                    sent += 1
                else:
                    held.append((index, probe))
            queue.extend(held)
            before = len(waiting)
            self._receive(poller, listeners, waiting, BURST_TIMEOUT_S, until=before - sent // 2)
            if not sent and len(waiting) == before:
                return  # senders that stay full: what they hold counts as lost in this round

    def _send(self, index: int, probe: Probe) -> bool:
        """Whether it was taken: a sender whose port is behind takes no more (False)."""
        senders = self._sockets[probe.source.node, probe.source.name]
        assert probe.target.address is not None
        port = self._sockets[probe.target.node, probe.target.name][0].getsockname()[1]
        payload = _TOKEN.pack(self._secret, index).ljust(probe.size_bytes - IP_HEADERS_BYTES, b"\0")
        try:
            senders[probe.entropy % len(senders)].sendto(payload, (str(probe.target.address.ip), port))
        except BlockingIOError:
            return False
        except OSError:
            return True  # unreachable, too big for the path: it is lost, which is what we ask
        return True

    def _receive(
        self,
        poller: select.epoll,
        listeners: dict[int, socket.socket],
        waiting: dict[int, Probe],
        timeout_s: float,
        until: int = 0,
    ) -> None:
        """Take in what arrives; return when no more than `until` are waited for, or nothing came for `timeout_s`."""
        quiet_until = time.monotonic() + timeout_s
        while len(waiting) > until:
            ready = poller.poll(max(0.0, quiet_until - time.monotonic()))
            if not ready:
                return
            for fd, _ in ready:
                if self._take(listeners[fd], waiting):
                    quiet_until = time.monotonic() + timeout_s

    def _take(self, receiver: socket.socket, waiting: dict[int, Probe]) -> bool:
        any_ours = False
        while True:
            try:
                data = receiver.recv(65535)
            except BlockingIOError:
                return any_ours
            except OSError:
                continue  # an ICMP error of a probe we sent from this socket
            if len(data) >= _TOKEN.size:
                secret, index = _TOKEN.unpack_from(data)
                if secret == self._secret:
                    any_ours |= waiting.pop(index, None) is not None


def _await(item: socket.socket, payload: bytes, deadline_ns: int) -> bool:
    """Whether exactly this datagram arrives in time; others, late ones of before, are passed over."""
    waiting = select.poll()
    waiting.register(item.fileno(), select.POLLIN)
    while True:
        try:
            if item.recv(65535) == payload:
                return True
            continue
        except BlockingIOError:
            pass
        except OSError:
            continue  # an ICMP error of an earlier probe
        left_ns = deadline_ns - time.monotonic_ns()
        if left_ns <= 0 or not waiting.poll(left_ns / 1e6):
            return False


def _udp_socket(port: PortPlan) -> socket.socket:
    assert port.address is not None
    item = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    item.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
    item.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
    item.bind((str(port.address.ip), 0))
    return item


def _raise_descriptor_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def nic_text(port: PortPlan) -> str:
    return f"{port.node}:{port.name}"


def pairs_text(probes: Iterable[Probe]) -> list[str]:
    """Distinct `a -> b` of probes, in order."""
    return list(dict.fromkeys(f"{nic_text(p.source)} -> {nic_text(p.target)}" for p in probes))
