"""Receiver credits between two endpoints: what is asked for, what is granted, and what happens when either is lost."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from encoded import encoded
from wire_pair import JOB, MS, WirePair, header

from testbed.protocols.datagram import Incoming, Outgoing
from testbed.protocols.uet.memory import Access, RemoteBuffer
from testbed.protocols.uet.packets.acks import Ack, CreditState, Nack, NsccState
from testbed.protocols.uet.packets.codes import ControlType, NackCode, ReturnCode
from testbed.protocols.uet.packets.pds import ControlPacket
from testbed.protocols.uet.semantics.operations import Operation

KEY = 5
SIZE = 400_000
UNIT = 256
WITH_CREDIT = pytest.mark.parametrize("cc", ["rccc", "both"])


def writing(cc: str, size: int = SIZE) -> tuple[WirePair, Operation, bytearray]:
    """A pair whose BDP of 125 kB is less than the WRITE that waits to be sent."""
    pair = WirePair(cc=cc, payload_bytes=1024)
    memory = bytearray(size)
    pair.b.register(memory, Access.REMOTE_WRITE | Access.REMOTE_READ, JOB, KEY)
    return pair, pair.ea.write(pair.to_b, bytes([7]) * size, RemoteBuffer(KEY), pair.now), memory


def control(datagram: Outgoing, kind: ControlType) -> bool:
    found = header(datagram)
    return isinstance(found, ControlPacket) and found.control_type == kind


def without(kind: ControlType) -> Callable[[Outgoing], bool]:
    return lambda datagram: not control(datagram, kind)


@WITH_CREDIT
def test_what_is_asked_for_is_what_lies_beyond_the_credit(cc: str) -> None:
    pair, _, _ = writing(cc)
    requests = []
    while datagrams := pair.take(pair.a):
        requests += [header(datagram) for datagram in datagrams]
    max_wnd = int(pair.a.config.nscc().max_wnd_bytes)
    sender = pair.a.pdcs[0].sender
    assert abs(max_wnd - sum(packet.size for packet in sender.window)) < 1200
    wanted = min(SIZE, max_wnd) // UNIT
    assert abs(requests[-1].req_cc_state.credit_target - wanted) < 2 * 1200 // UNIT


@WITH_CREDIT
def test_a_write_of_many_windows(cc: str) -> None:
    pair, operation, memory = writing(cc)
    pair.run(operation)
    assert operation.ok and memory == bytes([7]) * SIZE
    assert not pair.a.counters and abs(pair.a.pdcs[0].sender.congestion.inflight_bytes) < UNIT


@WITH_CREDIT
def test_reading_spends_credit_of_the_reader(cc: str) -> None:
    pair, operation, memory = writing(cc)
    pair.run(operation)
    memory[:] = bytes([9]) * SIZE
    buffer = bytearray(SIZE)
    read = pair.ea.read(pair.to_b, buffer, RemoteBuffer(KEY), pair.now)
    pair.run(read)
    assert read.ok and buffer == memory


def test_acks_carry_credit_or_the_state_of_the_window() -> None:
    for cc, state in (("rccc", CreditState), ("both", NsccState), ("nscc", NsccState)):
        pair, _, _ = writing(cc)
        pair.give(pair.take(pair.a)[0])
        ack = header(pair.take(pair.b)[0])
        assert isinstance(ack, Ack) and isinstance(ack.cc_state, state)


@WITH_CREDIT
def test_lost_credit_is_asked_for_again(cc: str) -> None:
    pair, operation, _ = writing(cc)

    def deaf(datagram: Outgoing) -> bool:
        return not control(datagram, ControlType.CREDIT) and not isinstance(header(datagram), Ack)

    pair.settle()  # the first window is through, and the sender has heard of it
    pair.pass_time(4 * MS, deaf)
    assert not operation.done
    pair.run(operation)
    assert operation.ok


@WITH_CREDIT
def test_requests_for_credit_come_at_most_once_per_round_trip(cc: str) -> None:
    pair, operation, _ = writing(cc)
    pair.pass_time(0, without(ControlType.CREDIT))
    times: list[int] = []

    def deaf(datagram: Outgoing) -> bool:
        if control(datagram, ControlType.CREDIT_REQ):
            times.append(pair.now)
        return datagram.remote == pair.a.address and not control(datagram, ControlType.CREDIT)

    pair.pass_time(100 * MS, deaf)
    assert not operation.done
    assert len(times) > 2 and all(later - sooner >= MS for sooner, later in pairwise(times))


@WITH_CREDIT
def test_a_peer_that_dies_in_the_middle_ends_the_operation(cc: str) -> None:
    pair, operation, _ = writing(cc)
    pair.pass_time(0, without(ControlType.CREDIT))
    assert not operation.done
    pair.pass_time(30_000 * MS, lambda datagram: datagram.remote == pair.a.address)
    assert operation.status is ReturnCode.UNDELIVERABLE
    assert not pair.a.pdcs and not len(pair.take(pair.a))


@WITH_CREDIT
def test_a_first_window_that_is_lost_altogether(cc: str) -> None:
    pair, operation, memory = writing(cc)
    pair.take(pair.a)
    pair.run(operation)
    assert operation.ok and memory == bytes([7]) * SIZE


@WITH_CREDIT
def test_a_first_window_that_is_trimmed_altogether(cc: str) -> None:
    pair, operation, memory = writing(cc)
    window = []
    while datagrams := pair.take(pair.a):
        window += datagrams
    for number, datagram in enumerate(window):
        pair.give(datagram, trim=64)
        for refusal in pair.take(pair.b):
            pair.give(refusal)
        again = pair.take(pair.a)
        assert len(again) == (number == len(window) - 1)  # one packet tries once more
    pair.give(again[0])
    pair.run(operation)
    assert operation.ok and memory == bytes([7]) * SIZE


def test_a_request_for_credit_of_an_unknown_context_is_refused() -> None:
    pair, _, _ = writing("rccc", 10)
    request = ControlPacket(ControlType.CREDIT_REQ, 0, 0, 0, 77, 88, 0, 0, 100)
    pair.b.receive([Incoming(pair.a.address, 50_000, encoded(request))], pair.now)
    (answer,) = pair.take(pair.b)
    refusal = header(answer)
    assert isinstance(refusal, Nack) and refusal.nack_code == NackCode.INV_DPDCID
