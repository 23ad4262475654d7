"""Two endpoints and a switch in virtual time, over links that lose frames: with LLR, and without."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from virtual_domain import Closing, VirtualDomain

from testbed.protocols.scale_up.domain import binding
from testbed.protocols.scale_up.domain.endpoint import Kind
from testbed.protocols.scale_up.domain.errors import Outcome
from testbed.protocols.scale_up.domain.link import LinkSettings
from testbed.protocols.scale_up.retry import RetryConfig

PATTERN = random.Random(9).randbytes(1 << 20)
TIMEOUT_NS = 50_000_000
RETRY = RetryConfig(outstanding_frames_max=32, replay_timer_ns=1_000_000, replay_count_max=255)
FORGIVEN_NS = 500_000_000
"""After so long a plane by which a peer could not be reached is tried again (`endpoint_planes.c`)."""


@dataclass(slots=True)
class LossyWire:
    """A share of all frames, control frames too, is lost or damaged."""

    share: float
    draw: random.Random = field(default_factory=lambda: random.Random(5))

    def __call__(self, data: bytes) -> bytes | None:
        if self.draw.random() >= self.share:
            return data
        if self.draw.random() < 0.5:
            return None
        place = self.draw.randrange(14, len(data))
        return data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]


def lossy(retry: RetryConfig | None, share: float) -> VirtualDomain:
    link = LinkSettings(rate_bps=1_000_000_000, delay_ns=5_000, heartbeat_ns=200_000, silence_ns=0, retry=retry)
    return VirtualDomain(link, 2, timeout_ns=TIMEOUT_NS, wire=LossyWire(share))


def write(domain: VirtualDomain) -> int:
    """Write from GPU 0 into the window of GPU 1: how that ended."""
    handle = domain.begin(0, Kind.WRITE, 1, PATTERN)
    domain.run(domain.now + 20 * TIMEOUT_NS, handle)
    return int(domain.ended[handle].outcome)


@pytest.mark.parametrize("loss", [0.0, 0.01, 0.05])
def test_with_retry_everything_arrives_once(closing: Closing, loss: float) -> None:
    domain = closing(lossy(RETRY, loss))
    assert write(domain) == Outcome.OK
    assert domain.memory[1].raw[: len(PATTERN)] == PATTERN
    ports = domain.core.counters()
    assert ports[0]["vcs"][0]["rx_frames"] == ports[1]["vcs"][0]["tx_frames"] == len(PATTERN) // 4096
    replays = sum(port["retry"]["tx_nack_ctl_os"] for port in ports)
    replays += sum(
        binding.as_dict(domain.native.endpoint_retry_sender(item, 0).contents)["tx_replay"] for item in domain.endpoints
    )
    assert (replays > 0) is (loss > 0)
    assert not any(vc["dropped_frames"] for port in ports for vc in port["vcs"])
    assert sum(port["leaked_credits"] for port in ports) == 0


def test_without_retry_transactions_time_out(closing: Closing) -> None:
    domain = closing(lossy(None, 0.05))
    assert write(domain) == Outcome.TIMEOUT


@pytest.mark.parametrize("retry", [RETRY, None])
def test_what_a_dead_end_has_sent_does_not_bring_it_back(closing: Closing, retry: RetryConfig | None) -> None:
    """Its frames may be under way for long: here as long as it takes until another end is there."""
    domain = closing(lossy(retry, 0.0))
    assert write(domain) == Outcome.OK
    domain.core.set_peer(1, False, domain.now)
    began = domain.now
    assert write(domain) == Outcome.LINK_DOWN
    assert domain.now - began < TIMEOUT_NS
    assert [port["downs"] for port in domain.core.counters()] == [0, 1]
    domain.core.set_peer(1, True, domain.now)
    domain.run(domain.now + FORGIVEN_NS)
    assert write(domain) == Outcome.OK
    assert [port["downs"] for port in domain.core.counters()] == [0, 1]
