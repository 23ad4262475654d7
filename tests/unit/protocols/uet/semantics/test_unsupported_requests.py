"""Requests of a kind that is not known here are answered as such, and count as received."""

import pytest
from encoded import encoded
from wire_pair import JOB, WirePair, carrying, header, ses_header

from testbed.protocols.datagram import Outgoing, Priority
from testbed.protocols.uet.memory import Access, RemoteBuffer
from testbed.protocols.uet.packets.codes import (
    AckFlag,
    AmoOpcode,
    AmoType,
    Mode,
    NextHeader,
    Opcode,
    PdsType,
    RequestBit,
    ResponseOpcode,
    ReturnCode,
)
from testbed.protocols.uet.packets.pds import Ack, RudiPacket
from testbed.protocols.uet.packets.responses import Response, ResponseDataSmall
from testbed.protocols.uet.packets.ses import MediumRequest, SmallRequest, StandardRequest
from testbed.protocols.uet.packets.ses_extensions import AtomicExtension

KEY = 99
WHOLE = int(RequestBit.SOM | RequestBit.EOM)
UNKNOWN = [0x10, 0x2F, 0x30, 0x3E, 0x3F]
"""Reserved, a vendor's, extended."""
HEADERS = [NextHeader.REQUEST_STD, NextHeader.REQUEST_MEDIUM, NextHeader.REQUEST_SMALL]
SHORT = HEADERS[1:]
SUM = AtomicExtension(AmoOpcode.SUM, AmoType.UINT64)


def ses(next_header: NextHeader, opcode: Opcode = Opcode.WRITE, length: int = 0, offset: int = 0) -> bytes:
    """A header of this kind: message 9, if it has a message ID."""
    address = (0, JOB, 0, KEY if next_header is NextHeader.REQUEST_SMALL else 1)
    extension = SUM if opcode in (Opcode.ATOMIC, Opcode.FETCHING_ATOMIC) else None
    if next_header is NextHeader.REQUEST_STD:
        return encoded(StandardRequest(opcode, WHOLE, 9, *address, offset, 1, KEY, 0, 0, 0, length, extension))
    if next_header is NextHeader.REQUEST_MEDIUM:
        return encoded(MediumRequest(opcode, WHOLE, length, *address, offset, 0, 1, KEY, extension))
    return encoded(SmallRequest(opcode, WHOLE, length, *address, offset, extension))


def of_opcode(number: int, data: bytes) -> bytes:
    return bytes([number]) + data[1:]


class Asking(WirePair):
    """`b` has memory, and `a` a packet for it whose SES header a test chooses."""

    def __init__(self, mode: Mode = Mode.RUD, *, established: bool = True) -> None:
        super().__init__(cc="none")
        self.memory = bytearray(range(256)) * 32
        self.b.register(self.memory, Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC, JOB, KEY)
        if established and mode is not Mode.RUDI:
            self.run(self.ea.write(self.to_b, b"\0", RemoteBuffer(KEY), self.now, mode=mode))
        self.operation = self.ea.write(self.to_b, b"", RemoteBuffer(KEY), self.now, mode=mode)
        (self.packet,) = self.take(self.a)

    def ask(self, next_header: NextHeader, data: bytes, payload: bytes = b"") -> Outgoing:
        """The answer."""
        self.give(carrying(self.packet, next_header, data, payload))
        (answer,) = self.take(self.b)
        return answer


@pytest.mark.parametrize("mode", [Mode.RUD, Mode.ROD])
@pytest.mark.parametrize("number", UNKNOWN)
@pytest.mark.parametrize("next_header", HEADERS)
@pytest.mark.parametrize("established", [True, False])
def test_unknown_opcodes(mode: Mode, number: int, next_header: NextHeader, established: bool) -> None:
    pair = Asking(mode, established=established)
    answer = pair.ask(next_header, of_opcode(number, ses(next_header)), b"something")
    ack, response = header(answer), ses_header(answer)
    assert isinstance(ack, Ack) and ack.ack_psn == header(pair.packet).psn
    assert ack.flags & AckFlag.REQ_CLEAR  # it is guaranteed
    assert isinstance(response, Response)
    assert (response.opcode, response.return_code) == (ResponseOpcode.RESPONSE, ReturnCode.UNSUPPORTED_OP)
    assert (response.message_id, response.job_id) == (9 if next_header is NextHeader.REQUEST_STD else 0, JOB)
    (pdc,) = pair.b.pdcs
    assert pdc.receiver.tracker.has(ack.ack_psn)
    assert pair.b.counters["refused-unsupported-op"] == 1
    pair.give(answer)
    assert pair.operation.status is ReturnCode.UNSUPPORTED_OP
    pair.run(pair.ea.write(pair.to_b, b"\0", RemoteBuffer(KEY), pair.now, mode=mode))  # all goes on


def test_an_unknown_opcode_that_comes_again() -> None:
    pair = Asking()
    data = of_opcode(0x30, ses(NextHeader.REQUEST_STD))
    answer = pair.ask(NextHeader.REQUEST_STD, data)
    again = pair.ask(NextHeader.REQUEST_STD, data)
    assert ses_header(again) == ses_header(answer)
    assert pair.b.counters["refused-unsupported-op"] == 1
    pair.give(answer)
    pair.pass_time(10 * pair.a.config.clear_wait_ns)
    late = ses_header(pair.ask(NextHeader.REQUEST_STD, data))  # the answer is cleared: that of table 3-43
    assert (late.opcode, late.message_id, late.job_id) == (ResponseOpcode.DEFAULT_RESPONSE, 9, JOB)


@pytest.mark.parametrize("next_header", HEADERS)
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ((0x15, AmoType.UINT64), ReturnCode.AMO_UNSUPPORTED_OP),
        ((0xE0, AmoType.UINT64), ReturnCode.AMO_UNSUPPORTED_OP),
        ((AmoOpcode.SUM, 0x12), ReturnCode.AMO_UNSUPPORTED_DT),
    ],
)
def test_unknown_atomic_operations(next_header: NextHeader, change: tuple[int, int], code: ReturnCode) -> None:
    pair = Asking()
    before = bytes(pair.memory)
    data = ses(next_header, Opcode.ATOMIC, 8)
    answer = pair.ask(next_header, data[:-4] + bytes(change) + data[-2:], bytes(8))
    assert ses_header(answer).return_code is code
    assert pair.memory == before


@pytest.mark.parametrize("next_header", SHORT)
@pytest.mark.parametrize("opcode", [Opcode.RENDEZVOUS_SEND, Opcode.DEFERRABLE_SEND, Opcode.ATOMIC, Opcode.TSEND_ATOMIC])
def test_what_needs_a_standard_header(next_header: NextHeader, opcode: Opcode) -> None:
    pair = Asking()
    answer = pair.ask(next_header, of_opcode(opcode, ses(next_header, Opcode.ATOMIC)), bytes(8))
    assert ses_header(answer).return_code is ReturnCode.UNSUPPORTED_OP


@pytest.mark.parametrize("next_header", HEADERS)
def test_another_version_may_be_laid_out_otherwise_and_is_not_answered(next_header: NextHeader) -> None:
    pair = Asking()
    data = bytearray(of_opcode(0x30, ses(next_header)))
    data[1] |= 0x40
    pair.give(carrying(pair.packet, next_header, bytes(data)))
    assert pair.take(pair.b) == []
    assert pair.b.counters["malformed"] == 1


def test_header_data_comes_with_the_first_packet_alone() -> None:
    """In the others, other fields stand in its place (table 3-9), whatever HD says."""
    pair = WirePair(payload_bytes=1024)
    received = pair.eb.recv(bytearray(2000), pair.now)
    pair.ea.send(pair.to_b, bytes(2000), pair.now, header_data=17)
    first, last = pair.take(pair.a)
    changed = ses_header(last)
    pair.give(first)
    pair.give(
        carrying(
            last,
            NextHeader.REQUEST_STD,
            encoded(changed._replace(flags=changed.flags | RequestBit.HD)),
            bytes(last.payload),
        )
    )
    assert received.ok and received.header_data == 17


def rudi(next_header: NextHeader, data: bytes, payload: bytes = b"") -> Outgoing:
    """A RUDI request to `b`: packet 77."""
    head = RudiPacket(PdsType.RUDI_REQ, next_header, 0, 77).encode()
    return Outgoing("10.0.0.2", 50_000, Priority.DATA, head + data, payload)


def rudi_answer(pair: WirePair, request: Outgoing) -> Outgoing:
    pair.give(request)
    (answer,) = pair.take(pair.b)
    assert (header(answer).type, header(answer).packet_id) == (PdsType.RUDI_RESP, 77)
    return answer


@pytest.mark.parametrize("number", [*UNKNOWN, Opcode.SEND, Opcode.FETCHING_ATOMIC, Opcode.RENDEZVOUS_SEND])
@pytest.mark.parametrize("next_header", HEADERS)
def test_rudi_answers_what_it_does_not_do(next_header: NextHeader, number: int) -> None:
    body = ses(next_header, Opcode.ATOMIC) if number in (Opcode.FETCHING_ATOMIC,) else ses(next_header)
    if number == Opcode.RENDEZVOUS_SEND:
        body += bytes(24)
    response = ses_header(rudi_answer(Asking(), rudi(next_header, of_opcode(number, body), bytes(8))))
    assert (response.return_code, response.job_id) == (ReturnCode.UNSUPPORTED_OP, JOB)
    assert response.message_id == (9 if next_header is NextHeader.REQUEST_STD else 0)


def test_an_operation_of_rudi_ends_at_that() -> None:
    pair = Asking(Mode.RUDI)
    answer = pair.ask(NextHeader.REQUEST_STD, of_opcode(0x30, ses(NextHeader.REQUEST_STD)))
    pair.give(answer)
    assert pair.operation.status is ReturnCode.UNSUPPORTED_OP


@pytest.mark.parametrize("next_header", HEADERS)
def test_rudi_writes_with_every_header(next_header: NextHeader) -> None:
    pair = Asking()
    answer = rudi_answer(pair, rudi(next_header, ses(next_header, Opcode.WRITE, 5, 100), b"hello"))
    assert ses_header(answer).return_code is ReturnCode.OK
    assert pair.memory[100:105] == b"hello"


@pytest.mark.parametrize("next_header", SHORT)
@pytest.mark.parametrize("length", [0, 1, 4096])
def test_rudi_reads_with_short_headers(next_header: NextHeader, length: int) -> None:
    """RUDI has packet IDs instead of PSNs."""
    pair = Asking()
    answer = rudi_answer(pair, rudi(next_header, ses(next_header, Opcode.READ, length, 100)))
    response = ses_header(answer)
    assert isinstance(response, ResponseDataSmall)
    assert (response.return_code, response.original_request_psn, response.payload_length) == (1, 77, length)
    assert answer.payload == pair.memory[100 : 100 + length]


@pytest.mark.parametrize("next_header", SHORT)
@pytest.mark.parametrize(("length", "offset"), [(4097, 0), (1, 8192)])
def test_rudi_reads_that_are_refused(next_header: NextHeader, length: int, offset: int) -> None:
    pair = Asking()
    response = ses_header(rudi_answer(pair, rudi(next_header, ses(next_header, Opcode.READ, length, offset))))
    assert response.return_code is (ReturnCode.AT_OUT_OF_RANGE if offset else ReturnCode.UNSUPPORTED_SIZE)
