"""Links of a scale-up domain that go wrong: its wires lose and damage frames, slow down and fall silent."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from domain_lab import DomainLab, domain_lab

from testbed.daemons.switchd.errors import SwitchError
from testbed.protocols.scale_up.domain.endpoint import Endpoint, Spray
from testbed.protocols.scale_up.domain.link import LinkSettings
from testbed.protocols.scale_up.domain.windows import WindowReference
from testbed.protocols.scale_up.retry import RetryConfig

pytestmark = [pytest.mark.netns]

SIZE = 1 << 20
FRAMES = 4 * SIZE // 4096
"""Of a copy of 4 MiB."""
RATE_BPS = 100_000_000
RETRY = RetryConfig(outstanding_frames_max=32, replay_timer_ns=20_000_000, replay_count_max=255)


def target_window(lab: DomainLab, target: Endpoint, size: int = SIZE) -> tuple[bytearray, WindowReference]:
    memory = bytearray(size)
    window = target.export(memory)
    for peer in range(lab.description.gpus):
        window.authorise(peer)
    return memory, window.reference()


def seconds_of(lab: DomainLab, source: Endpoint, window: WindowReference, data: bytes) -> float:
    begun = time.monotonic()
    lab.endpoints.wait(source, source.write(window, data), 60.0)
    return time.monotonic() - begun


def test_retry_heals_what_a_wire_does_to_frames(tmp_path: Path) -> None:
    """S2: lost and damaged frames of both directions are sent again; memory is whole and no credit is missing."""
    link = LinkSettings(rate_bps=RATE_BPS, delay_ns=100_000, retry=RETRY)
    data = random.Random(4).randbytes(4 * SIZE)
    with domain_lab(tmp_path, link, gpus=2, planes=1) as lab:
        source, target = lab.gpu(0), lab.gpu(1)
        memory, window = target_window(lab, target, 4 * SIZE)
        assert lab.switch.set_link(0, 0, loss=0.01, seed=3).corrupt == 0
        assert lab.switch.set_link(0, 0, corrupt=0.01).loss == 0.01
        lab.switch.set_link(1, 0, loss=0.02, burst=3, seed=4)
        lab.endpoints.wait(source, source.write(window, data), 60.0)
        back = bytearray(len(data))
        lab.endpoints.wait(source, source.read(window, back), 60.0)
        assert memory == data == back
        faulty, bursty = lab.switch.status()["ports"]
        for port in (faulty, bursty):
            assert port["wire_lost_rx"] and port["wire_lost_tx"]
            assert port["retry"]["rx_missing_seq"] or port["retry"]["rx_bad"]
        assert faulty["wire_damaged_rx"] and faulty["wire_damaged_tx"] and not bursty["wire_damaged_rx"]
        assert faulty["errors"]["loss"] == 0.01
        lab.switch.reset_link(0, 0)
        lab.switch.reset_link(1, 0)
        lab.endpoints.run(0.2)
        for gpu, port in zip((source, target), lab.switch.status()["ports"], strict=True):
            assert port["leaked_credits"] == 0 and port["errors"]["loss"] == 0
            for ours, theirs in zip(gpu.counters()["planes"][0]["vcs"], port["vcs"], strict=True):
                assert ours["s_cc"] == ours["s_cf"] == theirs["r_cc"] == theirs["r_cf"]


def test_no_such_link_or_change(tmp_path: Path) -> None:
    with domain_lab(tmp_path, LinkSettings(rate_bps=RATE_BPS), gpus=2, planes=1) as lab:
        for gpu, plane, changes in (
            (2, 0, {}),
            (0, 1, {}),
            (0, 0, {"loss": 2.0}),
            (0, 0, {"lost": 1}),
            (0, 0, {"every": "x"}),
        ):
            with pytest.raises(SwitchError):
                lab.switch.set_link(gpu, plane, **changes)


@pytest.mark.parametrize("spray", list(Spray))
def test_a_plane_goes_down_and_comes_back(tmp_path: Path, spray: Spray) -> None:
    """S8: what a plane carried goes on by those that are left, or waits for it where an address has its plane. One that
    the target has lost is not used for it, and is for others."""
    link = LinkSettings(
        rate_bps=RATE_BPS, delay_ns=100_000, retry=dataclasses.replace(RETRY, pcs_lost_timeout_ns=50_000_000)
    )
    data = random.Random(6).randbytes(4 * SIZE)
    with domain_lab(tmp_path, link, gpus=3, planes=2) as lab:
        source, target, other = lab.gpu(0, spray=spray), lab.gpu(1), lab.gpu(2)
        memory, window = target_window(lab, target, 4 * SIZE)
        whole = seconds_of(lab, source, window, data)
        handle = source.write(window, bytes(4 * SIZE))
        lab.endpoints.run(whole / 3)
        lab.switch.set_link(0, 1, down=True)
        if spray is Spray.PINNED:
            with pytest.raises(TimeoutError):
                lab.endpoints.wait(source, handle, 1.0)
            assert source.planes_down() == [1]
            lab.switch.reset_link(0, 1)
            lab.endpoints.wait(source, handle)
            assert memory == bytes(4 * SIZE)
            return
        lab.endpoints.wait(source, handle)
        assert source.planes_down() == [1] and memory == bytes(4 * SIZE)
        assert source.counters()["moved"] > 0
        assert carried(lab, source, window, data) == [FRAMES, 0]
        assert memory == data

        lab.switch.reset_link(0, 1)
        lab.switch.set_link(1, 1, down=True)
        _wait_until(lab, lambda: not source.planes_down() and target.planes_down() == [1])
        lab.endpoints.wait(source, source.write(window, bytes(SIZE)))
        assert source.counters()["unreachable"] > 0 and memory[:SIZE] == bytes(SIZE)
        _, elsewhere = target_window(lab, other, 4 * SIZE)
        assert carried(lab, source, elsewhere, data) == [FRAMES // 2, FRAMES // 2]
        lab.switch.reset_link(1, 1)
        _wait_until(lab, lambda: not target.planes_down())
        lab.endpoints.run(0.6)
        assert carried(lab, source, window, data) == [FRAMES // 2, FRAMES // 2]


def carried(lab: DomainLab, source: Endpoint, window: WindowReference, data: bytes) -> list[int]:
    """The frames of a copy, by plane."""
    counts = []
    for copy in (False, True):
        if copy:
            lab.endpoints.wait(source, source.write(window, data))
        ports = lab.switch.status()["ports"]
        counts.append([port["vcs"][0]["rx_frames"] for port in ports if port["gpu"] == source.gpu])
    return [after - before for before, after in zip(*counts, strict=True)]


def _wait_until(lab: DomainLab, condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it does not come about"
        lab.endpoints.run(0.02)
