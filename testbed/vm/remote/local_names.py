"""The words of a verb on another machine, with the names of its files as they are here."""

from __future__ import annotations

from collections.abc import Callable, Mapping


class Renamed:
    """A sink of bytes that hands them to `write` with names of there replaced by those of here, as `names` has them.

    A name that begins another one comes after it in `names`.
    """

    def __init__(self, names: Mapping[str, str], write: Callable[[bytes], object]) -> None:
        self._names = {there.encode(): here.encode() for there, here in names.items()}
        self._write = write
        self._kept = b""

    def __call__(self, content: bytes) -> None:
        """The end of `content` is kept where it may be the beginning of a name."""
        content = self._kept + content
        end = len(content) - max((_begun(content, there) for there in self._names), default=0)
        self._kept = content[end:]
        self._hand_over(content[:end])

    def flush(self) -> None:
        """Hand over what was kept: nothing comes any more."""
        self._hand_over(self._kept)
        self._kept = b""

    def _hand_over(self, content: bytes) -> None:
        for there, here in self._names.items():
            content = content.replace(there, here)
        if content:
            self._write(content)


def _begun(content: bytes, name: bytes) -> int:
    """Return how many bytes at the end of `content` are the first ones of `name`."""
    return next((size for size in range(len(name) - 1, 0, -1) if content.endswith(name[:size])), 0)
