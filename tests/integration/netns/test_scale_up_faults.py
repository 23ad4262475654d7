"""Links of a scale-up domain that go wrong: the switch's wires lose, damage, slow down and fall silent as they are told."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from domain_lab import DomainLab, domain_lab

from testbed.scale_up.domain.endpoint import Endpoint, WindowReference
from testbed.scale_up.domain.errors import TransactionTimeout
from testbed.scale_up.domain.link import LinkSettings
from testbed.scale_up.retry import RetryConfig
from testbed.switchd.errors import SwitchError

pytestmark = [pytest.mark.netns]

SIZE = 1 << 20
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


def test_without_retry_a_lost_frame_is_a_lost_transaction(tmp_path: Path) -> None:
    link = LinkSettings(rate_bps=RATE_BPS, delay_ns=100_000, cc_period_ns=20_000_000)
    with domain_lab(tmp_path, link, gpus=2, planes=1) as lab:
        source, target = lab.gpu(0, timeout_s=0.3), lab.gpu(1)
        _, window = target_window(lab, target)
        lab.switch.set_link(1, 0, every=20)
        with pytest.raises(TransactionTimeout):
            lab.endpoints.wait(source, source.write(window, bytes(SIZE)))
        lab.switch.reset_link(1, 0)
        lab.endpoints.run(0.4)
        lab.endpoints.wait(source, source.write(window, bytes(SIZE)))
        assert sum(item["leaked_credits"] for item in target.counters()["planes"]) > 0, "CC_Updates brought them back"


def test_planes_have_rates_of_their_own_and_one_becomes_slow(tmp_path: Path) -> None:
    """A copy is spread by the rates of the planes; a link that falls back to half carries half, in both directions."""
    link = LinkSettings(rate_bps=40_000_000, delay_ns=100_000)
    with domain_lab(tmp_path, link, gpus=2, planes=2, plane_rates_bps=(40_000_000, 80_000_000)) as lab:
        source, target = lab.gpu(0), lab.gpu(1)
        _, window = target_window(lab, target, 2 * SIZE)
        data = bytes(2 * SIZE)
        seconds_of(lab, source, window, data[:SIZE])
        alone = seconds_of(lab, source, window, data)
        assert alone == pytest.approx(2 * SIZE * 8 / 120e6, rel=0.25)
        lab.switch.set_link(0, 1, rate_bps=20_000_000)
        slow = seconds_of(lab, source, window, data)
        assert slow == pytest.approx(2 * SIZE * 8 / 60e6, rel=0.25)
        lab.switch.reset_link(0, 1)
        assert seconds_of(lab, source, window, data) < 1.3 * alone


def test_no_such_link_or_change(tmp_path: Path) -> None:
    with domain_lab(tmp_path, LinkSettings(rate_bps=RATE_BPS), gpus=2, planes=1) as lab:
        for gpu, plane, changes in ((2, 0, {}), (0, 1, {}), (0, 0, {"loss": 2.0}), (0, 0, {"lost": 1}), (0, 0, {"every": "x"})):
            with pytest.raises(SwitchError):
                lab.switch.set_link(gpu, plane, **changes)
