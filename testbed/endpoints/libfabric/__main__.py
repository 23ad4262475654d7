"""`python -m testbed.endpoints.libfabric`: serves the programs of a lab's hosts, driven by lines on its standard input.

The first line is its settings (`testbed.endpoints.libfabric.settings`); it answers `{"ready": true}` once the sockets
are there, or `{"error": "..."}`. Each `counters` is answered by an object of counts. It ends when its input does, which
is also how it learns of its starter's death.
"""

from __future__ import annotations

import gc
import signal
import sys

import msgspec

from testbed.base.driven_by_lines import CommandLines, read_first_line, say, say_ready, say_refused
from testbed.endpoints.libfabric.server import ProviderServer
from testbed.endpoints.libfabric.settings import ProviderSettings
from testbed.endpoints.loop import Loop
from testbed.protocols.errors import UsageError

COLLECT_AT_OBJECTS = 50_000
"""Garbage is looked for when there are so many objects more: operations under way are thousands, and hardly any of what
they leave refers to itself."""
CLOSE_PATIENCE_NS = 1_000_000_000
"""The time that peers may take to acknowledge the end."""


def main() -> int:
    """Serve until standard input ends; return the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the starter's to pass on
    loop = Loop()
    try:
        line, rest = read_first_line()
        server = ProviderServer(msgspec.json.decode(line, type=ProviderSettings), loop)
    except (msgspec.MsgspecError, UsageError, OSError, ValueError) as error:
        say_refused(error)
        return 1

    def answer(command: bytes) -> None:
        if command == b"counters":
            say(dict(server.counters()))

    commands = CommandLines(answer, rest)
    loop.watch(commands.fileno(), commands.on_event, touches=False)
    gc.collect()
    gc.freeze()  # what was imported lives as long as the process
    gc.set_threshold(COLLECT_AT_OBJECTS)
    say_ready()
    while not commands.ended:
        server.turn()
    server.close(patience_ns=CLOSE_PATIENCE_NS)
    loop.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
