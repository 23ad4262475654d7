"""Ports as the agent works them: PFC frames out, gates of egress queues, and the kick that makes an opened queue run.

The work itself is native (`native/port_io.h`); here it gets the ports, their namespaces, and the messages that change
gates.
"""

from __future__ import annotations

import ctypes
import struct
import weakref
from collections.abc import Sequence

from testbed.base.linux.rtnetlink import NLM_F_ACK
from testbed.base.linux.traffic_control import change_gate
from testbed.daemons.portd import native
from testbed.daemons.portd.attachment import PortAttachment
from testbed.daemons.portd.core import attached_ports

_FLAGS_OFFSET = 6
_U16 = struct.Struct("=H")


def _gate_message(mtu_bytes: int, *, closed: bool) -> bytes:
    """For priority 0 of no interface, without an acknowledgement: the kernel answers at once, and only if it failed."""
    encoded = bytearray(change_gate(0, 0, mtu_bytes, closed=closed))
    flags = _U16.unpack_from(encoded, _FLAGS_OFFSET)[0] & ~NLM_F_ACK
    _U16.pack_into(encoded, _FLAGS_OFFSET, flags)
    return bytes(encoded)


def _gate_messages(mtus_bytes: Sequence[int]) -> ctypes.Array[native.GateMessages]:
    found = (native.GateMessages * len(mtus_bytes))()
    for item, mtu_bytes in zip(found, mtus_bytes, strict=True):
        for closed in (False, True):
            message = _gate_message(mtu_bytes, closed=closed)
            item.bytes[closed] = len(message)
            item.message[closed][: len(message)] = message
    return found


class PortIo:
    """The ports of one lab. Methods return 0 or an errno."""

    def __init__(self, ports: Sequence[PortAttachment]) -> None:
        """Sort the ports by namespace; none is entered yet."""
        namespaces = sorted({port.namespace for port in ports})
        mtus_bytes = sorted({port.mtu_bytes for port in ports})
        self._native = native.library()
        self.handle: int | None = self._native.port_io_new(
            attached_ports(ports, namespaces, mtus_bytes),
            len(ports),
            max((port.number for port in ports), default=0) + 1,
            (ctypes.c_char_p * len(namespaces))(*(path.encode() for path in namespaces)),
            len(namespaces),
            _gate_messages(mtus_bytes),
            len(mtus_bytes),
        )
        if not self.handle:
            raise MemoryError(f"no memory for {len(ports)} ports")
        weakref.finalize(self, self._native.port_io_free, self.handle)

    def close(self) -> None:
        self._native.port_io_close(self.handle)

    def open_gates(self, port: int, vector: int) -> int:
        """Open the gates of the priorities in `vector`, and let the queue run."""
        error = int(self._native.port_io_change_gates(self.handle, port, vector, False))
        return error or int(self._native.port_io_kick(self.handle, port))
