"""What one direction has received: CACK, SACK, and responses that wait for their CLEAR."""

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
