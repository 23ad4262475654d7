"""Errors that nobody has foreseen in the threads that read labs and the machine.

Such an error ends no thread: it is told on standard error and on every page, the work goes on with its next turn, and
pages are told when the part works again.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

QUIET_S = 60.0
"""The traceback of a part's same error is printed so often."""
RETRY_S = 1.0
"""The pause before a part that has failed is tried again."""
_LONGEST = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFailure:
    """A part of the console that fails now. `t` is when it began to, in seconds since the epoch."""

    t: float
    part: str
    error: str


class PartFailures:
    """The parts of one console that fail now. `tell` is called with all of them when they change. In any thread."""

    def __init__(self, tell: Callable[[tuple[PartFailure, ...]], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._found: dict[str, PartFailure] = {}
        self._printed: dict[str, tuple[str, float]] = {}

    @property
    def latest(self) -> tuple[PartFailure, ...]:
        """The parts that fail now, by their names."""
        return tuple(failure for _, failure in sorted(self._found.items()))

    def run(self, part: str, work: Callable[[], object]) -> bool:
        """Do the work of a part; tell whether it went well."""
        try:
            work()
        except Exception as error:
            self.note(part, error)
            return False
        self.clear(part)
        return True

    def note(self, part: str, error: Exception) -> None:
        """Tell everybody that a part has failed."""
        text = f"{type(error).__name__}: {error}"[:_LONGEST]
        with self._lock:
            before = self._found.get(part)
            printed, at = self._printed.get(part, ("", 0.0))
            is_new = printed != text or time.monotonic() - at >= QUIET_S
            if is_new:
                self._printed[part] = text, time.monotonic()
            if before is None or before.error != text:
                self._found[part] = PartFailure(t=round(time.time(), 3), part=part, error=text)
        if is_new:
            print(f"error in {part}, which is tried again:", file=sys.stderr)
            traceback.print_exception(error, file=sys.stderr)
        if before is None or before.error != text:
            self._tell(self.latest)

    def clear(self, part: str) -> None:
        """Tell everybody that a part works again, where it has failed."""
        if part not in self._found:  # nearly always, and asked in each turn
            return
        with self._lock:
            self._found.pop(part, None)
        self._tell(self.latest)

    def forget(self, lab: str) -> None:
        """Tell nothing more of the parts of a lab, which has gone."""
        for part in [part for part in list(self._found) if part.endswith(f" of {lab}")]:
            self.clear(part)
