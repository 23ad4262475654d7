"""Probes that overtake the data which they are to ask for."""

from wire_pair import JOB, MS, WirePair, header

from testbed.protocols.datagram import Incoming, Outgoing
from testbed.protocols.uet.memory import Access, RemoteBuffer
from testbed.protocols.uet.packets.codes import AckFlag
from testbed.protocols.uet.packets.pds import Ack, ControlPacket, Request

KEY = 1


def arrived(datagram: Outgoing, sender: str) -> Incoming:
    return Incoming(sender, datagram.entropy, datagram.to_bytes())


def test_what_a_probe_has_overtaken_is_acknowledged_as_it_arrives() -> None:
    pair = WirePair(payload_bytes=1024, base_rtt_ns=MS, cc="none")
    a, b = pair.a, pair.b
    b.register(bytearray(8192), Access.REMOTE_WRITE, JOB, KEY)
    pair.ea.write(pair.to_b, b"x", RemoteBuffer(KEY), pair.now)
    pair.settle()
    (pdc,) = a.pdcs
    for _ in range(2):  # the first does not ask for an acknowledgement, as another follows it
        pair.ea.write(pair.to_b, bytes(2048), RemoteBuffer(KEY), pair.now)
    first, second = a.transmit(pair.now, 2)
    assert isinstance(header(first), Request) and isinstance(header(second), Request)
    pdc.sender.probing.send(pair.now)
    (probe,) = a.transmit(pair.now, 1)
    sent = header(probe)
    assert isinstance(sent, ControlPacket)
    assert (sent.psn, sent.payload) == (pdc.sender.window.next_psn - 1, pdc.sender.window.cack_psn)
    b.receive([arrived(probe, a.address)], pair.now)
    answer = header(b.transmit(pair.now)[0])
    assert isinstance(answer, Ack) and answer.flags & AckFlag.PROBE and answer.cack_psn == sent.payload
    b.receive([arrived(first, a.address)], pair.now)
    assert b.transmit(pair.now) == []
    b.receive([arrived(second, a.address)], pair.now)
    (late,) = b.transmit(pair.now)
    ack = header(late)
    assert isinstance(ack, Ack) and not ack.flags & AckFlag.PROBE and ack.cack_psn == sent.psn
