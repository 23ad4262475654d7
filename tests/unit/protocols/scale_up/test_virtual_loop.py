"""A domain in virtual time as one thing: the loop in C does what is due, and stops where somebody has to collect."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from testbed.protocols.errors import UsageError
from testbed.protocols.scale_up.domain import build as scale_up_domain
from testbed.protocols.scale_up.domain.endpoint import Gpu
from testbed.protocols.scale_up.domain.errors import LinkDown
from testbed.protocols.scale_up.domain.link import LinkErrors, LinkSettings
from testbed.protocols.scale_up.domain.virtual import VirtualDomain, VirtualEndpoint

RATE_BPS, DELAY_NS = 1_000_000_000, 5_000
LINK = LinkSettings(rate_bps=RATE_BPS, delay_ns=DELAY_NS)
FRAME_NS = LINK.frame_bytes * 8
MAC = bytes(6)
FAR = 10_000_000_000


class Rig:
    """A domain, its clock, and how often it said that there is something to do."""

    def __init__(self, gpus: int = 2, planes: int = 1, seed: int = 1) -> None:
        self.now = 1
        self.touches = 0
        self.domain = VirtualDomain(
            scale_up_domain.build(),
            [LINK] * planes,
            gpus=gpus,
            voq=False,
            clock_ns=lambda: self.now,
            draw=Random(seed).randrange,
            touched=self._touched,
        )
        gpu_of = [
            Gpu(gpu=number, gpus=gpus, interfaces=[""] * planes, addresses=[(MAC, MAC)] * planes, link=LINK)
            for number in range(gpus)
        ]
        self.ends = [self.domain.open(gpu) for gpu in gpu_of]
        self.buffers = [bytearray(1 << 20) for _ in gpu_of]
        self.windows = [end.export(buffer) for end, buffer in zip(self.ends, self.buffers, strict=True)]
        for window in self.windows:
            for peer in range(gpus):
                window.authorise(peer)

    def _touched(self) -> None:
        self.touches += 1

    def greet(self) -> None:
        """Let ends learn of each other, which takes a second heartbeat."""
        self.domain.run(self.now, 15_000_000)
        self.now = 15_000_000

    def go(self, until: int = FAR) -> int:
        self.now = self.domain.run(self.now, until)
        return self.now


@pytest.fixture
def rig(clang: None) -> Iterator[Rig]:
    made = Rig()
    yield made
    made.domain.close()


def test_it_stops_at_the_ns_at_which_an_operation_is_done(rig: Rig) -> None:
    rig.greet()
    began = rig.now
    rig.ends[0].write(rig.windows[1].reference(), b"x" * 4096)
    ended = rig.go()
    [done] = rig.ends[0].completions()
    assert done.error is None and done.ended_ns == ended and done.begun_ns == began
    least = 4 * DELAY_NS + 2 * FRAME_NS
    assert least < ended - began < least + 2_000, "two frames' times, short answers, and four propagations"
    assert bytes(rig.buffers[1][:4096]) == b"x" * 4096
    assert rig.domain.lost_frames == 0


def test_it_does_not_go_beyond_the_time_that_it_is_given(rig: Rig) -> None:
    rig.greet()
    rig.ends[0].write(rig.windows[1].reference(), b"x" * 4096)
    until = rig.now + FRAME_NS
    due = rig.domain.run(rig.now, until)
    assert until < due < until + 2 * DELAY_NS and not list(rig.ends[0].completions())
    rig.now = due
    rig.go()
    assert len(list(rig.ends[0].completions())) == 1


def test_whoever_asks_for_something_says_so(rig: Rig) -> None:
    before = rig.touches
    rig.ends[0].write(rig.windows[1].reference(), b"x")
    rig.domain.set_errors(0, 0, LinkErrors(loss=0.5))
    assert rig.touches == before + 2


def test_an_end_that_is_shut_is_nobodys_and_can_be_opened_again(rig: Rig) -> None:
    gpu = rig.ends[1].settings
    with pytest.raises(UsageError, match="has an end already"):
        rig.domain.open(gpu)
    rig.domain.shut(rig.ends[1])
    assert isinstance(rig.domain.open(gpu), VirtualEndpoint)


def test_a_switch_that_dies_ends_what_is_under_way_and_another_one_goes_on(rig: Rig) -> None:
    rig.greet()
    rig.ends[0].write(rig.windows[1].reference(), bytes(1 << 18))
    rig.now = min(rig.domain.run(rig.now, rig.now + 10 * FRAME_NS), FAR)
    rig.domain.kill_switch()
    rig.go(rig.now + 1_000_000)
    [done] = rig.ends[0].completions()
    assert isinstance(done.error, LinkDown)
    rig.domain.start_switch()
    rig.go(rig.now + 100_000_000)
    rig.ends[0].write(rig.windows[1].reference(), b"y" * 4096)
    rig.go()
    [done] = rig.ends[0].completions()
    assert done.error is None and bytes(rig.buffers[1][:4096]) == b"y" * 4096


def test_an_idle_domain_has_heartbeats_alone(rig: Rig) -> None:
    assert 5_000_000_000 < rig.go(5_000_000_000) < 6_000_000_000, "it always has something to do, now and then"
    assert rig.ends[0].counters()["planes"][0]["control_tx"] < 40


def test_the_same_draws_give_the_same_times(clang: None) -> None:
    ended = []
    for _ in range(2):
        made = Rig(gpus=3, planes=2, seed=7)
        made.greet()
        for number in range(3):
            made.ends[number].write(made.windows[(number + 1) % 3].reference(), bytes(1 << 16))
        times = []
        while len(times) < 3:
            made.go()
            times += [(end.gpu, done.ended_ns) for end in made.ends for done in end.completions()]
        ended.append(times)
        made.domain.close()
    assert ended[0] == ended[1]
