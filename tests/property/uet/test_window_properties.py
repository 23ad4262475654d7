"""Receiver's tracker and sender's window against sets of numbers, across the wrapping of PSNs."""

from hypothesis import given
from hypothesis import strategies as st

from testbed.protocols.uet.delivery.tracker import SACK_BITS, ReceiveTracker, StoredResponse
from testbed.protocols.uet.delivery.window import PacketState, SendWindow, TxPacket
from testbed.protocols.uet.packets.codes import NextHeader
from testbed.protocols.uet.packets.psn import psn_add, psn_distance

RESPONSE = StoredResponse(NextHeader.RESPONSE, b"")
REACH = 150
starts = st.one_of(st.integers(0, 0xFFFF_FFFF), st.integers(-REACH, 5).map(lambda value: value & 0xFFFF_FFFF))
offsets = st.integers(0, REACH)
arrivals = st.lists(
    st.one_of(
        st.tuples(st.just("add"), offsets),
        st.tuples(st.just("hold"), offsets),
        st.tuples(st.just("clear"), st.integers(-3, 2 * REACH)),
    ),
    max_size=80,
)


def gap_free(numbers: set[int]) -> int:
    highest = -1
    while highest + 1 in numbers:
        highest += 1
    return highest


@given(starts, arrivals, offsets)
def test_the_tracker_is_a_set(start: int, events: list[tuple[str, int]], asked: int) -> None:
    tracker = ReceiveTracker(start)
    received: set[int] = set()
    held: set[int] = set()
    for kind, offset in events:
        psn = psn_add(start, offset)
        if kind == "clear":
            tracker.clear(psn)
            held = {number for number in held if number > offset}
            continue
        assert tracker.add(psn) is (offset not in received)
        fresh = offset not in received
        received.add(offset)
        if kind == "hold" and fresh:
            tracker.hold(psn, RESPONSE)
            held.add(offset)
        contiguous = gap_free(received)
        assert psn_distance(tracker.contiguous, start) == contiguous
        lowest = min(held, default=contiguous + 1)
        assert psn_distance(tracker.cack_psn, start) == min(contiguous, lowest - 1)
        assert tracker.out_of_order == len([number for number in received if number > contiguous])
        assert psn_distance(tracker.highest, start) == max(received)
    assert tracker.holds == len(held)
    assert {number for number in range(REACH + 1) if tracker.held(psn_add(start, number))} == held
    assert {number for number in range(REACH + 1) if tracker.has(psn_add(start, number))} == received
    base, bitmap = tracker.sack(psn_add(start, asked))
    first = psn_distance(base, start)
    assert bitmap >> SACK_BITS == 0
    for bit in range(SACK_BITS):
        assert bool(bitmap >> bit & 1) is (first + bit in received)
    if asked in received and asked > gap_free(received):
        assert first <= asked < first + SACK_BITS


@given(starts, st.lists(st.one_of(st.just(-1), st.integers(0, 400), st.integers(1000, 1400)), max_size=60))
def test_the_window_is_a_set(start: int, events: list[int]) -> None:
    """-1 sends one more; others are a cumulative ACK, or (from 1000 on) the ACK of one packet."""
    window = SendWindow(start)
    sent = 0
    waiting: set[int] = set()
    cumulative = -1
    for event in events:
        if event == -1:
            for _ in range(7):
                window.add(TxPacket(None, NextHeader.NONE, b""))
                waiting.add(sent)
                sent += 1
        elif event >= 1000:
            packet = window.get(psn_add(start, event - 1000))
            assert (packet is not None) is (event - 1000 in waiting or waiting_below(waiting, event - 1000, sent))
            if packet is not None:
                packet.state = PacketState.DONE
                waiting.discard(event - 1000)
                window.advance()
        else:
            psn = psn_add(start, event)
            assert window.may_be_cumulative(psn) is (event < sent)
            assert window.was_sent(psn) is (event < sent)
            if event >= sent:
                continue
            newly = window.cumulative(psn)
            expected = sorted(number for number in waiting if number <= event) if event > cumulative else []
            assert [psn_distance(packet.psn, start) for packet in newly] == expected
            for packet in newly:
                packet.state = PacketState.DONE
            waiting -= set(expected)
            cumulative = max(cumulative, event)
        assert psn_distance(window.clear_psn, start) == min(waiting, default=sent) - 1
        assert window.outstanding == sent - 1 - cumulative
        assert {psn_distance(packet.psn, start) for packet in window if packet.state != PacketState.DONE} == waiting


def waiting_below(waiting: set[int], number: int, sent: int) -> bool:
    """An acknowledged packet stays in the window as long as one before it is not acknowledged."""
    return number < sent and any(other < number for other in waiting)
