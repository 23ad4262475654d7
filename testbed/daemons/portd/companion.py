"""Two processes that watch each other, the agent and its guard: starting one from the other, and noticing its end.

The one that starts hands a descriptor of itself (pidfd_open(2)) to the one it starts, so that neither ever waits for
a number that another process may have by then.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from testbed.base.linux.processes import package_environment

LOG_NAME = "portd.log"


def start(
    module: str, run_directory: Path, arguments: Sequence[str], descriptors: Sequence[int]
) -> subprocess.Popen[bytes]:
    """`python -m MODULE --run-directory DIR ARGUMENTS`, on its own and speaking to `portd.log`. Raises `OSError`."""
    with (run_directory / LOG_NAME).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", module, "--run-directory", str(run_directory), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=_environment(),
            pass_fds=tuple(descriptors),
            start_new_session=True,
        )


def _environment() -> dict[str, str]:
    """Ours, finding the same package, and without the threads of linear algebra, whose stacks would be locked."""
    return package_environment() | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


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
    def spawn(cls, module: str, run_directory: Path, option: str, arguments: Sequence[str] = ()) -> Companion:
        """A child that gets our descriptor as the value of `option`. Raises `OSError`."""
        own = os.pidfd_open(os.getpid())
        try:
            child = start(module, run_directory, [option, str(own), *arguments], [own])
        finally:
            os.close(own)
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
