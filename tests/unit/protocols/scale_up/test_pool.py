"""Pooled memory in virtual time: its rate by closed forms, who shares it, and who may reach it.

The oracle of a rate is min(host link, ways x device, in flight x line / latency); N GPUs at one device have 1/N each.
"""

from __future__ import annotations

import dataclasses
import errno
import mmap
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from testbed.base.program_errors import TrafficError
from testbed.endpoints.worker.inside_pool import PooledRank
from testbed.endpoints.worker.program import PoolGrant, PoolPlace
from testbed.protocols.errors import UsageError
from testbed.protocols.scale_up.domain import build as scale_up_domain
from testbed.protocols.scale_up.domain.endpoint import Gpu
from testbed.protocols.scale_up.domain.errors import ScaleUpError, WindowRefused
from testbed.protocols.scale_up.domain.link import LinkSettings
from testbed.protocols.scale_up.domain.pool import Grant, PoolExhausted, Region
from testbed.protocols.scale_up.domain.virtual import VirtualDomain, VirtualEndpoint
from testbed.protocols.scale_up.domain.windows import READ, WindowReference

RATE_BPS, DELAY_NS = 8_000_000_000, 100
LINK = LinkSettings(rate_bps=RATE_BPS, delay_ns=DELAY_NS, coarse=1, capacity=(256, 256))
LINE = LINK.payload_bytes
MAC = bytes(6)
FAR = 10_000_000_000
MB = 1 << 20
GOODPUT = LINE / LINK.frame_bytes
"""The share of a link that is payload."""


class Pool:
    """GPUs, and a region over the devices behind them in the domain."""

    def __init__(
        self, *, gpus: int = 1, ways: int = 1, memory_bps: int = 0, memory_ns: int = 0, link: LinkSettings = LINK,
        outstanding: int = 2048, granule: int = LINE, capacity: int = 1 << 40, planes: int = 1, response_vc: int = 1,
    ) -> None:  # fmt: skip
        self.now = 1
        ends = gpus + ways
        self.domain = VirtualDomain(
            scale_up_domain.build(),
            [link] * planes,
            gpus=ends,
            voq=False,
            clock_ns=lambda: self.now,
            draw=Random(7).randrange,
            touched=lambda: None,
        )
        gpu = Gpu(
            gpu=0, gpus=ends, interfaces=[""] * planes, addresses=[(MAC, MAC)] * planes, link=link,
            outstanding=outstanding,
        )  # fmt: skip
        self.gpus = [self.domain.open(dataclasses.replace(gpu, gpu=number)) for number in range(gpus)]
        device = dataclasses.replace(gpu, memory_bps=memory_bps, memory_ns=memory_ns, outstanding=2048)
        self.devices = [self.domain.open(dataclasses.replace(device, gpu=gpus + way)) for way in range(ways)]
        self.region = Region(self.devices, capacity_bytes=capacity, granule=granule)
        self.domain.run(self.now, 25_000_000)
        self.now = 25_000_000

    def wait(self, *asked: tuple[VirtualEndpoint, int]) -> list[int]:
        """Run until operations are done; when each was. Raises what went wrong with one."""
        ended: dict[tuple[int, int], int] = {}
        while len(ended) < len(asked):
            self.now = self.domain.run(self.now, FAR)
            for end in self.gpus:
                for done in end.completions():
                    if done.error is not None:
                        raise done.error
                    ended[end.gpu, done.handle] = done.ended_ns
        return [ended[end.gpu, handle] for end, handle in asked]

    def load(self, gpu: int, reference: WindowReference, size: int, offset: int = 0) -> bytes:
        buffer = bytearray(size)
        self.wait((self.gpus[gpu], self.gpus[gpu].read(reference, buffer, offset)))
        return bytes(buffer)

    def store(self, gpu: int, reference: WindowReference, data: bytes, offset: int = 0) -> None:
        self.wait((self.gpus[gpu], self.gpus[gpu].write(reference, data, offset)))

    def rate_bps(self, size: int = MB, *, write: bool = False) -> float:
        """Of the payload of one GPU's loads or stores."""
        reference = self.region.grant(size, [0]).reference()
        begun, buffer, end = self.now, bytearray(size), self.gpus[0]
        self.wait((end, end.write(reference, buffer) if write else end.read(reference, buffer)))
        return size * 8e9 / (self.now - begun)


@pytest.fixture
def pools(clang: None) -> Iterator[list[Pool]]:
    made: list[Pool] = []
    yield made
    for one in made:
        one.domain.close()


@pytest.fixture
def pool(pools: list[Pool]) -> Pool:
    """Two GPUs, and a region of three ways whose granules are two lines."""
    made = Pool(gpus=2, ways=3, granule=2 * LINE, capacity=64 * LINE)
    pools.append(made)
    return made


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize("ways", [1, 2, 4, 8])
def test_ways_add_up_until_the_host_link_is_full(pools: list[Pool], ways: int, write: bool) -> None:
    """min(host link, ways x device): devices of a fifth of the link, so that eight ways are more than it carries."""
    device = RATE_BPS // 5
    made = Pool(ways=ways, memory_bps=device)
    pools.append(made)
    assert made.rate_bps(write=write) == pytest.approx(min(RATE_BPS * GOODPUT, ways * device), rel=0.03)


@pytest.mark.parametrize("lines", [1, 4, 16])
def test_few_lines_in_flight_are_bound_by_the_latency(pools: list[Pool], lines: int) -> None:
    """in flight x line / latency, where a round trip without load is known: that of one line by itself."""
    alone = Pool(memory_ns=20_000, outstanding=1)
    pools.append(alone)
    one = alone.rate_bps(64 * LINE)
    latency_ns = LINE * 8e9 / one
    wire_ns = 4 * DELAY_NS + 2 * LINK.frame_bytes
    assert 20_000 + wire_ns < latency_ns < 20_000 + 1.5 * wire_ns, "the memory, two hops each way, two whole frames"
    many = Pool(memory_ns=20_000, outstanding=lines)
    pools.append(many)
    assert many.rate_bps(64 * LINE) == pytest.approx(lines * one, rel=0.05)


@pytest.mark.parametrize("gpus", [1, 2, 4])
def test_gpus_at_one_device_have_equal_shares(pools: list[Pool], gpus: int) -> None:
    device = RATE_BPS // 2
    made = Pool(gpus=gpus, memory_bps=device)
    pools.append(made)
    asked = []
    for end in made.gpus:
        reference = made.region.grant(MB, [end.gpu]).reference()
        asked.append((end, end.read(reference, bytearray(MB))))
    begun = made.now
    rates = [MB * 8e9 / (ended - begun) for ended in made.wait(*asked)]
    assert rates == pytest.approx([device / gpus] * gpus, rel=0.03)


def test_a_device_reads_and_writes_at_one_rate_together(pools: list[Pool]) -> None:
    """Links are full duplex; memory is not."""
    device = RATE_BPS // 2
    made = Pool(gpus=2, memory_bps=device)
    pools.append(made)
    a, b = (made.region.grant(MB, [gpu]).reference() for gpu in (0, 1))
    begun = made.now
    made.wait((made.gpus[0], made.gpus[0].read(a, bytearray(MB))), (made.gpus[1], made.gpus[1].write(b, bytes(MB))))
    assert 2 * MB * 8e9 / (made.now - begun) == pytest.approx(device, rel=0.03)


def in_memory(region: Region, grant: Grant, offset: int, size: int) -> bytes:
    """What is in a grant's memory, by none of its links."""
    found = bytearray()
    while size:
        number, inside = divmod(offset, region.granule)
        row, way = divmod(number, len(region.devices))
        part = min(size, region.granule - inside)
        found += grant.memory[way][row * region.granule + inside :][:part]
        offset, size = offset + part, size - part
    return bytes(found)


def test_bytes_are_where_the_interleave_says(pool: Pool) -> None:
    """Granule by granule over the ways, whatever part of it is written, and read back from another place."""
    size = 23 * LINE + 100
    grant, data = pool.region.grant(size, [0]), Random(1).randbytes(size)
    reference = grant.reference()
    pool.store(0, reference, data[:777])
    pool.store(0, reference, data[777:], 777)
    assert pool.load(0, reference, size) == data
    assert pool.load(0, reference, 3 * LINE, 5 * LINE - 12) == data[5 * LINE - 12 : 8 * LINE - 12]
    granule = pool.region.granule
    for number in range(size // granule):
        way, row = number % 3, number // 3
        part = grant.memory[way][row * granule : (row + 1) * granule]
        assert part == data[number * granule : (number + 1) * granule]
    assert in_memory(pool.region, grant, 1000, 3000) == data[1000:4000]


@pytest.mark.parametrize("asks", ["read", "write"])
def test_what_is_withdrawn_is_refused(pool: Pool, asks: str) -> None:
    grant = pool.region.grant(8 * LINE, [0])
    reference = grant.reference()
    pool.store(0, reference, b"kept" * 4)
    grant.withdraw()
    with pytest.raises(WindowRefused):
        pool.load(0, reference, LINE) if asks == "read" else pool.store(0, reference, bytes(LINE))
    with pytest.raises(UsageError, match="no name"):
        grant.reference()


def test_what_is_on_its_way_when_it_is_withdrawn_ends(pool: Pool) -> None:
    """Half of a long store is done, the rest is refused; nobody waits for ever, and the next owner finds zeros."""
    grant = pool.region.grant(64 * LINE // 2, [0])
    end = pool.gpus[0]
    asked = end.write(grant.reference(), b"x" * (64 * LINE // 2))
    pool.now = pool.domain.run(pool.now, pool.now + 3_000)
    grant.withdraw()
    with pytest.raises(WindowRefused):
        pool.wait((end, asked))
    again = pool.region.grant(64 * LINE // 2, [1])
    assert pool.load(1, again.reference(), 64 * LINE // 2) == bytes(64 * LINE // 2)


def test_another_gpu_is_refused_until_it_is_handed_on(pool: Pool) -> None:
    grant = pool.region.grant(8 * LINE, [0])
    reference = grant.reference()
    pool.store(0, reference, b"state")
    with pytest.raises(WindowRefused):
        pool.load(1, reference, 5)
    grant.move(0, 1)
    assert pool.load(1, reference, 5) == b"state", "nothing was copied"
    with pytest.raises(WindowRefused):
        pool.load(0, reference, 5)
    with pytest.raises(UsageError, match="GPU 0 has no such memory"):
        grant.move(0, 1)
    with pytest.raises(UsageError, match="no GPU 999"):
        grant.move(1, 999)
    assert pool.load(1, reference, 5) == b"state", "it is not taken from who has it"
    grant.move(1, 1)
    assert pool.load(1, reference, 5) == b"state" and grant.peers == {1}


def test_a_view_for_readers_is_read_and_not_written(pool: Pool) -> None:
    grant = pool.region.grant(8 * LINE, [0])
    pool.store(0, grant.reference(), b"prefix")
    view = grant.share([1]).reference()
    assert pool.load(1, view, 6) == b"prefix"
    with pytest.raises(WindowRefused):
        pool.store(1, view, b"mine")
    with pytest.raises(WindowRefused):
        pool.load(1, grant.reference(), 6)
    grant.withdraw()
    with pytest.raises(WindowRefused):
        pool.load(1, view, 6)


def test_all_views_end_with_what_they_are_of(pool: Pool) -> None:
    grant = pool.region.grant(8 * LINE, [0])
    view = grant.share([1])
    names = [view.reference(), view.share([1]).reference()]
    grant.withdraw()
    for name in names:
        with pytest.raises(WindowRefused):
            pool.load(1, name, 6)
    for ask in (lambda: grant.share([1]), lambda: grant.admit(1), lambda: view.share([1]), lambda: view.admit(1)):
        with pytest.raises(UsageError, match="withdrawn"):
            ask()
    assert not grant.peers and not pool.region.grants
    assert [len(list(one.windows)) for one in pool.devices] == [0, 0, 0]


def test_a_grant_for_a_gpu_that_is_not_there_leaves_nothing(pool: Pool) -> None:
    with pytest.raises(UsageError, match="no GPU 999"):
        pool.region.grant(LINE, [0, 999])
    grant = pool.region.grant(64 * LINE // 2, [0])
    with pytest.raises(UsageError, match="no GPU 999"):
        grant.share([999])
    assert grant.shared == [] and [len(list(one.windows)) for one in pool.devices] == [1, 1, 1]


def test_memory_that_this_machine_does_not_map_is_not_granted(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> mmap.mmap:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr("testbed.protocols.scale_up.domain.pool.mmap.mmap", full)
    with pytest.raises(PoolExhausted, match="maps no 1536 bytes for a grant: Cannot allocate memory"):
        pool.region.grant(LINE, [0])
    assert pool.region.granted_bytes == 0


@pytest.mark.parametrize("change", [{"key": 1}, {"number": 5}, {"gpu": 3}])
def test_a_guessed_name_is_refused(pool: Pool, change: dict[str, int]) -> None:
    reference = pool.region.grant(8 * LINE, [0], READ).reference()
    forged = dataclasses.replace(reference, **{name: getattr(reference, name) ^ bit for name, bit in change.items()})
    with pytest.raises((ScaleUpError, UsageError)):
        pool.load(0, forged, LINE)


def test_capacity_is_an_account_and_no_memory(pools: list[Pool]) -> None:
    made = Pool(ways=4, capacity=100 << 30, granule=16 * LINE)
    pools.append(made)
    grants = [made.region.grant(30 << 30, [0]) for _ in range(3)]
    assert made.region.granted_bytes == 90 << 30
    made.store(0, grants[2].reference(), b"far", (30 << 30) - 3)
    assert made.load(0, grants[2].reference(), 3, (30 << 30) - 3) == b"far"
    assert int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE < 4 << 30
    with pytest.raises(PoolExhausted, match="10737418240 of 107374182400 left"):
        made.region.grant((10 << 30) + 1, [0])
    grants[0].withdraw()
    made.region.grant(20 << 30, [0])
    with pytest.raises(PoolExhausted, match="more than a grant has"):
        Region(made.devices, capacity_bytes=1 << 40, granule=LINE).grant(1 << 35, [0])


def test_windows_run_out(pool: Pool) -> None:
    made: list[Grant] = [pool.region.grant(1, [0]) for _ in range(10)]
    assert len({one.windows[0].number for one in made}) == 10
    for _ in range(54):
        made[0].share([1])
    with pytest.raises(PoolExhausted, match="64 windows"):
        made[0].share([1])


@pytest.mark.parametrize("granule", [0, LINE // 2, LINE + 1])
def test_a_granule_is_whole_frames(pool: Pool, granule: int) -> None:
    with pytest.raises(UsageError, match="whole frames"):
        Region(pool.devices, capacity_bytes=1, granule=granule)


def test_ways_follow_one_another(pool: Pool) -> None:
    with pytest.raises(UsageError, match="follow one another"):
        Region([pool.devices[0], pool.devices[2]], capacity_bytes=1, granule=LINE)


@pytest.mark.parametrize(
    ("grant", "message"),
    [
        (PoolGrant(rank=0, gpu=0, size_bytes=64 * LINE, rights=READ), "are asked of a region that has"),
        (PoolGrant(rank=0, gpu=999, size_bytes=LINE, rights=READ), "no GPU 999"),
    ],
)
def test_a_worker_says_which_region_has_not_so_much(pool: Pool, grant: PoolGrant, message: str) -> None:
    place = PoolPlace(
        devices=[one.settings for one in pool.devices], granule_bytes=2 * LINE, capacity_bytes=LINE, grants=[grant]
    )
    enough = dataclasses.replace(place, capacity_bytes=12 * LINE)
    with pytest.raises(TrafficError, match=f"rack: pool1: .*{message}"):
        PooledRank("rack: pool1", enough if grant.gpu else place, pool.devices)
