"""The agent's hands: PFC frames out of ports, gates of egress queues, and the kick that makes an opened queue run.

Sockets live in the namespace of the port and are made when it first pauses, because most ports never do and because
a packet socket takes an RCU grace period to go. A gate change is one netlink message, encoded once; the kernel has
done it when `send` returns and answers only if it failed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Callable, Iterator, Mapping

from testbed.drivers import syscalls
from testbed.drivers.rtnetlink import NLM_F_ACK, NLMSG_ERROR, mac_bytes, messages
from testbed.drivers.traffic import change_gate
from testbed.portd.attachment import PortAttachment
from testbed.portd.core import CloseGate, OpenGate, SendPause
from testbed.portd.pfc import FRAME_BYTES, encode_pfc, priorities_of

SOL_PACKET, PACKET_QDISC_BYPASS = 263, 20
KICK_ADDRESS = bytes.fromhex("0180c200000e")
"""Never forwarded by a bridge; the LLDP group address."""
KICK_ETHERTYPE = 0x88B5
"""Local experimental EtherType 1 (IEEE 802); `port_enqueue` drops it, and the qdisc runs all the same."""

_FLAGS_OFFSET, _SEQUENCE_OFFSET = 6, 8
_U16 = struct.Struct("=H")
_U32 = struct.Struct("=I")


@contextlib.contextmanager
def inside(path: str) -> Iterator[None]:
    """The calling thread works in the network namespace at `path` for a while. Raises `OSError`."""
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        target = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            syscalls.setns(target, syscalls.CLONE_NEWNET)
        finally:
            os.close(target)
        try:
            yield
        finally:
            syscalls.setns(own, syscalls.CLONE_NEWNET)
    finally:
        os.close(own)


def kick_frame(mac: str) -> bytes:
    return (KICK_ADDRESS + mac_bytes(mac) + KICK_ETHERTYPE.to_bytes(2, "big")).ljust(FRAME_BYTES, b"\0")


class NamespaceSockets:
    """One socket each for frames that pass the queue by, for kicks through it, and for netlink."""

    def __init__(self, path: str) -> None:
        with contextlib.ExitStack() as stack, inside(path):
            self.frames = stack.enter_context(_packet_socket())
            self.frames.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
            self.kicks = stack.enter_context(_packet_socket())
            self.netlink = stack.enter_context(
                socket.socket(
                    socket.AF_NETLINK,
                    socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK,
                    socket.NETLINK_ROUTE,
                )
            )
            self.netlink.bind((0, 0))
            stack.pop_all()

    def close(self) -> None:
        self.frames.close()
        self.kicks.close()
        self.netlink.close()


def _packet_socket() -> socket.socket:
    """Sends alone: protocol 0 receives nothing."""
    kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    return socket.socket(socket.AF_PACKET, kind, 0)


class Wire:
    """The ports of one lab. What fails is told to `failed` (port number, or 0; what; errno) and raises nothing."""

    def __init__(self, ports: Mapping[int, PortAttachment], failed: Callable[[int, str, int], None]) -> None:
        self._ports = ports
        self._failed = failed
        self._sockets: dict[str, NamespaceSockets] = {}
        self._gates: dict[tuple[int, int, bool], bytes] = {}
        self._kicks: dict[int, bytes] = {}

    def close(self) -> None:
        for sockets in self._sockets.values():
            sockets.close()
        self._sockets.clear()

    def send(self, action: SendPause) -> bool:
        port = self._ports[action.port]
        try:
            frame = encode_pfc(mac_bytes(port.mac), action.vector, action.quanta)
            self._of(port).frames.sendto(frame, (port.interface, 0))
        except OSError as error:
            self._failed(port.number, "send a PFC frame", error.errno or 0)
            return False
        return True

    def close_gates(self, action: CloseGate) -> bool:
        return self._change(action.port, action.vector, closed=True)

    def open_gates(self, action: OpenGate) -> bool:
        done = self._change(action.port, action.vector, closed=False)
        port = self._ports[action.port]
        try:
            frame = self._kicks.get(action.port) or self._kicks.setdefault(action.port, kick_frame(port.mac))
            self._of(port).kicks.sendto(frame, (port.interface, 0))
        except BlockingIOError:
            return done  # so much waits at this port already that it runs
        except OSError as error:
            # ENOBUFS is how the stack says that the queue dropped the kick, as it must, having run.
            if error.errno != errno.ENOBUFS:
                self._failed(port.number, "kick the queue", error.errno or 0)
                return False
        return done

    def collect_errors(self) -> None:
        """Take in what the kernel says of gate changes: it answers at once, and to failed ones alone."""
        for sockets in self._sockets.values():
            with contextlib.suppress(BlockingIOError):
                while True:
                    self._take_errors(sockets.netlink.recv(65_536))

    def _take_errors(self, data: bytes) -> None:
        for kind, _, sequence, body in messages(data):
            code = -int.from_bytes(body[:4], "little", signed=True)
            if kind == NLMSG_ERROR and code:
                self._failed(sequence >> 4, "change the gate", code)

    def _change(self, number: int, vector: int, *, closed: bool) -> bool:
        port = self._ports[number]
        batch = b"".join(self._gate(port, priority, closed) for priority in priorities_of(vector))
        try:
            self._of(port).netlink.send(batch)
        except OSError as error:
            self._failed(number, "change the gate", error.errno or 0)
            return False
        return True

    def _gate(self, port: PortAttachment, priority: int, closed: bool) -> bytes:
        key = (port.number, priority, closed)
        found = self._gates.get(key)
        if found is None:
            encoded = bytearray(change_gate(port.ifindex, priority, port.mtu_bytes, closed=closed))
            flags = _U16.unpack_from(encoded, _FLAGS_OFFSET)[0] & ~NLM_F_ACK
            _U16.pack_into(encoded, _FLAGS_OFFSET, flags)
            _U32.pack_into(encoded, _SEQUENCE_OFFSET, port.number << 4 | priority << 1 | closed)
            found = self._gates[key] = bytes(encoded)
        return found

    def _of(self, port: PortAttachment) -> NamespaceSockets:
        found = self._sockets.get(port.namespace)
        if found is None:
            found = self._sockets[port.namespace] = NamespaceSockets(port.namespace)
        return found
