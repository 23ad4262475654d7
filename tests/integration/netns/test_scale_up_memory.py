"""The Python API of a scale-up domain: windows, loads, stores, atomics, copies and messages over a real switch."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

import pytest
from domain_lab import DomainLab, domain_lab, host_gpus

from testbed.base.linux.namespaces import in_namespace
from testbed.endpoints.gpus.gpus import GpuMemory, ScaleUp
from testbed.protocols.errors import UsageError
from testbed.protocols.scale_up.domain.errors import OperationCancelled, WindowRefused
from testbed.protocols.scale_up.domain.link import LinkSettings
from testbed.protocols.scale_up.domain.windows import READ

pytestmark = [pytest.mark.netns, pytest.mark.timeout(60)]

LINK = LinkSettings(rate_bps=200_000_000, delay_ns=200_000, capacity=(240, 240))
SIZE = 1 << 16
Story = Callable[[ScaleUp, GpuMemory, GpuMemory], Awaitable[None]]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DomainLab]:
    with domain_lab(tmp_path_factory.mktemp("memory"), LINK, gpus=3, planes=2) as found:
        yield found


def play(lab: DomainLab, story: Story) -> None:
    """Have a program be GPU 0 and GPU 1 of the domain, in their namespace."""

    async def program() -> None:
        async with ScaleUp(host_gpus(lab, time_scale=1000, rtt_ns=800)) as scale_up:
            await story(scale_up, await scale_up.open(1), await scale_up.open(2))

    in_namespace(lab.gpu_namespace, lambda: asyncio.run(asyncio.wait_for(program(), 30)))


def test_every_operation(lab: DomainLab) -> None:
    async def story(_: ScaleUp, here: GpuMemory, there: GpuMemory) -> None:
        memory = bytearray(SIZE)
        window = await there.window(memory)
        await window.authorise(here.number)
        await here.store(window.reference, b"hello", offset=61)
        assert memory[61:66] == b"hello"
        assert await here.load(window.reference, 7, offset=60) == b"\0hello\0"
        assert [await here.fetch_add(window.reference, 8, value) for value in (5, 2**64 - 1, 0)] == [0, 5, 4]
        assert await here.compare_and_swap(window.reference, 16, 0, 9, size=4) == 0
        assert await here.compare_and_swap(window.reference, 16, 1, 8, size=4) == 9
        assert memory[8:20] == (4).to_bytes(8, "little") + (9).to_bytes(4, "little")
        data = bytes(range(256)) * (SIZE // 256)
        took = await here.copy_to(window.reference, data)
        assert memory == data
        assert took >= SIZE * 8 / (2 * LINK.rate_bps), "no faster than both planes"
        back = bytearray(SIZE)
        await here.copy_from(window.reference, back)
        assert back == data
        await here.message(there.number, b"done")
        assert await there.receive() == (here.number, b"done")
        counted = await here.counters()
        assert counted["requests"] == counted["responses"] > 0
        assert all(plane["vcs"][0]["tx_frames"] for plane in counted["planes"])

    play(lab, story)


def test_order_in_a_region_and_fences_between_them(lab: DomainLab) -> None:
    async def story(_: ScaleUp, here: GpuMemory, there: GpuMemory) -> None:
        memory = bytearray(SIZE)
        window = await there.window(memory)
        await window.authorise(here.number)
        many = 3000  # more than may be under way
        async with asyncio.TaskGroup() as tasks:
            for value in range(many):
                tasks.create_task(here.store(window.reference, value.to_bytes(4, "little"), offset=128))
        assert int.from_bytes(memory[128:132], "little") == many - 1

        # A flag that is stored behind a fence is not there before all of what it tells of.
        large = b"x" * SIZE
        wide = await there.window(bytearray(SIZE))
        await wide.authorise(here.number)
        memory[:4] = bytes(4)
        tasks_ = [
            asyncio.create_task(here.store(wide.reference, large)),
            asyncio.create_task(here.fence()),
            asyncio.create_task(here.store(window.reference, b"flag")),
        ]
        await tasks_[2]
        assert tasks_[0].done() and tasks_[1].done()
        assert await here.load(wide.reference, SIZE) == large
        await asyncio.gather(*tasks_)

    play(lab, story)


def test_nobody_reaches_what_is_not_theirs(lab: DomainLab) -> None:
    """Windows without authorisation, wrong keys, rights, places outside, and windows that are gone."""

    async def story(scale_up: ScaleUp, here: GpuMemory, there: GpuMemory) -> None:
        stranger = await scale_up.open(3)
        memory = bytearray(b"secret" * 100)
        before = bytes(memory)
        window = await there.window(memory)
        reference = window.reference

        async def refused(gpu: GpuMemory, *, given: object = None, offset: int = 0) -> None:
            target = reference if given is None else given
            for attempt in (
                lambda: gpu.load(target, 8, offset=offset),  # type: ignore[arg-type]
                lambda: gpu.store(target, b"y" * 8, offset=offset),  # type: ignore[arg-type]
                lambda: gpu.fetch_add(target, offset, 1),  # type: ignore[arg-type]
            ):
                with pytest.raises(WindowRefused):
                    await attempt()

        await refused(here)  # not yet
        await window.authorise(here.number)
        assert await here.load(reference, 6) == b"secret"
        await refused(stranger)
        await refused(here, given=replace(reference, key=reference.key ^ 1))
        await refused(here, given=replace(reference, number=reference.number + 1))
        await refused(here, given=replace(reference, size=1 << 30), offset=600)  # beyond, by one who lies to himself
        await refused(here, given=replace(reference, size=1 << 30), offset=(1 << 30) - 8)
        with pytest.raises(UsageError, match="bytes 596 to 604 of a window of 600"):
            await here.store(reference, b"y" * 8, offset=596)
        with pytest.raises(WindowRefused):  # what begins inside and ends outside
            await here.store(replace(reference, size=1 << 30), b"secretsecret", offset=594)
        memory[:] = before
        read_only = await there.window(memory[:], rights=READ)
        await read_only.authorise(here.number)
        assert await here.load(read_only.reference, 6) == b"secret"
        with pytest.raises(WindowRefused):
            await here.store(read_only.reference, b"y")
        await window.authorise(here.number, False)
        await refused(here)
        await window.withdraw()
        await refused(here)
        assert memory == before
        assert (await there.counters())["refused"] >= 20

    play(lab, story)


def test_what_cannot_be_asked(lab: DomainLab) -> None:
    async def story(scale_up: ScaleUp, here: GpuMemory, there: GpuMemory) -> None:
        window = await there.window(bytearray(64))
        await window.authorise(here.number)
        with pytest.raises(UsageError, match="no GPU 4 in this host"):
            await scale_up.open(4)
        with pytest.raises(OSError, match="another program has this GPU") as problem:
            await scale_up.open(1)
        assert problem.value.errno == errno.EBUSY
        with pytest.raises(UsageError, match="4 or 8 bytes at a multiple"):
            await here.fetch_add(window.reference, 4, 1)
        with pytest.raises(UsageError, match="load of 0 bytes"):
            await here.load(window.reference, 0)
        with pytest.raises(UsageError, match="cannot be written"):
            await here.copy_from(window.reference, b"constant")
        with pytest.raises(UsageError, match="no GPU 3"):
            await window.authorise(3)
        with pytest.raises(UsageError, match="out of range"):
            await here.message(there.number, bytes(here.largest_message + 1))
        with pytest.raises(UsageError, match="out of range"):
            await here.message(here.number, b"to itself")

    play(lab, story)


def test_leaving_ends_what_is_under_way(lab: DomainLab) -> None:
    waiting: list[asyncio.Task[object]] = []

    async def story(_: ScaleUp, here: GpuMemory, there: GpuMemory) -> None:
        window = await there.window(bytearray(1 << 24))
        await window.authorise(here.number)
        waiting.append(asyncio.create_task(here.copy_to(window.reference, bytes(1 << 24))))
        waiting.append(asyncio.create_task(there.receive()))
        await here.load(window.reference, 1)

    async def program() -> None:
        async with ScaleUp(host_gpus(lab, time_scale=1000, rtt_ns=800)) as scale_up:
            await story(scale_up, await scale_up.open(1), await scale_up.open(2))
        for error in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(error, OperationCancelled)

    in_namespace(lab.gpu_namespace, lambda: asyncio.run(asyncio.wait_for(program(), 30)))
