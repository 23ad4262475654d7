"""PDUs as the figures of the NVMe/TCP transport specification have them, and every rule that a header can break."""

import struct

import pytest

from testbed.protocols.nvme.codes import FatalErrorStatus, PduType
from testbed.protocols.nvme.digest import compute_digest, encode_digest
from testbed.protocols.nvme.pdu import (
    TO_CONTROLLER,
    TO_HOST,
    FatalError,
    Field,
    Initialize,
    Layout,
    TransferHeader,
    check_header_digest,
    decode_header,
    decode_initialize,
    decode_termination,
    decode_transfer,
    encode_pdu,
    encode_termination,
    invalid_field,
)

INVALID, LIMIT = FatalErrorStatus.INVALID_PDU_HEADER_FIELD, FatalErrorStatus.DATA_TRANSFER_LIMIT_EXCEEDED
MOST = 1 << 20


def test_digest_is_the_crc32c_of_iscsi() -> None:
    """RFC 3720, B.4."""
    assert encode_digest(compute_digest(bytes(32))) == bytes.fromhex("aa36918a")
    assert encode_digest(compute_digest(b"\xff" * 32)) == bytes.fromhex("43aba862")
    assert encode_digest(compute_digest(bytes(range(32)))) == bytes.fromhex("4e79dd46")
    assert compute_digest(bytes(range(16, 32)), compute_digest(bytes(range(16)))) == compute_digest(bytes(range(32)))


def test_ic_request_is_as_its_figure_has_it() -> None:
    pdu = Initialize(pda=3, header_digest=True, data_digest=True, limit=7).encode(PduType.IC_REQ)
    assert len(pdu) == 128
    assert pdu[:16] == bytes([0, 0, 128, 0, 128, 0, 0, 0, 0, 0, 3, 3, 7, 0, 0, 0])
    assert not any(pdu[16:])
    assert decode_initialize(memoryview(pdu)) == Initialize(0, 3, True, True, 7)


def test_ic_response_is_as_its_figure_has_it() -> None:
    pdu = Initialize(limit=0x20000).encode(PduType.IC_RESP)
    assert pdu[:16] == bytes([1, 0, 128, 0, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0])


@pytest.mark.parametrize(
    ("kind", "layout", "data", "expected"),
    [
        # FLAGS, HLEN, PDO, PLEN.
        (PduType.CAPSULE_CMD, Layout(), 0, (0, 72, 0, 72)),
        (PduType.CAPSULE_CMD, Layout(), 512, (0, 72, 72, 584)),
        (PduType.CAPSULE_CMD, Layout(pda_bytes=128), 512, (0, 72, 128, 640)),
        (PduType.CAPSULE_RESP, Layout(True, True), 0, (1, 24, 0, 28)),
        (PduType.H2C_DATA, Layout(True, False), 4, (1, 24, 28, 32)),
        (PduType.C2H_DATA, Layout(True, True), 8, (3, 24, 28, 40)),
        (PduType.C2H_DATA, Layout(True, True, 64), 8, (3, 24, 64, 76)),
        (PduType.R2T, Layout(False, True), 0, (0, 24, 0, 24)),
    ],
)
def test_common_header(kind: PduType, layout: Layout, data: int, expected: tuple[int, int, int, int]) -> None:
    body = bytes(64 if kind is PduType.CAPSULE_CMD else 16)
    pdu = encode_pdu(kind, body, layout, data=data)
    assert struct.unpack_from("<BBBBI", pdu) == (kind, *expected)
    assert len(pdu) == expected[2] or not data
    allowed = TO_CONTROLLER if kind in TO_CONTROLLER else TO_HOST
    header = decode_header(memoryview(pdu), allowed, layout, MOST)
    assert (header.flags, header.hlen, header.pdo, header.plen, header.data) == (*expected, data)
    check_header_digest(memoryview(pdu), header)


def test_r2t_is_as_its_figure_has_it() -> None:
    transfer = TransferHeader(cid=0x1234, ttag=0x5678, offset=0x01020304, length=0x0A0B0C0D)
    pdu = encode_pdu(PduType.R2T, transfer.encode(), Layout())
    assert pdu[8:] == bytes.fromhex("34127856 04030201 0d0c0b0a 00000000".replace(" ", ""))
    assert decode_transfer(memoryview(pdu)) == transfer


def test_h2c_term_req_is_as_its_figure_has_it() -> None:
    pdu = encode_termination(PduType.H2C_TERM_REQ, invalid_field(0x0102, "x"), bytes(range(200)))
    assert pdu[:14] == bytes([2, 0, 24, 0, 24 + 128, 0, 0, 0, 1, 0, 2, 1, 0, 0])
    assert pdu[24:] == bytes(range(128))
    assert decode_header(memoryview(pdu), TO_CONTROLLER, Layout(), 0).kind is PduType.H2C_TERM_REQ
    decoded = decode_termination(memoryview(pdu))
    assert (decoded.status, decoded.information, decoded.name) == (1, 0x0102, "invalid pdu header field")


@pytest.mark.parametrize(
    ("header", "layout", "status", "information"),
    [
        ((8, 0, 24, 0, 24), Layout(), INVALID, Field.TYPE),
        ((0xFF, 0, 24, 0, 24), Layout(), INVALID, Field.TYPE),
        ((PduType.C2H_DATA, 0, 24, 24, 32), Layout(), INVALID, Field.TYPE),  # the other direction
        ((PduType.CAPSULE_CMD, 0, 64, 0, 72), Layout(), INVALID, Field.HLEN),
        ((PduType.IC_REQ, 0, 128, 0, 129), Layout(), INVALID, Field.PLEN),
        ((PduType.IC_REQ, 0, 128, 8, 128), Layout(), INVALID, Field.PDO),
        ((PduType.H2C_TERM_REQ, 0, 24, 0, 23), Layout(), INVALID, Field.PLEN),
        ((PduType.H2C_TERM_REQ, 0, 24, 0, 24 + 129), Layout(), INVALID, Field.PLEN),
        ((PduType.CAPSULE_CMD, 1, 72, 0, 76), Layout(), INVALID, Field.FLAGS),  # a digest that was not agreed on
        ((PduType.CAPSULE_CMD, 0, 72, 0, 72), Layout(True), INVALID, Field.FLAGS),
        ((PduType.H2C_DATA, 2, 24, 24, 36), Layout(), INVALID, Field.FLAGS),
        ((PduType.H2C_DATA, 0, 24, 24, 36), Layout(False, True), INVALID, Field.FLAGS),
        ((PduType.H2C_DATA, 0, 24, 20, 36), Layout(), INVALID, Field.PDO),
        ((PduType.H2C_DATA, 0, 24, 26, 36), Layout(), INVALID, Field.PDO),
        ((PduType.H2C_DATA, 0, 24, 28, 36), Layout(pda_bytes=16), INVALID, Field.PDO),
        ((PduType.H2C_DATA, 0, 24, 252, 260), Layout(), INVALID, Field.PLEN),  # more padding than there can be
        ((PduType.H2C_DATA, 0, 24, 24, 24), Layout(), INVALID, Field.PLEN),
        ((PduType.H2C_DATA, 0, 24, 24, 8), Layout(), INVALID, Field.PLEN),
        ((PduType.CAPSULE_CMD, 0, 72, 72, 60), Layout(), INVALID, Field.PLEN),
        ((PduType.H2C_DATA, 0, 24, 24, 24 + MOST + 1), Layout(), LIMIT, 0),
        ((PduType.H2C_DATA, 0, 24, 24, 0xFFFF_FFFF), Layout(), LIMIT, 0),
    ],
)
def test_header_that_is_wrong(
    header: tuple[int, ...], layout: Layout, status: FatalErrorStatus, information: int
) -> None:
    with pytest.raises(FatalError) as caught:
        decode_header(memoryview(struct.pack("<BBBBI", *header)), TO_CONTROLLER, layout, MOST)
    assert (caught.value.status, caught.value.information) == (status, information)


@pytest.mark.parametrize(
    ("at", "value", "status", "information"),
    [(8, 1, FatalErrorStatus.UNSUPPORTED_PARAMETER, Field.PFV), (10, 32, INVALID, Field.PDA)],
)
def test_ic_request_that_is_wrong(at: int, value: int, status: FatalErrorStatus, information: int) -> None:
    pdu = bytearray(Initialize().encode(PduType.IC_REQ))
    pdu[at] = value
    with pytest.raises(FatalError) as caught:
        decode_initialize(memoryview(pdu))
    assert (caught.value.status, caught.value.information) == (status, information)
