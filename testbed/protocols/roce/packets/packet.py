"""Whole packets: all headers, the payload and the checksum, for people and tools that look at traffic.

A queue pair decodes the headers that it needs one by one (`headers`); this is for a decoder of captures and for tests.
Names in descriptions are those of the InfiniBand Architecture Specification.
"""

from __future__ import annotations

import builtins
from typing import NamedTuple

from testbed.protocols.errors import DecodeError, truncated, unfit
from testbed.protocols.roce.packets.headers import (
    AETH_BYTES,
    ATOMIC_ACK_ETH_BYTES,
    ATOMIC_ETH_BYTES,
    BTH_BYTES,
    DETH_BYTES,
    IETH_BYTES,
    IMMEDIATE_BYTES,
    RETH_BYTES,
    Aeth,
    AtomicEth,
    Bth,
    Data,
    Deth,
    Reth,
    decode_aeth,
    decode_atomic_ack,
    decode_atomic_eth,
    decode_bth,
    decode_deth,
    decode_ieth,
    decode_immediate,
    decode_reth,
    encode_atomic_ack,
    encode_ieth,
    encode_immediate,
)
from testbed.protocols.roce.packets.icrc import ICRC_BYTES
from testbed.protocols.roce.packets.opcodes import LAYOUTS, Opcode
from testbed.protocols.roce.packets.syndrome import ACK, NAK, RNR_NAK, RNR_TIMERS_NS, NakCode, kind_of, value_of

Description = dict[str, object]
"""A value that `json.dumps` takes."""


class RocePacket(NamedTuple):
    """A UDP payload in its parts. A header that the opcode does not bring is None."""

    bth: Bth
    deth: Deth | None
    reth: Reth | None
    atomic: AtomicEth | None
    aeth: Aeth | None
    original: int | None
    """The value that an atomic operation found (AtomicAckETH)."""
    immediate: int | None
    invalidated_rkey: int | None
    """The rkey of the IETH."""
    payload: builtins.memoryview  # by its module: mypyc finds the type of a field there alone
    """The bytes behind the headers, without padding; of a CNP its 16 reserved bytes."""
    padding: bytes
    icrc: int

    def encode(self) -> bytes:
        """The UDP payload. Raises `UsageError` where a header is missing, or too many."""
        layout = LAYOUTS[self.bth.opcode]
        if layout is None:
            raise unfit(self.bth, "opcode")
        parts = [self.bth.encode()]
        for wanted, header in (
            (layout.deth, self.deth),
            (layout.reth, self.reth),
            (layout.atomic, self.atomic),
            (layout.aeth, self.aeth),
        ):
            if wanted != (header is not None):
                raise unfit(self, f"the headers of {Opcode(self.bth.opcode).name}")
            if header is not None:
                parts.append(header.encode())
        for wanted, word, encode in (
            (layout.atomic_ack, self.original, encode_atomic_ack),
            (layout.immediate, self.immediate, encode_immediate),
            (layout.ieth, self.invalidated_rkey, encode_ieth),
        ):
            if wanted != (word is not None):
                raise unfit(self, f"the headers of {Opcode(self.bth.opcode).name}")
            if word is not None:
                parts.append(encode(word))
        return b"".join((*parts, self.payload, self.padding, self.icrc.to_bytes(ICRC_BYTES, "little")))


def decode_roce(data: Data) -> RocePacket:
    """The packet in a UDP payload; its ICRC is read, not checked (`check_icrc`). Raises `DecodeError`."""
    bth = decode_bth(data)
    layout = LAYOUTS[bth.opcode]
    assert layout is not None  # `decode_bth` has looked
    offset = BTH_BYTES
    deth: Deth | None = None
    reth: Reth | None = None
    atomic: AtomicEth | None = None
    aeth: Aeth | None = None
    original: int | None = None
    immediate: int | None = None
    invalidated: int | None = None
    if layout.deth:
        deth = decode_deth(data, offset)
        offset += DETH_BYTES
    if layout.reth:
        reth = decode_reth(data, offset)
        offset += RETH_BYTES
    if layout.atomic:
        atomic = decode_atomic_eth(data, offset)
        offset += ATOMIC_ETH_BYTES
    if layout.aeth:
        aeth = decode_aeth(data, offset)
        offset += AETH_BYTES
    if layout.atomic_ack:
        original = decode_atomic_ack(data, offset)
        offset += ATOMIC_ACK_ETH_BYTES
    if layout.immediate:
        immediate = decode_immediate(data, offset)
        offset += IMMEDIATE_BYTES
    if layout.ieth:
        invalidated = decode_ieth(data, offset)
        offset += IETH_BYTES
    end = len(data) - ICRC_BYTES
    if end - bth.pad_bytes < offset:
        raise truncated("padding and ICRC", bth.pad_bytes + ICRC_BYTES, len(data), offset)
    view = memoryview(data)
    payload = view[offset : end - bth.pad_bytes]
    if len(payload) and not layout.payload:
        raise DecodeError(offset, f"{len(payload)} bytes behind the headers of {Opcode(bth.opcode).name}")
    return RocePacket(
        bth,
        deth,
        reth,
        atomic,
        aeth,
        original,
        immediate,
        invalidated,
        payload,
        bytes(view[end - bth.pad_bytes : end]),
        int.from_bytes(data[end:], "little"),
    )


def describe_syndrome(syndrome: int) -> str:
    """A syndrome in words: `ACK`, `RNR NAK, 0.64 ms`, `NAK, PSN sequence error`."""
    kind, value = kind_of(syndrome), value_of(syndrome)
    if kind == ACK:
        return "ACK"
    if kind == RNR_NAK:
        return f"RNR NAK, {RNR_TIMERS_NS[value] / 1e6:g} ms"
    if kind == NAK and value in set(NakCode):
        return f"NAK, {NakCode(value).name.replace('_', ' ').lower().replace('psn', 'PSN')}"
    return f"reserved syndrome {syndrome:#04x}"


def describe(packet: RocePacket) -> Description:
    """The fields of a packet by their names in the specification, for a table or JSON."""
    bth = packet.bth
    fields: Description = {
        "opcode": Opcode(bth.opcode).name,
        "dest_qp": f"{bth.dest_qp:#08x}",
        "psn": bth.psn,
        "ack_request": bth.ack_request,
    }
    if bth.solicited:
        fields["solicited"] = True
    if bth.becn:
        fields["becn"] = True
    if packet.deth is not None:
        fields |= {"qkey": f"{packet.deth.qkey:#010x}", "source_qp": f"{packet.deth.source_qp:#08x}"}
    remote = packet.reth or packet.atomic
    if remote is not None:
        fields |= {"virtual_address": f"{remote.virtual_address:#x}", "rkey": f"{remote.rkey:#010x}"}
    if packet.reth is not None:
        fields["dma_length"] = packet.reth.length
    if packet.atomic is not None:
        fields |= {"swap_or_add": packet.atomic.swap_or_add, "compare": packet.atomic.compare}
    if packet.aeth is not None:
        fields |= {"syndrome": describe_syndrome(packet.aeth.syndrome), "msn": packet.aeth.msn}
    if packet.original is not None:
        fields["original"] = packet.original
    if packet.immediate is not None:
        fields["immediate"] = f"{packet.immediate:#010x}"
    if packet.invalidated_rkey is not None:
        fields["invalidated_rkey"] = f"{packet.invalidated_rkey:#010x}"
    fields |= {"payload_bytes": len(packet.payload), "pad_bytes": bth.pad_bytes, "icrc": f"{packet.icrc:#010x}"}
    return fields
