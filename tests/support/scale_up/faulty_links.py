"""Two ends of a link that send to each other over wires that lose and damage, and what must hold whatever happens."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from link_end import LinkConfig
from native_link import SenderState, credit_config
from simulated_links import FIRST, OVERHEAD_BYTES, SECOND, Clock, Fault, LinkEnd, connect, frame_of, number_of

from testbed.protocols.scale_up.credits import spacing_ns
from testbed.protocols.scale_up.frames import FrameCheck, is_control
from testbed.protocols.scale_up.retry import FrameAction, RetryConfig

RATE = 100_000_000_000
CC_PERIOD_NS = 20_000
LONGEST = 1500


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """Shares of the frames that something happens to."""

    loss: float = 0.0
    damage: float = 0.0
    control_loss: float = 0.0
    poison: float = 0.0


class FaultyPair:
    """Three VCs each way, two of them lossless."""

    def __init__(
        self,
        seed: int,
        weather: Weather,
        *,
        retry: RetryConfig | None,
        shared: bool = False,
        delay_ns: int = 300,
    ) -> None:
        self.chance = Random(seed)
        self.weather, self.calm = weather, False
        self.clock = Clock()
        credits = credit_config(
            *(40, 30, 0),
            overhead_bytes=self.chance.choice((-16, 0, 20)),
            port_limit=50 if shared else 0,
            cf_min_ns=spacing_ns(800, RATE),
            cf_max_ns=spacing_ns(16_384, RATE),
            cc_period_ns=CC_PERIOD_NS,
        )
        self.ends = tuple(
            LinkEnd(
                self.clock,
                LinkConfig(address=address, peer=peer, sending=credits, receiving=credits, retry=retry),
                rate_bps=RATE,
                delay_ns=delay_ns,
            )
            for address, peer in ((FIRST, SECOND), (SECOND, FIRST))
        )
        connect(*self.ends)
        self.sent: list[list[tuple[int, int, FrameCheck]]] = [[], []]
        for end in self.ends:
            end.fault = self._fault()
            for vc in range(3):
                end.drain_bps[vc] = self.chance.choice((RATE, RATE // 2))
        for end in self.ends:
            end.start()

    def _fault(self) -> Fault:
        def fault(data: bytes) -> bytes | None:
            if self.calm:
                return data
            if is_control(data):
                return None if self.chance.random() < self.weather.control_loss else data
            if self.chance.random() < self.weather.loss:
                return None
            if self.chance.random() < self.weather.damage:
                hurt = bytearray(data)
                hurt[self.chance.randrange(len(hurt))] ^= 1 << self.chance.randrange(8)
                return bytes(hurt)
            return data

        return fault

    def send(self, frames: int) -> None:
        """Let so many frames wait at each end; their numbers rise, for each end and VC."""
        for end, sent in zip(self.ends, self.sent, strict=True):
            for _ in range(frames):
                vc, size = self.chance.randrange(3), self.chance.randrange(OVERHEAD_BYTES + 8, LONGEST)
                check = FrameCheck.POISONED if self.chance.random() < self.weather.poison else FrameCheck.GOOD
                end.backlog.add(frame_of(size, vc=vc, number=len(sent), check=check))
                sent.append((vc, len(sent), check))
            end.pump()

    def run(self, ns: int) -> None:
        self.clock.run(self.clock.now + ns)

    def settle(self, periods: int = 400) -> None:
        """Nothing is lost any more, until nothing waits or is outstanding and two CC_Updates have passed."""
        self.calm = True
        for _ in range(periods):
            self.run(CC_PERIOD_NS)
            waits = any(len(end.backlog) for end in self.ends)
            if not waits and all(self._is_quiet(end) for end in self.ends):
                self.run(3 * CC_PERIOD_NS)
                return
        raise AssertionError("it does not come to rest")

    def _is_quiet(self, end: LinkEnd) -> bool:
        retry = end.link.retry_sender
        drained = sum(end.drained_bytes.values()) == sum(self._size(frame.payload) for frame in end.received)
        return drained and (retry is None or retry.state is SenderState.ADVANCE)

    @staticmethod
    def _size(payload: bytes) -> int:
        return OVERHEAD_BYTES + len(payload)

    def check_credits(self) -> None:
        """No credit is lost: all four counters of each VC are the same, and nothing ever was beyond a limit."""
        for near, far in (self.ends, self.ends[::-1]):
            sender, receiver = near.link.sender, far.link.receiver
            assert sender is not None
            assert receiver is not None
            for vc in (0, 1):
                counters = sender.consumed[vc], sender.freed[vc], receiver.consumed[vc], receiver.freed[vc]
                assert len(set(counters)) == 1, (vc, counters)
            assert (sender.port_in_use, receiver.port_held) == (0, 0)
            assert far.link.counters.no_room == receiver.counters.over_limit_frames == 0
            assert sender.counters.cf_update_errors == receiver.counters.cc_update_errors == 0

    def check_order(self, *, complete: bool) -> None:
        """No frame came twice, or before one that was sent before it; with `complete` none is missing."""
        for sent, far in zip(self.sent, self.ends[::-1], strict=True):
            for vc in range(3):
                wanted = [(number, check) for of, number, check in sent if of == vc]
                had = [(number_of(frame), frame.check) for frame in far.received if frame.vc == vc]
                if complete:
                    assert had == wanted, vc
                numbers = [number for number, _ in had]
                assert numbers == sorted(set(numbers)), vc
                assert set(had) <= set(wanted)


def patient_retry(**changes: Any) -> RetryConfig:
    """LLR that never gives up."""
    settings: dict[str, Any] = {
        "outstanding_frames_max": 20,
        "outstanding_bytes_max": 15_000,
        "replay_timer_ns": 4_000,
        "replay_count_max": 255,
        "init_action": FrameAction.BLOCK,
        "ack_spacing_ns": spacing_ns(2048, RATE),
    }
    return RetryConfig(**(settings | changes))


def hasty_retry(action: FrameAction) -> RetryConfig:
    """LLR that gives up soon, begins again, and does `action` with frames meanwhile."""
    return patient_retry(
        replay_count_max=1,
        data_age_timeout_ns=20_000,
        re_init_on_flush=True,
        init_action=action,
        flush_action=action,
    )
