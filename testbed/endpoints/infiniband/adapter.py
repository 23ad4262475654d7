"""An HCA that a program has opened: datagrams (UD) to the LIDs of a subnet, and those that come in.

A datagram is a SEND of one packet: LRH, BTH, DETH, payload, ICRC, as on a link but for the VCRC, which is the port's.
Source: InfiniBand Architecture Specification volume 1, 9.2 (BTH), 9.3.2 (DETH), 9.8.3 (unreliable datagrams).
"""

from __future__ import annotations

import json
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from testbed.base.cleanup import Closing, on_failure
from testbed.base.unix_sockets import open_connection
from testbed.protocols.errors import DecodeError, UsageError
from testbed.protocols.infiniband.local_routing import DEFAULT_PKEY, LocalHeader, decode_unchecked, encode_unchecked

UD_SEND_ONLY: Final = 0x64
MOST_PAYLOAD: Final = 4096
_BTH: Final = struct.Struct("!BBHII")
_DETH: Final = struct.Struct("!II")
_MOST_FRAME: Final = MOST_PAYLOAD + 256
_HELLO_BYTES: Final = 1 << 16
_FULL_MEMBER: Final = 0x8000
_PSN_MASK: Final = (1 << 24) - 1


class AdapterError(OSError):
    """An HCA that cannot be opened, or whose subnet has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Datagram:
    """A datagram that has come in."""

    slid: int
    sl: int
    vl: int
    pkey: int
    psn: int
    fecn: bool
    payload: bytes


def open_adapter(path: Path, timeout_s: float | None = None) -> tuple[socket.socket, dict[str, Any]]:
    """Connect to the HCA whose socket is at `path`, and return the socket with what the HCA says of itself. A process
    may connect several times: a send queue each, and what comes in comes by the first.

    Raises `AdapterError` where another program has it, or the subnet has no wires.
    """
    try:
        item = open_connection(path.parent, path.name, socket.SOCK_SEQPACKET, timeout_s)
        with on_failure(item.close):
            hello: dict[str, Any] = json.loads(item.recv(_HELLO_BYTES) or b"{}")
    except OSError as error:
        raise AdapterError(f"{path.name} cannot be opened: {error.strerror or error}") from error
    if "lid" not in hello:
        item.close()
        raise AdapterError(f"{path.name} cannot be opened: another program has it")
    return item, hello


class HostAdapter(Closing):
    """An open HCA, of which a program has one at a time. To be closed, or used in a `with`."""

    def __init__(self, path: Path, timeout_s: float | None = None) -> None:
        """Open the HCA whose socket is at `path`. `timeout_s`: how long sending and receiving may wait.

        Raises `AdapterError` where another program has it, or the subnet has no wires.
        """
        self._socket, hello = open_adapter(path, timeout_s)
        self.lid = int(hello["lid"])
        self.rate_bps = int(hello["rate_bps"])
        """The rate of its link in this lab: `time_scale` times less than the real fabric's."""
        self.time_scale = int(hello["time_scale"])
        keys = [int(key) for key in hello["pkeys"]]
        self.pkey = next((key for key in keys if key & _FULL_MEMBER), DEFAULT_PKEY)
        """The P_Key of its first partition that it is a full member of."""
        self._sls = {int(lid): int(sl) for lid, sl in hello["sls"].items()}

    def sl_to(self, lid: int) -> int:
        """Return the service level that the subnet manager has given the path to a LID."""
        return self._sls.get(lid, 0)

    def send(self, dlid: int, payload: bytes, *, psn: int = 0, sl: int | None = None, pkey: int | None = None) -> None:
        """Send a datagram, of whole words; wait where the HCA's queue is full. Raises `UsageError`, `OSError`."""
        if len(payload) > MOST_PAYLOAD:
            raise UsageError(f"a datagram carries {MOST_PAYLOAD} bytes at most, and not {len(payload)}")
        key = self.pkey if pkey is None else pkey
        packet = _BTH.pack(UD_SEND_ONLY, 0, key, 1, psn & _PSN_MASK) + _DETH.pack(0, 1) + payload
        level = self.sl_to(dlid) if sl is None else sl
        header = LocalHeader(vl=0, sl=level, dlid=dlid, slid=self.lid, words=0)
        self._socket.send(encode_unchecked(header, packet))

    def receive(self) -> Datagram | None:
        """Wait for a datagram and return it; None once the subnet has ended. Raises `TimeoutError`, `DecodeError`."""
        data = self._socket.recv(_MOST_FRAME)
        if not data:
            return None
        header, packet = decode_unchecked(data)
        opcode, _, pkey, qp, psn = _BTH.unpack_from(packet)
        if opcode != UD_SEND_ONLY or len(packet) < _BTH.size + _DETH.size:
            raise DecodeError(0, f"opcode {opcode:#x}, of a datagram {UD_SEND_ONLY:#x}")
        return Datagram(
            slid=header.slid,
            sl=header.sl,
            vl=header.vl,
            pkey=pkey,
            psn=psn & _PSN_MASK,
            fecn=bool(qp >> 31),
            payload=packet[_BTH.size + _DETH.size :],
        )

    def close(self) -> None:
        """Give the HCA back."""
        self._socket.close()
