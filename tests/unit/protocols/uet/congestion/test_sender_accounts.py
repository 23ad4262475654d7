"""What a sender takes to be in flight, and its base round trip, when the network repeats and reorders."""

import pytest
from wire_pair import JOB, MS, WirePair, header

from testbed.protocols.datagram import Outgoing
from testbed.protocols.uet.congestion.context import CongestionContext
from testbed.protocols.uet.memory import Access, RemoteBuffer
from testbed.protocols.uet.packets.acks import ACK_CC, Ack, Nack
from testbed.protocols.uet.packets.codes import ControlType, NackCode
from testbed.protocols.uet.packets.pds import ControlPacket

KEY = 5
ROUNDING = 256
"""Rcvd_Bytes is rounded up to this."""


def writing(size: int, *, trimming: bool = False) -> tuple[WirePair, CongestionContext]:
    """A pair with an open PDC, on which a WRITE of `size` bytes waits to be sent."""
    pair = WirePair(payload_bytes=1024, trimming=trimming)
    pair.b.register(bytearray(64_000), Access.REMOTE_WRITE, JOB, KEY)
    pair.run(pair.ea.write(pair.to_b, b"first", RemoteBuffer(KEY), pair.now))
    pair.pass_time(10 * MS)
    pair.ea.write(pair.to_b, bytes(size), RemoteBuffer(KEY), pair.now)
    return pair, pair.a.pdcs[0].sender.congestion


def is_probe(datagram: Outgoing) -> bool:
    found = header(datagram)
    return isinstance(found, ControlPacket) and found.control_type == ControlType.PROBE


def test_the_answer_to_an_earlier_probe_is_not_a_short_round_trip() -> None:
    pair, congestion = writing(0)
    pair.settle()
    sender = pair.a.pdcs[0].sender
    congestion.window.base_rtt = congestion.window._idle_rtt = MS
    sender.probing.send(pair.now)
    (first,) = filter(is_probe, pair.take(pair.a))
    pair.now += MS
    sender.probing.send(pair.now)
    (second,) = filter(is_probe, pair.take(pair.a))
    pair.give(first)
    pair.settle()
    assert congestion.window.base_rtt == MS
    pair.now += MS // 2
    pair.give(second)
    pair.settle()
    assert congestion.window.base_rtt == MS // 2


@pytest.mark.parametrize("selective", [False, True])
def test_a_packet_found_after_it_was_taken_for_lost_counts_once(selective: bool) -> None:
    pair, congestion = writing(3 * 1024)
    packets = pair.take(pair.a)
    for packet in packets[1 if selective else 0 :]:
        pair.give(packet)
    acks = pair.take(pair.b)
    assert acks
    pair.now += 1000 * MS
    pair.a.handle_timer(pair.now)  # all three have timed out and wait to be sent again
    assert abs(congestion.inflight_bytes) <= ROUNDING
    for ack in acks:
        pair.give(ack)
    assert abs(congestion.inflight_bytes) <= ROUNDING
    pair.settle()
    assert pair.a.idle and abs(congestion.inflight_bytes) <= ROUNDING


def test_a_trimmed_copy_of_what_was_received_is_acknowledged() -> None:
    pair, congestion = writing(1024, trimming=True)
    (packet,) = pair.take(pair.a)
    pair.give(packet)
    pair.take(pair.b)
    pair.give(packet, trim=64)
    (answer,) = pair.take(pair.b)
    assert isinstance(header(answer), Ack)
    pair.give(answer)
    assert pair.a.idle and abs(congestion.inflight_bytes) <= ROUNDING


def test_a_trimmed_packet_is_refused_and_sent_again() -> None:
    pair, congestion = writing(1024, trimming=True)
    (packet,) = pair.take(pair.a)
    pair.give(packet, trim=64)
    (answer,) = pair.take(pair.b)
    nack = header(answer)
    assert isinstance(nack, Nack) and nack.nack_code == NackCode.TRIMMED
    pair.give(answer)
    pair.settle()
    assert pair.a.idle and abs(congestion.inflight_bytes) <= ROUNDING


@pytest.mark.parametrize(
    ("at", "bits"),
    [(1, 0x06), (1, 0x41), (12, 0x20), (12, 0xEF), (ACK_CC.size, 0xC0)],
    ids=["REQ 3", "reserved flags", "reserved cc_type", "proprietary cc_type", "reserved list"],
)
def test_an_ack_with_reserved_values_acknowledges(at: int, bits: int) -> None:
    pair, congestion = writing(1024)
    operation = pair.ea.write(pair.to_b, b"x", RemoteBuffer(KEY), pair.now)
    for item in pair.take(pair.a):
        pair.give(item)
    for ack in pair.take(pair.b):
        changed = bytearray(ack.header)
        changed[at] |= bits
        pair.give(ack._replace(header=bytes(changed)))
    assert operation.ok
    assert abs(congestion.inflight_bytes) < ROUNDING
    assert pair.a.counters["malformed"] == 0
