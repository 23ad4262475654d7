"""Packets that the kernel's soft RDMA (rxe) sent itself, see tests/data/roce/PROVENANCE.md: all are understood."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.protocols.captured.content import CapturedDatagram
from testbed.protocols.errors import DecodeError
from testbed.protocols.roce.packets.headers import BTH_BYTES
from testbed.protocols.roce.packets.icrc import ICRC_BYTES, check_icrc, compute_icrc
from testbed.protocols.roce.packets.opcodes import UDP_PORT, Opcode
from testbed.protocols.roce.packets.packet import RocePacket, decode_roce
from testbed.protocols.roce.packets.syndrome import NAK, RNR_NAK, NakCode, ack, kind_of, nak
from testbed.record.captures.layers.walk import find_datagram
from testbed.record.captures.pcap import read_capture

DATA = Path(__file__).parents[4] / "data/roce"
CAPTURES = ("rxe-ipv4.pcap", "rxe-ipv6.pcap", "rxe-errors.pcap")
MTU = 256
NOT_OF_RXE = {Opcode.CNP} | {opcode for opcode in Opcode if opcode >= Opcode.SELECTIVE_ACKNOWLEDGE}
"""The notification of congestion, and what is ours among the opcodes of manufacturers."""
ONLY_REFUSED = {Opcode.RC_SEND_LAST_INVALIDATE, Opcode.RC_SEND_ONLY_INVALIDATE}
"""An rkey that a SEND invalidates must be a memory window's, which our vectors have none of."""
FRAGMENT_WORD_AT = 14 + 4
"""Of the IPv4 header in an Ethernet frame: identification and flags."""


def datagrams(name: str) -> Iterator[tuple[CapturedDatagram, int, int]]:
    """The datagrams of a capture, with the identification and the flags of their IPv4 headers."""
    with (DATA / name).open("rb") as file:
        for frame in read_capture(file):
            found = find_datagram(frame, UDP_PORT)
            assert found is not None, f"frame {frame.number} is no RoCE"
            if ":" in found.source:
                yield found, 0, 0
            else:
                word = int.from_bytes(frame.data[FRAGMENT_WORD_AT : FRAGMENT_WORD_AT + 4])
                yield found, word >> 16, word & 0xFFFF


def packets(name: str) -> list[RocePacket]:
    return [decode_roce(item.payload) for item, _, _ in datagrams(name)]


@pytest.mark.parametrize("name", CAPTURES)
def test_every_packet_is_decoded_checked_and_encoded_bit_for_bit(name: str) -> None:
    count = 0
    for item, identification, flags in datagrams(name):
        data = item.payload
        packet = decode_roce(data)
        assert packet.encode() == data, f"frame {item.frame}"
        check_icrc(item.source, item.destination, item.source_port, data, identification, flags)
        body = data[BTH_BYTES:-ICRC_BYTES]
        icrc = compute_icrc(
            item.source, item.destination, item.source_port, data[:BTH_BYTES], body, identification, flags
        )
        assert icrc == packet.icrc
        assert len(packet.payload) <= MTU
        assert packet.padding == bytes(-len(packet.payload) % 4)
        count += 1
    assert count > 50


@pytest.mark.parametrize("name", CAPTURES)
def test_no_byte_of_them_may_change_but_the_one_with_the_marks(name: str) -> None:
    for item, identification, flags in list(datagrams(name))[:5]:
        path = (item.source, item.destination, item.source_port)
        for at in set(range(len(item.payload))) - {4}:
            changed = bytearray(item.payload)
            changed[at] ^= 1
            with pytest.raises(DecodeError, match="ICRC"):
                check_icrc(*path, changed, identification, flags)


def test_the_identification_counts_and_is_covered() -> None:
    seen = set()
    for item, identification, flags in datagrams("rxe-ipv4.pcap"):
        seen.add(identification)
        assert identification
        with pytest.raises(DecodeError, match="ICRC"):
            check_icrc(item.source, item.destination, item.source_port, item.payload, 0, flags)
    assert len(seen) > 50


@pytest.mark.parametrize("name", ["rxe-ipv4.pcap", "rxe-ipv6.pcap"])
def test_every_opcode_that_rxe_knows_is_among_them(name: str) -> None:
    assert {packet.bth.opcode for packet in packets(name)} == set(Opcode) - NOT_OF_RXE - ONLY_REFUSED


def test_every_answer_that_refuses_is_among_them() -> None:
    found = packets("rxe-errors.pcap")
    syndromes = {packet.aeth.syndrome for packet in found if packet.aeth is not None}
    assert {kind_of(value) for value in syndromes} == {kind_of(ack()), RNR_NAK, NAK}
    wanted = set(NakCode) - {NakCode.INVALID_RD_REQUEST}
    assert {nak(code) for code in wanted} <= syndromes
    assert {packet.bth.opcode for packet in found} >= ONLY_REFUSED
    keys = [(packet.bth.dest_qp, packet.bth.opcode, packet.bth.psn) for packet in found]
    assert len(set(keys)) < len(keys), "something was sent again"
