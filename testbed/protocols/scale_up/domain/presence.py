"""The switch of a domain learns at once that the process of a GPU's end has died: by a connection that closes.

A packet socket that is gone is seen by nobody at the other end of its link. A connection is closed by the kernel with
the process, however that ends.
"""

from __future__ import annotations

import socket
from typing import Final

from testbed.base.unix_sockets import connect_in

ENDS_NAME: Final = "ends.sock"
"""A socket of SOCK_SEQPACKET in the run directory of the switch. Its one message is the GPU's number, in digits."""
LONGEST_NUMBER: Final = 4


def connect_end(directory: str, gpu: int) -> socket.socket | None:
    """Tell the switch with this run directory that the end of a GPU lives, until the socket is closed.

    None where no switch is there to be told, or this process may not: the silence of its links then has to do.
    """
    item = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        connect_in(item, directory, ENDS_NAME)
        item.send(str(gpu).encode())
    except OSError:
        item.close()
        return None
    return item
