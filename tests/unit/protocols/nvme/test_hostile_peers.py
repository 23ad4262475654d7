"""What a peer does wrong ends its connection with the fatal error status that the specification names."""

import struct
from dataclasses import replace

import pytest
from nvme_pair import BLOCK, HOST, NvmePair, capsule, connect_capsule, ic_request, live_pair, some_target, split_pdus

from testbed.protocols.nvme.codes import FatalErrorStatus, PduFlag, PduType, Status
from testbed.protocols.nvme.commands import Cqe, encode_cqe, flush_command, read_command, write_command
from testbed.protocols.nvme.config import ControllerConfig
from testbed.protocols.nvme.connection import Connection
from testbed.protocols.nvme.host_queue import HostRequest
from testbed.protocols.nvme.pdu import Field, Initialize, Layout, TransferHeader, encode_pdu, invalid_field
from testbed.protocols.nvme.pdu import encode_termination as encode_termination_pdu

INVALID = FatalErrorStatus.INVALID_PDU_HEADER_FIELD
SEQUENCE = FatalErrorStatus.PDU_SEQUENCE_ERROR
RANGE = FatalErrorStatus.DATA_TRANSFER_OUT_OF_RANGE
LIMIT = FatalErrorStatus.DATA_TRANSFER_LIMIT_EXCEEDED
DIGEST = FatalErrorStatus.HEADER_DIGEST_ERROR
PLAIN = Layout()
CID = 7
LENGTH = 16 * BLOCK


def data_pdu(kind: PduType, transfer: TransferHeader, *, flags: int = PduFlag.LAST, data: int | None = None) -> bytes:
    count = transfer.length if data is None else data
    return encode_pdu(kind, transfer.encode(), PLAIN, data=count, flags=flags) + bytes(count)


def termination_in(stream: bytes, kind: PduType) -> tuple[int, int]:
    """FES and FEI of the termination that a stream ends with."""
    *_, last = split_pdus(stream)
    assert last[0] == kind
    return struct.unpack_from("<HI", last, 8)


def h2c(ttag_offset: int = 0, offset: int = 0, length: int = LENGTH, cid: int = CID, flags: int = 4) -> bytes:
    return data_pdu(PduType.H2C_DATA, TransferHeader(cid, 1 + ttag_offset, offset, length), flags=flags)


WRONG_HOSTS = {
    "a PDU of the other direction": (encode_pdu(PduType.R2T, bytes(16), PLAIN), INVALID, Field.TYPE),
    "a type that is not there": (bytes([0x42, 0, 24, 0, 24, 0, 0, 0]), INVALID, Field.TYPE),
    "a second ICReq": (ic_request(), SEQUENCE, 0),
    "a capsule that is too long": (struct.pack("<BBBBI", 4, 0, 72, 72, 72 + 8193), LIMIT, 0),
    "data that are too long": (struct.pack("<BBBBI", 6, 0, 24, 24, 24 + (1 << 20) + 1), LIMIT, 0),
    "a TTAG that is not there": (h2c(ttag_offset=1), INVALID, Field.TTAG),
    "the CCCID of another command": (h2c(cid=8), INVALID, Field.CCCID),
    "data beyond the R2T": (h2c(length=LENGTH + 4), RANGE, Field.DATA_OFFSET),
    "data before the R2T": (h2c() + h2c(), INVALID, Field.TTAG),
    "an offset near 2^32": (h2c(offset=0xFFFF_FFF0, length=16), RANGE, Field.DATA_OFFSET),
    "data out of order": (h2c(offset=8, length=8, flags=0), SEQUENCE, 0),
    "data that come twice": (2 * h2c(length=8, flags=0), RANGE, Field.DATA_OFFSET),
    "LAST too early": (h2c(length=8), SEQUENCE, 0),
    "LAST missing": (h2c(flags=0), SEQUENCE, 0),
    "DATAL that is not what comes": (
        data_pdu(PduType.H2C_DATA, TransferHeader(CID, 1, 0, LENGTH), data=LENGTH - 4),
        INVALID,
        Field.DATA_LENGTH,
    ),
    "more commands than the queue has": (
        b"".join(capsule(write_command(1, 0, 3), cid, length=3 * BLOCK) for cid in range(100, 132)),
        SEQUENCE,
        0,
    ),
}


def writing_pair() -> NvmePair:
    """An I/O queue with 32 entries, on which command 7 has an R2T with the TTAG 1."""
    pair = live_pair(replace(HOST, queue_entries=32))
    far = pair.links[1][1]
    far.receive(capsule(write_command(1, 0, LENGTH // BLOCK), CID, length=LENGTH), 0)
    pair._execute(far)
    *_, r2t = split_pdus(far.take_to_send())
    assert r2t[0] == PduType.R2T and struct.unpack_from("<HH", r2t, 8) == (CID, 1)
    return pair


@pytest.mark.parametrize("wrong", WRONG_HOSTS)
def test_host_that_is_wrong_is_told_so(wrong: str) -> None:
    stream, status, information = WRONG_HOSTS[wrong]
    pair = writing_pair()
    far = pair.links[1][1]
    far.receive(stream, 0)
    assert termination_in(far.take_to_send(), PduType.C2H_TERM_REQ) == (status, information)
    assert far.finished and far.receive_buffers() == []
    far.receive(bytes(100_000), 0)
    assert pair.target.counts[f"terminated: {status.name.lower().replace('_', ' ')}"] == 1
    # The others of its controller, and the target, go on.
    assert not pair.links[0][1].closed
    accepted = pair.target.accept(0)
    accepted.receive(ic_request() + connect_capsule(), 0)
    assert not accepted.closed


@pytest.mark.parametrize("stream", [capsule(flush_command(1), 1), h2c()])
def test_pdu_before_ic_request(stream: bytes) -> None:
    queue = some_target().accept(0)
    queue.receive(stream, 0)
    assert termination_in(queue.take_to_send(), PduType.C2H_TERM_REQ) == (SEQUENCE, 0)


def test_header_digest_that_is_wrong() -> None:
    queue = some_target().accept(0)
    queue.receive(ic_request(header_digest=True), 0)
    queue.take_to_send()
    wrong = bytearray(capsule(flush_command(1), 1, layout=Layout(True)))
    wrong[-1] ^= 1
    queue.receive(bytes(wrong), 0)
    found = int.from_bytes(wrong[-4:], "little")
    assert termination_in(queue.take_to_send(), PduType.C2H_TERM_REQ) == (DIGEST, found)


def test_connections_that_want_nothing_are_bounded_and_keep_nobody_out() -> None:
    target = some_target(ControllerConfig(most_unconnected=3))
    idle = [target.accept(0) for _ in range(5)]
    assert [queue.closed for queue in idle] == [True, True, False, False, False]
    assert target.counts["connections displaced"] == 2
    assert set(target.take_ready()) == set(idle[:2])
    host = target.accept(0)
    host.receive(ic_request() + connect_capsule(), 0)
    for _ in range(5):
        target.accept(0)
    assert host.controller is not None and not host.closed


def test_identifier_in_use_ends_the_second_command_alone() -> None:
    pair = writing_pair()
    far = pair.links[1][1]
    far.receive(capsule(flush_command(1), CID), 0)
    *_, pdu = split_pdus(far.take_to_send())
    assert struct.unpack_from("<H", pdu, 8 + 14)[0] >> 1 & 0x7FF == Status.COMMAND_ID_CONFLICT
    far.receive(h2c(), 0)
    assert not far.closed


def test_termination_by_the_peer_is_not_answered() -> None:
    pair = live_pair()
    for sink, kind in ((pair.links[1][1], PduType.H2C_TERM_REQ), (pair.links[1][0], PduType.C2H_TERM_REQ)):
        sink.receive(encode_termination_pdu(kind, invalid_field(4, "x"), b"y"), 0)
        assert sink.finished and sink.terminated is not None and sink.terminated.information == 4
        assert sink.take_to_send() == b""
    assert pair.target.counts["terminated by hosts"] == 1


def c2h(offset: int = 0, length: int = LENGTH, cid: int = 0, flags: int = 4) -> bytes:
    return data_pdu(PduType.C2H_DATA, TransferHeader(cid, 0, offset, length), flags=flags)


def r2t(offset: int = 0, length: int = LENGTH, cid: int = 0) -> bytes:
    return encode_pdu(PduType.R2T, TransferHeader(cid, 5, offset, length).encode(), PLAIN)


def response(cid: int) -> bytes:
    return encode_pdu(PduType.CAPSULE_RESP, encode_cqe(Cqe(0, 0xFFFF, 1, cid, 0)), PLAIN)


READ, WRITE = "read", "write"
WRONG_CONTROLLERS = {
    "a second ICResp": (READ, Initialize(limit=4096).encode(PduType.IC_RESP), SEQUENCE, 0),
    "a completion of no command": (READ, response(9), INVALID, Field.CQE_CID),
    "two completions": (READ, c2h() + 2 * response(0), INVALID, Field.CQE_CID),
    "data of no command": (READ, c2h(cid=9), INVALID, Field.CCCID),
    "data of a write": (WRITE, c2h(), RANGE, Field.DATA_OFFSET),
    "more data than asked for": (READ, c2h(length=LENGTH + 4), RANGE, Field.DATA_OFFSET),
    "data out of order": (READ, c2h(offset=8, length=8), SEQUENCE, 0),
    "data that come twice": (READ, 2 * c2h(length=8, flags=0), SEQUENCE, 0),
    "SUCCESS before the last": (READ, c2h(flags=PduFlag.SUCCESS), INVALID, Field.FLAGS),
    "R2T of no command": (WRITE, r2t(cid=9), INVALID, Field.CCCID),
    "R2T of a read": (READ, r2t(), RANGE, Field.DATA_OFFSET),
    "R2T for more than there is": (WRITE, r2t(length=LENGTH + 4), RANGE, Field.DATA_OFFSET),
    "R2T for nothing": (WRITE, r2t(length=0), RANGE, Field.DATA_OFFSET),
    "R2T that comes twice": (WRITE, r2t(length=8) + r2t(length=8), SEQUENCE, 0),
    "more R2Ts than MAXR2T": (WRITE, r2t(0, 8) + r2t(8, 8) + r2t(16, 8), LIMIT, 0),
}


@pytest.mark.parametrize("wrong", WRONG_CONTROLLERS)
def test_controller_that_is_wrong_is_told_so(wrong: str) -> None:
    what, stream, status, information = WRONG_CONTROLLERS[wrong]
    pair = live_pair(replace(HOST, maxr2t=2))
    near = pair.queue
    blocks = LENGTH // BLOCK
    while near._free[0]:
        near._free.rotate()
    if what == READ:
        request = HostRequest(read_command(1, 0, blocks), place=bytearray(LENGTH))
    else:
        request = HostRequest(write_command(1, 0, blocks), data=bytes(LENGTH))
    near.submit(request)
    assert request.cid == 0
    near.take_to_send()
    near.receive(stream, 0)
    assert termination_in(near.take_to_send(), PduType.H2C_TERM_REQ) == (status, information)
    assert request in near.ended
    pair.host.advance(0)
    assert pair.host.state.value == "failed"


@pytest.mark.parametrize(
    ("answer", "status", "information"),
    [
        (Initialize(limit=4095), INVALID, Field.MAX),
        (Initialize(limit=4098), INVALID, Field.MAX),
        (Initialize(limit=4096, header_digest=True), INVALID, Field.DGST),
        (Initialize(pfv=1, limit=4096), FatalErrorStatus.UNSUPPORTED_PARAMETER, Field.PFV),
    ],
)
def test_ic_response_that_is_wrong(answer: Initialize, status: FatalErrorStatus, information: int) -> None:
    near = NvmePair(some_target()).host.open_queue(0, 0)
    near.take_to_send()
    near.receive(answer.encode(PduType.IC_RESP), 0)
    assert termination_in(near.take_to_send(), PduType.H2C_TERM_REQ) == (status, information)


@pytest.mark.parametrize("what", [READ, WRITE])
def test_completion_without_data_is_no_success(what: str) -> None:
    """A controller says that all went well, and has neither asked for the data nor sent them."""
    pair = live_pair()
    if what == READ:
        request = HostRequest(read_command(1, 0, 16), place=bytearray(LENGTH))
    else:
        request = HostRequest(write_command(1, 0, 16), data=bytes(LENGTH))
    pair.queue.submit(request)
    pair.queue.receive(response(request.cid), 0)
    assert not request.good and request.status == Status.DATA_TRANSFER_ERROR


def test_connection_takes_no_more_than_it_has_room_for() -> None:
    """A peer that sends one byte at a time, or all at once, fills no more than the staging buffer."""
    pair = live_pair()
    near, far = pair.links[1]
    for sink in (near, far):
        assert isinstance(sink, Connection)
        assert sum(len(buffer) for buffer in sink.receive_buffers()) <= 64 * 1024
