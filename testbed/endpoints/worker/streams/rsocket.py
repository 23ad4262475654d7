"""Sockets over RDMA: the part of rsocket(7) that streams need, by ctypes from librdmacm.

A connection is a reliable queue pair; what is written goes into the peer's memory by RDMA writes. Descriptors are real
ones, but the kernel's epoll and poll know nothing of them: `poll` here does, and takes any other descriptor too.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import socket
from collections.abc import Iterable, Mapping
from functools import cache
from struct import Struct

from testbed.base.program_errors import TrafficError

Buffer = bytes | bytearray | memoryview
_LIBRARY = "librdmacm.so.1"
_FAMILY, _IPV4 = Struct("=H"), Struct("!H4s8x")
_ADDRESS_BYTES = 16


class _Piece(ctypes.Structure):
    """struct iovec."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _PollEntry(ctypes.Structure):
    """struct pollfd (poll(2))."""

    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


@cache
def _library() -> ctypes.CDLL:
    try:
        found = ctypes.CDLL(_LIBRARY, use_errno=True)
        for name in ("rwritev", "rrecv"):
            getattr(found, name).restype = ctypes.c_ssize_t
    except (OSError, AttributeError) as error:
        raise TrafficError(f"no sockets over RDMA here: {error}") from error
    found.rwritev.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
    found.rrecv.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    found.rpoll.argtypes = (ctypes.c_void_p, ctypes.c_ulong, ctypes.c_int)
    return found


def _checked(result: int) -> int:
    """Raises `OSError` (`BlockingIOError` where it would have to wait)."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


class RSocket:
    """A stream that never waits. It looks like `socket.socket`, as far as it goes. Everything may raise `OSError`."""

    def __init__(self, fd: int | None = None) -> None:
        """Raises `TrafficError` where the library is missing."""
        rdma = _library()
        self._fd = _checked(rdma.rsocket(socket.AF_INET, socket.SOCK_STREAM, 0)) if fd is None else fd
        _checked(rdma.rfcntl(self._fd, fcntl.F_SETFL, os.O_NONBLOCK))

    def fileno(self) -> int:
        """-1 where it is closed."""
        return self._fd

    def bind(self, address: tuple[str, int]) -> None:
        packed = _pack(address)
        _checked(_library().rbind(self._fd, packed, len(packed)))

    def listen(self, backlog: int) -> None:
        _checked(_library().rlisten(self._fd, backlog))

    def connect(self, address: tuple[str, int]) -> None:
        packed = _pack(address)
        _checked(_library().rconnect(self._fd, packed, len(packed)))

    def accept(self) -> tuple[RSocket, tuple[str, int]]:
        """A connection and its peer."""
        address = ctypes.create_string_buffer(_ADDRESS_BYTES)
        length = ctypes.c_uint(_ADDRESS_BYTES)
        fd = _checked(_library().raccept(self._fd, address, ctypes.byref(length)))
        return RSocket(fd), _unpack(address.raw)

    def getsockname(self) -> tuple[str, int]:
        address = ctypes.create_string_buffer(_ADDRESS_BYTES)
        length = ctypes.c_uint(_ADDRESS_BYTES)
        _checked(_library().rgetsockname(self._fd, address, ctypes.byref(length)))
        return _unpack(address.raw)

    def getsockopt(self, level: int, option: int) -> int:
        value = ctypes.c_int()
        length = ctypes.c_uint(ctypes.sizeof(value))
        _checked(_library().rgetsockopt(self._fd, level, option, ctypes.byref(value), ctypes.byref(length)))
        return value.value

    def sendmsg(self, buffers: Iterable[Buffer]) -> int:
        """Write what fits now of the buffers, one after another; how many bytes that was."""
        kept = [_Memory(buffer) for buffer in buffers]
        pieces = [memory for memory in kept if memory.length]
        vector = (_Piece * len(pieces))(*(_Piece(memory.address, memory.length) for memory in pieces))
        return _checked(_library().rwritev(self._fd, vector, len(pieces)))

    def send(self, data: bytes) -> int:
        return self.sendmsg((data,))

    def recv_into(self, buffer: Buffer, nbytes: int = 0, flags: int = 0) -> int:
        """Read what is there, at most `nbytes` (0: as the buffer is long); 0 at the end. Flags have no meaning here."""
        memory = _Memory(buffer)
        return _checked(_library().rrecv(self._fd, memory.address, nbytes or memory.length, 0))

    def recv(self, most: int) -> bytes:
        buffer = bytearray(most)
        return bytes(buffer[: self.recv_into(buffer)])

    def close(self) -> None:
        """Close it.

        What was written is sent before; a peer that is gone is waited for as long as its queue pair retries.
        """
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            _library().rclose(fd)


class _Memory:
    """The place of a buffer in memory, for as long as this is kept."""

    def __init__(self, buffer: Buffer) -> None:
        view = memoryview(buffer)
        self.length = view.nbytes
        if view.readonly:
            view = memoryview(bytearray(view))  # ctypes takes writable ones alone
        self._view = (ctypes.c_char * view.nbytes).from_buffer(view) if view.nbytes else None
        self.address = ctypes.addressof(self._view) if self._view is not None else 0


def poll(events: Mapping[int, int], timeout_ms: int) -> list[tuple[int, int]]:
    """Wait until one of these descriptors, of either kind, has one of its events (those of `select.poll`); -1: without
    an end. Descriptors and what they have."""
    wanted = len(events)
    entries = (_PollEntry * wanted)(*(_PollEntry(fd, mask & _POLLED, 0) for fd, mask in events.items()))
    try:
        count = _checked(_library().rpoll(entries, wanted, timeout_ms))
    except InterruptedError:
        return []
    return [(entry.fd, entry.revents) for entry in entries if entry.revents] if count else []


_POLLED = select.POLLIN | select.POLLOUT | select.POLLPRI


def _pack(address: tuple[str, int]) -> bytes:
    """struct sockaddr_in (ip(7))."""
    return _FAMILY.pack(socket.AF_INET) + _IPV4.pack(address[1], socket.inet_aton(address[0]))


def _unpack(packed: bytes) -> tuple[str, int]:
    port, address = _IPV4.unpack_from(packed, _FAMILY.size)
    return socket.inet_ntoa(address), port
