"""Registered memory of an RNIC: what remote requests may touch, under which rkey, and when they are refused.

Source: InfiniBand Architecture Specification, volume 1, release 1.4, section 10.6 (memory management) and section
9.7.4.1.5 (what a responder checks of an rkey). A request that fails a check has touched nothing.
"""

from __future__ import annotations

from enum import IntFlag
from random import Random
from typing import Final

from testbed.protocols.errors import TransportError, UsageError

ADDRESS_LIMIT: Final = 1 << 64
RKEY_LIMIT: Final = 1 << 32
PAGE_BYTES: Final = 4096
_ADDRESS_PAGES: Final = 1 << 34
"""Virtual addresses that are drawn lie below 2**46, as those of a process do."""
_DRAWS: Final = 64


class Access(IntFlag):
    """The rights of remote requests to a region."""

    REMOTE_READ = 0x1
    REMOTE_WRITE = 0x2
    REMOTE_ATOMIC = 0x4


ALL_ACCESS: Final = Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC


class AccessRefused(TransportError):
    """A request names memory that it may not touch."""


class MemoryRegion:
    """A buffer under an rkey. `RegionTable.register` makes it."""

    def __init__(self, rkey: int, buffer: memoryview, access: int, domain: int, base: int) -> None:
        self.rkey: Final[int] = rkey
        """32 bits."""
        self.buffer: Final[memoryview] = buffer
        self.access: Final[int] = access
        """`Access` bits."""
        self.domain: Final[int] = domain
        """The protection domain: queue pairs of another one are refused."""
        self.base: Final[int] = base
        """The virtual address of the first byte."""

    def view(self, virtual_address: int, length: int, access: int) -> memoryview:
        """`length` bytes from a virtual address on, for a request that needs the `Access` bits of `access`.

        Raises `AccessRefused` where the region lacks one, or not all bytes lie inside.
        """
        if access & ~self.access:
            raise AccessRefused(f"{Access(access)!r} of a region registered for {Access(self.access)!r}")
        start = virtual_address - self.base
        end = start + length
        if start < 0 or end > len(self.buffer):
            raise AccessRefused(
                f"{length} bytes at {virtual_address:#x} of {len(self.buffer)} bytes from {self.base:#x} on"
            )
        return self.buffer[start:end]


class RegionTable:
    """The memory regions of an RNIC, by rkey."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._regions: dict[int, MemoryRegion] = {}

    def __len__(self) -> int:
        return len(self._regions)

    def register(
        self,
        buffer: bytes | bytearray | memoryview,
        access: int,
        domain: int = 0,
        *,
        base: int | None = None,
        rkey: int | None = None,
    ) -> MemoryRegion:
        """Let remote requests at `buffer`, as `access` (`Access` bits) says.

        `base`: its virtual address, `rkey`: its key; None: what is drawn. Raises `UsageError` for memory that has gaps,
        or is read-only and to be written, for addresses beyond 64 bits, and for a key that is taken.
        """
        view = memoryview(buffer)
        if not view.contiguous:
            raise UsageError("memory to be registered must be contiguous")
        view = view.cast("B")
        if access & ~int(ALL_ACCESS):
            raise UsageError(f"no such access: {access:#x}")
        if view.readonly and access & (Access.REMOTE_WRITE | Access.REMOTE_ATOMIC):
            raise UsageError("read-only memory cannot be registered for remote writes or atomics")
        if base is None:
            base = (1 + self._random.randrange(_ADDRESS_PAGES)) * PAGE_BYTES
        if base < 0 or base + len(view) > ADDRESS_LIMIT:
            raise UsageError(f"{len(view)} bytes from {base:#x} on do not lie within 64-bit addresses")
        if rkey is None:
            rkey = self._draw_rkey()
        elif not 0 < rkey < RKEY_LIMIT or rkey in self._regions:
            raise UsageError(f"rkey {rkey:#x} is taken, or not 1 to {RKEY_LIMIT - 1:#x}")
        region = self._regions[rkey] = MemoryRegion(rkey, view, int(access), domain, base)
        return region

    def _draw_rkey(self) -> int:
        for _ in range(_DRAWS):
            rkey = self._random.randrange(1, RKEY_LIMIT)
            if rkey not in self._regions:
                return rkey
        raise UsageError(f"{_DRAWS} random rkeys in a row were taken: the source is not random")

    def invalidate(self, rkey: int, domain: int) -> bool:
        """Forget a region of a protection domain. False: there is none under this rkey in that domain."""
        region = self._regions.get(rkey)
        if region is None or region.domain != domain:
            return False
        del self._regions[rkey]
        return True

    def resolve(self, rkey: int, domain: int, virtual_address: int, length: int, access: int) -> memoryview:
        """The memory that a request of a queue pair in `domain` means. Raises `AccessRefused`."""
        region = self._regions.get(rkey)
        if region is None:
            raise AccessRefused(f"no memory is registered under rkey {rkey:#010x}")
        if region.domain != domain:
            raise AccessRefused(f"rkey {rkey:#010x} belongs to another protection domain")
        return region.view(virtual_address, length, access)
