"""scapy's `contrib.roce` against our codec: an implementation that no one here wrote reads the same in our packets.

What scapy (2.8) has not: names of SEND with invalidate; the headers behind the BTH, but the AETH of an acknowledgement
and the reserved bytes of a CNP. There its bytes are compared. `GAPS` fails when scapy has learnt more.
"""

from random import Random

import pytest
from roce_samples import FIRST, FIRST_V6, SECOND, SECOND_V6, RoceSamples, roce_frame
from scapy.contrib.roce import AETH, BTH, CNPPadding, _bth_opcodes, cnp
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from testbed.protocols.roce.packets.icrc import check_icrc
from testbed.protocols.roce.packets.opcodes import UDP_PORT, Opcode
from testbed.protocols.roce.packets.packet import RocePacket, decode_roce

GAPS = {Opcode.RC_SEND_LAST_INVALIDATE, Opcode.RC_SEND_ONLY_INVALIDATE}
MANUFACTURERS = 0xC0
"""Opcodes from here on are left to manufacturers: nobody else can know ours."""
ADDRESSES = [(FIRST, SECOND), (FIRST_V6, SECOND_V6)]


def scapys_name(opcode: Opcode) -> str:
    """scapy says RDMA_WRITE and WITH_IMMEDIATE."""
    name = opcode.name.replace("IMMEDIATE", "WITH_IMMEDIATE")
    return name.replace("WRITE", "RDMA_WRITE").replace("READ", "RDMA_READ")


def assert_read_alike(packet: RocePacket, frame: bytes) -> None:
    """Every field of the BTH, what follows it, and the ICRC that scapy computes itself."""
    theirs = Ether(frame)
    bth, ours = theirs[BTH], packet.bth
    assert (bth.opcode, bth.dqpn, bth.psn, bth.pkey) == (ours.opcode, ours.dest_qp, ours.psn, ours.pkey)
    assert (bth.padcount, bth.version) == (ours.pad_bytes, 0)
    flags = (bth.ackreq, bth.solicited, bth.migreq, bth.fecn, bth.becn)
    assert flags == (ours.ack_request, ours.solicited, ours.migration, ours.fecn, ours.becn)
    assert bytes(bth.payload) == packet.encode()[12:-4]
    assert bth.icrc.to_bytes(4, "big") == frame[-4:]
    bth.icrc = None
    assert bytes(theirs) == frame, "scapy computes another ICRC"


@pytest.mark.parametrize(("source", "destination"), ADDRESSES)
@pytest.mark.parametrize("opcode", Opcode, ids=lambda opcode: opcode.name)
def test_scapy_reads_what_we_encode(opcode: Opcode, source: str, destination: str) -> None:
    samples = RoceSamples(opcode)
    for _ in range(5):
        packet = samples.packet(opcode)
        port = samples.chance.randrange(1, 1 << 16)
        identification = 0 if ":" in source else samples.chance.randrange(1, 1 << 16)
        frame = roce_frame(
            packet, source=source, destination=destination, source_port=port, identification=identification
        )
        assert_read_alike(packet, frame)


def test_scapy_has_the_same_names_for_opcodes() -> None:
    known = {opcode for opcode in Opcode if opcode in _bth_opcodes}
    assert {opcode for opcode in set(Opcode) - known if opcode < MANUFACTURERS} == GAPS
    assert not {opcode for opcode in known if opcode >= MANUFACTURERS}
    for opcode in known:
        assert _bth_opcodes[opcode] == scapys_name(opcode)


@pytest.mark.parametrize("source_port", [1, 49_152, 65_535])
def test_scapy_reads_our_acknowledgements_and_cnps(source_port: int) -> None:
    samples = RoceSamples(7)
    acknowledgement = samples.packet(Opcode.RC_ACKNOWLEDGE)
    aeth = Ether(roce_frame(acknowledgement, source_port=source_port))[AETH]
    assert (aeth.syndrome, aeth.msn) == (acknowledgement.aeth.syndrome, acknowledgement.aeth.msn)
    frame = Ether(roce_frame(samples.packet(Opcode.CNP), source_port=source_port))
    assert frame[BTH].becn == 1
    assert (frame[CNPPadding].reserved1, frame[CNPPadding].reserved2) == (0, 0)


@pytest.mark.parametrize(("source", "destination"), ADDRESSES)
def test_we_read_what_scapy_builds(source: str, destination: str) -> None:
    chance = Random(3)
    for _ in range(50):
        payload = chance.randbytes(4 * chance.randrange(64))
        port = chance.randrange(1, 1 << 16)
        sent = BTH(
            opcode=Opcode.RC_SEND_MIDDLE,
            dqpn=chance.randrange(1 << 24),
            psn=chance.randrange(1 << 24),
            ackreq=chance.randrange(2),
            fecn=chance.randrange(2),
            pkey=chance.randrange(1 << 16),
        )
        network = IPv6(src=source, dst=destination) if ":" in source else IP(src=source, dst=destination, id=0, flags=2)
        data = bytes(network / UDP(sport=port, dport=UDP_PORT) / sent / Raw(payload))[40 if ":" in source else 20 :][8:]
        check_icrc(source, destination, port, data)
        packet = decode_roce(data)
        assert (packet.bth.dest_qp, packet.bth.psn, packet.bth.pkey) == (sent.dqpn, sent.psn, sent.pkey)
        assert (packet.bth.ack_request, packet.bth.fecn) == (sent.ackreq, sent.fecn)
        assert bytes(packet.payload) == payload


def test_we_read_scapys_cnp() -> None:
    wire = bytes(
        IP(src=FIRST, dst=SECOND, id=0, flags=2, tos=48 << 2) / UDP(sport=49_200, dport=UDP_PORT) / cnp(0x12345)
    )
    check_icrc(FIRST, SECOND, 49_200, wire[28:])
    packet = decode_roce(wire[28:])
    assert (packet.bth.opcode, packet.bth.dest_qp, packet.bth.becn) == (Opcode.CNP, 0x12345, True)
    assert bytes(packet.payload) == bytes(16)
    assert len(wire) == 60
