"""The packet sockets of a link's end: one for scale-up frames, and one for PFC frames where they are used."""

from __future__ import annotations

import contextlib
import errno
import socket
from typing import Final

from testbed.protocols.scale_up.frames import ETHERTYPE

PFC_ETHERTYPE: Final = 0x8808
_SOL_PACKET, _PACKET_STATISTICS, _PACKET_IGNORE_OUTGOING = 263, 6, 23
_SO_RCVBUFFORCE: Final = 33
BUFFER_BYTES: Final = 32 << 20
"""Room for frames that wait for their process: they are on the wire, and must not be lost."""


def open_socket(interface: str, ethertype: int = ETHERTYPE, buffer_bytes: int = BUFFER_BYTES) -> socket.socket:
    """A socket at an interface of the namespace that the calling thread is in, "" for all of them. Raises `OSError`.

    It sees no frame of its own, and is bound to its EtherType, so that it gets frames behind what a lab loses on
    purpose. It does not bypass queueing disciplines, of which a veth has none: what does is seen by no capture.
    """
    everywhere = 0 if interface else socket.htons(ethertype)  # from its making on: Python binds to none but one
    item = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, everywhere)
    try:
        item.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        try:
            item.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, buffer_bytes)
        except OSError:
            item.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        if interface:
            item.bind((interface, ethertype))
    except BaseException:
        item.close()
        raise
    return item


def claim_gpu(interface: str) -> socket.socket:
    """Be the only one that has a GPU, by its first interface, in the namespace of the calling thread, until the socket
    is closed. Raises `OSError`.

    It is an abstract address, which each network namespace has for itself (unix(7)) and which goes with its process.
    Two ends at one wire would take each other's frames and greetings.
    """
    item = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        item.bind(f"\0testbed-scale-up-{interface}")
    except OSError as error:
        item.close()
        if error.errno != errno.EADDRINUSE:
            raise
        raise OSError(errno.EBUSY, "another program has this GPU", interface) from None
    return item


def lost_frames(item: socket.socket) -> int:
    """Frames that the kernel had no room for since it was last asked."""
    with contextlib.suppress(OSError):
        statistics = item.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
        return int.from_bytes(statistics[4:8], "little")
    return 0
