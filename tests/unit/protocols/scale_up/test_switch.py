"""The switch of a scale-up domain in virtual time, against what theory says of an incast."""

from __future__ import annotations

import pytest
from encoded_frames import encode_frame
from incast import FRAME_BYTES, FRAME_NS, RATE_BPS, Incast, request
from virtual_domain import Closing

from testbed.protocols.errors import UsageError
from testbed.protocols.scale_up.domain import build as scale_up_domain
from testbed.protocols.scale_up.domain.binding import LinkConfig
from testbed.protocols.scale_up.domain.link import FlowControl, LinkSettings
from testbed.protocols.scale_up.domain.switch_core import SwitchCore

DELAY_NS = 20_000
FRAMES = 300
CREDITS_OF_A_FRAME = -(-FRAME_BYTES // 1024)
CAPACITY = 12 * CREDITS_OF_A_FRAME


def settings(flow_control: FlowControl, *, xoff: int = 0, xon: int = 0, delay_ns: int = DELAY_NS) -> LinkSettings:
    thresholds = {"xoff": (xoff, xoff), "xon": (xon, xon)} if xoff else {}
    return LinkSettings(
        rate_bps=RATE_BPS, delay_ns=delay_ns, flow_control=flow_control, capacity=(CAPACITY, CAPACITY), **thresholds
    )


@pytest.mark.parametrize("senders", [1, 2, 3])
def test_credits_share_the_output_and_lose_nothing(closing: Closing, senders: int) -> None:
    """CBFC-10: 99, 50, 33 % each, the receiver 99 %, loss 0."""
    incast = closing(Incast(settings(FlowControl.CREDITS), senders, 10**6))
    span = FRAMES * FRAME_NS
    incast.run(span)
    total = sum(incast.received.values())
    assert total >= 0.98 * FRAMES
    for count in incast.received.values():
        assert abs(count - total / senders) <= 1
    for port in incast.core.counters()[1:]:
        assert port["vcs"][0]["dropped_frames"] == 0
        assert port["vcs"][0]["deepest"] <= CAPACITY
        assert port["cf_update_errors"] == 0


def test_a_limit_of_half_the_loop_is_half_the_rate(closing: Closing) -> None:
    """S1c: rate = limit x unit / (rate x loop), the loop being two propagations, the frame and a CF_Update's wait."""
    delay = 12 * FRAME_NS
    incast = closing(Incast(settings(FlowControl.CREDITS, delay_ns=delay), 1, 10**6))
    incast.run(FRAMES * FRAME_NS)
    share = sum(incast.received.values()) / (FRAMES - 2 * 12)
    assert 12 / (2 * 12 + 3) <= share <= 12 / (2 * 12)


@pytest.mark.parametrize("senders", [2, 4])
def test_without_flow_control_as_much_is_lost_as_finds_no_room(closing: Closing, senders: int) -> None:
    """lost = 1 - (S + Q) / (N S): while S arrives from each sender, S leave and Q stay in the buffers.

    To the frame: when the last ones arrive, the first has left with the first arrival and the S-th has yet to.
    """
    incast = closing(Incast(settings(FlowControl.NONE), senders, FRAMES))
    incast.run(10 * senders * FRAMES * FRAME_NS)
    ports = incast.core.counters()[1:]
    dropped = sum(port["vcs"][0]["dropped_frames"] for port in ports)
    stored = senders * CAPACITY // CREDITS_OF_A_FRAME
    assert sum(incast.received.values()) + dropped == senders * FRAMES
    assert dropped == senders * FRAMES - (FRAMES - 1 + stored)
    assert all(port["vcs"][0]["deepest"] == CAPACITY for port in ports)


def test_pauses_lose_nothing_where_there_is_headroom(closing: Closing) -> None:
    """The headroom is what arrives in two propagations, and a frame at either end."""
    headroom = CREDITS_OF_A_FRAME * (-(-2 * DELAY_NS // FRAME_NS) + 3)
    assert headroom < CAPACITY
    xoff = CAPACITY - headroom
    incast = closing(Incast(settings(FlowControl.PFC, xoff=xoff, xon=xoff // 2), 3, FRAMES))
    incast.run(10 * 3 * FRAMES * FRAME_NS)
    assert sum(incast.received.values()) == 3 * FRAMES
    for port in incast.core.counters()[1:]:
        assert port["vcs"][0]["dropped_frames"] == 0
        assert xoff < port["vcs"][0]["deepest"] <= CAPACITY
        assert port["xoff_tx"] and port["xon_tx"]


def test_pauses_lose_frames_where_there_is_none(closing: Closing) -> None:
    incast = closing(Incast(settings(FlowControl.PFC, xoff=CAPACITY - 1, xon=CAPACITY // 2), 3, FRAMES))
    incast.run(10 * 3 * FRAMES * FRAME_NS)
    dropped = sum(port["vcs"][0]["dropped_frames"] for port in incast.core.counters()[1:])
    assert dropped > 0
    assert sum(incast.received.values()) + dropped == 3 * FRAMES


def test_a_frame_in_anothers_name_is_refused(closing: Closing) -> None:
    incast = closing(Incast(settings(FlowControl.NONE), 2, 0))
    core = incast.core
    for source, destination in ((2, 0), (1, 1), (1, 1023)):
        core.receive(1, encode_frame(request(source, destination)), 0)
    core.receive(1, encode_frame(request(1, 2)), 0)
    sent = core.work(10 * FRAME_NS + DELAY_NS)
    assert core.counters()[1]["refused"] == 3
    assert [port for port, data in sent if data[14] != 0x5C] == [2]
    assert core.held(1, 0) == 0


def behind_others(closing: Closing) -> SwitchCore:
    """GPUs 2 to 5 have each sent a frame to GPU 0 by now, and GPU 5 two to GPU 1 behind it."""
    link, gpus = settings(FlowControl.NONE, delay_ns=0), 6
    links = (LinkConfig * gpus)(*(link.native(bytes(6), bytes(6), epoch=0) for _ in range(gpus)))
    core = closing(SwitchCore(scale_up_domain.library(), link, links, gpus=gpus, planes=1))
    for source, destination in ((2, 0), (3, 0), (4, 0), (5, 0), (5, 1), (5, 1)):
        core.receive(source, encode_frame(request(source, destination)), 0)
    return core


def left(core: SwitchCore, now: int) -> list[tuple[int, int]]:
    """The data frames that leave, by time and port."""
    return [(now, port) for port, data in core.work(now) if data[14] != 0x5C]


def test_an_output_makes_up_for_no_time_in_which_its_frames_stood_behind_others(closing: Closing) -> None:
    """They are in by 2 and 3 frames' times, and the frame before them leaves at 4: then they do, by their own rate."""
    core, now, seen = behind_others(closing), 0, list[tuple[int, int]]()
    while now < 10 * FRAME_NS:
        seen += left(core, now)
        now = max(now + 1, core.next_timer())
    assert [(when, port) for when, port in seen if port == 0] == [(step * FRAME_NS, 0) for step in range(1, 5)]
    assert [(when, port) for when, port in seen if port == 1] == [(step * FRAME_NS, 1) for step in (4, 5)]
    lateness = core.times()["lateness"]
    assert lateness["count"] == 6 and lateness["max_ns"] == 0


def test_a_switch_that_comes_late_makes_up_for_that_behind_others_too(closing: Closing) -> None:
    core, now = behind_others(closing), 10 * FRAME_NS
    assert left(core, now) == [(now, port) for port in (0, 0, 0, 0, 1, 1)]
    lateness = core.times()["lateness"]
    assert lateness["count"] == 6 and lateness["max_ns"] == 9 * FRAME_NS


def test_settings_that_do_not_fit() -> None:
    with pytest.raises(UsageError, match="a frame takes"):
        LinkSettings(rate_bps=RATE_BPS, capacity=(3, 3))
    with pytest.raises(UsageError, match="xon is above xoff"):
        settings(FlowControl.PFC, xoff=4, xon=5)
