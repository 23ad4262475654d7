"""Collectives between endpoints of a fabric, as rings, over arrays of numpy: what a backend of torch needs.

Each collective has a number, which is the same on all ranks, and its messages carry it in their tags: several may be
under way at once. An array goes as several rings side by side, so that links are busy while a rank adds up.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.endpoints.fabric_endpoint import FabricEndpoint
from testbed.protocols.uet.addressing import FepAddress

Array = NDArray[Any]
Combine = Callable[..., Array]
"""A function of numpy that combines two arrays into `out`, such as `numpy.add`."""
PARTS = 4
"""Rings side by side."""
LEAST_BYTES = 16_384
"""Smaller arrays go as one ring: more would be packets that are hardly filled."""
_PART_BITS, _STEP_BITS = 8, 20
_MESSAGE, _COUNT_BITS, _TAG_BITS = 1 << 63, 31, 32
"""Parts of the tags of messages: a bit that no collective has, and what follows it."""


class Rings:
    """The collectives of one rank. `peers` has the address of every rank, its own among them, in order."""

    def __init__(self, endpoint: FabricEndpoint, peers: Sequence[FepAddress], rank: int) -> None:
        self._endpoint, self._peers, self._rank = endpoint, tuple(peers), rank
        self._size = len(peers)
        self._messages: Counter[tuple[str, int, int]] = Counter()
        """The messages so far, by their direction, the other rank and their tag."""

    async def all_reduce(self, array: Array, combine: Combine, number: int) -> None:
        """Combine the arrays of all ranks, element by element, in place."""
        parts = np.array_split(array, PARTS if array.nbytes >= LEAST_BYTES * self._size else 1)
        await asyncio.gather(*(self._all_reduce(part, combine, number, at) for at, part in enumerate(parts)))

    async def _all_reduce(self, array: Array, combine: Combine, number: int, part: int) -> None:
        blocks = np.array_split(array, self._size)
        await self._reduce_scatter(blocks, combine, number, part)
        await self._all_gather(blocks, number, part)

    async def reduce_scatter(self, blocks: Sequence[Array], combine: Combine, number: int) -> Array:
        """Combine the blocks of all ranks, which change; return this rank's."""
        shifted = [*blocks[-1:], *blocks[:-1]]  # a ring ends with the block behind the rank's own
        await self._reduce_scatter(shifted, combine, number, 0)
        return blocks[self._rank]

    async def all_gather(self, blocks: Sequence[Array], number: int) -> None:
        """Fill in the blocks of all ranks, of which this rank's is there."""
        shifted = [*blocks[-1:], *blocks[:-1]]
        await self._all_gather(shifted, number, 0)

    async def _reduce_scatter(self, blocks: Sequence[Array], combine: Combine, number: int, part: int) -> None:
        for step in range(self._size - 1):
            mine, theirs = (blocks[(self._rank - step - back) % self._size] for back in (0, 1))
            arrived = np.empty_like(theirs)
            await self._exchange(mine, arrived, self._tag(number, part, step))
            combine(theirs, arrived, out=theirs)

    async def _all_gather(self, blocks: Sequence[Array], number: int, part: int) -> None:
        for step in range(self._size - 1):
            mine, theirs = (blocks[(self._rank + 1 - step - back) % self._size] for back in (0, 1))
            await self._exchange(mine, theirs, self._tag(number, part, self._size + step))

    async def broadcast(self, array: Array, root: int, number: int) -> None:
        """Give all ranks the array of one of them: along a chain, in parts that follow each other."""
        place, passed_on = (self._rank - root) % self._size, []
        for part, piece in enumerate(np.array_split(array, PARTS * 2 if array.nbytes >= LEAST_BYTES * PARTS else 1)):
            tag = self._tag(number, part, 0)
            if place:
                await self.receive(piece, (self._rank - 1) % self._size, tag)
            if place < self._size - 1:
                passed_on.append(asyncio.ensure_future(self.send(piece, (self._rank + 1) % self._size, tag)))
        await asyncio.gather(*passed_on)

    async def send_message(self, array: Array, to: int, tag: int) -> None:
        """Send an array to a rank, for the receive of that tag whose turn it is: UET itself keeps no order (RUD)."""
        await self.send(array, to, self._message_tag("to", to, tag))

    async def receive_message(self, array: Array, source: int, tag: int) -> None:
        """Receive the next array of a rank and a tag."""
        await self.receive(array, source, self._message_tag("from", source, tag))

    def _message_tag(self, direction: str, rank: int, tag: int) -> int:
        self._messages[direction, rank, tag] += 1
        number = self._messages[direction, rank, tag] & (1 << _COUNT_BITS) - 1
        return _MESSAGE | number << _TAG_BITS | tag & (1 << _TAG_BITS) - 1

    async def send(self, array: Array, to: int, tag: int) -> None:
        """Send a contiguous array to a rank; an empty one is none."""
        if array.size:
            await self._endpoint.tsend(self._peers[to], array.view(np.uint8).data, tag)

    async def receive(self, array: Array, source: int, tag: int) -> None:
        """Receive a contiguous array of a rank; an empty one is not sent."""
        if array.size:
            await self._endpoint.trecv(array.view(np.uint8).data, tag, source=self._peers[source])

    async def _exchange(self, mine: Array, theirs: Array, tag: int) -> None:
        """Send to the rank behind, and receive of the one before."""
        after, before = (self._rank + 1) % self._size, (self._rank - 1) % self._size
        await asyncio.gather(self.receive(theirs, before, tag), self.send(mine, after, tag))

    @staticmethod
    def _tag(number: int, part: int, step: int) -> int:
        return number << _PART_BITS + _STEP_BITS | part << _STEP_BITS | step
