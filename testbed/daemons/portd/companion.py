"""Two processes that watch each other, the agent and its guard: starting one from the other, and noticing its end.

The one that starts hands a descriptor of itself (pidfd_open(2)) to the one it starts, so that neither ever waits for
a number that another process may have by then.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

from testbed.base.cleanup import closed_at_end
from testbed.daemons.kit.process import start_module

LOG_NAME = "portd.log"
SOCKET_NAME = "portd.sock"


class Companion:
    """The other process: a child of ours, or the one that started us."""

    def __init__(self, pid: int, descriptor: int, child: subprocess.Popen[bytes] | None = None) -> None:
        self.pid = pid
        self._descriptor = descriptor
        self._child = child

    @classmethod
    def parent(cls, descriptor: int) -> Companion:
        """The one that started us and handed over `descriptor`."""
        os.set_inheritable(descriptor, False)
        return cls(os.getppid(), descriptor)

    @classmethod
    def spawn(cls, module: str, run_directory: Path, option: str) -> Companion:
        """A child that gets our descriptor as the value of `option`. Raises `OSError`."""
        with closed_at_end(os.pidfd_open(os.getpid())) as own:
            child = start_module(module, run_directory, LOG_NAME, [option, str(own)], [own])
        return cls(child.pid, os.pidfd_open(child.pid), child)

    def fileno(self) -> int:
        """Readable when the process has ended."""
        return self._descriptor

    def close(self) -> None:
        """Let go of the process after its end."""
        os.close(self._descriptor)
        if self._child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(1.0)
            self._child = None

    def leave(self) -> None:
        """It outlives us, or will see our end."""
        os.close(self._descriptor)
        if self._child is not None:
            self._child.returncode = 0  # no ResourceWarning: it is not ours to wait for
            self._child = None
