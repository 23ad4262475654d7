"""What a test does outside of its process: programs that it starts, and settings of the machine that it writes.

One without a marker that says so must do neither: it is pure, and runs anywhere, in any order.

A compiler is no matter of the test: native parts are built when the first of all tests uses them, and a library is
looked for when it is loaded (`ctypes.util`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

EVENTS = frozenset({"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.system"})
"""The events that CPython tells its audit hooks when a process is started (PEP 578)."""
COMPILERS = frozenset({"cc", "clang", "gcc", "ld", "ldconfig"})
SETTINGS = ("/proc/sys/", "/sys/")
WRITES = os.O_WRONLY | os.O_RDWR


class SideEffects:
    """What this process has done to the machine since `begin`."""

    def __init__(self) -> None:
        self._effects: list[str] | None = None
        self._hooked = False

    def begin(self) -> None:
        """Note what is done from now on. A hook cannot be taken away again."""
        if not self._hooked:
            sys.addaudithook(self._note)
            self._hooked = True
        self._effects = []

    def end(self) -> list[str]:
        """Return names of programs that were started and paths of settings that were opened to be written, and note
        nothing more."""
        found, self._effects = self._effects or [], None
        return found

    def _note(self, event: str, arguments: tuple[object, ...]) -> None:
        if self._effects is None:
            return
        if event in EVENTS:
            program = Path(str(arguments[0])).name if arguments else event
            if program not in COMPILERS:
                self._effects.append(program)
        elif event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & WRITES and str(path).startswith(SETTINGS):
                self._effects.append(str(path))
