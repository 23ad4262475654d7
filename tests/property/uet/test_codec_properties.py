"""Every header comes back as it was from its bytes, whatever follows them, and has the length that its table has."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from testbed.protocols.uet.packets.codes import (
    AmoOpcode,
    AmoType,
    ControlType,
    NackCode,
    NextHeader,
    Opcode,
    PdsType,
    ResponseList,
    ResponseOpcode,
    ReturnCode,
)
from testbed.protocols.uet.packets.packet import Packet, decode_packet
from testbed.protocols.uet.packets.pds import (
    Ack,
    CcxState,
    ControlPacket,
    CreditState,
    Nack,
    NsccState,
    PdsHeader,
    Request,
    RequestCcState,
    RudiPacket,
    Uud,
    decode_pds,
)
from testbed.protocols.uet.packets.ses import (
    AtomicExtension,
    CswapExtension,
    DeferrableTokens,
    Extension,
    MediumRequest,
    RendezvousExtension,
    Response,
    ResponseData,
    ResponseDataSmall,
    SesHeader,
    SmallRequest,
    StandardRequest,
    decode_ses,
)

SYN = 0x04
SOM = 0x01
HD = 0x04


def bits(width: int) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << width) - 1)


s16 = st.integers(-0x8000, 0x7FFF)
pdcid = st.integers(1, 0xFFFF)
next_headers = st.sampled_from(NextHeader)
response_headers = st.sampled_from(
    [NextHeader.NONE, NextHeader.RESPONSE, NextHeader.RESPONSE_DATA, NextHeader.RESPONSE_DATA_SMALL]
)


def some_bits_of(mask: int) -> st.SearchStrategy[int]:
    return bits(7).map(lambda flags: flags & mask)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    state = draw(st.none() | st.builds(RequestCcState, bits(8), bits(24)))
    ordered = draw(st.booleans())
    if state is None:
        kind = PdsType.ROD_REQ if ordered else PdsType.RUD_REQ
    else:
        kind = PdsType.ROD_CC_REQ if ordered else PdsType.RUD_CC_REQ
    flags = draw(some_bits_of(0x1C))
    clear_psn_offset = draw(st.integers(-0x8000, 0))
    head = (kind, draw(next_headers), flags, clear_psn_offset, draw(bits(32)), draw(pdcid))
    if flags & SYN:
        return Request(*head, 0, draw(bits(4)), draw(bits(12)), state)
    return Request(*head, draw(bits(16)), 0, 0, state)


ack_flags = some_bits_of(0x3E).filter(lambda flags: flags & 0x06 != 0x06)
# A lambda: with the class itself, `builds` would vary the fields that have defaults too.
acks = st.builds(lambda *fields: Ack(PdsType.ACK, *fields), response_headers, ack_flags, s16, bits(32), pdcid, bits(16))
nscc_states = st.builds(NsccState, bits(16), st.booleans(), bits(7), bits(24), bits(16))
credit_states = st.builds(CreditState, bits(24), bits(16))
unknown_states = st.builds(CcxState, st.integers(2, 15), bits(64))
state_tails = st.one_of(
    st.tuples(st.just(PdsType.ACK_CC), nscc_states | credit_states | unknown_states),
    st.tuples(st.just(PdsType.ACK_CCX), st.builds(CcxState, bits(4), bits(128))),
)
acks_with_state = st.builds(
    lambda tail, ack, mpr, base, bitmap: ack._replace(
        type=tail[0], mpr=mpr, sack_psn_offset=base, sack_bitmap=bitmap, cc_state=tail[1]
    ),
    state_tails,
    acks,
    bits(8),
    s16,
    bits(64),
)
nack_tails = st.one_of(
    st.just((PdsType.NACK, None)),
    st.tuples(st.just(PdsType.NACK_CCX), st.builds(CcxState, bits(4), bits(124))),
)
nacks = st.builds(
    lambda tail, *fields: Nack(tail[0], *fields, tail[1]),
    nack_tails,
    some_bits_of(0x38),
    st.sampled_from(NackCode),
    bits(8),
    bits(32),
    bits(16),
    bits(16),
    bits(32),
)


@st.composite
def control_packets(draw: st.DrawFn) -> ControlPacket:
    kind = draw(st.sampled_from(ControlType))
    opaque = draw(bits(16)) if kind is ControlType.PROBE else 0
    flags = draw(some_bits_of(0x3C))
    head = (kind, flags, opaque, draw(bits(32)), draw(pdcid))
    if flags & SYN:
        return ControlPacket(*head, 0, draw(bits(4)), draw(bits(12)), draw(bits(32)))
    return ControlPacket(*head, draw(bits(16)), 0, 0, draw(bits(32)))


rudi_packets = st.one_of(
    st.builds(RudiPacket, st.just(PdsType.RUDI_REQ), next_headers, some_bits_of(0x10), bits(32)),
    st.builds(RudiPacket, st.just(PdsType.RUDI_RESP), next_headers, some_bits_of(0x30), bits(32)),
)
pds_headers = st.one_of(
    requests(), acks, acks_with_state, nacks, control_packets(), rudi_packets, st.builds(Uud, next_headers)
)
PDS_BYTES = {
    PdsType.RUD_REQ: 12,
    PdsType.ROD_REQ: 12,
    PdsType.RUD_CC_REQ: 16,
    PdsType.ROD_CC_REQ: 16,
    PdsType.RUDI_REQ: 8,
    PdsType.RUDI_RESP: 8,
    PdsType.UUD_REQ: 4,
    PdsType.ACK: 12,
    PdsType.ACK_CC: 32,
    PdsType.ACK_CCX: 40,
    PdsType.NACK: 16,
    PdsType.NACK_CCX: 32,
    PdsType.CP: 16,
}

COMPARING = [code for code in AmoOpcode if AmoOpcode.CSWAP <= code <= AmoOpcode.MSWAP]
atomics = st.builds(
    AtomicExtension,
    st.sampled_from([code for code in AmoOpcode if code not in COMPARING]),
    st.sampled_from(AmoType),
    bits(8),
)
operands = st.binary(min_size=16, max_size=16)
cswaps = st.builds(CswapExtension, st.sampled_from(COMPARING), st.sampled_from(AmoType), bits(8), operands, operands)
rendezvous = st.builds(RendezvousExtension, bits(32), bits(8), bits(12), bits(12), bits(64), bits(64))
ATOMIC = [Opcode.ATOMIC, Opcode.FETCHING_ATOMIC, Opcode.TSEND_ATOMIC, Opcode.TSEND_FETCH_ATOMIC]
RENDEZVOUS = [Opcode.RENDEZVOUS_SEND, Opcode.RENDEZVOUS_TSEND]
BARE = [code for code in Opcode if code not in ATOMIC and code not in RENDEZVOUS]
single_tails = st.one_of(
    st.tuples(st.sampled_from(BARE), st.none()), st.tuples(st.sampled_from(ATOMIC), atomics | cswaps)
)
tails = single_tails | st.tuples(st.sampled_from(RENDEZVOUS), rendezvous)
addresses = st.tuples(bits(8), bits(24), bits(12), bits(12))


@st.composite
def standard_requests(draw: st.DrawFn) -> StandardRequest:
    opcode, extension = draw(tails)
    flags = draw(bits(6))
    first = bool(flags & SOM)
    return StandardRequest(
        opcode,
        flags,
        draw(bits(16)),
        *draw(addresses),
        buffer_offset=draw(bits(64)),
        initiator=draw(bits(32)),
        memory_key=draw(bits(64)),
        header_data=draw(bits(64)) if first else 0,
        payload_length=0 if first else draw(bits(14)),
        message_offset=0 if first else draw(bits(32)),
        request_length=draw(bits(32)),
        extension=extension,
    )


@st.composite
def medium_requests(draw: st.DrawFn) -> MediumRequest:
    opcode, extension = draw(single_tails)
    flags = draw(bits(6)) | 0x03
    word = draw(bits(64))
    return MediumRequest(
        opcode,
        flags,
        draw(bits(14)),
        *draw(addresses),
        buffer_offset=0 if flags & HD else word,
        header_data=word if flags & HD else 0,
        initiator=draw(bits(32)),
        memory_key=draw(bits(64)),
        extension=extension,
    )


small_requests = st.builds(
    lambda tail, flags, length, address, offset: SmallRequest(
        tail[0], flags | 0x03, length, *address, buffer_offset=offset, extension=tail[1]
    ),
    single_tails,
    bits(6),
    bits(14),
    addresses,
    bits(64),
)
heads = (st.sampled_from(ResponseList), st.sampled_from(ResponseOpcode), st.sampled_from(ReturnCode))
responses = st.builds(Response, *heads, bits(16), bits(24), bits(32), bits(8))
responses_with_data = st.builds(ResponseData, *heads, bits(16), bits(24), bits(16), bits(14), bits(32), bits(32))
small_responses = st.builds(ResponseDataSmall, *heads, bits(14), bits(24), bits(32))
ses_headers: st.SearchStrategy[tuple[NextHeader, SesHeader]] = st.one_of(
    st.tuples(st.just(NextHeader.REQUEST_STD), standard_requests()),
    st.tuples(st.just(NextHeader.REQUEST_MEDIUM), medium_requests()),
    st.tuples(st.just(NextHeader.REQUEST_SMALL), small_requests),
    st.tuples(st.just(NextHeader.RESPONSE), responses),
    st.tuples(st.just(NextHeader.RESPONSE_DATA), responses_with_data),
    st.tuples(st.just(NextHeader.RESPONSE_DATA_SMALL), small_responses),
)
SES_BYTES = {
    StandardRequest: 44,
    MediumRequest: 32,
    SmallRequest: 20,
    Response: 12,
    ResponseData: 20,
    ResponseDataSmall: 12,
}


def extension_bytes(extension: Extension | None) -> int:
    match extension:
        case None:
            return 0
        case RendezvousExtension():
            return 24
        case AtomicExtension():
            return 4
        case CswapExtension():
            return 36


@given(pds_headers, st.binary(max_size=40))
def test_pds_headers_come_back(header: PdsHeader, tail: bytes) -> None:
    data = header.encode()
    assert len(data) == PDS_BYTES[header.type]
    assert decode_pds(data + tail) == (header, len(data))
    assert decode_pds(memoryview(data + tail)) == (header, len(data))


@given(ses_headers, st.binary(max_size=40), st.binary(max_size=40))
def test_ses_headers_come_back(pair: tuple[NextHeader, SesHeader], before: bytes, tail: bytes) -> None:
    next_header, header = pair
    data = header.encode()
    extension = getattr(header, "extension", None)
    assert len(data) == SES_BYTES[type(header)] + extension_bytes(extension)
    assert decode_ses(next_header, before + data + tail, len(before)) == (header, len(before) + len(data))


@given(requests(), ses_headers, st.binary(max_size=40))
def test_packets_come_back(request: Request, pair: tuple[NextHeader, SesHeader], payload: bytes) -> None:
    packet = Packet(request._replace(next_header=pair[0]), pair[1], memoryview(payload))
    assert decode_packet(packet.encode()) == packet


@given(bits(64))
def test_restart_tokens_are_two_halves(word: int) -> None:
    tokens = DeferrableTokens.from_word(word)
    assert tokens.word == word
    assert max(tokens) < 1 << 32


PDS_RESERVED: dict[PdsType, tuple[str, str]] = {
    PdsType.RUD_REQ: ("0063", ""),
    PdsType.ROD_REQ: ("0063", ""),
    PdsType.RUD_CC_REQ: ("0063", ""),
    PdsType.ROD_CC_REQ: ("0063", ""),
    PdsType.RUDI_REQ: ("006fffff", ""),
    PdsType.RUDI_RESP: ("004fffff", ""),
    PdsType.UUD_REQ: ("007fffff", ""),
    PdsType.ACK: ("0041", ""),
    PdsType.ACK_CC: ("0041" + "00" * 10 + "0f", "0041" + "00" * 10 + "0f" + "00" * 14 + "ffffff0000"),
    PdsType.ACK_CCX: ("0041" + "00" * 10 + "0f", ""),
    PdsType.NACK: ("07c7", ""),
    PdsType.NACK_CCX: ("07c7", ""),
    PdsType.CP: ("0043", "0043ffff"),
}
"""Reserved bits of each header (tables 3-33 to 3-42); if not "", those of an ACK_CC with credit (table 3-75), and of a
control packet that is no PROBE (table 3-38)."""


@given(pds_headers, st.randoms(use_true_random=False))
def test_reserved_bits_of_pds_headers_change_nothing(header: PdsHeader, chance: Random) -> None:
    mask, other = PDS_RESERVED[header.type]
    with_credit = isinstance(header, Ack) and isinstance(header.cc_state, CreditState)
    no_probe = isinstance(header, ControlPacket) and header.control_type is not ControlType.PROBE
    data = header.encode()
    changed = with_some_bits(data, bytes.fromhex(other if with_credit or no_probe else mask), chance)
    assert decode_pds(changed) == (header, len(data))
    assert decode_pds(changed)[0].encode() == data  # reserved bits are sent as zero


SES_RESERVED = {
    StandardRequest: "c0" + "00" * 7 + "f000f000",
    MediumRequest: "c000c000" + "00" * 4 + "f000f000",
    SmallRequest: "c000c000" + "00" * 4 + "f000f000",
    Response: "",
    ResponseData: "00000000ff000000" + "0000c000",
    ResponseDataSmall: "0000c000ff",
}
"""Reserved bits of each header (tables 3-8, 3-9 and 3-11)."""


@given(ses_headers, st.randoms(use_true_random=False))
def test_reserved_bits_of_ses_headers_change_nothing(pair: tuple[NextHeader, SesHeader], chance: Random) -> None:
    next_header, header = pair
    mask = bytes.fromhex(SES_RESERVED[type(header)])
    if isinstance(header, StandardRequest) and not header.flags & SOM:
        mask = mask.ljust(32, b"\0") + bytes.fromhex("ffffc000")  # before payload_length
    data = header.encode()
    changed = with_some_bits(data, mask, chance)
    assert decode_ses(next_header, changed, 0) == (header, len(data))
    assert decode_ses(next_header, changed, 0)[0].encode() == data


def with_some_bits(data: bytes, mask: bytes, chance: Random) -> bytes:
    """`data` with some of the bits of `mask` set."""
    some = bytes(byte & chance.getrandbits(8) for byte in mask.ljust(len(data), b"\0"))
    return bytes(one | other for one, other in zip(data, some, strict=True))
