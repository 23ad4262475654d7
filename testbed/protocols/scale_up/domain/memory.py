"""Memory of Python's objects as C sees it."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from testbed.protocols.errors import UsageError


class BufferMemory(NamedTuple):
    """Bytes at an address."""

    held: Any
    """A reference that keeps the memory where it is."""
    address: int
    size: int


def memory_of(buffer: Any, *, written: bool) -> BufferMemory:
    """Return the memory of a buffer, which may be `written`. Raises `UsageError` for one that is empty, or fixed."""
    view = memoryview(buffer).cast("B")
    if written and view.readonly:
        raise UsageError("the buffer cannot be written")
    if not view.nbytes:
        raise UsageError("the buffer is empty")
    if type(buffer) is bytes:
        return BufferMemory(buffer, ctypes.cast(ctypes.c_char_p(buffer), ctypes.c_void_p).value or 0, view.nbytes)
    if view.readonly:
        held: Any = (ctypes.c_char * view.nbytes).from_buffer_copy(view)
    else:
        held = (ctypes.c_char * view.nbytes).from_buffer(view)
    return BufferMemory(held, ctypes.addressof(held), view.nbytes)
