"""RoCE packets of every opcode with random fields, and frames around them, whose ICRC is right."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from ipaddress import ip_address
from random import Random

import capture_files as make

from testbed.protocols.roce.packets.headers import BTH_BYTES, Aeth, AtomicEth, Bth, Deth, Reth
from testbed.protocols.roce.packets.icrc import ICRC_BYTES, compute_icrc, encode_icrc
from testbed.protocols.roce.packets.opcodes import LAYOUTS, UDP_PORT, Opcode, Operation
from testbed.protocols.roce.packets.packet import RocePacket
from testbed.protocols.roce.packets.syndrome import NakCode, ack, nak, rnr_nak

FIRST, SECOND = "10.0.0.1", "10.0.0.2"
FIRST_V6, SECOND_V6 = "fd00::1", "fd00::2"
_CNP_RESERVED = bytes(16)
_DO_NOT_FRAGMENT = 0x4000


class RoceSamples:
    """Return packets, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)

    def of_every_opcode(self) -> Iterator[RocePacket]:
        for opcode in Opcode:
            yield self.packet(opcode)

    def packet(self, opcode: Opcode, *, psn: int | None = None, dest_qp: int | None = None) -> RocePacket:
        """A packet with random fields; its ICRC is 0 (`roce_frame` computes it)."""
        chance = self.chance
        layout = LAYOUTS[opcode]
        payload = b""
        if layout.operation is Operation.CNP:
            payload = _CNP_RESERVED
        elif layout.operation is Operation.SELECTIVE_ACKNOWLEDGE:
            payload = chance.randbytes(32)
        elif layout.payload:
            payload = chance.randbytes(chance.choice((0, 1, 2, 3, 4, 64, 255) if layout.first else (1, 5, 64)))
        syndrome = chance.choice((ack(), ack(7), rnr_nak(12), *(nak(code) for code in NakCode)))
        if layout.operation is not Operation.ACKNOWLEDGE:
            syndrome = ack()
        bth = Bth(
            opcode,
            chance.randrange(1, 1 << 24) if dest_qp is None else dest_qp,
            chance.randrange(1 << 24) if psn is None else psn,
            ack_request=chance.random() < 0.5,
            pad_bytes=-len(payload) & 3,
            solicited=chance.random() < 0.5,
            migration=chance.random() < 0.5,
            pkey=chance.randrange(1 << 16),
            fecn=chance.random() < 0.5,
            becn=opcode == Opcode.CNP or chance.random() < 0.1,
        )
        word, double_word = chance.randrange(1 << 32), chance.randrange(1 << 64)
        return RocePacket(
            bth,
            Deth(chance.randrange(1 << 32), chance.randrange(1 << 24)) if layout.deth else None,
            Reth(double_word, word, chance.randrange(1 << 31)) if layout.reth else None,
            AtomicEth(double_word & ~7, word, chance.randrange(1 << 64), chance.randrange(1 << 64))
            if layout.atomic
            else None,
            Aeth(syndrome, chance.randrange(1 << 24)) if layout.aeth else None,
            double_word if layout.atomic_ack else None,
            word if layout.immediate else None,
            word if layout.ieth else None,
            memoryview(payload),
            bytes(bth.pad_bytes),
            0,
        )


def roce_frame(
    packet: RocePacket,
    *,
    source: str = FIRST,
    destination: str = SECOND,
    source_port: int = 49_200,
    identification: int = 0,
    tos: int = 26 << 2 | 2,
    damage: bool = False,
) -> bytes:
    """An Ethernet frame around a packet, with its ICRC; `damage`: one bit of the ICRC is wrong."""
    data = packet.encode()[:-ICRC_BYTES]
    icrc = compute_icrc(source, destination, source_port, data[:BTH_BYTES], data[BTH_BYTES:], identification)
    udp = make.udp(data + encode_icrc(icrc ^ int(damage)), source_port=source_port, port=UDP_PORT)
    addresses = ip_address(source).packed + ip_address(destination).packed
    if ":" in source:
        network = struct.pack("!IHBB", 6 << 28 | tos << 20, len(udp), 17, 64)
    else:
        network = struct.pack("!BBHHHBBH", 0x45, tos, 20 + len(udp), identification, _DO_NOT_FRAGMENT, 64, 17, 0)
    return make.ethernet(network + addresses + udp)
