"""Whose packet is next where an RNIC has several queue pairs: they take turns by the packet, as NICs arbitrate."""

from random import Random

import pytest

from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.roce.rnic import Rnic
from testbed.protocols.roce.work import RemoteBuffer

PEERS = "10.0.0.2", "10.0.0.3", "10.0.0.4"
PACKETS = 12


def sender_of_writes(*peers: str) -> Rnic:
    """An RNIC with `PACKETS` full packets for each of its peers."""
    rnic = Rnic("10.0.0.1", RoceConfig(cc="none"), Random(1), 0)
    rnic.unlimited_bps = 0.0
    for peer in peers:
        qp = rnic.create_qp()
        qp.connect(peer, 0x20)
        qp.write(bytes(PACKETS * qp.mtu), RemoteBuffer(0, 1), 0)
    return rnic


@pytest.mark.parametrize("limits", [(8, 4, 4, 4, 4, 4, 4, 4), (1,) * 36, (64,), (5,) * 8])
def test_queue_pairs_take_turns_by_the_packet_however_many_are_asked_for_at_a_time(limits: tuple[int, ...]) -> None:
    rnic = sender_of_writes(*PEERS)
    sent = [item.remote for limit in limits for item in rnic.transmit(0, limit)]
    assert sent == list(PEERS) * PACKETS


def test_who_is_alone_is_asked_for_all() -> None:
    rnic = sender_of_writes(PEERS[0])
    assert len(rnic.transmit(0, 8)) == 8
    assert len(rnic.transmit(0, 64)) == PACKETS - 8
    assert rnic.transmit(0, 64) == []
