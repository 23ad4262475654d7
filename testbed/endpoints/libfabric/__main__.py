"""`python -m testbed.endpoints.libfabric`: serves the programs of a lab's hosts, driven by lines on its standard input.

The first line is its settings (`testbed.endpoints.libfabric.settings`); it answers `{"ready": true}` once the sockets
are there, or `{"error": "..."}`. Each `counters` is answered by an object of counts. It ends when its input does, which
is also how it learns of its starter's death.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys

import msgspec

from testbed.endpoints.libfabric.server import ProviderServer
from testbed.endpoints.libfabric.settings import ProviderSettings
from testbed.endpoints.loop import Loop
from testbed.protocols.errors import UsageError

LONGEST_LINE = 1 << 26
CLOSE_PATIENCE_NS = 1_000_000_000
"""The time that peers may take to acknowledge the end."""


class ProviderCommands:
    """Carries out the lines of standard input after the first."""

    def __init__(self, server: ProviderServer, first: bytes) -> None:
        self.ended = False
        self._server = server
        self._line = first
        os.set_blocking(0, False)
        server.loop.watch(0, self._read)

    def _read(self, mask: int) -> None:
        try:
            data = os.read(0, 1 << 16)
        except BlockingIOError:
            return
        if not data or len(self._line) > LONGEST_LINE:
            self.ended = True
            return
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            if line.strip() == b"counters":
                _say(dict(self._server.counters()))


def _say(value: object) -> None:
    os.write(1, json.dumps(value).encode() + b"\n")


def _first_line() -> tuple[bytes, bytes]:
    """The first line of standard input, and what has come behind it."""
    line = b""
    while b"\n" not in line and len(line) <= LONGEST_LINE:
        data = os.read(0, 1 << 20)
        if not data:
            break
        line += data
    first, _, rest = line.partition(b"\n")
    return first, rest


def main() -> int:
    """Serve until standard input ends; return the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the starter's to pass on
    line, rest = _first_line()
    loop = Loop()
    try:
        server = ProviderServer(msgspec.json.decode(line, type=ProviderSettings), loop)
    except (msgspec.MsgspecError, UsageError, OSError, ValueError) as error:
        _say({"error": str(error)})
        return 1
    commands = ProviderCommands(server, rest)
    gc.collect()
    gc.freeze()  # what was imported lives as long as the process
    _say({"ready": True})
    while not commands.ended:
        server.turn()
    server.close(patience_ns=CLOSE_PATIENCE_NS)
    loop.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
