"""Frames of every kind with random fields, from a seed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from testbed.protocols.scale_up.ctlos import Ack, CfUpdate, Ctlos, Init, InitEcho, LinkSignal, Nack
from testbed.protocols.scale_up.frames import CcUpdateFrame, ControlFrame, DataFrame, Frame, FrameCheck
from testbed.protocols.scale_up.headers import Header, SueHeader, UaRequest, UaResponse


class LinkSamples:
    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)

    def of_every_kind(self) -> Iterator[Frame]:
        """One data frame with each header, a CC_Update, and a control frame with each ordered set."""
        yield from (self.data(header) for header in self.headers())
        yield self.cc_update()
        yield from (self.control(item) for item in self.sets())

    def bits(self, count: int) -> int:
        return self.chance.getrandbits(count)

    def headers(self) -> list[Header]:
        bits = self.bits
        request = UaRequest(*map(bits, (6, 2, 2, 11, 1, 8, 6, 8)), bits(55) << 2, *map(bits, (10, 10, 1, 2, 2)))
        return [
            SueHeader(*map(bits, (2, 10, 16, 2, 10, 16, 2))),
            request,
            UaResponse(*map(bits, (2, 11, 1, 2, 2, 4, 1, 1, 10, 10))),
        ]

    def sets(self) -> list[Ctlos]:
        bits = self.bits
        return [
            Ack(bits(20)),
            Nack(bits(20)),
            Init(bits(20), bits(16)),
            InitEcho(bits(20), bits(16)),
            CfUpdate(bits(5), bits(15), bits(5), bits(15)),
            LinkSignal(bits(20), bits(16)),
        ]

    def data(self, header: Header) -> DataFrame:
        payload = self.chance.randbytes(self.chance.choice((0, 1, 64, 256, 1000)))
        check = self.chance.choice((FrameCheck.GOOD, FrameCheck.GOOD, FrameCheck.POISONED))
        return DataFrame(self.address(), self.address(), self.bits(5), header, payload, self.sequence(), check)

    def cc_update(self) -> CcUpdateFrame:
        counts = tuple((self.bits(5), self.bits(20)) for _ in range(self.chance.randint(1, 10)))
        return CcUpdateFrame(self.address(), self.address(), counts, self.sequence())

    def control(self, first: Ctlos) -> ControlFrame:
        others = self.chance.sample(self.sets(), self.chance.randint(0, 3))
        return ControlFrame(self.address(), self.address(), (first, *others), self.bits(63))

    def address(self) -> bytes:
        return b"\x02" + self.chance.randbytes(5)

    def sequence(self) -> int | None:
        return self.chance.choice((None, self.bits(20)))
