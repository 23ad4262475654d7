"""Datagrams between NICs of a live lab: the sockets, inside the nodes, and which packet arrived where and when.

All sockets are this process's, each opened in the namespace of its node, so that a probe leaves and arrives as any
packet of that node does, and no node needs a further process. What a caller sends when, and what it makes of what
arrives, is its own: `lab.core.deploy.watch.probe` asks what is lost and how long a round trip takes,
`run.probes.traffic` sends beside the traffic of a run.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv6Address
from pathlib import Path
from typing import NamedTuple

from testbed.base.cleanup import on_failure
from testbed.base.errors import DriverError
from testbed.base.linux import syscalls
from testbed.base.linux.namespaces import enter_namespace
from testbed.base.linux.rtnetlink import link_local_address
from testbed.base.linux.socket_options import (
    IP_MTU_DISCOVER,
    IPV6_MTU_DISCOVER,
    PMTUDISC_PROBE,
    set_receive_buffer,
    set_tos,
)
from testbed.base.names import namespace_name
from testbed.lab.core.drivers.nodes.probe_packet import (
    KEY_BYTES,
    PAYLOAD_BYTES,
    ProbeNumber,
    decode_probe,
    encode_probe,
)
from testbed.lab.core.plan.lab_plan import PortPlan

RECEIVE_BUFFER_BYTES = 1 << 20
MOST_AT_ONCE = 4096
"""Datagrams taken from a socket before others have their turn, whoever floods it."""
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@qq")
_CONTROL_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)
_SPARE_DESCRIPTORS = 256
_ECHO6_REQUEST = 128
_NO_SUCH_ADDRESS = {errno.EADDRNOTAVAIL, errno.ENODEV}
"""The errors of bind(2) for an address that is not there, and for one of a link that is not."""
_LONGEST = 256
"""The bytes of a datagram that are looked at: the rest of a long probe is padding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeEnd:
    """A socket on a NIC's address. `port` 0: the kernel chooses one, another for each `copy`."""

    node: str
    interface: str
    address: str
    port: int = 0
    copy: int = 0
    scope: int = 0
    """The interface index of a link-local address."""
    tos: int | None = None
    """The former type of service in the IP header of what it sends; None: that of its prober."""

    @classmethod
    def on(cls, nic: PortPlan, port: int = 0, *, copy: int = 0, ipv6: bool = False, tos: int | None = None) -> ProbeEnd:
        """The end on a NIC that has an address, of IPv4 unless told else."""
        address = nic.address6 if ipv6 else nic.address
        assert address is not None, "probes go between NICs that have addresses"
        return cls(node=nic.node, interface=nic.name, address=str(address.ip), port=port, copy=copy, tos=tos)

    @classmethod
    def on_link(cls, port: PortPlan) -> ProbeEnd:
        """The end at a port of an unnumbered link, on its link-local address: it reaches its peer and nobody else."""
        address = IPv6Address(link_local_address(port.mac))
        return cls(node=port.node, interface=port.name, address=str(address), scope=port.ifindex)

    @property
    def ipv6(self) -> bool:
        return ":" in self.address


class Sent(Enum):
    """The fate of a datagram that was to be sent."""

    TAKEN = "taken"
    FULL = "full"
    """The port is behind and takes no more at present."""
    REFUSED = "refused"
    """Unreachable, or too large for the path: it is lost."""


class Arrival(NamedTuple):
    """A datagram that arrived at `end`. `number` is None for what is no probe of this prober; times are
    CLOCK_MONOTONIC."""

    number: ProbeNumber | None
    at_ns: int
    end: ProbeEnd


class UdpProber:
    """Sockets on NICs of one lab, and a key that is in their packets alone. Not for several threads at once."""

    def __init__(
        self, lab: str, ends: Iterable[ProbeEnd], *, tos: int = 0, timestamps: bool = False, may_be_absent: bool = False
    ) -> None:
        """Open the sockets. `tos` is the IP header's former type of service of what they send (RFC 2474, RFC 3168).

        With `timestamps` the kernel says when a packet arrived; else that is when it was looked for. Raises
        `DriverError` where a socket cannot be had; then none stays open. With `may_be_absent` that a node does not have
        the address of an end is no error: the end is in `absent`, and what is sent from or to it is refused.
        """
        self.absent: set[ProbeEnd] = set()
        """The ends whose address their node does not have: a port that is down loses its addresses of IPv6."""
        self._may_be_absent = may_be_absent
        self._lab = lab
        self._tos = tos
        self._timestamps = timestamps
        self._key = os.urandom(KEY_BYTES)
        self._sockets: dict[ProbeEnd, socket.socket] = {}
        self._addresses: dict[ProbeEnd, tuple[str, int]] = {}
        """Address and port of each end: of IPv6 the first two of Python's four values."""
        self._listening: dict[int, ProbeEnd] = {}
        self._at = ""
        """The end that is being opened, for a message."""
        self._clock_offset_ns = 0
        """By how much CLOCK_REALTIME, by which the kernel stamps, is ahead of CLOCK_MONOTONIC."""
        wanted = list(dict.fromkeys(ends))
        make_room(len(wanted))
        self._epoll = select.epoll()
        try:
            with on_failure(self.close):
                syscalls.in_thread(lambda: self._open_all(wanted))
        except OSError as error:
            message = f"cannot open a socket for probes{self._at}: {error.strerror}"
            raise DriverError(message, operation="probe", errno=error.errno or 0) from error
        self.set_clock()

    def _open_all(self, ends: Sequence[ProbeEnd]) -> None:
        by_node: dict[str, list[ProbeEnd]] = {}
        for end in ends:
            by_node.setdefault(end.node, []).append(end)
        for node, here in by_node.items():
            enter_namespace(namespace_name(self._lab, node))
            for end in here:
                self._at = f" on {end.address} of {end.node}:{end.interface}"
                item = self._sockets[end] = socket.socket(
                    socket.AF_INET6 if end.ipv6 else socket.AF_INET,
                    socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC,
                )
                if end.ipv6:
                    item.setsockopt(socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, PMTUDISC_PROBE)
                else:
                    item.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, PMTUDISC_PROBE)
                set_receive_buffer(item, RECEIVE_BUFFER_BYTES)
                set_tos(item, self._tos if end.tos is None else end.tos)
                if self._timestamps:
                    item.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
                try:
                    item.bind((end.address, end.port, 0, end.scope) if end.ipv6 else (end.address, end.port))
                except OSError as error:
                    if not self._may_be_absent or error.errno not in _NO_SUCH_ADDRESS:
                        raise
                    self.absent.add(end)
                self._addresses[end] = item.getsockname()[:2]

    def close(self) -> None:
        """Close all sockets. Once is enough."""
        for item in self._sockets.values():
            item.close()
        self._epoll.close()

    def set_clock(self) -> None:
        """Read anew how the kernel's stamps and CLOCK_MONOTONIC stand to each other."""
        self._clock_offset_ns = time.time_ns() - time.monotonic_ns()

    # --- sending -----------------------------------------------------------------------------------------

    def send(self, source: ProbeEnd, target: ProbeEnd, number: ProbeNumber, payload_bytes: int = PAYLOAD_BYTES) -> Sent:
        """Send the probe `number`, padded to `payload_bytes`, now or not at all."""
        if self.absent and not self.absent.isdisjoint((source, target)):
            return Sent.REFUSED
        payload = encode_probe(self._key, number).ljust(payload_bytes, b"\0")
        try:
            self._sockets[source].sendto(payload, self._addresses[target])
        except BlockingIOError:
            return Sent.FULL
        except OSError:
            return Sent.REFUSED
        return Sent.TAKEN

    # --- receiving ---------------------------------------------------------------------------------------

    def listen(self, ends: Iterable[ProbeEnd]) -> None:
        """Have `arrivals` tell of what comes to these ends, and to no others."""
        for descriptor in self._listening:
            self._epoll.unregister(descriptor)
        self._listening = {self._sockets[end].fileno(): end for end in ends}
        for descriptor in self._listening:
            self._epoll.register(descriptor, select.EPOLLIN)

    def arrivals(self, timeout_s: float = 0.0) -> list[Arrival]:
        """Return what is there, at each end in the order in which it came; waits up to `timeout_s` where nothing is."""
        found: list[Arrival] = []
        for descriptor, _ in self._epoll.poll(timeout_s):
            found.extend(self._taken(self._listening[descriptor]))
        return found

    def await_arrival(self, end: ProbeEnd, number: ProbeNumber, deadline_ns: int) -> bool:
        """Tell whether this probe arrives at `end` until `deadline_ns`; late ones of before are passed over."""
        waiting = select.poll()
        waiting.register(self._sockets[end].fileno(), select.POLLIN)
        while True:
            if any(arrival.number == number for arrival in self._taken(end)):
                return True
            left_ns = deadline_ns - time.monotonic_ns()
            if left_ns <= 0 or not waiting.poll(left_ns / 1e6):
                return False

    def _taken(self, end: ProbeEnd) -> Iterator[Arrival]:
        item = self._sockets[end]
        for _ in range(MOST_AT_ONCE):
            try:
                if self._timestamps:
                    payload, control, _, _ = item.recvmsg(_LONGEST, _CONTROL_BYTES)
                else:
                    payload, control = item.recv(_LONGEST), []
            except BlockingIOError:
                return
            except OSError:
                continue  # an ICMP error of a probe that was sent from this socket
            yield Arrival(decode_probe(self._key, payload[:PAYLOAD_BYTES]), self._stamp_ns(control), end)

    def _stamp_ns(self, control: Sequence[tuple[int, int, bytes]]) -> int:
        """Return when the kernel had it; now, where it does not say."""
        for level, kind, data in control:
            if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS) and len(data) == _TIMESPEC.size:
                seconds, nanoseconds = _TIMESPEC.unpack(data)
                stamp: int = seconds * 1_000_000_000 + nanoseconds
                return stamp - self._clock_offset_ns
        return time.monotonic_ns()


def send_echo_request(source: str, target: str) -> None:
    """Send an echo request of ICMPv6 (RFC 4443, section 4.1) from an address of the calling thread's namespace.

    It may be lost, and nobody waits for the answer. The kernel adds the checksum.
    """
    kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
    with socket.socket(socket.AF_INET6, kind, socket.IPPROTO_ICMPV6) as item, suppress(OSError):
        item.bind((source, 0))
        item.sendto(struct.pack("!BBHHH", _ECHO6_REQUEST, 0, 0, 0, 0), (target, 0))


def make_room(sockets: int) -> None:
    """Let this process have so many more descriptors: a large lab's are more than processes may usually have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if (
        soft != resource.RLIM_INFINITY
        and soft < len(list(Path("/proc/self/fd").iterdir())) + sockets + _SPARE_DESCRIPTORS
    ):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
