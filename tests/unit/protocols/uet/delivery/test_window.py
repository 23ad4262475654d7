"""Packets that wait for their acknowledgement, and which PSNs an ACK may name."""

import pytest

from testbed.protocols.uet.delivery.window import PacketState, SendWindow, TxPacket
from testbed.protocols.uet.packets.codes import NextHeader
from testbed.protocols.uet.packets.psn import psn_add

STARTS = pytest.mark.parametrize("start", [0, 1000, 0x7FFF_FFFE, 0xFFFF_FFFE])


def window_of(start: int, count: int) -> tuple[SendWindow, list[TxPacket]]:
    window = SendWindow(start)
    packets = [TxPacket(None, NextHeader.NONE, b"") for _ in range(count)]
    for packet in packets:
        window.add(packet)
    return window, packets


@STARTS
def test_what_was_sent(start: int) -> None:
    window, _ = window_of(start, 3)
    assert [window.was_sent(psn_add(start, offset)) for offset in range(-2, 5)] == [0, 0, 1, 1, 1, 0, 0]
    assert [window.may_be_cumulative(psn_add(start, offset)) for offset in range(-3, 5)] == [0, 0, 1, 1, 1, 1, 0, 0]
    assert not window.was_sent(psn_add(start, 0x8000_0000))


def test_nothing_was_sent() -> None:
    window = SendWindow(9)
    assert not window.was_sent(8) and not window.was_sent(9)
    assert window.may_be_cumulative(8) and not window.may_be_cumulative(9)


def test_acks_are_understood_after_more_packets_than_there_are_psns() -> None:
    window = SendWindow(5)
    # As after 2**31 + 100 packets, all of them acknowledged: nobody waits for that many.
    window.sent = (1 << 31) + 100
    window.next_psn = psn_add(5, window.sent)
    window.clear_psn = window.cack_psn = psn_add(window.next_psn, -1)
    packet = TxPacket(None, NextHeader.NONE, b"")
    window.add(packet)
    assert window.may_be_cumulative(packet.psn) and window.was_sent(packet.psn)
    assert not window.was_sent(psn_add(packet.psn, 1))
    assert window.cumulative(packet.psn) == [packet]


def test_abandoned_packets() -> None:
    window, packets = window_of(0, 3)
    packets[1].state = PacketState.DONE
    assert window.abandon() == [packets[0], packets[2]]
    assert len(window) == 0
