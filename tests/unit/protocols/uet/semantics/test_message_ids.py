"""Message IDs have 16 bits: what a target remembers of a message ends when its ID is another message's."""

from itertools import permutations

import pytest
from wire_pair import JOB, WirePair, header

from testbed.protocols.uet.memory import Access, RemoteBuffer
from testbed.protocols.uet.packets.acks import ACK_CC
from testbed.protocols.uet.packets.codes import ReturnCode
from testbed.protocols.uet.packets.responses import Response
from testbed.protocols.uet.packets.ses import decode_ses
from testbed.protocols.uet.semantics.endpoint import SendKind

KEY = 5
PAYLOAD = 1024
IDS = 65_535


class Deferring(WirePair):
    """`b` lets deferrable messages go: it has posted no receive."""

    def __init__(self) -> None:
        super().__init__(payload_bytes=PAYLOAD, cc="none")
        self.memory = bytearray(8 * PAYLOAD)
        self.b.register(self.memory, Access.REMOTE_READ | Access.REMOTE_WRITE, JOB, KEY)
        self.run(self.ea.write(self.to_b, b"first", RemoteBuffer(KEY), self.now))
        (self.pdc,) = self.a.pdcs
        self.transfers = self.a.transfers(self.pdc)

    def use_ids(self, number: int) -> None:
        """As many messages go by."""
        for _ in range(number):
            self.transfers.release(self.transfers.new_message_id())

    def deferred(self, size: int) -> None:
        self.ea.send(self.to_b, bytes(size), self.now, how=SendKind.DEFERRABLE)


@pytest.mark.parametrize("size", [10, 5 * PAYLOAD])
def test_an_id_that_has_wrapped_is_a_new_message(size: int) -> None:
    pair = Deferring()
    pair.deferred(size)
    pair.settle()
    pair.use_ids(IDS - 1)
    data = bytes(i % 251 for i in range(3 * PAYLOAD))
    operation = pair.ea.write(pair.to_b, data, RemoteBuffer(KEY), pair.now)
    pair.run(operation)
    assert operation.ok and pair.memory[: len(data)] == data


def test_seventy_thousand_messages_with_a_deferred_one_now_and_then() -> None:
    pair = Deferring()
    for _ in range(124):  # 565 messages each: from the 116th time on, the writes have IDs of the deferred ones
        pair.deferred(2 * PAYLOAD)
        pair.settle()
        pair.use_ids(565 - 11)
        writes = [pair.ea.write(pair.to_b, bytes(2 * PAYLOAD), RemoteBuffer(KEY), pair.now) for _ in range(10)]
        pair.settle()
        assert all(operation.ok for operation in writes)


def test_a_deferred_message_may_have_the_id_of_one_before() -> None:
    pair = Deferring()
    pair.deferred(2 * PAYLOAD)
    pair.settle()
    pair.use_ids(IDS - 1)
    pair.deferred(2 * PAYLOAD)
    pair.settle()
    assert pair.eb.untagged.unexpected == 2


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_all_packets_of_a_deferred_message_are_answered_alike(order: tuple[int, ...]) -> None:
    pair = Deferring()
    pair.deferred(3 * PAYLOAD - 1)
    packets = pair.take(pair.a)
    for index in order:
        pair.give(packets[index])
    codes = []
    for answer in pair.take(pair.b):
        response, _ = decode_ses(header(answer).next_header, answer.to_bytes(), ACK_CC.size)
        assert isinstance(response, Response)
        codes.append(response.return_code)
    assert codes == [ReturnCode.DROPPED] * 3
    assert pair.eb.untagged.unexpected == 1
