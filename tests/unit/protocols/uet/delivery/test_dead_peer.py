"""How long it takes to give up a peer that has died, and that nothing of it remains."""

import pytest
from wire_pair import MS, WirePair

from testbed.protocols.uet.packets.codes import Mode, ReturnCode


@pytest.mark.parametrize("mode", [Mode.RUD, Mode.ROD])
@pytest.mark.parametrize("packets", [1, 100])
@pytest.mark.parametrize("established", [False, True])
def test_a_dead_peer_is_given_up_after_the_time_outs_of_one_packet(mode: Mode, packets: int, established: bool) -> None:
    pair = WirePair(payload_bytes=1024, rto_min_ns=10 * MS)
    if established:
        received = pair.eb.recv(bytearray(1), pair.now)
        pair.run(pair.ea.send(pair.to_b, b"x", pair.now, mode=mode), received)
    sent = pair.ea.send(pair.to_b, bytes(1024 * packets), pair.now, mode=mode)
    # Time-outs of 10 ms, doubled five times; none of them waits behind those of the packets after it.
    allowed = 10 * MS * (1 + 2 + 4 + 8 + 16 + 32) * 3 // 2
    begin = pair.now
    while not sent.done and pair.now < begin + allowed:
        pair.pass_time(10 * MS, deliver=lambda datagram: False)
    assert sent.status is ReturnCode.UNDELIVERABLE and "time-outs" in sent.error
    assert not pair.a.pdcs and pair.a.idle
