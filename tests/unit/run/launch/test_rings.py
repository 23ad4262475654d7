"""Collectives as rings: every rank ends with what the collective is defined as, whatever the sizes."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import numpy as np
import pytest

from testbed.protocols.uet.addressing import FepAddress
from testbed.run.launch.rings import LEAST_BYTES, Rings

SIZES = [1, 3, 8, 1000, 10 * LEAST_BYTES]


class Wire:
    """Hands messages from endpoint to endpoint by source and tag, and counts their bytes."""

    def __init__(self) -> None:
        self.queues: defaultdict[tuple[FepAddress, FepAddress, int], asyncio.Queue[bytes]] = defaultdict(asyncio.Queue)
        self.sent: defaultdict[FepAddress, int] = defaultdict(int)


class WireEnd:
    """Stands for a `FabricEndpoint`."""

    def __init__(self, wire: Wire, address: FepAddress) -> None:
        self._wire, self._address = wire, address

    async def tsend(self, to: FepAddress, data: memoryview, tag: int) -> None:
        self._wire.sent[self._address] += len(data)
        await asyncio.sleep(0)
        self._wire.queues[self._address, to, tag].put_nowait(bytes(data))

    async def trecv(self, buffer: memoryview, tag: int, *, source: FepAddress) -> None:
        arrived = await self._wire.queues[source, self._address, tag].get()
        assert len(arrived) == len(buffer), "a receive is as long as its message"
        buffer[:] = arrived


def play(ranks: int, work: Callable[[Rings, int], Coroutine[Any, Any, Any]]) -> tuple[list[Any], Wire]:
    """Do the same on all ranks at once. Return what each has of it, and the wire."""
    wire, peers = Wire(), [FepAddress(f"10.0.0.{rank + 1}") for rank in range(ranks)]

    async def all_of_them() -> Sequence[Any]:
        rings = [Rings(WireEnd(wire, peers[rank]), peers, rank) for rank in range(ranks)]  # type: ignore[arg-type]
        async with asyncio.timeout(20):
            return await asyncio.gather(*(work(one, rank) for rank, one in enumerate(rings)))

    found = list(asyncio.run(all_of_them()))
    assert all(queue.empty() for queue in wire.queues.values()), "nobody has taken a message"
    return found, wire


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_all_reduce(ranks: int, size: int) -> None:
    async def work(rings: Rings, rank: int) -> Any:
        array = np.arange(size, dtype=np.float64) * (rank + 1)
        await rings.all_reduce(array, np.add, 1)
        return array

    found, wire = play(ranks, work)
    wanted = np.arange(size, dtype=np.float64) * (ranks * (ranks + 1) / 2)
    assert all((one == wanted).all() for one in found)
    sent, share = sum(wire.sent.values()), 2 * (ranks - 1) * size * 8
    assert sent == share, "a ring sends 2 (n - 1) / n of the array from each rank"


@pytest.mark.parametrize("root", [0, 2])
@pytest.mark.parametrize("size", SIZES)
def test_broadcast(size: int, root: int) -> None:
    async def work(rings: Rings, rank: int) -> Any:
        array = np.full(size, rank, np.float32)
        await rings.broadcast(array, root, 1)
        return array

    found, _ = play(3, work)
    assert all((one == root).all() for one in found)


def test_all_gather_and_reduce_scatter() -> None:
    async def gather(rings: Rings, rank: int) -> Any:
        blocks = [np.full(5, rank if rank == place else -1, np.int32) for place in range(4)]
        await rings.all_gather(blocks, 1)
        return np.concatenate(blocks)

    found, _ = play(4, gather)
    assert all((one == np.repeat(np.arange(4), 5)).all() for one in found)

    async def scatter(rings: Rings, rank: int) -> Any:
        return await rings.reduce_scatter([np.full(5, place, np.int32) for place in range(4)], np.add, 2)

    found, _ = play(4, scatter)
    assert [one.tolist() for one in found] == [[4 * rank] * 5 for rank in range(4)]


def test_several_collectives_at_once_do_not_mix() -> None:
    async def work(rings: Rings, rank: int) -> Any:
        arrays = [np.full(4 * LEAST_BYTES, number * (rank + 1), np.int64) for number in range(1, 4)]
        await asyncio.gather(*(rings.all_reduce(one, np.maximum, number) for number, one in enumerate(arrays)))
        return [int(one[0]) for one in arrays]

    found, _ = play(4, work)
    assert found == [[4, 8, 12]] * 4


def test_messages_of_one_tag_are_told_apart_by_their_turn() -> None:
    """The wire may hand them out in any order."""

    async def work(rings: Rings, rank: int) -> list[int]:
        arrays = [np.full(4, number if rank == 0 else 0) for number in (1, 2, 3)]
        move = rings.send_message if rank == 0 else rings.receive_message
        await asyncio.gather(*(move(array, 1 - rank, 7) for array in arrays))
        return [int(array[0]) for array in arrays]

    found, wire = play(2, work)
    assert found[1] == [1, 2, 3]
    tags = {tag for _, _, tag in wire.queues}
    assert len(tags) == 3 and all(tag >> 63 == 1 and tag & 0xFFFF_FFFF == 7 for tag in tags)
