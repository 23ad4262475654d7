"""Giving back what was opened: at the end of a context, or where what is done in it fails."""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import subprocess


class Closing(ABC):
    """The base class of what is to be closed, or used in a `with`."""

    @abstractmethod
    def close(self) -> None:
        """Give back what it has. Once is enough."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def closed_at_end(descriptor: int) -> Iterator[int]:
    """Hand out a file descriptor, and close it at the end."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def on_failure(undo: Callable[..., object], *arguments: object) -> Iterator[None]:
    """Call `undo` where what is done here ends with an exception, an interrupt among them."""
    try:
        yield
    except BaseException:
        undo(*arguments)
        raise


def end_at_once(process: subprocess.Popen[Any]) -> None:
    """End a child by SIGKILL, and wait until it is gone."""
    process.kill()
    process.wait()
