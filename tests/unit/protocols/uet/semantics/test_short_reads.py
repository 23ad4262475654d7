"""READs with medium and small headers: their data names the PSN of the request, for they have no message ID."""

from random import Random

import pytest
from encoded import encoded
from wire_pair import JOB, WirePair, carrying, header, ses_header

from testbed.protocols.datagram import Outgoing
from testbed.protocols.uet.memory import Access, RemoteBuffer
from testbed.protocols.uet.packets.codes import AckFlag, Mode, NextHeader, Opcode, RequestBit, ReturnCode
from testbed.protocols.uet.packets.pds import Ack, Request
from testbed.protocols.uet.packets.responses import ResponseDataSmall
from testbed.protocols.uet.packets.ses import MediumRequest, SmallRequest
from testbed.protocols.uet.semantics.endpoint import SendKind

KEY = 99
PAYLOAD = 1024
RELIABLE = pytest.mark.parametrize("mode", [Mode.RUD, Mode.ROD])
SIZES = pytest.mark.parametrize("size", [0, 1, 16, 17, PAYLOAD])
WHOLE = int(RequestBit.SOM | RequestBit.EOM)


class Reading(WirePair):
    def __init__(self, **settings: object) -> None:
        super().__init__(**{"payload_bytes": PAYLOAD, "cc": "none", "medium_reads": True, **settings})
        self.memory = bytearray(Random(1).randbytes(8 * PAYLOAD))
        self.b.register(self.memory, Access.REMOTE_READ, JOB, KEY)

    def short(self, size: int, *, small: bool, offset: int = 3) -> Outgoing:
        """A request of `a` with such a header, made of another one."""
        self.ea.read(self.to_b, bytearray(1), RemoteBuffer(KEY), self.now)
        (packet,) = self.take(self.a)
        if small:
            data = encoded(SmallRequest(Opcode.READ, WHOLE, size, 0, JOB, 0, KEY, offset))
            return carrying(packet, NextHeader.REQUEST_SMALL, data)
        data = encoded(MediumRequest(Opcode.READ, WHOLE, size, 0, JOB, 0, 1, offset, 0, 1, KEY))
        return carrying(packet, NextHeader.REQUEST_MEDIUM, data)


@pytest.mark.parametrize("small", [True, False])
@SIZES
def test_what_a_target_answers(size: int, small: bool) -> None:
    pair = Reading()
    request = pair.short(size, small=small)
    pair.give(request)
    answers = pair.take(pair.b)
    ack = header(answers[0])
    assert isinstance(ack, Ack)
    little = size <= pair.b.config.max_ack_data_bytes
    assert bool(ack.flags & AckFlag.REQ_CLEAR) == little
    if not little:
        assert ses_header(answers[0]).return_code is ReturnCode.OK
        assert isinstance(header(answers[1]), Request)
    assert len(answers) == (1 if little else 2)
    answer = answers[-1]
    response = ses_header(answer)
    assert isinstance(response, ResponseDataSmall)
    assert (response.original_request_psn, response.job_id) == (header(request).psn, JOB)
    assert response.payload_length == size
    data = answer.to_bytes()
    assert data[len(data) - size :] == pair.memory[3 : 3 + size]


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize(
    ("size", "offset", "code"),
    [(PAYLOAD + 1, 0, ReturnCode.UNSUPPORTED_SIZE), (1, 8 * PAYLOAD, ReturnCode.AT_OUT_OF_RANGE)],
)
def test_what_a_target_refuses(size: int, offset: int, code: ReturnCode, small: bool) -> None:
    pair = Reading()
    pair.give(pair.short(size, small=small, offset=offset))
    (answer,) = pair.take(pair.b)
    assert ses_header(answer).return_code is code


@RELIABLE
@SIZES
def test_reads_with_medium_headers(mode: Mode, size: int) -> None:
    pair = Reading()
    kinds = set()

    def look(datagram: Outgoing) -> bool:
        kinds.add(getattr(header(datagram), "next_header", None))
        return True

    buffer = bytearray(size)
    operation = pair.ea.read(pair.to_b, buffer, RemoteBuffer(KEY, 5), pair.now, mode=mode)
    pair.settle(look)
    assert operation.ok and operation.length == size and buffer == pair.memory[5 : 5 + size]
    assert {NextHeader.REQUEST_MEDIUM, NextHeader.RESPONSE_DATA_SMALL} <= kinds
    assert not {NextHeader.REQUEST_STD, NextHeader.RESPONSE_DATA} & kinds
    assert not pair.a.transfers(pair.a.pdcs[0]).waiting


def test_a_read_of_several_packets_has_a_message_id() -> None:
    pair = Reading()
    buffer = bytearray(3 * PAYLOAD)
    operation = pair.ea.read(pair.to_b, buffer, RemoteBuffer(KEY), pair.now)
    assert {header(item).next_header for item in pair.take(pair.a)} == {NextHeader.REQUEST_STD}
    pair.run(operation)
    assert operation.ok and buffer == pair.memory[: 3 * PAYLOAD]


def test_data_that_overtakes_its_acknowledgement() -> None:
    pair = Reading()
    pair.run(pair.ea.read(pair.to_b, bytearray(1), RemoteBuffer(KEY), pair.now))
    buffers = [bytearray(100), bytearray(200)]
    operations = [pair.ea.read(pair.to_b, buffer, RemoteBuffer(KEY), pair.now) for buffer in buffers]
    for item in pair.take(pair.a):
        pair.give(item)
    for item in reversed(pair.take(pair.b)):
        pair.give(item)
    assert all(operation.ok for operation in operations)
    assert [buffer == pair.memory[: len(buffer)] for buffer in buffers] == [True, True]


def test_an_error_ends_the_read() -> None:
    pair = Reading()
    operation = pair.ea.read(pair.to_b, bytearray(5), RemoteBuffer(KEY + 1), pair.now)
    pair.settle()
    assert operation.status is ReturnCode.BAD_MKEY
    assert not pair.a.transfers(pair.a.pdcs[0]).waiting


def test_a_peer_that_dies_ends_the_read() -> None:
    pair = Reading()
    pair.run(pair.ea.read(pair.to_b, bytearray(1), RemoteBuffer(KEY), pair.now))
    acknowledged = pair.ea.read(pair.to_b, bytearray(100), RemoteBuffer(KEY), pair.now)
    (request,) = pair.take(pair.a)
    pair.give(request)
    ack, _ = pair.take(pair.b)
    pair.give(ack)
    pair.pass_time(2 * pair.a.config.patience_ns, lambda _: False)
    assert acknowledged.status is ReturnCode.UNDELIVERABLE
    assert "silent" in acknowledged.error
    unacknowledged = pair.ea.read(pair.to_b, bytearray(100), RemoteBuffer(KEY), pair.now)
    pair.pass_time(2 * pair.a.config.patience_ns, lambda _: False)
    assert unacknowledged.status is ReturnCode.UNDELIVERABLE


@RELIABLE
@pytest.mark.parametrize("seed", range(6))
def test_a_lossy_wire(mode: Mode, seed: int) -> None:
    random = Random(seed)
    pair = Reading(max_rto_retx=15)
    sizes = [random.choice((0, 1, 16, 17, 500, PAYLOAD, 3000)) for _ in range(40)]
    buffers = [bytearray(size) for size in sizes]
    operations = [
        pair.ea.read(pair.to_b, buffer, RemoteBuffer(KEY, 7), pair.now, mode=mode, context=number)
        for number, buffer in enumerate(buffers)
    ]
    end = pair.now + 60_000_000_000
    while not all(operation.done for operation in operations):
        assert pair.now < end
        pair.pass_time(1_000_000, lambda _: random.random() > 0.2)
    assert all(operation.ok for operation in operations)
    assert all(buffer == pair.memory[7 : 7 + len(buffer)] for buffer in buffers)


def test_a_rendezvous_is_read_as_ever() -> None:
    pair = Reading()
    received = bytearray(PAYLOAD)
    receive = pair.eb.recv(received, pair.now)
    data = Random(2).randbytes(PAYLOAD)
    operation = pair.ea.send(pair.to_b, data, pair.now, how=SendKind.RENDEZVOUS)
    pair.run(operation, receive)
    assert operation.ok and receive.ok and received == data
