"""What a scale-up domain's links do against formulas: real frames through a real switch process.

Scenarios of packets stand on these: where one fails and its twin here does not, it is not the links. What needs no
wires is in tests/unit/protocols/scale_up: losses without flow control, victims, replay windows, lost credits.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest
import scale_up_link_bounds as oracle
from domain_lab import DomainLab, domain_lab
from steady_rates import begin_write, lend, open_gpus, receive_rates, serve

from testbed.protocols.scale_up.domain.binding import OVERHEAD_BYTES, REGION_BYTES
from testbed.protocols.scale_up.domain.endpoint import Endpoint
from testbed.protocols.scale_up.domain.errors import TransactionTimeout
from testbed.protocols.scale_up.domain.link import FlowControl, LinkSettings
from testbed.protocols.scale_up.retry import RetryConfig

pytestmark = [pytest.mark.netns, pytest.mark.timed]
more = pytest.mark.thorough

COARSE = 16
FRAME_BYTES = COARSE * REGION_BYTES + OVERHEAD_BYTES
FRAME_CREDITS = 5
"""Of 1,024 bytes."""
RATE_BPS = 50_000_000
DELAY_NS = 5_000_000
"""One way over a link: its round trip is 10 ms, 15 frames, which is much beside what a busy machine is late."""
FRAME_S = FRAME_BYTES * 8 / RATE_BPS
ROUND_TRIP_S = 2 * DELAY_NS / 1e9
SPACING_S = 6_400 * 8 / RATE_BPS


def waits_s(gpu: Endpoint) -> float:
    """How long requests of a GPU have waited for credits, or for the end of a pause, on its first plane."""
    return float(gpu.counters()["planes"][0]["vcs"][0]["xmit_wait_ns"]) / 1e9


def inputs(lab: DomainLab) -> list[dict[str, Any]]:
    """The first VC of each input of the switch that data came in by."""
    return [port["vcs"][0] for port in lab.switch.status()["ports"] if port["vcs"][0]["rx_frames"]]


@pytest.mark.parametrize("senders", [pytest.param(1, marks=more), 3])
@pytest.mark.parametrize("flow_control", [FlowControl.CREDITS, FlowControl.PFC])
def test_an_incast_shares_the_receiver_and_loses_nothing(
    tmp_path: Path, flow_control: FlowControl, senders: int
) -> None:
    """S1: each has 1/N, the receiver is full, and no buffer is deeper than its limit, or than XOFF and its headroom."""
    room, xoff = 60, 30
    link = LinkSettings(
        rate_bps=RATE_BPS,
        delay_ns=1_000_000,
        flow_control=flow_control,
        capacity=(room * FRAME_CREDITS,) * 2,
        xoff=(xoff * FRAME_CREDITS,) * 2,
        xon=(xoff // 2 * FRAME_CREDITS,) * 2,
    )
    with domain_lab(tmp_path, link, gpus=senders + 1, planes=1) as lab:
        target, *sources = open_gpus(lab, senders + 1)
        for source in sources:
            begin_write(source, target)
        (total,) = receive_rates(lab, [target], settle_s=0.5, measure_s=1.0)
        sent = [source.counters()["planes"][0]["vcs"][0]["tx_bytes"] for source in sources]
        found = inputs(lab)
    assert total / RATE_BPS == pytest.approx(1, abs=0.05)
    for one in sent:
        assert one / sum(sent) == pytest.approx(oracle.incast_share(senders=senders), rel=0.1)
    assert sum(vc["dropped_frames"] for vc in found) == 0
    deepest = max(vc["deepest"] for vc in found) / FRAME_CREDITS
    print(f"{flow_control.name}: {senders} senders: {total / RATE_BPS:.3f}, deepest {deepest:g} frames")
    assert deepest <= room
    if flow_control is FlowControl.PFC and senders > 1:
        assert deepest > xoff


@pytest.mark.parametrize("loops", [*(pytest.param(item, marks=more) for item in (0.25, 0.75, 2.0)), 0.5, 1.0])
def test_a_limit_of_credits(tmp_path: Path, loops: float) -> None:
    """S1c: a line, and a plateau. Where few frames are under way, a CF_Update need not wait for the one before. What is
    missing of the rate is what the sender has waited for credits: 1 - C / (B R)."""
    loop_s = ROUND_TRIP_S + SPACING_S + FRAME_S
    frames = round(loops * loop_s / FRAME_S)
    link = LinkSettings(rate_bps=RATE_BPS, delay_ns=DELAY_NS, capacity=(frames * FRAME_CREDITS, 600))
    with domain_lab(tmp_path, link, gpus=2, planes=1) as lab:
        source, target = open_gpus(lab, 2)
        begin_write(source, target)
        serve(lab, 0.5)
        begun, before = time.monotonic(), waits_s(source)
        (rate,) = receive_rates(lab, [target], settle_s=0.0, measure_s=1.0)
        waited = (waits_s(source) - before) / (time.monotonic() - begun)
    least, most = (
        oracle.credit_share(credits_bytes=frames * FRAME_BYTES, rate_bps=RATE_BPS, loop_s=item)
        for item in (loop_s, loop_s - SPACING_S)
    )
    print(f"{loops} loops: {rate / RATE_BPS:.3f}, expected {least:.3f} to {most:.3f}; waited {waited:.3f}")
    assert 0.9 <= waited + rate / RATE_BPS <= 1.04, "what is missing, this machine was late"
    assert least * 0.94 <= rate / RATE_BPS <= most * 1.04


NEEDED_FRAMES = oracle.frames_of_round_trip(rate_bps=RATE_BPS, round_trip_s=ROUND_TRIP_S, frame_bytes=FRAME_BYTES)


def retry(frames: int, *, replays: int = 255) -> RetryConfig:
    """With a timer of four windows."""
    timer_ns = round(4 * max(frames, NEEDED_FRAMES) * FRAME_S * 1e9)
    return RetryConfig(outstanding_frames_max=frames, replay_timer_ns=timer_ns, replay_count_max=replays)


@pytest.mark.parametrize("loss", [pytest.param(1e-3, marks=more), 1e-2])
def test_a_link_that_loses_sends_again(tmp_path: Path, loss: float) -> None:
    """S2 with LLR: (1 - p) / (1 - p + p W), counted in frames: a machine that is late sends fewer of them, and as many
    for each loss: those of a round trip, and never more than may be outstanding."""
    frames = math.ceil(1.5 * NEEDED_FRAMES)
    link = LinkSettings(rate_bps=RATE_BPS, delay_ns=DELAY_NS, capacity=(600, 600), retry=retry(frames))
    with domain_lab(tmp_path, link, gpus=2, planes=1) as lab:
        source, target = open_gpus(lab, 2)
        lab.switch.set_link(0, 0, loss=loss)
        begin_write(source, target)
        serve(lab, 3.0)
        sent = source.counters()["planes"][0]["retry"]
        taken = lab.switch.status()["ports"][0]["retry"]["rx_expected_seq_good"]
    replays, again = sent["tx_replay"], sent["tx_ok"] - taken
    expected = oracle.retry_share(loss=loss, window_frames=NEEDED_FRAMES)
    print(f"{loss} lost: {taken / sent['tx_ok']:.3f} of the frames are new, expected {expected:.3f}, {replays} replays")
    lost = taken * loss / (1 - loss)
    assert replays == pytest.approx(lost, abs=5 * math.sqrt(lost)) and replays > 0
    assert NEEDED_FRAMES / 2 * replays <= again <= frames * (replays + 1)
    least = oracle.retry_share(loss=replays / (taken + replays), window_frames=frames + frames / replays)
    assert least <= taken / sent["tx_ok"] < 1


def test_without_retry_a_message_survives_if_all_its_frames_do(tmp_path: Path) -> None:
    """S2 without LLR: (1 - p) ^ (h m), for requests and their answers cross the link that loses."""
    loss, messages, frames = 0.01, 200, 32
    link = LinkSettings(rate_bps=4 * RATE_BPS, delay_ns=100_000, capacity=(600, 600), cc_period_ns=20_000_000)
    with domain_lab(tmp_path, link, gpus=2, planes=1) as lab:
        source, target = open_gpus(lab, 2, timeout_s=0.5)
        lab.switch.set_link(0, 0, loss=loss)
        window = lend(target, source)
        for _ in range(messages):
            begin_write(source, window, frames * COARSE * REGION_BYTES)
        done: list[Any] = []
        while len(done) < messages:
            done += serve(lab, 0.1, [source])
    survived = sum(item.error is None for item in done) / messages
    expected = oracle.message_survival(loss=loss, frames=frames, hops=2)
    print(f"{survived:.3f} of the messages, expected {expected:.3f}")
    assert survived == pytest.approx(expected, abs=3.5 * math.sqrt(expected * (1 - expected) / messages))
    assert all(isinstance(item.error, TransactionTimeout) for item in done if item.error)
