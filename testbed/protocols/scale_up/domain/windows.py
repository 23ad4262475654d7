"""Memory of a scale-up domain's ends that peers reach: windows, and the references by which they are named."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from testbed.protocols.errors import UsageError

if TYPE_CHECKING:
    from testbed.protocols.scale_up.domain.endpoint import Endpoint

READ, WRITE, ATOMIC = 1, 2, 4
ALL_RIGHTS: Final = READ | WRITE | ATOMIC
ELEMENT_BYTES: Final = 4
LARGEST_WINDOW: Final = (1 << 35) - 1
"""The most bytes of a window, over all ways: an offset has 35 bits (memory_windows.h)."""


def whole_granules(size: int, granule: int, ways: int) -> int:
    """Return so many bytes in whole granules of all ways, as they are granted."""
    row = granule * ways
    return -(-size // row) * row


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowReference:
    """A name by which a peer reaches a window: it is imported by having this."""

    gpu: int
    number: int
    key: int
    size: int
    ways: int = 1
    """Peers from `gpu` on that have a share of it each, in a window of this number and key."""
    granule: int = 0
    """The bytes of one way before those of the next one: whole frames."""

    def address(self, offset: int, size: int) -> int:
        """Raises `UsageError` for what is outside."""
        if offset < 0 or size < 1 or offset + size > self.size:
            raise UsageError(f"bytes {offset} to {offset + size} of a window of {self.size}")
        return self.number << 51 | self.key << 35 | offset

    @property
    def operands(self) -> Any:
        """Return how it is interleaved, as C has it; None where it is not."""
        return None if self.ways == 1 else (ctypes.c_uint64 * 2)(self.ways, self.granule)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """GPUs whose memory the switch writes and adds up as one: a multicast object of NVLink.

    Each member lends it memory of `size` bytes at one address, which `window` and `key` make, and joins.
    """

    number: int
    """The group's number, one of at most `binding.GROUPS`."""
    members: int
    """The number of its members."""
    window: int
    """Its number at every member, at most 63. Windows of `Endpoint.export` take the lowest that are free."""
    key: int
    size: int

    def address(self, offset: int, size: int) -> int:
        """Raises `UsageError` for what is outside, or not in whole elements."""
        if offset % ELEMENT_BYTES or size % ELEMENT_BYTES:
            raise UsageError(f"{size} bytes at {offset} of a group are no whole elements of {ELEMENT_BYTES}")
        return WindowReference(gpu=0, number=self.window, key=self.key, size=self.size).address(offset, size)


@dataclass(slots=True)
class Window:
    """Memory of a GPU that its peers may reach. Nobody may until they are authorised."""

    _endpoint: Endpoint
    number: int
    key: int
    size: int

    def reference(self) -> WindowReference:
        return WindowReference(gpu=self._endpoint.gpu, number=self.number, key=self.key, size=self.size)

    def authorise(self, peer: int, may: bool = True) -> None:
        """Let a GPU of the domain reach this window, or no longer."""
        if self._endpoint.native.endpoint_authorise(self._endpoint.handle, self.number, peer, may):
            raise UsageError(f"there is no GPU {peer} or no window any more")

    def await_bytes(self, size: int) -> None:
        """Have a completion of the kind `ARRIVED` when peers have written the first `size` bytes, whose handle is this
        window's `number`. Nothing is told of bytes that are written in parts of less than a transaction."""
        if not self._endpoint.native.endpoint_await(self._endpoint.handle, self.number, size):
            raise UsageError(f"the window cannot wait for {size} bytes")

    def withdraw(self) -> None:
        """Nobody reaches it any more."""
        self._endpoint.withdraw(self.number)
