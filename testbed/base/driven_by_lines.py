"""A process of ours that is driven by lines on its standard input: the end of the process itself.

Its first line is its configuration, which it answers by `say_ready` or `say_refused`; each further one is a command. It
ends when its input does, which is also how it learns of its starter's death. The other end is
`testbed.daemons.kit.line_process`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable

from testbed.base.errors import CapabilityError, TestbedError

LONGEST_LINE = 1 << 26
_CHUNK = 1 << 20
_INPUT, _OUTPUT = 0, 1


def read_first_line() -> tuple[bytes, bytes]:
    """Return the first line of standard input without its end, and what has come behind it. Raises `ValueError` where
    the input ends before, or the line is too long."""
    parts: list[bytes] = []
    size = 0
    while not parts or b"\n" not in parts[-1]:
        data = os.read(_INPUT, _CHUNK)
        if not data or size > LONGEST_LINE:
            raise ValueError("no configuration" if not data else f"a configuration of more than {LONGEST_LINE} bytes")
        parts.append(data)
        size += len(data)
    first, _, rest = b"".join(parts).partition(b"\n")
    return first, rest


class CommandLines:
    """The lines behind the first. `command` is called with each; `ended` says that there are no more.

    `rest` is what has come already. `on_event` is to be called when `fileno` is readable.
    """

    def __init__(self, command: Callable[[bytes], None], rest: bytes = b"") -> None:
        self.ended = False
        self._command = command
        self._rest = b""
        os.set_blocking(_INPUT, False)
        self._take(rest)

    def fileno(self) -> int:
        """Return the descriptor to be watched."""
        return _INPUT

    def on_event(self, events: int = 0) -> None:
        """Read what has come, and carry it out."""
        del events
        try:
            data = os.read(_INPUT, _CHUNK)
        except BlockingIOError:
            return
        if not data or len(self._rest) > LONGEST_LINE:
            self.ended = True
            return
        self._take(data)

    def _take(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._command(line.strip())


def say(answer: object) -> None:
    """Write a line to whoever started us."""
    os.write(_OUTPUT, json.dumps(answer).encode() + b"\n")


def say_ready() -> None:
    """Tell that we are at work."""
    say({"ready": True})


def say_refused(error: Exception) -> None:
    """Tell why we cannot be at work. The starter raises `CapabilityError` for what the machine lacks, `DriverError` for
    all else."""
    message, hint = (error.message, error.hint) if isinstance(error, TestbedError) else (str(error), None)
    missing = error.missing if isinstance(error, CapabilityError) else None
    say({"error": message, "hint": hint, "missing": missing})
