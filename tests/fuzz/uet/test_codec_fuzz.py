"""Bytes of anybody's making: decoders raise DecodeError, or give what encodes and decodes to the same again.

TESTBED_FUZZ_CASES sets how many cases each test has (20,000 by default, a second or two).
"""

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from functools import partial

from encoded import encoded

from testbed.protocols.errors import DecodeError
from testbed.protocols.uet.packets.codes import AmoOpcode, NextHeader, Opcode, PdsType
from testbed.protocols.uet.packets.packet import decode_packet, describe, summary
from testbed.protocols.uet.packets.pds import decode_pds, peek_type
from testbed.protocols.uet.packets.ses import decode_ses

CASES = int(os.environ.get("TESTBED_FUZZ_CASES", "20000"))
PDS_BYTES = 40
SES_BYTES = 80
KNOWN = [kind for kind in PdsType if kind not in (PdsType.RESERVED, PdsType.TSS)]


def check(data: bytes) -> str:
    """What became of it: "" where it was refused, and what it was otherwise."""
    try:
        packet = decode_packet(data)
    except DecodeError as error:
        assert 0 <= error.offset <= len(data)
        assert error.reason
        return ""
    again = encoded(packet)
    assert len(again) == len(data)
    assert decode_packet(again) == packet
    assert encoded(decode_packet(again)) == again
    assert json.dumps(describe(packet))
    assert "\n" not in summary(packet)
    return f"{packet.pds.type.name} {type(packet.ses).__name__}"


def valid_packets(source: random.Random) -> Iterator[bytes]:
    """Packets of all types and next headers with random content; most of them, not all, are valid."""
    while True:
        kind = source.choice(KNOWN)
        acknowledges = kind in (PdsType.ACK, PdsType.ACK_CC, PdsType.ACK_CCX)
        next_header = source.choice((0, 4, 5, 6)) if acknowledges else source.randrange(7)
        if kind in (PdsType.NACK, PdsType.NACK_CCX):
            next_header = 0
        head = bytearray(source.randbytes(PDS_BYTES))
        head[0:2] = (kind << 11 | next_header << 7 | source.choice((0, 0x08, 0x14, 0x20))).to_bytes(2, "big")
        if kind in (PdsType.NACK, PdsType.NACK_CCX):
            head[2] = source.randrange(1, 0x0C)
        else:
            head[2] |= 0x80
        head[8] |= 1
        head[12] &= 0x1F
        body = bytearray(source.randbytes(SES_BYTES))
        if next_header in (NextHeader.RESPONSE, NextHeader.RESPONSE_DATA, NextHeader.RESPONSE_DATA_SMALL):
            body[0] &= 0x43
            body[1] = source.randrange(0x25)
        else:
            body[0] = source.choice(list(Opcode))
            body[1] = body[1] & 0x3F | (0 if next_header == NextHeader.REQUEST_STD else 3)
            for at in (20, 32, 44):  # where an atomic extension may begin
                body[at] = source.choice(list(AmoOpcode))
                body[at + 1] = source.randrange(0x12)
        yield bytes(head[: decoded_length(kind)] + body)


def decoded_length(kind: PdsType) -> int:
    lengths = {
        PdsType.RUDI_REQ: 8,
        PdsType.RUDI_RESP: 8,
        PdsType.UUD_REQ: 4,
        PdsType.ACK_CC: 32,
        PdsType.ACK_CCX: 40,
        PdsType.NACK: 16,
        PdsType.NACK_CCX: 32,
        PdsType.CP: 16,
        PdsType.RUD_CC_REQ: 16,
        PdsType.ROD_CC_REQ: 16,
    }
    return lengths.get(kind, 12)


def mutate(data: bytes, source: random.Random) -> bytes:
    """Cut off, extended, with bits flipped, bytes replaced, or a piece copied to another place."""
    changed = bytearray(data)
    for _ in range(source.randrange(1, 4)):
        at = source.randrange(len(changed) + 1)
        match source.randrange(5):
            case 0:
                del changed[at:]
            case 1:
                changed += source.randbytes(source.randrange(20))
            case 2 if changed:
                changed[at % len(changed)] ^= 1 << source.randrange(8)
            case 3 if changed:
                changed[at % len(changed)] = source.choice((0, 0xFF, source.randrange(256)))
            case _:
                changed[at:at] = changed[: source.randrange(8)]
    return bytes(changed)


def test_random_bytes() -> None:
    source = random.Random(4793)
    for _ in range(CASES):
        check(source.randbytes(source.randrange(90)))


def test_random_bytes_behind_a_known_type() -> None:
    source = random.Random(4794)
    for _ in range(CASES):
        data = bytearray(source.randbytes(source.randrange(4, 120)))
        data[0] = source.choice(KNOWN) << 3 | data[0] & 7
        check(bytes(data))


def test_valid_and_mutated_packets() -> None:
    source = random.Random(4795)
    packets = valid_packets(source)
    seen: Counter[str] = Counter()
    for _ in range(CASES):
        data = next(packets)
        seen[check(data)] += 1
        check(mutate(data, source))
    # What is meant to be valid is: else the mutations above would have started from nothing.
    if CASES >= 1000:
        assert seen[""] < CASES / 5
    if CASES >= 20_000:
        assert {name.split()[0] for name in seen if name} == {kind.name for kind in KNOWN}
        headers = {name.split()[1] for name in seen if name}
        assert headers == {
            "NoneType",
            "StandardRequest",
            "MediumRequest",
            "SmallRequest",
            "Response",
            "ResponseData",
            "ResponseDataSmall",
        }


def test_decoders_by_themselves() -> None:
    source = random.Random(4796)
    for _ in range(CASES):
        data = memoryview(source.randbytes(source.randrange(60)))
        offset = source.randrange(70)
        next_header = source.choice(list(NextHeader))
        for read in (peek_type, decode_pds, partial(decode_ses, next_header, offset=offset)):
            try:
                read(data)
            except DecodeError as error:
                assert 0 <= error.offset <= max(len(data), offset)
