"""The message ladders of the specification's figures 3-75 to 3-84, step by step.

In each the PDC is established and idle with PSN = ACK = CLEAR = 332 before the first step.
"""

import pytest
from encoded import encoded
from wire_pair import JOB, MS, WirePair, carrying, header, ses_header

from testbed.protocols.datagram import Outgoing
from testbed.protocols.uet.memory import Access, RemoteBuffer
from testbed.protocols.uet.packets.codes import (
    AckFlag,
    ControlType,
    NackCode,
    NextHeader,
    PdsType,
    RequestFlag,
    ReturnCode,
)
from testbed.protocols.uet.packets.pds import Ack, ControlPacket, Nack, Request
from testbed.protocols.uet.packets.psn import psn_add, psn_distance
from testbed.protocols.uet.packets.responses import ResponseDataSmall
from testbed.protocols.uet.packets.ses import MediumRequest, SmallRequest

KEY = 0x123
PAYLOAD = 1024


class Ladder(WirePair):
    """A pair whose PDC from a to b stands idle at PSN 332, and return direction at 47."""

    def __init__(self, **settings: object) -> None:
        super().__init__(payload_bytes=PAYLOAD, base_rtt_ns=MS, cc="none", **settings)
        self.memory = bytearray(64 * 1024)
        self.b.register(self.memory, Access.REMOTE_READ | Access.REMOTE_WRITE, JOB, KEY)
        self.write(8)
        self.settle()
        (self.pdc,) = self.a.pdcs
        (self.target,) = self.b.pdcs
        self.base = self.pdc.sender.window.next_psn - 333
        self.return_base = self.target.sender.window.next_psn - 48
        assert self.pdc.sender.window.clear_psn == self.psn(332)

    def psn(self, number: int) -> int:
        """The real PSN of a figure's number."""
        return psn_add(self.base, number)

    def write(self, size: int = PAYLOAD) -> None:
        """One WRITE of one packet."""
        self.ea.write(self.to_b, bytes(size), RemoteBuffer(KEY), self.now)

    def request(self, datagram: Outgoing) -> tuple[int, int]:
        """PSN and CLEAR_PSN of a request, in the figure's numbers."""
        item = header(datagram)
        assert isinstance(item, Request)
        return psn_distance(item.psn, self.base), psn_distance(psn_add(item.psn, item.clear_psn_offset), self.base)

    def returned(self, datagram: Outgoing) -> tuple[int, int]:
        """The same, of the return direction."""
        item = header(datagram)
        assert isinstance(item, Request)
        clear = psn_add(item.psn, item.clear_psn_offset)
        return psn_distance(item.psn, self.return_base), psn_distance(clear, self.return_base)

    def ack(self, datagram: Outgoing, base: int | None = None) -> tuple[int, int]:
        """ACK_PSN and CACK_PSN of an ACK."""
        item = header(datagram)
        assert isinstance(item, Ack)
        base = self.base if base is None else base
        return psn_distance(psn_add(item.cack_psn, item.ack_psn_offset), base), psn_distance(item.cack_psn, base)


def one(datagrams: list[Outgoing]) -> Outgoing:
    (datagram,) = datagrams
    return datagram


def test_figure_3_75_a_single_send() -> None:
    pair = Ladder()
    pair.write()
    request = one(pair.take(pair.a))
    assert pair.request(request) == (333, 332)
    pair.give(request)
    ack = one(pair.take(pair.b))
    assert pair.ack(ack) == (333, 333)
    assert not header(ack).flags & AckFlag.REQ_CLEAR
    pair.give(ack)
    assert pair.take(pair.a) == []
    assert pair.ea.completions.pop().ok
    pair.pass_time(100 * MS, lambda _: pytest.fail("nothing is to be cleared"))


def test_figure_3_76_a_guaranteed_response_is_cleared() -> None:
    pair = Ladder()
    operation = pair.ea.write(pair.to_b, b"x", RemoteBuffer(KEY + 1), pair.now)  # no such memory: an error must arrive
    request = one(pair.take(pair.a))
    pair.give(request)
    ack = one(pair.take(pair.b))
    assert pair.ack(ack) == (333, 332)
    assert header(ack).flags & AckFlag.REQ_CLEAR
    assert pair.target.receiver.tracker.holds == 1
    pair.give(ack)
    assert operation.status is ReturnCode.BAD_MKEY
    seen: list[Outgoing] = []
    pair.pass_time(pair.a.config.clear_wait_ns, lambda item: seen.append(item) is None)
    command, answer = seen
    clear = header(command)
    assert isinstance(clear, ControlPacket)
    assert (clear.control_type, clear.payload) == (ControlType.CLEAR_CMD, pair.psn(333))
    assert pair.ack(answer) == (333, 333)
    assert not header(answer).flags & AckFlag.REQ_CLEAR
    assert pair.target.receiver.tracker.holds == 0
    assert pair.target.receiver.tracker.cack_psn == pair.psn(333)


def test_figure_3_77_four_packets_reordered() -> None:
    pair = Ladder()
    for _ in range(4):
        pair.write()
    packets = pair.take(pair.a)
    assert [pair.request(item) for item in packets] == [(333, 332), (334, 332), (335, 332), (336, 332)]
    for index in (1, 0, 3, 2):
        pair.give(asking(packets[index], index in (1, 3)))
    acks = pair.take(pair.b)
    # The figure's two, and one more whenever the gap before an ACK that was asked for is filled.
    assert [pair.ack(item) for item in acks] == [(334, 332), (333, 334), (336, 334), (335, 336)]
    pair.write()
    request = one(pair.take(pair.a))
    assert pair.request(request) == (337, 332)
    pair.give(acks[0])
    pair.give(acks[2])
    pair.give(request)
    ack = one(pair.take(pair.b))
    assert pair.ack(ack) == (337, 337)
    pair.write()
    assert pair.request(one(pair.take(pair.a))) == (338, 334)


def asking(datagram: Outgoing, ask: bool) -> Outgoing:
    """The same packet, with or without its AR flag."""
    head = bytearray(datagram.header)
    head[1] = head[1] & ~RequestFlag.AR & 0xFF | (RequestFlag.AR if ask else 0)
    return datagram._replace(header=bytes(head))


def test_figure_3_78_four_guaranteed_responses_reordered() -> None:
    pair = Ladder()
    operations = [pair.ea.write(pair.to_b, b"x", RemoteBuffer(KEY + 1), pair.now) for _ in range(4)]
    packets = pair.take(pair.a)
    for index in (1, 0, 3, 2):
        pair.give(packets[index])
    acks = pair.take(pair.b)
    assert [pair.ack(item) for item in acks] == [(334, 332), (333, 332), (336, 332), (335, 332)]
    assert all(header(item).flags & AckFlag.REQ_CLEAR for item in acks)
    for item in acks[:3]:
        pair.give(item)
    pair.write()
    request = one(pair.take(pair.a))
    assert pair.request(request) == (337, 334)  # the ACK of 335 is missing
    pair.give(acks[3])
    assert all(operation.status is ReturnCode.BAD_MKEY for operation in operations)
    pair.give(request)
    assert pair.ack(one(pair.take(pair.b))) == (337, 334)  # CLEAR 334: 335 and 336 are still kept
    pair.write()
    request = one(pair.take(pair.a))
    assert pair.request(request) == (338, 336)
    pair.give(request)
    assert pair.ack(one(pair.take(pair.b))) == (338, 338)


def test_figure_3_79_a_read() -> None:
    pair = Ladder()
    pair.memory[:100] = bytes(range(100))
    buffer = bytearray(100)
    operation = pair.ea.read(pair.to_b, buffer, RemoteBuffer(KEY), pair.now)
    request = one(pair.take(pair.a))
    assert pair.request(request) == (333, 332)
    pair.give(request)
    ack, data = pair.take(pair.b)
    assert pair.ack(ack) == (333, 333)
    assert pair.returned(data) == (48, 47)
    assert header(data).next_header == NextHeader.RESPONSE_DATA
    pair.give(ack)
    assert not operation.done
    pair.give(data)
    last = one(pair.take(pair.a))
    assert pair.ack(last, pair.return_base) == (48, 48)
    assert operation.ok and buffer == bytes(range(100))


def test_a_short_read_comes_with_its_ack() -> None:
    pair = Ladder()
    pair.memory[:8] = b"abcdefgh"
    buffer = bytearray(8)
    operation = pair.ea.read(pair.to_b, buffer, RemoteBuffer(KEY), pair.now)
    pair.give(one(pair.take(pair.a)))
    ack = one(pair.take(pair.b))
    assert header(ack).next_header == NextHeader.RESPONSE_DATA
    assert header(ack).flags & AckFlag.REQ_CLEAR
    pair.give(ack)
    assert operation.ok and buffer == b"abcdefgh"


@pytest.mark.parametrize("small", [False, True])
def test_figure_3_80_a_read_with_a_short_header(small: bool) -> None:
    pair = Ladder(medium_reads=True)
    pair.memory[:100] = bytes(range(100))
    buffer = bytearray(100)
    operation = pair.ea.read(pair.to_b, buffer, RemoteBuffer(KEY), pair.now)
    request = one(pair.take(pair.a))
    assert pair.request(request) == (333, 332)
    assert header(request).next_header == NextHeader.REQUEST_MEDIUM
    if small:
        medium = ses_header(request)
        assert isinstance(medium, MediumRequest)
        address = (medium.ri_generation, medium.job_id, medium.pid_on_fep, KEY)
        ses = SmallRequest(medium.opcode, medium.flags, medium.request_length, *address, medium.buffer_offset)
        request = carrying(request, NextHeader.REQUEST_SMALL, encoded(ses))
    pair.give(request)
    ack, data = pair.take(pair.b)
    assert pair.ack(ack) == (333, 333)
    assert ses_header(ack).return_code is ReturnCode.OK
    assert not header(ack).flags & AckFlag.REQ_CLEAR
    assert pair.returned(data) == (48, 47)
    response = ses_header(data)
    assert isinstance(response, ResponseDataSmall)
    assert response.original_request_psn == pair.psn(333)
    pair.give(ack)
    assert not operation.done
    pair.give(data)
    last = one(pair.take(pair.a))
    assert pair.ack(last, pair.return_base) == (48, 48)
    assert operation.ok and buffer == bytes(range(100))


def test_figure_3_81_three_read_packets() -> None:
    pair = Ladder()
    pair.memory[: 3 * PAYLOAD] = bytes(i % 251 for i in range(3 * PAYLOAD))
    buffer = bytearray(3 * PAYLOAD)
    operation = pair.ea.read(pair.to_b, buffer, RemoteBuffer(KEY), pair.now)
    packets = pair.take(pair.a)
    assert [pair.request(item) for item in packets] == [(333, 332), (334, 332), (335, 332)]
    for item in packets:
        pair.give(item)
    answers = pair.take(pair.b)
    requests = [item for item in answers if isinstance(header(item), Request)]
    assert [pair.returned(item) for item in requests] == [(48, 47), (49, 47), (50, 47)]
    for item in answers:
        pair.give(item)
    pair.settle()
    assert operation.ok and buffer == pair.memory[: 3 * PAYLOAD]
    pair.write()
    assert pair.request(one(pair.take(pair.a))) == (336, 335)


def test_figure_3_82_a_nack_for_want_of_room() -> None:
    pair = Ladder(max_unexpected_bytes=10)
    operation = pair.ea.send(pair.to_b, bytes(100), pair.now)
    pair.give(one(pair.take(pair.a)))
    nack = one(pair.take(pair.b))
    item = header(nack)
    assert isinstance(item, Nack)
    assert (item.nack_code, item.nack_psn) == (NackCode.NO_SES_MSG_AVAIL, pair.psn(333))
    pair.give(nack)
    assert pair.take(pair.a) == []
    pair.eb.recv(bytearray(100), pair.now)
    pair.now += pair.a.config.nack_wait_ns
    pair.a.handle_timer(pair.now)
    again = one(pair.take(pair.a))
    assert pair.request(again) == (333, 332)
    assert header(again).flags & RequestFlag.RETX
    pair.give(again)
    pair.settle()
    assert operation.ok


def test_figure_3_83_a_request_is_lost() -> None:
    pair = Ladder()
    pair.write()
    pair.take(pair.a)  # and nobody gets it
    pair.now += pair.a.config.rto_ns
    pair.a.handle_timer(pair.now)
    again = one(pair.take(pair.a))
    assert pair.request(again) == (333, 332)
    assert header(again).flags & (RequestFlag.RETX | RequestFlag.AR) == RequestFlag.RETX | RequestFlag.AR
    pair.give(again)
    assert pair.ack(one(pair.take(pair.b))) == (333, 333)


def test_figure_3_84_an_ack_is_lost() -> None:
    pair = Ladder()
    receive = bytearray(PAYLOAD)
    arrived = pair.eb.recv(receive, pair.now)
    pair.ea.send(pair.to_b, b"y" * PAYLOAD, pair.now)
    pair.give(one(pair.take(pair.a)))
    pair.take(pair.b)  # the ACK is lost
    assert arrived.ok
    second = pair.eb.recv(bytearray(PAYLOAD), pair.now)
    pair.now += pair.a.config.rto_ns
    pair.a.handle_timer(pair.now)
    pair.give(one(pair.take(pair.a)))
    ack = one(pair.take(pair.b))
    assert pair.ack(ack) == (333, 333)
    assert header(ack).next_header == NextHeader.RESPONSE
    assert header(ack).flags & AckFlag.RETX
    assert not second.done  # semantics did not see it again
    assert pair.b.counters["duplicate"] == 1


def test_syn_goes_out_until_the_first_ack() -> None:
    pair = WirePair(cc="none")
    for _ in range(3):
        pair.ea.send(pair.to_b, b"x", pair.now)
    packets = [header(item) for item in pair.take(pair.a)]
    assert [item.psn_offset for item in packets] == [0, 1, 2]
    assert all(item.flags & RequestFlag.SYN and item.type == PdsType.RUD_REQ for item in packets)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_any_syn_packet_can_open_the_pdc(order: tuple[int, ...]) -> None:
    pair = WirePair(cc="none")
    receives = [pair.eb.recv(bytearray(4), pair.now) for _ in range(3)]
    sends = [pair.ea.send(pair.to_b, b"abcd", pair.now) for _ in range(3)]
    packets = pair.take(pair.a)
    for index in order:
        pair.give(packets[index])
    assert len(pair.b.pdcs) == 1
    pair.settle()
    assert all(operation.ok for operation in receives + sends)
