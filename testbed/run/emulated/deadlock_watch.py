"""A watch over the wires of a subnet while a run goes on: it ends where no frame can ever move again."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Final, Self

from testbed.daemons.subnetd.client import SubnetWires
from testbed.daemons.subnetd.errors import WiresError

LOOK_S: Final = 0.1
"""The wires are asked so often."""


class DeadlockWatch:
    """It is readable once frames wait for each other's buffers in a circle. To be used in a `with`."""

    def __init__(self, wires: SubnetWires) -> None:
        self.lanes: Sequence[str] = ()
        """The lanes of the circle; none: there was none."""
        self._wires = wires
        self._ending = threading.Event()
        self._found = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def fileno(self) -> int:
        """Return a descriptor that is readable in a deadlock."""
        return self._found

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Look from now on until the context is left."""
        thread = threading.Thread(target=self._look, name="deadlocks", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ending.set()
            thread.join()

    def _look(self) -> None:
        while not self._ending.wait(LOOK_S):
            try:
                self.lanes, _ = self._wires.deadlock()
            except WiresError:
                return  # they have ended, which the run says
            if self.lanes:
                os.eventfd_write(self._found, 1)
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._found)
