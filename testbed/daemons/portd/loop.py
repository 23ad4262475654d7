"""The agent's waiting, which is native (`native/loop.h`): labs are served inside, Python is called for the rest."""

from __future__ import annotations

import os

from testbed.daemons.kit import realtime
from testbed.daemons.portd import native
from testbed.daemons.portd.lab import AttachedLab


class Loop:
    """`control` is a descriptor that becomes readable when there is something else to do."""

    def __init__(self, control: int) -> None:
        self._native = native.library()
        self._handle: int | None = self._native.loop_new(control, realtime.KICKER_PRIORITY)
        if not self._handle:
            raise OSError("no memory, descriptor or thread to wait with")

    def add(self, lab: AttachedLab) -> None:
        """Serve a lab until `remove`. Raises `OSError`."""
        error = self._native.loop_add(self._handle, lab.handle, lab.fileno())
        if error:
            raise OSError(error, os.strerror(error))

    def remove(self, lab: AttachedLab) -> None:
        self._native.loop_remove(self._handle, lab.handle)

    def run(self) -> None:
        """Serve the labs until `control` is readable, a signal came, or a lab has something to tell."""
        self._native.loop_run(self._handle)

    def close(self) -> None:
        self._native.loop_free(self._handle)
        self._handle = None
