"""A timer that wakes epoll at a given nanosecond (timerfd_create(2), which Python wraps from 3.13 on).

The timeout of epoll_wait(2) counts milliseconds and is late by the timer slack of the thread; this is neither.
"""

from __future__ import annotations

import ctypes
import os

_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1
_NS = 1_000_000_000

_libc = ctypes.CDLL(None, use_errno=True)
_settime = _libc.timerfd_settime
_settime.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _Times(ctypes.Structure):
    """struct itimerspec."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


class Timer:
    """Becomes readable at a time of `time.monotonic_ns`. Watch it edge-triggered: nobody needs to read it.

    It is moved only to an earlier time; a later one waits until it has fired. A retransmission timer that every
    acknowledgement postpones so costs no system call for each of them, but one wake-up in vain.
    """

    __slots__ = ("_address", "_armed", "_times", "fd")

    def __init__(self) -> None:
        self.fd: int = _libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._times = _Times()
        self._address = ctypes.addressof(self._times)
        self._armed = 0

    def wake_by(self, deadline: int) -> None:
        """Fire at `deadline` or before it."""
        if self._armed and self._armed <= deadline:
            return
        self._armed = max(deadline, 1)  # 0 would disarm it
        self._times.value_s, self._times.value_ns = divmod(self._armed, _NS)
        if _settime(self.fd, _ABSOLUTE, self._address, None):
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def fired(self) -> None:
        """Note that it has expired. It is to be called when it has become readable."""
        self._armed = 0

    def close(self) -> None:
        os.close(self.fd)
