"""A peer whose IPv4 headers have identifications: its ICRC is checked with the header that a packet came with."""

import pytest
from rnic_pair import FIRST, SECOND, RnicPair

from testbed.protocols.datagram import DONT_FRAGMENT, Incoming
from testbed.protocols.roce.memory import ALL_ACCESS
from testbed.protocols.roce.packets.headers import Bth, Reth
from testbed.protocols.roce.packets.icrc import compute_icrc, encode_icrc
from testbed.protocols.roce.packets.opcodes import Opcode

ENTROPY = 50_000


@pytest.mark.parametrize("word", [0x1234_4000, 0xFFFF_0000, DONT_FRAGMENT, 0])
@pytest.mark.parametrize("seen", [True, False])
def test_the_word_that_was_seen_is_covered(word: int, seen: bool) -> None:
    pair = RnicPair()
    _, there = pair.connect()
    memory = bytearray(8)
    region = pair.second.register(memory, ALL_ACCESS)
    head = Bth(Opcode.RC_WRITE_ONLY, there.number, 0, ack_request=True).encode()
    body = Reth(region.base, region.rkey, 8).encode() + b"by a NIC"
    icrc = compute_icrc(FIRST, SECOND, ENTROPY, head, body, word >> 16, word & 0xFFFF)
    arrived = Incoming(FIRST, ENTROPY, head + body + encode_icrc(icrc))
    if seen:
        arrived = arrived._replace(fragment_word=word)
    pair.second.receive([arrived], 0)
    right = seen or word == DONT_FRAGMENT
    assert (bytes(memory) == b"by a NIC", pair.second.counters["malformed"]) == (right, int(not right))
