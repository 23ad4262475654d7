"""Messages as recvmmsg(2) and sendmmsg(2) have them in memory, and these two system calls.

They are apart from what uses them, which is compiled, because a ctypes structure is made by Python alone.
"""

from __future__ import annotations

import ctypes
import mmap


class IoVec(ctypes.Structure):
    """struct iovec."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Header(ctypes.Structure):
    """struct msghdr, as the kernel has it."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("vectors", ctypes.c_void_p),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class Message(ctypes.Structure):
    """struct mmsghdr."""

    _fields_ = (("header", Header), ("length", ctypes.c_uint))


MESSAGE_BYTES = ctypes.sizeof(Message)
WORD_BYTES = ctypes.sizeof(ctypes.c_size_t)
LENGTH_STEP = MESSAGE_BYTES // 4
LENGTH_AT = Message.length.offset // 4
CONTROL_STEP = MESSAGE_BYTES // WORD_BYTES
CONTROL_AT = Header.control_length.offset // WORD_BYTES

_libc = ctypes.CDLL(None, use_errno=True)
recvmmsg = _libc.recvmmsg
recvmmsg.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p)
sendmmsg = _libc.sendmmsg
sendmmsg.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int)


class Memory:
    """Anonymous memory at a known address. Pages that are never used are never there."""

    __slots__ = ("address", "area", "view")

    def __init__(self, size: int) -> None:
        self.area = mmap.mmap(-1, size)
        self.view = memoryview(self.area)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.area))
