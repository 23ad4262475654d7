"""recvmmsg(2) and sendmmsg(2): many datagrams for one system call. Python's socket module has neither.

Both work on memory that is laid out once and used again for each call; what changes from call to call is written and
read through views of it, because a ctypes object for each field would cost more than the system call saves.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import sys
from collections.abc import Sequence
from typing import ClassVar

from testbed.base.linux.socket_options import SOL_UDP, UDP_GRO
from testbed.endpoints.message_layout import (
    CONTROL_AT,
    CONTROL_STEP,
    LENGTH_AT,
    LENGTH_STEP,
    MESSAGE_BYTES,
    WORD_BYTES,
    Header,
    IoVec,
    Memory,
    Message,
    recvmmsg,
    sendmmsg,
)
from testbed.protocols.datagram import DONT_FRAGMENT, Incoming, Outgoing

ECN_MASK = 3
CE = 3
"""ECN codepoint "congestion experienced" (RFC 3168)."""

SLOT_BYTES = 1 << 16
"""Room for the longest datagram, and for the longest run of datagrams that UDP_GRO hands over as one."""
NAME_BYTES = 32
CONTROL_BYTES = 64
REMEMBERED = 1 << 16
"""Addresses and control messages that are remembered in text; whoever forges more makes us format them anew."""


_CONTROL_HEADER = struct.Struct("@Nii")

_new = tuple.__new__  # of a named tuple, without the function in Python that stands before it


def parse_control(control: bytes) -> tuple[int, int]:
    """(TOS or traffic class, bytes of one datagram where UDP_GRO joined several) of received control messages.

    0 for what is not there. Source: cmsg(3), udp(7), ip(7), ipv6(7).
    """
    tos = segment = offset = 0
    while offset + _CONTROL_HEADER.size <= len(control):
        length, level, kind = _CONTROL_HEADER.unpack_from(control, offset)
        if length <= _CONTROL_HEADER.size:
            break
        value = int.from_bytes(control[offset + _CONTROL_HEADER.size : offset + length], sys.byteorder)
        if (level, kind) == (SOL_UDP, UDP_GRO):
            segment = value
        elif (level, kind) in ((socket.IPPROTO_IP, socket.IP_TOS), (socket.IPPROTO_IPV6, socket.IPV6_TCLASS)):
            tos = value & 0xFF
        offset += (length + WORD_BYTES - 1) & -WORD_BYTES
    return tos, segment


class ReceiveRing:
    """Room for `slots` messages of one socket, read by one recvmmsg(2).

    What `receive` returns refers to this memory and is valid until the next call.
    """

    __slots__ = (
        "_control",
        "_control_lengths",
        "_controls",
        "_data",
        "_fd",
        "_headers",
        "_ipv6",
        "_lengths",
        "_names",
        "_sources",
        "_template",
        "_used",
        "_vectors",
        "error",
        "messages",
        "received_bytes",
        "slots",
        "unanswerable",
    )

    def __init__(self, fd: int, *, ipv6: bool, slots: int) -> None:
        self._fd = fd
        self._ipv6 = ipv6
        self.slots = slots
        self.messages = 0
        """How many messages the last call brought; fewer than datagrams where UDP_GRO joined some."""
        self.received_bytes = 0
        """How many bytes the last call brought."""
        self.unanswerable = 0
        """Datagrams that were ignored because they came from port 0."""
        self.error = 0
        """errno of the last call, 0 where it went well or nothing was there."""
        self._data = Memory(slots * SLOT_BYTES)
        self._names = Memory(slots * NAME_BYTES)
        self._control = Memory(slots * CONTROL_BYTES)
        self._headers = Memory(slots * MESSAGE_BYTES)
        self._vectors = (IoVec * slots)()
        messages = (Message * slots).from_buffer(self._headers.area)
        for index in range(slots):
            self._vectors[index] = IoVec(self._data.address + index * SLOT_BYTES, SLOT_BYTES)
            messages[index].header = Header(
                self._names.address + index * NAME_BYTES,
                NAME_BYTES,
                ctypes.addressof(self._vectors) + index * ctypes.sizeof(IoVec),
                1,
                self._control.address + index * CONTROL_BYTES,
                CONTROL_BYTES,
            )
        self._template = memoryview(self._headers.area[:])
        self._used = 0
        self._lengths = self._headers.view.cast("I")
        self._control_lengths = self._headers.view.cast("L")
        self._sources: dict[bytes, tuple[str, int]] = {}
        self._controls: dict[bytes, tuple[int, int]] = {}

    def read(self, limit: int) -> int:
        """Receive up to `limit` messages, at most `slots`; how many came. Never waits, never raises."""
        if self._used:  # the kernel has written the lengths of names and control messages over ours
            end = self._used * MESSAGE_BYTES
            self._headers.view[:end] = self._template[:end]
        count: int = recvmmsg(self._fd, self._headers.address, min(limit, self.slots), socket.MSG_DONTWAIT, None)
        self.error = 0
        if count < 0:
            reason = ctypes.get_errno()
            if reason not in (errno.EAGAIN, errno.EINTR):
                self.error = reason
            count = 0
        self._used = self.messages = count
        return count

    def data(self, index: int) -> memoryview:
        start = index * SLOT_BYTES
        return self._data.view[start : start + self._lengths[index * LENGTH_STEP + LENGTH_AT]]

    def marks(self, index: int) -> tuple[int, int]:
        """Do as `parse_control`, for message `index`."""
        start = index * CONTROL_BYTES
        control = self._control.area[start : start + self._control_lengths[index * CONTROL_STEP + CONTROL_AT]]
        return self._controls.get(control) or self._remember_control(control)

    def source(self, index: int) -> tuple[str, int]:
        """IP address and port that message `index` came from."""
        start = index * NAME_BYTES
        name = self._names.area[start : start + NAME_BYTES]
        return self._sources.get(name) or self._remember_source(name)

    def _remember_control(self, control: bytes) -> tuple[int, int]:
        if len(self._controls) >= REMEMBERED:
            self._controls.clear()
        found = self._controls[control] = parse_control(control)
        return found

    def _remember_source(self, name: bytes) -> tuple[str, int]:
        if len(self._sources) >= REMEMBERED:
            self._sources.clear()
        if self._ipv6:
            remote = socket.inet_ntop(socket.AF_INET6, name[8:24])
        else:
            remote = socket.inet_ntop(socket.AF_INET, name[4:8])
        found = self._sources[name] = (remote, name[2] << 8 | name[3])
        return found

    def receive(self, limit: int) -> list[Incoming]:
        """The datagrams of up to `limit` messages of a UDP socket, in the order in which they arrived."""
        count = self.read(limit)
        found: list[Incoming] = []
        total = 0
        data, names, controls = self._data.view, self._names.area, self._control.area
        lengths, control_lengths = self._lengths, self._control_lengths
        # What follows runs for each datagram: `source`, `marks` and `data` are written out.
        for index in range(count):
            start = index * NAME_BYTES
            name = names[start : start + NAME_BYTES]
            remote, port = self._sources.get(name) or self._remember_source(name)
            if not port:
                self.unanswerable += 1
                continue
            start = index * CONTROL_BYTES
            control = controls[start : start + control_lengths[index * CONTROL_STEP + CONTROL_AT]]
            tos, segment = self._controls.get(control) or self._remember_control(control)
            ce = tos & ECN_MASK == CE
            length = lengths[index * LENGTH_STEP + LENGTH_AT]
            total += length
            start = index * SLOT_BYTES
            end = start + length
            if 0 < segment < length:
                while start < end:
                    stop = min(start + segment, end)
                    found.append(_new(Incoming, (remote, port, data[start:stop], ce, 0, False, DONT_FRAGMENT)))
                    start = stop
            else:
                found.append(_new(Incoming, (remote, port, data[start:end], ce, 0, False, DONT_FRAGMENT)))
        self.received_bytes = total
        return found


class SendBatch:
    """Sends datagrams to one address from one socket by sendmmsg(2). They are copied once, into memory of its own."""

    __slots__ = ("_arena", "_headers", "_name", "_vector_memory", "_vectors", "slots")

    ARENA_BYTES: ClassVar[int] = 1 << 18

    def __init__(self, slots: int = 64) -> None:
        self.slots = slots
        self._arena = Memory(self.ARENA_BYTES)
        self._name = Memory(NAME_BYTES)
        self._vector_memory = Memory(slots * ctypes.sizeof(IoVec))
        self._vectors = self._vector_memory.view.cast("L")
        self._headers = Memory(slots * MESSAGE_BYTES)
        messages = (Message * slots).from_buffer(self._headers.area)
        for index in range(slots):
            vector = self._vector_memory.address + index * ctypes.sizeof(IoVec)
            messages[index].header = Header(self._name.address, NAME_BYTES, vector, 1)

    def send(self, fd: int, name: bytes, datagrams: Sequence[Outgoing], start: int, stop: int) -> int:
        """Send `datagrams[start:stop]` to the socket address `name`, as `packed_address` makes it.

        Returns how many were sent, at least 1. Raises `OSError` where the first was not.
        """
        self._name.view[:] = name
        arena = self._arena.view
        vectors = self._vectors
        base = self._arena.address
        used = count = 0
        for index in range(start, min(stop, start + self.slots)):
            header = datagrams[index].header
            payload = datagrams[index].payload
            middle = used + len(header)
            end = middle + len(payload)
            if end > self.ARENA_BYTES:
                break
            arena[used:middle] = header
            arena[middle:end] = payload
            vectors[2 * count] = base + used
            vectors[2 * count + 1] = end - used
            used = end
            count += 1
        if not count:
            raise OSError(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE))
        sent: int = sendmmsg(fd, self._headers.address, count, socket.MSG_DONTWAIT)
        if sent < 0:
            reason = ctypes.get_errno()
            raise OSError(reason, os.strerror(reason))
        return sent


def packed_address(address: str, port: int) -> bytes:
    """struct sockaddr_in or sockaddr_in6, padded to `NAME_BYTES`. Raises `OSError` where `address` is none."""
    if ":" in address:
        return struct.pack("=H2s4x16s8x", socket.AF_INET6, port.to_bytes(2), socket.inet_pton(socket.AF_INET6, address))
    return struct.pack("=H2s4s24x", socket.AF_INET, port.to_bytes(2), socket.inet_pton(socket.AF_INET, address))
