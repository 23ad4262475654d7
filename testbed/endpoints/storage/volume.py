"""A namespace as a program uses it: reads and writes over whichever paths to it are live, and what became of each.

A request is cut into commands of what a controller takes. A command whose path died before its completion came is sent
again on another path, or on the same one when it is back. A request is `done` when the completions of all its commands
have come, or when it failed: a controller has refused it for good, it was sent `MOST_TIMEOUTS` times to controllers
that did not answer in time, or no path was live for `give_up_ns`. What has failed, or is not done, is not safe.

Nobody knows what a lost command has done, and a write that still waits in a dead path's buffers may reach the medium
late. So do not write to a range while another write to it is not done, as with any NVMe host.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from testbed.endpoints.storage.path import Path
from testbed.protocols.errors import UsageError
from testbed.protocols.nvme.codes import DO_NOT_RETRY, status_name
from testbed.protocols.nvme.commands import Buffer, Sqe, flush_command, read_command, write_command
from testbed.protocols.nvme.data_structures import NamespaceData
from testbed.protocols.nvme.host_queue import HostQueue, HostRequest

MOST_RETRIES = 5
"""So often a command is sent again that a controller refuses, but not for good."""
MOST_TIMEOUTS = 2
"""So often a command is sent that is lost because controllers do not answer in time. Linux sends it six times
(`nvme_core.max_retries`)."""
_MOST_PIECE = 4 << 20
"""Bytes of a command where the controller has no limit."""


class Operation(Enum):
    READ = "read"
    WRITE = "write"
    FLUSH = "flush"


@dataclass(slots=True, eq=False)
class VolumeRequest:
    """Times in ns. `view` is what is written, and must not change before it is done, or what is read into."""

    operation: Operation
    offset: int
    view: memoryview
    begun: int
    ended: int = 0
    done: bool = False
    error: str = ""
    """Why it has failed; "" where it has not."""
    pieces: int = 0
    """Commands that have not ended."""

    @property
    def good(self) -> bool:
        return self.done and not self.error


@dataclass(slots=True, eq=False)
class _Piece:
    """One command of a request, over all its attempts."""

    request: VolumeRequest
    at: int
    length: int
    retries: int = 0
    timeouts: int = 0


class Volume:
    """Made by `Initiator.open_volume`; `nguid` says which namespace it is, whatever its NSID on a path."""

    def __init__(self, paths: Sequence[Path], namespace: NamespaceData) -> None:
        self.namespace = namespace
        self.paths = paths
        self.done: deque[VolumeRequest] = deque()
        """Requests that are done, in that order, until somebody takes them."""
        self.resent: int = 0
        """Commands sent again because their path died."""
        self.timed_out: int = 0
        """Commands lost because controllers did not answer in time."""
        self._waiting: deque[_Piece] = deque()
        self._outstanding = 0

    @property
    def size_bytes(self) -> int:
        return self.namespace.size_bytes

    @property
    def unfinished(self) -> int:
        """Commands that have not ended."""
        return len(self._waiting) + self._outstanding

    # --- requests -----------------------------------------------------------------------------------------

    def submit(self, operation: Operation, offset: int, buffer: Buffer, now: int) -> VolumeRequest:
        """Begin a request. Raises `UsageError` where it is not of whole blocks inside the namespace."""
        view = memoryview(buffer).cast("B")
        block = self.namespace.block_bytes
        if offset % block or len(view) % block or (operation is not Operation.FLUSH and not view):
            raise UsageError(f"offset {offset} and length {len(view)} are not of blocks of {block} bytes")
        if not 0 <= offset <= self.size_bytes - len(view):
            raise UsageError(f"{len(view)} bytes at {offset} are not inside of {self.size_bytes}")
        if operation is Operation.READ and view.readonly:
            raise UsageError("a read needs memory that can be written")
        request = VolumeRequest(operation, offset, view, now)
        step = self._piece_bytes()
        for at in range(0, max(len(view), 1), step):
            self._waiting.append(_Piece(request, at, min(step, len(view) - at)))
            request.pieces += 1
        self.pump(now)
        return request

    def _piece_bytes(self) -> int:
        limits = [path.controller.most_transfer or _MOST_PIECE for path in self.paths if path.controller and path.live]
        limit = min([*limits, _MOST_PIECE])
        return max(limit // self.namespace.block_bytes * self.namespace.block_bytes, self.namespace.block_bytes)

    def pump(self, now: int) -> None:
        """Submit what waits, as far as queues take it: each command to the queue with the fewest."""
        while self._waiting:
            best: HostQueue | None = None
            nsid = 0
            for path in self.paths:
                here = self._nsid_on(path)
                for queue in path.queues() if here else ():
                    if queue.has_room and (best is None or queue.outstanding < best.outstanding):
                        best, nsid = queue, here
            if best is None:
                return
            piece = self._waiting.popleft()
            if piece.request.error:
                self._finish_piece(piece, "", now)
                continue
            self._outstanding += 1
            best.submit(self._command(piece, nsid))

    def _nsid_on(self, path: Path) -> int:
        """The NSID of our namespace on a path; 0 where it is not there."""
        if path.controller is None or not path.live:
            return 0
        mine = self.namespace
        for nsid, found in path.controller.namespaces.items():
            if (found.nguid, found.blocks, found.block_bytes) == (mine.nguid, mine.blocks, mine.block_bytes):
                return nsid
        return 0

    def _command(self, piece: _Piece, nsid: int) -> HostRequest:
        request, block = piece.request, self.namespace.block_bytes
        view = request.view[piece.at : piece.at + piece.length]
        first, blocks = (request.offset + piece.at) // block, piece.length // block
        sqe: Sqe
        match request.operation:
            case Operation.READ:
                return HostRequest(read_command(nsid, first, blocks), place=view, tag=(self, piece))
            case Operation.WRITE:
                sqe = write_command(nsid, first, blocks)
                return HostRequest(sqe, data=view, tag=(self, piece))
            case Operation.FLUSH:
                return HostRequest(flush_command(nsid), tag=(self, piece))

    def on_ended(self, ended: HostRequest, piece: _Piece, now: int) -> None:
        """A command has ended, or its path."""
        self._outstanding -= 1
        if ended.good:
            self._finish_piece(piece, "", now)
        elif ended.lost:
            piece.timeouts += ended.timed_out
            self.timed_out += ended.timed_out
            if piece.timeouts >= MOST_TIMEOUTS:
                self._finish_piece(piece, f"not answered in time, {piece.timeouts} times", now)
            else:
                self.resent += 1
                self._waiting.appendleft(piece)
        elif ended.status & DO_NOT_RETRY or piece.retries >= MOST_RETRIES:
            self._finish_piece(piece, status_name(ended.status), now)
        else:
            piece.retries += 1
            self._waiting.append(piece)

    def give_up(self, error: str, now: int) -> None:
        """Fail all that waits for a path."""
        while self._waiting:
            self._finish_piece(self._waiting.popleft(), error, now)

    def _finish_piece(self, piece: _Piece, error: str, now: int) -> None:
        """A request ends with its last piece, and not before: until then controllers use its memory."""
        request = piece.request
        request.error = request.error or error
        request.pieces -= 1
        if not request.pieces:
            request.done, request.ended = True, now
            self.done.append(request)
