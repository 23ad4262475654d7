"""The port of an HCA below queue pairs: what they send leaves as frames with an LRH, lane by lane, and frames that come
in have their ICRC checked.

Queue pairs know HCAs by addresses, as in RoCE. A lane has a connection to the wires of its own, so that one without
credits holds up no other: while it is full, what is for it waits with its queue pairs (`Rnic.full_lanes`).
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from testbed.endpoints.infiniband.adapter import open_adapter
from testbed.endpoints.loop import Loop
from testbed.endpoints.sockets import SocketCounters
from testbed.protocols.datagram import Incoming, Outgoing
from testbed.protocols.infiniband.local_routing import (
    BTH_BYTES,
    DEFAULT_PKEY,
    FECN,
    ICRC_BYTES,
    LOCAL,
    LRH_BYTES,
    compute_local_icrc,
)
from testbed.protocols.roce.rnic import Rnic

OPEN_TIMEOUT_S: Final = 10.0
MOST_RECEIVED: Final = 32
"""Frames of one `receive`."""
_SEND_BUFFER_BYTES: Final = 18 << 10
"""SO_SNDBUF of a lane, which Linux doubles: four full frames, and it is writable when three of them have left. What
waits is to wait with queue pairs."""
_LONGEST_FRAME: Final = 4096 + 256
_HEAD_BYTES: Final = LRH_BYTES + BTH_BYTES
_LRH: Final = struct.Struct("!BBHHH")
_SLID_AT: Final = 6
_PKEY_AT: Final = 2
_VARIANT_AT: Final = LRH_BYTES + 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another HCA: its LID, and the P_Key of the partition that both are in."""

    lid: int
    pkey: int = DEFAULT_PKEY


@dataclass(frozen=True, slots=True, kw_only=True)
class _Path:
    """The way to a peer: the second byte of its frames (service level and next header), its lane, LID and P_Key."""

    service: int
    lane: int
    lid: int
    pkey: int


@dataclass(slots=True, kw_only=True)
class _Lane:
    number: int
    socket: socket.socket
    waiting: deque[bytes] = field(default_factory=deque)
    """Frames that it had no room for: of a batch that was under way when it became full, and answers."""


class HcaPort:
    """The frames of one HCA, for a loop that drives its RNIC (`testbed.endpoints.loop.DatagramSockets`)."""

    passes = True
    blocked = False
    """Lanes are, and each by itself."""
    blocked_fd = -1
    retry_at = 0
    drained = True

    def __init__(self, path: Path, peers: Mapping[str, Peer], loop: Loop, on_end: Callable[[], None]) -> None:
        """Open the HCA whose socket is at `path`. `peers` are the others by address; `on_end` is called when the wires
        have ended. Raises `AdapterError`."""
        self.counters = SocketCounters()
        self.arrivals: list[int] = []
        self.wrong = 0
        """Frames that came in with a wrong ICRC, or from nobody who is known."""
        self.rnic: Rnic | None = None
        self._loop = loop
        self._on_end = on_end
        self._ended = False
        self._path = path
        self._receiver, hello = open_adapter(path, OPEN_TIMEOUT_S)
        self._receiver.setblocking(False)
        self.receivers = (self._receiver.fileno(),)
        self._lid = int(hello["lid"])
        levels = {int(lid): int(sl) for lid, sl in hello["sls"].items()}
        self._paths = {
            address: _Path(
                service=levels.get(peer.lid, 0) << 4 | LOCAL,
                lane=int(hello["lanes"][levels.get(peer.lid, 0)]),
                lid=peer.lid,
                pkey=peer.pkey,
            )
            for address, peer in peers.items()
        }
        self._addresses = {peer.lid: address for address, peer in peers.items()}
        self._lanes: dict[int, _Lane] = {}

    def attach(self, rnic: Rnic) -> None:
        """Have an RNIC know the lanes to its peers, and when they are full."""
        self.rnic = rnic
        rnic.lanes = {address: path.lane for address, path in self._paths.items() if path.lane}

    # --- receiving ------------------------------------------------------------------------------------

    def receive(self, fd: int) -> list[Incoming]:
        """Return what has come in, as far as one turn takes it."""
        found: list[Incoming] = []
        counters = self.counters
        counters.receive_calls += 1
        for _ in range(MOST_RECEIVED):
            try:
                data = self._receiver.recv(_LONGEST_FRAME)
            except BlockingIOError:
                break
            except OSError as error:
                counters.errors[error.errno or 0] = counters.errors.get(error.errno or 0, 0) + 1
                break
            if not data:
                if not self._ended:
                    self._ended = True
                    self._on_end()
                break
            counters.received += 1
            counters.received_bytes += len(data)
            remote = self._source_of(data)
            if remote is None:
                self.wrong += 1
                continue
            found.append(Incoming(remote, 0, memoryview(data)[LRH_BYTES:], data[_VARIANT_AT] & FECN != 0))
        return found

    def _source_of(self, data: bytes) -> str | None:
        """Return the address of the HCA that has sent a frame; None: nobody who is known, or not a whole frame."""
        if len(data) < _HEAD_BYTES + ICRC_BYTES or data[1] & 3 != LOCAL:
            return None
        if compute_local_icrc(data[:_HEAD_BYTES], memoryview(data)[_HEAD_BYTES:-ICRC_BYTES]) != int.from_bytes(
            data[-ICRC_BYTES:], "little"
        ):
            return None
        return self._addresses.get(data[_SLID_AT] << 8 | data[_SLID_AT + 1])

    # --- sending --------------------------------------------------------------------------------------

    def send(self, datagrams: Sequence[Outgoing]) -> None:
        """Put packets of the RNIC into frames, and these on their lanes."""
        for one in datagrams:
            path = self._paths.get(one.remote)
            if path is None:
                self.counters.dropped += 1
                continue
            header, payload = one.header, memoryview(one.payload)
            if not payload:  # an answer, whose ICRC is behind its header
                header, payload = header[:BTH_BYTES], memoryview(header)[BTH_BYTES:]
            if path.pkey != DEFAULT_PKEY:
                header = header[:_PKEY_AT] + path.pkey.to_bytes(2, "big") + header[_PKEY_AT + 2 :]
            words = (LRH_BYTES + len(header) + len(payload)) // 4
            head = _LRH.pack(0, path.service, path.lid, words, self._lid) + header
            rest = payload[:-ICRC_BYTES]
            frame = b"".join((head, rest, compute_local_icrc(head, rest).to_bytes(ICRC_BYTES, "little")))
            lane = self._lane(path.lane)
            lane.waiting.append(frame)
            if len(lane.waiting) == 1:
                self._flush(lane)

    def flush(self) -> None:
        """Do nothing: lanes send as soon as they have room."""

    def _lane(self, number: int) -> _Lane:
        found = self._lanes.get(number)
        if found is None:
            item, _ = open_adapter(self._path, OPEN_TIMEOUT_S)
            item.setblocking(False)
            item.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
            found = self._lanes[number] = _Lane(number=number, socket=item)
        return found

    def _flush(self, lane: _Lane) -> None:
        """Send what waits at a lane, and watch for room where not all of it goes."""
        was_full = self._is_full(lane.number)
        while lane.waiting:
            try:
                lane.socket.send(lane.waiting[0], socket.MSG_NOSIGNAL)
            except BlockingIOError:
                if not was_full:
                    self._set_full(lane)
                return
            except OSError as error:
                self.counters.dropped += len(lane.waiting)
                self.counters.errors[error.errno or 0] = self.counters.errors.get(error.errno or 0, 0) + 1
                lane.waiting.clear()
                break
            frame = lane.waiting.popleft()
            self.counters.sent += 1
            self.counters.sent_bytes += len(frame)
            self.counters.send_calls += 1
        if was_full:
            self._set_room(lane)

    def _is_full(self, number: int) -> bool:
        return self.rnic is not None and bool(self.rnic.full_lanes >> number & 1)

    def _set_full(self, lane: _Lane) -> None:
        assert self.rnic is not None
        self.counters.blocked += 1
        self.rnic.full_lanes |= 1 << lane.number
        self._loop.watch(lane.socket.fileno(), lambda _: self._flush(lane), select.EPOLLOUT, touches=False)

    def _set_room(self, lane: _Lane) -> None:
        assert self.rnic is not None
        self.rnic.full_lanes &= ~(1 << lane.number)
        self.rnic.on_room(time.monotonic_ns())
        self._loop.unwatch(lane.socket.fileno())
        self._loop.touch(self.rnic)

    def close(self) -> None:
        """Give the HCA back; what waits is lost."""
        for lane in self._lanes.values():
            if self._is_full(lane.number):
                self._set_room(lane)
            lane.socket.close()
        self._receiver.close()
