"""Telling the GPUs of a domain that their switch has died.

A process that is killed cannot say so, and the interfaces it served stay up. The guardian is a process of its own that
the switch makes. It has the switch's socket and waits for its end: then it sends "no signal" by all ports, which is
what a real port would see. Where it is killed as well, the silence of the links tells the same, later.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

from testbed.daemons.kit import realtime
from testbed.daemons.switchd.description import SwitchPort
from testbed.protocols.scale_up.frames import ETHERTYPE, encode_gone


def start_guardian(item: socket.socket, ports: Sequence[SwitchPort]) -> int:
    """Start one for the calling process, whose socket of all ports is `item`.

    What comes back keeps it quiet: a descriptor that only the end of the process may close.
    To be called before the process has threads, or much memory of its own. Raises `OSError`.
    """
    frames = [(port.interface, encode_gone(port.peer, port.mac, 0)) for port in ports]
    reader, writer = os.pipe()
    if os.fork():
        os.close(reader)
        return writer
    try:
        _watch(reader, item, frames)
    finally:
        os._exit(0)


def _watch(reader: int, item: socket.socket, frames: Sequence[tuple[str, bytes]]) -> None:
    os.setsid()  # what ends the switch's group is what there is to tell
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    kept = {reader, item.fileno()}
    for entry in list(Path("/proc/self/fd").iterdir()):
        if (descriptor := int(entry.name)) not in kept:
            with contextlib.suppress(OSError):
                os.close(descriptor)
    realtime.become_realtime(realtime.AGENT_PRIORITY)
    os.read(reader, 1)
    for interface, frame in frames:
        with contextlib.suppress(OSError):
            item.sendto(frame, (interface, ETHERTYPE))
