"""The timers of the pause machine (`native/timers.h`) apart from it: one for each key, moved and taken back freely."""

import weakref
from collections.abc import Iterator

from testbed.daemons.portd import native


class Timers:
    """Timers by key, from 0 to `keys - 1`."""

    def __init__(self, keys: int) -> None:
        self._native = native.library()
        self._timers = self._native.timers_new(keys)
        if not self._timers:
            raise MemoryError(f"no memory for {keys} timers")
        weakref.finalize(self, self._native.timers_free, self._timers)

    def __len__(self) -> int:
        return int(self._native.timers_count(self._timers))

    def set(self, key: int, when_ns: int) -> None:
        self._native.timers_set(self._timers, key, when_ns)

    def cancel(self, key: int) -> None:
        self._native.timers_cancel(self._timers, key)

    def clear(self) -> None:
        self._native.timers_clear(self._timers)

    def next_ns(self) -> int | None:
        when = int(self._native.timers_next(self._timers))
        return None if when == native.NEVER else when

    def expired(self, now_ns: int) -> Iterator[int]:
        """The keys whose time has come, each taken off before it is handed out."""
        while (key := int(self._native.timers_pop(self._timers, now_ns))) >= 0:
            yield key
