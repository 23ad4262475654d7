"""Two endpoints and a switch in virtual time, over links that lose frames: with LLR, and without."""

from __future__ import annotations

import ctypes
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from testbed.protocols.scale_up.domain import binding
from testbed.protocols.scale_up.domain import build as scale_up_domain
from testbed.protocols.scale_up.domain.errors import Outcome
from testbed.protocols.scale_up.domain.link import LinkSettings
from testbed.protocols.scale_up.domain.switch_core import SwitchCore
from testbed.protocols.scale_up.retry import RetryConfig

SIZE = 1 << 20
KEY = 77
TIMEOUT_NS = 50_000_000
RETRY = RetryConfig(outstanding_frames_max=32, replay_timer_ns=1_000_000, replay_count_max=255)
WRITE = 2
FORGIVEN_NS = 500_000_000
"""After so long a plane by which a peer could not be reached is tried again (`endpoint_planes.c`)."""


@pytest.fixture(autouse=True)
def clang() -> None:
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed")


@dataclass(slots=True)
class LossyDomain:
    """GPU 0 and GPU 1, one plane. A share of all frames, control frames too, is lost or damaged on each link."""

    retry: RetryConfig | None
    loss: float
    native: Any = field(default_factory=scale_up_domain.library)
    link: LinkSettings = field(init=False)
    core: SwitchCore = field(init=False)
    endpoints: list[int] = field(init=False)
    now: int = 1
    lost: int = 0
    draw: random.Random = field(default_factory=lambda: random.Random(5))

    def __post_init__(self) -> None:
        self.link = LinkSettings(
            rate_bps=1_000_000_000, delay_ns=5_000, heartbeat_ns=200_000, silence_ns=0, retry=self.retry
        )
        links = (binding.LinkConfig * 2)(*(self._native(200 + gpu) for gpu in range(2)))
        self.core = SwitchCore(self.native, self.link, links, gpus=2, planes=1, now=self.now)
        self.endpoints = []
        for gpu in range(2):
            config = binding.EndpointConfig(
                timeout_ns=TIMEOUT_NS,
                gpu=gpu,
                gpus=2,
                planes=1,
                response_vc=1,
                coarse=self.link.coarse,
                outstanding=binding.TAGS,
                frames=2048,
                frame_bytes=self.link.frame_bytes,
            )
            handle = self.native.endpoint_new(config, (binding.LinkConfig * 1)(self._native(100 + gpu)), self.now)
            assert handle
            self.endpoints.append(handle)

    def _native(self, epoch: int) -> binding.LinkConfig:
        return self.link.native(bytes(6), bytes(6), epoch=epoch)

    def close(self) -> None:
        self.core.close()
        for endpoint in self.endpoints:
            self.native.endpoint_free(endpoint)

    def on_the_wire(self, data: bytes) -> bytes | None:
        """What arrives of a frame."""
        if self.draw.random() >= self.loss:
            return data
        self.lost += 1
        if self.draw.random() < 0.5:
            return None
        place = self.draw.randrange(14, len(data))
        return data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]

    def run(self, until_ns: int) -> binding.Completion | None:
        """The first operation of GPU 0 that is done; None: none is by then."""
        frame, done = ctypes.create_string_buffer(self.link.frame_bytes), binding.Completion()
        while self.now < until_ns:
            for gpu, endpoint in enumerate(self.endpoints):
                self.native.endpoint_work(endpoint, self.now)
                while length := self.native.endpoint_get(endpoint, 0, frame, len(frame)):
                    if (data := self.on_the_wire(frame.raw[:length])) is not None:
                        self.core.receive(gpu, data, self.now)
            for port, sent in self.core.work(self.now):
                if (data := self.on_the_wire(sent)) is not None:
                    assert self.native.endpoint_put(self.endpoints[port], 0, data, len(data), self.now)
            if self.native.endpoint_completion(self.endpoints[0], done):
                return done
            timers = [self.native.endpoint_next_timer(endpoint) for endpoint in self.endpoints]
            self.now = max(self.now + 1, min(*timers, self.core.next_timer()))
        return None


@pytest.fixture
def made() -> Iterator[list[LossyDomain]]:
    domains: list[LossyDomain] = []
    yield domains
    for domain in domains:
        domain.close()


@pytest.mark.parametrize("loss", [0.0, 0.01, 0.05])
def test_with_retry_everything_arrives_once(made: list[LossyDomain], loss: float) -> None:
    domain = LossyDomain(RETRY, loss)
    made.append(domain)
    done, memory = write(domain)
    assert done is not None and done.outcome == Outcome.OK
    assert memory == pattern()
    ports = domain.core.counters()
    assert ports[0]["vcs"][0]["rx_frames"] == ports[1]["vcs"][0]["tx_frames"] == SIZE // 4096
    replays = sum(port["retry"]["tx_nack_ctl_os"] for port in ports)
    replays += sum(
        binding.as_dict(domain.native.endpoint_retry_sender(item, 0).contents)["tx_replay"] for item in domain.endpoints
    )
    assert (replays > 0) is (loss > 0)
    assert not any(vc["dropped_frames"] for port in ports for vc in port["vcs"])
    assert sum(port["leaked_credits"] for port in ports) == 0


def test_without_retry_transactions_time_out(made: list[LossyDomain]) -> None:
    domain = LossyDomain(None, 0.05)
    made.append(domain)
    done, _ = write(domain)
    assert done is not None and done.outcome == Outcome.TIMEOUT
    assert domain.lost


@pytest.mark.parametrize("retry", [RETRY, None])
def test_what_a_dead_end_has_sent_does_not_bring_it_back(made: list[LossyDomain], retry: RetryConfig | None) -> None:
    """Its frames may be under way for long: here as long as it takes until another end is there."""
    domain = LossyDomain(retry, 0.0)
    made.append(domain)

    def outcome() -> int | None:
        done, _ = write(domain)
        domain.native.endpoint_withdraw(domain.endpoints[1], 0)
        return None if done is None else done.outcome

    assert outcome() == Outcome.OK
    domain.core.set_peer(1, False, domain.now)
    began = domain.now
    assert outcome() == Outcome.LINK_DOWN
    assert domain.now - began < TIMEOUT_NS
    assert [port["downs"] for port in domain.core.counters()] == [0, 1]
    domain.core.set_peer(1, True, domain.now)
    assert domain.run(domain.now + FORGIVEN_NS) is None
    assert outcome() == Outcome.OK
    assert [port["downs"] for port in domain.core.counters()] == [0, 1]


def pattern() -> bytes:
    return random.Random(9).randbytes(SIZE)


def write(domain: LossyDomain) -> tuple[binding.Completion | None, bytes]:
    """Write SIZE bytes from GPU 0 into a window of GPU 1: how that ended, and what is there."""
    memory, data = (ctypes.c_char * SIZE)(), ctypes.create_string_buffer(pattern(), SIZE)
    assert domain.native.endpoint_export(domain.endpoints[1], ctypes.addressof(memory), SIZE, KEY, 7) == 0
    domain.native.endpoint_authorise(domain.endpoints[1], 0, 0, True)
    handle = domain.native.endpoint_begin(
        domain.endpoints[0],
        WRITE,
        1,
        KEY << 35,
        ctypes.addressof(data),
        SIZE,
        0,
        None,
        binding.VC_OF_REQUESTS,
        domain.now,
    )
    assert handle
    return domain.run(20 * TIMEOUT_NS), memory.raw
