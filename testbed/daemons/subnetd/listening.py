"""Listening to the frames at a port of a subnet that is up, as a program does: the other end of `captures`."""

from __future__ import annotations

import contextlib
import json
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed.base.cleanup import Closing, on_failure
from testbed.base.unix_sockets import open_connection
from testbed.daemons.subnetd.captures import CAPTURE_SOCKET, END, HEAD, NOTHING_MORE
from testbed.daemons.subnetd.errors import WiresError, WiresMissing
from testbed.protocols.infiniband import binding

ANSWER_TIMEOUT_S: Final = 10.0
_MOST_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class SeenFrame:
    """A frame at a port, from its LRH to its ICRC: as it began to leave, or when it had come whole."""

    at_ns: int
    """CLOCK_MONOTONIC."""
    leaves: bool
    data: bytes


class FrameCapture(Closing):
    """A capture of one port, from when it is made until `end`. To be closed, or used in a `with`."""

    def __init__(self, run_directory: Path, node: str, port: int) -> None:
        """Raises `WiresMissing` where no wires run there, and `WiresError` for a port that there is not."""
        self.frames = 0
        """The frames that the port has had, as far as `read` has heard."""
        self.dropped = 0
        """The frames that this program was too slow for."""
        try:
            self._socket = open_connection(run_directory, CAPTURE_SOCKET, socket.SOCK_SEQPACKET, ANSWER_TIMEOUT_S)
            with on_failure(self._socket.close):
                answer = self._hear()
                if not answer["error"]:
                    self._socket.send(json.dumps({"node": node, "port": port}).encode(), socket.MSG_NOSIGNAL)
                    answer = self._hear()
                if answer["error"]:
                    raise WiresError(f"{node}:{port} cannot be captured: {answer['error']}")
                self._socket.settimeout(None)
        except OSError as error:
            raise WiresMissing(f"no wires of the subnet answer: {error.strerror or error}") from error

    def _hear(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self._socket.recv(_MOST_BYTES) or b'{"error": "the wires have ended"}')
        return found

    def fileno(self) -> int:
        """Return a descriptor that is readable when `read` does not wait."""
        return self._socket.fileno()

    def read(self) -> SeenFrame | None:
        """Wait for the next frame; None: that was all. Raises `WiresMissing` where the wires have ended."""
        try:
            said = self._socket.recv(_MOST_BYTES)
        except ConnectionError:
            said = b""
        if len(said) < HEAD.size:
            raise WiresMissing("the wires of the subnet have ended", hint="`testbed check` says what does not run")
        at_ns, self.frames, self.dropped, kind = HEAD.unpack_from(said)
        return None if kind == NOTHING_MORE else SeenFrame(at_ns, kind == binding.LEAVES, said[HEAD.size :])

    def end(self) -> None:
        """Have no more frames than there were until now; `read` returns what is left of them."""
        with contextlib.suppress(OSError):  # `read` says so
            self._socket.send(END, socket.MSG_NOSIGNAL)

    def close(self) -> None:
        """Listen no more."""
        self._socket.close()
