"""The kernel's stamps of arrivals, which begin a moment after somebody has asked for them."""

from __future__ import annotations

import socket
import struct
import time

from waiting import until

SO_TIMESTAMPNS = 35


def stamped_socket() -> socket.socket:
    """A socket that keeps the kernel stamping what arrives, from now on and anywhere on the machine.

    The kernel begins a moment after the first socket that asks for stamps (net_enable_timestamp, net/core/dev.c: by its
    work queue). What arrives before has the time at which it is read, which may be after all that came later.
    """
    item = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    item.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    item.bind(("127.0.0.1", 0))

    def stamps() -> bool:
        item.sendto(b"", item.getsockname())
        sent_ns = time.time_ns()
        _, [(_, _, stamp)], _, _ = item.recvmsg(1, 64)
        seconds, ns = struct.unpack("=qq", stamp)
        return bool(seconds * 10**9 + ns <= sent_ns)

    until(stamps, "the kernel stamps arrivals")
    return item
