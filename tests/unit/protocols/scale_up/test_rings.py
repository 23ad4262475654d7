"""How many frames can wait in memory that is shared with the kernel."""

from __future__ import annotations

from testbed.protocols.scale_up.domain.link import FlowControl, LinkSettings

RATE_BPS = 50_000_000


def test_an_end_has_room_for_all_that_credits_let_come() -> None:
    link = LinkSettings(rate_bps=RATE_BPS, capacity=(64, 100))
    assert link.ring_frames >= 64 + 100  # a frame takes a credit at least


def test_an_end_whose_sender_is_not_limited_has_no_ring() -> None:
    assert LinkSettings(rate_bps=RATE_BPS, flow_control=FlowControl.PFC).ring_frames == 0
    assert LinkSettings(rate_bps=RATE_BPS, flow_control=FlowControl.NONE).ring_frames == 0
    assert LinkSettings(rate_bps=RATE_BPS, best_effort=(1,)).ring_frames == 0


def test_a_switch_has_room_by_its_ports_within_limits() -> None:
    link = LinkSettings(rate_bps=RATE_BPS, capacity=(64, 64))
    few, some, many = (link.switch_ring_frames(ports) for ports in (1, 32, 288))
    assert few < some == 32 * link.ring_frames < many
    assert many * link.frame_bytes < 40e6
