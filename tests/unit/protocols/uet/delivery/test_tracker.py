"""What one direction has received: CACK, SACK, and responses that wait for their CLEAR."""

from __future__ import annotations

import pytest

from testbed.protocols.uet.delivery.tracker import ReceiveTracker, StoredResponse
from testbed.protocols.uet.packets.codes import NextHeader
from testbed.protocols.uet.packets.psn import psn_add, psn_distance

RESPONSE = StoredResponse(NextHeader.RESPONSE, b"kept")
STARTS = pytest.mark.parametrize("start", [0, 1, 1000, 0x7FFF_FFFE, 0xFFFF_FFFE, 0xFFFF_FFFF])


def tracker_with(start: int, *offsets: int) -> ReceiveTracker:
    tracker = ReceiveTracker(start)
    for offset in offsets:
        assert tracker.add(psn_add(start, offset))
    return tracker


@STARTS
def test_nothing_received(start: int) -> None:
    tracker = ReceiveTracker(start)
    assert psn_distance(tracker.cack_psn, start) == -1
    assert tracker.highest == tracker.contiguous == tracker.cack_psn
    assert not tracker.has(start)
    assert tracker.out_of_order == 0


@STARTS
def test_gaps_hold_the_cumulative_psn_back(start: int) -> None:
    tracker = tracker_with(start, 0, 1, 3, 6)
    assert psn_distance(tracker.cack_psn, start) == 1
    assert tracker.out_of_order == 2
    assert psn_distance(tracker.highest, start) == 6
    assert tracker.add(psn_add(start, 2))
    assert psn_distance(tracker.cack_psn, start) == 3
    assert not tracker.add(psn_add(start, 3))
    assert [tracker.has(psn_add(start, offset)) for offset in range(8)] == [1, 1, 1, 1, 0, 0, 1, 0]


@STARTS
def test_sack_begins_behind_the_gap_free_part(start: int) -> None:
    tracker = tracker_with(start, 0, 2, 3, 60)
    base, bitmap = tracker.sack(psn_add(start, 3))
    assert psn_distance(base, start) == 1
    assert bitmap == 0b110 | 1 << 59


@STARTS
def test_sack_follows_a_psn_far_ahead(start: int) -> None:
    tracker = tracker_with(start, 0, 2, 100, 200)
    base, bitmap = tracker.sack(psn_add(start, 200))
    assert psn_distance(base, start) == 137
    assert bitmap == 1 << 63


@pytest.mark.parametrize("offset", [201, 5000, 0x7FFF_FFFF, -5, -0x8000_0000])
def test_sack_of_a_psn_that_was_never_sent_stays_with_what_was_received(offset: int) -> None:
    tracker = tracker_with(7, 0, 200)
    base, bitmap = tracker.sack(psn_add(7, offset))
    assert 0 <= psn_distance(base, 7) <= 200
    assert bitmap in (0, 1 << 63)


@STARTS
def test_cack_waits_for_the_clear_of_responses(start: int) -> None:
    tracker = tracker_with(start, 0, 1, 2, 4)
    tracker.hold(psn_add(start, 2), RESPONSE)
    tracker.hold(psn_add(start, 1), RESPONSE)
    tracker.hold(psn_add(start, 4), RESPONSE)
    assert psn_distance(tracker.cack_psn, start) == 0
    tracker.clear(psn_add(start, 1))
    assert psn_distance(tracker.cack_psn, start) == 1
    assert tracker.held(psn_add(start, 1)) is None and tracker.held(psn_add(start, 2)) == RESPONSE
    tracker.clear(psn_add(start, 3))
    assert psn_distance(tracker.cack_psn, start) == 2  # 3 is missing; 4 is kept above the gap
    assert tracker.holds == 1
    tracker.add(psn_add(start, 3))
    assert psn_distance(tracker.cack_psn, start) == 3
    tracker.clear(psn_add(start, 4))
    assert psn_distance(tracker.cack_psn, start) == 4 and tracker.holds == 0


@STARTS
def test_a_clear_far_ahead_clears_what_is_kept_and_receives_nothing(start: int) -> None:
    tracker = tracker_with(start, 0)
    tracker.hold(start, RESPONSE)
    tracker.clear(psn_add(start, 0x7000_0000))
    assert tracker.holds == 0
    assert tracker.contiguous == start and not tracker.has(psn_add(start, 1))


def test_a_clear_from_behind_changes_nothing() -> None:
    tracker = tracker_with(100, 0)
    tracker.hold(100, RESPONSE)
    for clear in (99, 0, psn_add(100, 0x8000_0001)):
        tracker.clear(clear)
        assert tracker.holds == 1
