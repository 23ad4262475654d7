"""Which programs a test starts. One without a marker that says so must start none: it is pure, and runs anywhere.

A compiler is no matter of the test: native parts are built when the first of all tests uses them, and a library is
looked for when it is loaded (`ctypes.util`).
"""

from __future__ import annotations

import sys
from pathlib import Path

EVENTS = frozenset({"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.system"})
"""The events that CPython tells its audit hooks when a process is started (PEP 578)."""
COMPILERS = frozenset({"cc", "clang", "gcc", "ld", "ldconfig"})


class StartedProcesses:
    """Programs that this process has started since `begin`."""

    def __init__(self) -> None:
        self._programs: list[str] | None = None
        self._hooked = False

    def begin(self) -> None:
        """Note what is started from now on. A hook cannot be taken away again."""
        if not self._hooked:
            sys.addaudithook(self._note)
            self._hooked = True
        self._programs = []

    def end(self) -> list[str]:
        """Return what was started, and note nothing more."""
        found, self._programs = self._programs or [], None
        return found

    def _note(self, event: str, arguments: tuple[object, ...]) -> None:
        if event in EVENTS and self._programs is not None:
            program = Path(str(arguments[0])).name if arguments else event
            if program not in COMPILERS:
                self._programs.append(program)
