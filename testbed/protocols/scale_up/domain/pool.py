"""Memory that a scale-up domain's GPUs have in common: devices that answer loads and stores, and who is granted what.

A region is memory that is interleaved over some devices, its ways: granule by granule, from the first one on. What it
grants is a window of the same number and key at each of them, which only those peers reach that it was granted to. A
grant can be shared with others, handed on to another one, and withdrawn; from then on accesses are refused, by each
device, whoever sends them. Nothing here is coherent: nobody is told that another one has written.

A region's capacity is an account. The memory behind a grant is mapped and not resident: what was never written takes
none of this machine's.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from testbed.protocols.errors import TransportError, UsageError
from testbed.protocols.scale_up.domain import binding
from testbed.protocols.scale_up.domain.endpoint import KEYS, Endpoint
from testbed.protocols.scale_up.domain.windows import (
    ALL_RIGHTS,
    LARGEST_WINDOW,
    READ,
    Window,
    WindowReference,
    whole_granules,
)

MAP_NORESERVE: Final = 0x4000
"""Linux's flag for memory that is not accounted for until it is written (mmap(2)); Python 3.11 has no name for it."""


class PoolExhausted(TransportError):
    """A region has not so much left, or its devices have no window left."""


@dataclass(slots=True, kw_only=True)
class Grant:
    """Memory of a region that some peers may reach. Made by `Region.grant` and `Grant.share`."""

    region: Region
    size: int
    """In bytes, as it was asked for."""
    memory: tuple[mmap.mmap, ...]
    """The memory of each way."""
    windows: tuple[Window, ...]
    peers: set[int]
    shared: list[Grant] = field(default_factory=list)
    """The views of others on this memory."""

    def reference(self) -> WindowReference:
        """Return the name by which peers reach it. Raises `UsageError` once it is withdrawn."""
        self._check_granted()
        first = self.windows[0]
        return WindowReference(
            gpu=first.reference().gpu,
            number=first.number,
            key=first.key,
            size=self.size,
            ways=len(self.windows),
            granule=self.region.granule,
        )

    def admit(self, peer: int, may: bool = True) -> None:
        """Let a peer reach it, or no longer. Raises `UsageError` for one that the domain has not, and once it is
        withdrawn."""
        self._check_granted()
        for window in self.windows:
            window.authorise(peer, may)
        (self.peers.add if may else self.peers.discard)(peer)

    def move(self, old: int, new: int) -> None:
        """Hand it on, with what is in it, from one peer to another; nothing is copied. Raises `UsageError` where it is
        not granted to the first one, which keeps it where there is no other one."""
        if old not in self.peers:
            raise UsageError(f"GPU {old} has no such memory to hand on")
        self.admit(new)
        if new != old:
            self.admit(old, False)

    def share(self, peers: Iterable[int], rights: int = READ) -> Grant:
        """Let others see the same memory by a window of their own, with other rights. It takes no capacity, and ends
        with this one. Raises `UsageError`, `PoolExhausted`."""
        self._check_granted()
        found = self.region._open(self.memory, self.size, peers, rights)
        self.shared.append(found)
        return found

    def withdraw(self) -> None:
        """Let nobody reach it any more, those it was shared with included. Its capacity is free again."""
        for one in self.shared:
            one.withdraw()
        for window in self.windows:
            window.withdraw()
        self.windows, self.shared = (), []
        self.peers.clear()
        self.region.grants = [one for one in self.region.grants if one is not self]

    def _check_granted(self) -> None:
        if not self.windows:
            raise UsageError("what was withdrawn is granted to nobody, and has no name")


class Region:
    """Memory interleaved over `devices`, one behind the other in the numbers of the domain."""

    def __init__(self, devices: Sequence[Endpoint], *, capacity_bytes: int, granule: int) -> None:
        """Raises `UsageError` for devices that do not follow one another, or a granule of no whole frames."""
        first = devices[0]
        if [one.gpu for one in devices] != [first.gpu + way for way in range(len(devices))]:
            raise UsageError("the ways of a region follow one another")
        if granule < 1 or granule % first.settings.link.payload_bytes:
            raise UsageError(f"a granule is whole frames of {first.settings.link.payload_bytes} bytes, not {granule}")
        self.devices = tuple(devices)
        self.capacity_bytes = capacity_bytes
        self.granule = granule
        self.grants: list[Grant] = []

    @property
    def granted_bytes(self) -> int:
        """Return what is granted of its capacity, in whole granules of all ways."""
        return sum(self._whole(one.size) for one in self.grants)

    def _whole(self, size: int) -> int:
        return whole_granules(size, self.granule, len(self.devices))

    def grant(self, size: int, peers: Iterable[int], rights: int = ALL_RIGHTS) -> Grant:
        """Grant so many bytes to some peers. Raises `PoolExhausted`, and `UsageError` for a peer that there is not."""
        whole, left = self._whole(size), self.capacity_bytes - self.granted_bytes
        if size < 1 or whole > left:
            raise PoolExhausted(f"{whole} bytes are asked of a region that has {left} of {self.capacity_bytes} left")
        if whole > LARGEST_WINDOW:
            raise PoolExhausted(f"{whole} bytes are more than a grant has, {LARGEST_WINDOW}")
        share = whole // len(self.devices)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
        try:
            memory = tuple(mmap.mmap(-1, share, flags=flags) for _ in self.devices)
        except OSError as error:
            raise PoolExhausted(f"this machine maps no {whole} bytes for a grant: {error.strerror}") from error
        found = self._open(memory, size, peers, rights)
        self.grants.append(found)
        return found

    def _open(self, memory: tuple[mmap.mmap, ...], size: int, peers: Iterable[int], rights: int) -> Grant:
        """Open a window on memory of each way, of a number that is free at all, and a key that nobody guesses."""
        taken = {number for one in self.devices for number in one.windows}
        number = next((number for number in range(binding.WINDOWS) if number not in taken), None)
        if number is None:
            raise PoolExhausted(f"a device has {binding.WINDOWS} windows, and all are in use")
        key = self.devices[0].draw(KEYS)
        windows = tuple(
            device.export_at(number, key, part, rights) for device, part in zip(self.devices, memory, strict=True)
        )
        found = Grant(region=self, size=size, memory=memory, windows=windows, peers=set())
        try:
            for peer in peers:
                found.admit(peer)
        except UsageError:
            found.withdraw()
            raise
        return found
