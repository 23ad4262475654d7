"""How the transfers of a scale-up domain are set up, where its hosts open their GPUs' ends one after the other."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from testbed.base.program_errors import TrafficError
from testbed.endpoints.worker.domain import Domain, Member
from testbed.endpoints.worker.inside_packets import OPEN_NS, SETUP_NS, InsidePackets, PacketEndpoints
from testbed.endpoints.worker.program import ScaleUpLinks, ScaleUpPackets, ScaleUpPlace
from testbed.protocols.scale_up.domain.endpoint import Done, Endpoint, Gpu, Kind
from testbed.protocols.scale_up.domain.errors import LinkDown, ScaleUpError
from testbed.protocols.scale_up.domain.link import LinkSettings

GPUS, PLANES = 4, 2


@dataclass(eq=False)
class FakeEnd:
    """A GPU's end whose writes wait until the test answers them."""

    gpu: int
    handle: int = 0
    asked: dict[int, int] = field(default_factory=dict)
    """By handle of a write, the GPU that it goes to."""
    native: Any = field(
        default_factory=lambda: SimpleNamespace(
            endpoint_counted=lambda _: SimpleNamespace(contents=SimpleNamespace(responses=0))
        )
    )

    def export(self, _buffer: Any) -> Any:
        return SimpleNamespace(authorise=lambda _peer: None, reference=lambda: self.gpu)

    def write(self, window: int, _data: Any, _offset: int) -> int:
        self.handle += 1
        self.asked[self.handle] = window
        return self.handle

    def latencies(self) -> dict[int, int]:
        return {}

    def planes_down(self) -> list[int]:
        return []


class FakeEndpoints:
    """The ends of a process."""

    clock_ns = staticmethod(time.monotonic_ns)

    def __init__(self) -> None:
        self.ends: dict[int, FakeEnd] = {}

    def open(self, _library: Path, gpu: Gpu, _owner: InsidePackets) -> FakeEnd:
        self.ends[gpu.gpu] = FakeEnd(gpu.gpu)
        return self.ends[gpu.gpu]

    def shut(self, end: FakeEnd) -> None:
        del self.ends[end.gpu]

    def answer(self, packets: InsidePackets, error: ScaleUpError | None = None) -> list[tuple[int, int]]:
        """End every write that was asked for, and those that follow; the GPUs between which they were."""
        found = []
        while waiting := [(end, handle) for end in self.ends.values() for handle in end.asked]:
            for end, handle in waiting:
                found.append((end.gpu, end.asked.pop(handle)))
                done = Done(handle=handle, kind=Kind.WRITE, size=64, begun_ns=1, ended_ns=2, result=0, error=error)
                packets.on_done(cast(Endpoint, end), done)
        return found


def place(rank: int) -> ScaleUpPlace:
    names = [f"p{plane}" for plane in range(PLANES)]
    addresses = [(bytes(6), bytes(6))] * PLANES
    gpu = Gpu(gpu=rank, gpus=GPUS, interfaces=names, addresses=addresses, link=LinkSettings(rate_bps=10**9))
    return ScaleUpPlace(rank=rank, name=f"h{1 + rank // 2}:gpu{1 + rank % 2}", gpu=gpu)


FIRST, SECOND = ([place(0), place(1)], [place(2), place(3)])
"""The GPUs of two hosts."""


@pytest.fixture
def ends() -> FakeEndpoints:
    return FakeEndpoints()


@pytest.fixture
def domain(ends: FakeEndpoints) -> Iterator[Domain]:
    """A domain that both hosts have joined, before either connects."""
    links = ScaleUpLinks(domain="s1", packets=ScaleUpPackets(library="none", name="s1", rtt_ns=1000))
    made = Domain(links, cast(PacketEndpoints, ends))
    for places in (FIRST, SECOND):
        made.join([one.rank for one in places], cast(Member, object()), places)
    yield made


@pytest.fixture
def packets(domain: Domain) -> InsidePackets:
    assert domain.packets is not None
    return domain.packets


def test_a_host_that_connects_later_is_reached_too(domain: Domain, packets: InsidePackets, ends: FakeEndpoints) -> None:
    """The first host has its turn, and time, before the second one is told to connect."""
    packets.open(FIRST, 0)
    assert not domain.is_ready(1)
    assert packets.next_due() is not None  # so that it can say that the other one does not come
    assert not ends.answer(packets)
    packets.open(SECOND, 2)
    assert not domain.is_ready(3)
    assert set(ends.answer(packets)) == {(0, 1), (1, 2), (2, 3), (3, 0)}
    assert domain.is_ready(4)
    packets.step(5)  # the look that was due
    assert packets.next_due() is None


def test_a_host_that_never_connects_is_named(domain: Domain, packets: InsidePackets) -> None:
    packets.open(FIRST, 0)
    assert not domain.is_ready(OPEN_NS)
    with pytest.raises(TrafficError, match="h2:gpu1, h2:gpu2 did not open"):
        domain.is_ready(OPEN_NS + 1)


def test_a_host_that_leaves_is_not_waited_for(domain: Domain, packets: InsidePackets, ends: FakeEndpoints) -> None:
    packets.open(FIRST, 0)
    packets.open(SECOND, 0)
    assert not domain.is_ready(1)
    packets.close([one.rank for one in SECOND])
    ends.answer(packets)
    assert domain.is_ready(2)


def test_time_that_passes_before_neighbours_are_asked_is_not_theirs(
    domain: Domain, packets: InsidePackets, ends: FakeEndpoints
) -> None:
    """The rest of the workers' traffic may take longer to connect."""
    packets.open(FIRST, 0)
    packets.open(SECOND, 0)
    later = 3 * SETUP_NS
    assert not domain.is_ready(later)
    assert not domain.is_ready(later + SETUP_NS)
    with pytest.raises(TrafficError, match="h1:gpu1 reaches nothing"):
        domain.is_ready(later + SETUP_NS + 1)
    ends.answer(packets)
    assert domain.is_ready(later + SETUP_NS + 1)


def test_what_fails_is_asked_again(domain: Domain, packets: InsidePackets, ends: FakeEndpoints) -> None:
    """A plane may come up late."""
    packets.open(FIRST, 0)
    packets.open(SECOND, 0)
    assert not domain.is_ready(1)
    assert len(ends.answer(packets, LinkDown("no plane is left"))) == GPUS * PLANES
    assert not domain.is_ready(2)
    packets.step(3)
    ends.answer(packets)
    assert domain.is_ready(4)
