"""Whose packet is next where an endpoint has several peers: they take turns by the packet, as NICs arbitrate."""

from random import Random

import pytest

from testbed.protocols.uet.addressing import FepAddress
from testbed.protocols.uet.config import UetConfig
from testbed.protocols.uet.fep import Fep
from testbed.protocols.uet.memory import RemoteBuffer

OWN = "10.0.0.1"
PEERS = "10.0.0.2", "10.0.0.3", "10.0.0.4"
PACKETS = 12
KEY = 1


def sender_of_writes(peers: tuple[str, ...], packets_per_entropy: int) -> Fep:
    """An endpoint with `PACKETS` full packets for each of its peers."""
    config = UetConfig(packets_per_entropy=packets_per_entropy, cc="none")
    fep = Fep(OWN, config, Random(1), 0)
    own = fep.endpoint(job_id=1)
    for peer in peers:
        own.write(FepAddress(peer, job_id=1), bytes(PACKETS * fep.payload_bytes), RemoteBuffer(KEY), 0)
    return fep


@pytest.mark.parametrize("limits", [(8, 4, 4, 4, 4, 4, 4, 4), (1,) * 36, (64,), (5,) * 8])
def test_peers_take_turns_by_the_packet_however_many_are_asked_for_at_a_time(limits: tuple[int, ...]) -> None:
    fep = sender_of_writes(PEERS, 1)
    sent = [item.remote for limit in limits for item in fep.transmit(0, limit)]
    assert sent == list(PEERS) * PACKETS


def test_a_turn_is_a_burst_where_bursts_share_an_entropy_value() -> None:
    fep = sender_of_writes(PEERS, 4)
    sent = fep.transmit(0, 64)
    assert [item.remote for item in sent] == [peer for peer in PEERS for _ in range(4)] * 3
    bursts = [sent[first : first + 4] for first in range(0, len(sent), 4)]
    assert all(len({item.entropy for item in burst}) == 1 for burst in bursts)


@pytest.mark.parametrize("peers", [PEERS, PEERS[:1]])
def test_each_packet_of_a_turn_draws_its_path(peers: tuple[str, ...]) -> None:
    """Of 12 draws of 256 values hardly two are alike; shared by bursts there would be three values."""
    fep = sender_of_writes(peers, 1)
    sent = fep.transmit(0, 64)
    for peer in peers:
        assert len({item.entropy for item in sent if item.remote == peer}) >= PACKETS - 2


def test_who_is_alone_is_asked_for_all() -> None:
    fep = sender_of_writes(PEERS[:1], 1)
    assert len(fep.transmit(0, 8)) == 8
    assert len(fep.transmit(0, 64)) == PACKETS - 8
    assert fep.transmit(0, 64) == []


def test_a_peer_that_has_no_more_to_send_is_passed_over() -> None:
    fep = sender_of_writes(PEERS, 1)
    fep.endpoint(job_id=1, resource_index=2).write(
        FepAddress("10.0.0.5", job_id=1), bytes(fep.payload_bytes), RemoteBuffer(KEY), 0
    )
    sent = [item.remote for item in fep.transmit(0, 64)]
    assert sent == [*PEERS, "10.0.0.5", *list(PEERS) * (PACKETS - 1)]
