"""The optional CRC of every packet: what was damaged on the way does not count as arrived."""

from wire_pair import WirePair

from testbed.protocols.datagram import Incoming


def test_a_damaged_packet_is_as_good_as_lost() -> None:
    pair = WirePair(crc=True)
    buffer = bytearray(10_000)
    received = pair.eb.recv(buffer, pair.now)
    sent = pair.ea.send(pair.to_b, b"\x5a" * 10_000, pair.now)
    for number, datagram in enumerate(pair.take(pair.a)):
        data = bytearray(datagram.to_bytes())
        if number == 1:
            data[2000] ^= 4
        pair.b.receive([Incoming("10.0.0.1", datagram.entropy, data)], pair.now)
    assert pair.b.counters["malformed"] == 1
    pair.run(sent, received)
    assert sent.ok and received.ok and buffer == b"\x5a" * 10_000


def test_both_ends_must_agree() -> None:
    plain, checked = WirePair(), WirePair(crc=True)
    plain.ea.send(plain.to_b, b"x", 0)
    for datagram in plain.take(plain.a):
        checked.give(datagram)
    assert checked.b.counters["malformed"] == 1 and checked.b.pdcs == []
