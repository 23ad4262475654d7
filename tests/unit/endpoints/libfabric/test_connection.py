"""What programs ask of the endpoints, carried out over a wire in the hands of the test."""

import struct

import pytest
from fake_programs import BASE, FakePair, FakeProgram
from wire_pair import MS

from testbed.endpoints.libfabric.connection import MOST_LOADED_BYTES
from testbed.endpoints.libfabric.fabric_errors import LibfabricError
from testbed.endpoints.libfabric.wire import PLACE, ProviderReply, ReplyKind, RequestKind, WireFlag, address_text
from testbed.protocols.uet.packets.codes import Mode

BIG = bytes(number * 7 % 251 for number in range(300_000))


@pytest.fixture(params=[False, True], ids=["unordered", "ordered"])
def pair(request: pytest.FixtureRequest) -> FakePair:
    return FakePair.opened(ordered=request.param)


def only(replies: list[ProviderReply]) -> ProviderReply:
    (reply,) = replies
    return reply


def by_id(program: FakeProgram) -> dict[int, ProviderReply]:
    return {reply.id: reply for reply in program.replies()}


def test_rails_are_told_before_hello() -> None:
    pair = FakePair()
    first = pair.a.ask(RequestKind.RAIL, tag=0)
    name = struct.pack("<QQ", first.tag, first.data).rstrip(b"\0")
    assert (name, address_text(first.peer[0])) == (b"rail1", "10.0.0.1")
    assert pair.a.ask(RequestKind.RAIL, tag=1).error == LibfabricError.NO_ENTRY


def test_another_version_and_an_unknown_rail_are_refused() -> None:
    pair = FakePair()
    assert pair.a.ask(RequestKind.HELLO, b"rail1", data=99).error == LibfabricError.PROTOCOL
    assert pair.a.ask(RequestKind.HELLO, b"rail7", data=1).error == LibfabricError.NO_DEVICE


def test_each_connection_has_a_pid_and_each_endpoint_an_index() -> None:
    pair = FakePair.opened()
    other = FakeProgram(pair, pair.rail_a, 100)
    other.open()
    assert (pair.a.name[1:], other.name[1:]) == ((0, 1), (1, 1))
    for index in range(2, 16):
        assert other.ask(RequestKind.OPEN_ENDPOINT).endpoint == index
    assert other.ask(RequestKind.OPEN_ENDPOINT).error == LibfabricError.BUSY


def test_a_message_goes_into_the_memory_of_its_receive(pair: FakePair) -> None:
    receive = pair.b.post(100, 50)
    send = pair.a.send(b"hello", pair.b, data=9, flags=WireFlag.HAS_DATA)
    pair.run()
    got, sent = only(pair.b.replies()), only(pair.a.replies())
    assert (got.id, got.error, got.length, got.data, got.flags) == (receive, 0, 5, 9, WireFlag.HAS_DATA)
    assert got.peer == pair.a.name
    assert pair.b.at(99, 7) == b"\0hello\0"
    assert (sent.id, sent.error) == (send, 0)


def test_bytes_of_a_large_message_are_taken_from_places_and_put_into_places(pair: FakePair) -> None:
    pair.a.memory.content[: len(BIG)] = BIG
    there = PLACE.pack(BASE, 100_000) + PLACE.pack(BASE + 100_000, 200_000)
    here = PLACE.pack(BASE + 500_000, 1) + PLACE.pack(BASE, 299_999)
    pair.b.say(RequestKind.RECEIVE, here, length=len(BIG), places=2, endpoint=1)
    pair.a.say(RequestKind.SEND, there, length=len(BIG), places=2, endpoint=1, peer=pair.b.name)
    pair.run(5000)
    assert only(pair.b.replies()).length == len(BIG)
    assert pair.b.at(500_000, 1) + pair.b.at(0, 299_999) == BIG
    assert only(pair.a.replies()).error == 0


def test_a_tagged_receive_is_told_the_tag_of_its_message(pair: FakePair) -> None:
    early = pair.b.post(0, 8, tag=0x100, ignore=0xFF)
    pair.a.send(b"first", pair.b, tag=0x1AB)
    pair.a.send(b"second", pair.b, tag=0x1AC)
    pair.run()
    late = pair.b.post(8, 8, tag=0x100, ignore=0xFF)
    pair.run()
    found = by_id(pair.b)
    assert {found[early].tag, found[late].tag} == {0x1AB, 0x1AC}


def test_a_directed_receive_takes_messages_of_its_peer_alone(pair: FakePair) -> None:
    other = FakeProgram(pair, pair.rail_a, 100)
    other.open()
    for tag in (None, 4):
        receive = pair.b.post(0, 8, tag=tag, flags=WireFlag.DIRECTED, peer=other.name)
        pair.a.send(b"no", pair.b, tag=tag)
        pair.run()
        assert pair.b.replies() == []
        other.send(b"yes", pair.b, tag=tag)
        pair.run()
        reply = only(pair.b.replies())
        assert (reply.id, reply.peer, pair.b.at(0, 3)) == (receive, other.name, b"yes")


def test_what_is_longer_than_its_receive_is_an_error_of_the_receiver_alone(pair: FakePair) -> None:
    pair.b.post(0, 4, tag=1)
    pair.a.send(b"too long", pair.b, tag=1)
    pair.run()
    reply = only(pair.b.replies())
    assert (reply.error, reply.length, reply.offset) == (LibfabricError.TRUNCATED, 0, 4)
    assert only(pair.a.replies()).error == 0


def test_ordered_endpoints_use_the_ordered_mode() -> None:
    for ordered, mode in ((False, Mode.RUD), (True, Mode.ROD)):
        pair = FakePair.opened(ordered=ordered)
        pair.b.post(0, 8)
        pair.a.send(b"x", pair.b)
        pair.run(20)
        assert {pdc.mode for pdc in pair.wire.a.pdcs} == {mode}


def test_a_posted_receive_can_be_cancelled_once(pair: FakePair) -> None:
    receive = pair.b.post(0, 8, tag=1)
    pair.b.say(RequestKind.CANCEL, endpoint=1, data=receive)
    reply = only(pair.b.replies())
    assert (reply.id, reply.error) == (receive, LibfabricError.CANCELLED)
    pair.b.say(RequestKind.CANCEL, endpoint=1, data=receive)
    assert pair.b.replies() == []


def test_a_message_is_peeked_at_claimed_and_discarded(pair: FakePair) -> None:
    def peek(tag: int, flags: int = 0, data: int = 0) -> ProviderReply:
        pair.b.say(RequestKind.PEEK, endpoint=1, tag=tag, flags=flags, data=data)
        return only(pair.b.replies())

    assert peek(1).error == LibfabricError.NO_MESSAGE
    pair.a.send(b"kept", pair.b, tag=1, data=3, flags=WireFlag.HAS_DATA)
    pair.a.send(b"gone", pair.b, tag=2)
    pair.run()
    for _ in range(2):
        seen = peek(1)
        assert (seen.error, seen.length, seen.tag, seen.data, seen.peer) == (0, 4, 1, 3, pair.a.name)
    assert peek(1, WireFlag.CLAIM, 0xC0FFEE).error == 0
    assert peek(1).error == LibfabricError.NO_MESSAGE
    assert peek(2, WireFlag.DISCARD).error == 0
    assert peek(2).error == LibfabricError.NO_MESSAGE
    pair.b.post(0, 8, tag=1, flags=WireFlag.CLAIM, data=0xC0FFEE)
    assert (only(pair.b.replies()).length, pair.b.at(0, 4)) == (4, b"kept")
    pair.b.post(0, 8, tag=1, flags=WireFlag.CLAIM, data=0xC0FFEE)
    assert only(pair.b.replies()).error == LibfabricError.NO_MESSAGE


def test_a_buffer_takes_several_messages_until_it_is_nearly_full(pair: FakePair) -> None:
    receive = pair.b.post(1000, 100, flags=WireFlag.MULTI, data=20)
    for number in range(1, 4):
        pair.a.send(bytes([number]) * 30, pair.b)
    pair.run()
    told = pair.b.replies()
    assert [(reply.id, reply.length, reply.offset) for reply in told] == [
        (receive, 30, 0),
        (receive, 30, 30),
        (receive, 30, 60),
    ]
    assert [bool(reply.flags & WireFlag.LAST) for reply in told] == [False, False, True]
    filled = pair.b.at(1000, 91)
    assert sorted({filled[0], filled[30], filled[60]}) == [1, 2, 3] and filled[90] == 0


def test_a_buffer_for_several_messages_is_given_back_when_it_is_cancelled(pair: FakePair) -> None:
    receive = pair.b.post(1000, 100, flags=WireFlag.MULTI, data=20)
    pair.b.say(RequestKind.CANCEL, endpoint=1, data=receive)
    reply = only(pair.b.replies())
    assert (reply.error, reply.flags) == (LibfabricError.CANCELLED, WireFlag.LAST)


def test_a_buffer_for_several_messages_that_has_just_met_one_is_given_back_with_it(pair: FakePair) -> None:
    receive = pair.b.post(1000, 100, flags=WireFlag.MULTI, data=20)
    pair.a.send(b"last", pair.b)
    pair.wire.pass_time(100 * MS)  # it has arrived, and is told to nobody yet
    pair.b.say(RequestKind.CANCEL, endpoint=1, data=receive)
    reply = only(pair.b.replies())
    assert (reply.id, reply.error, reply.length, reply.flags) == (receive, 0, 4, WireFlag.LAST)
    assert pair.b.at(1000, 4) == b"last"


def test_what_is_under_way_at_a_closed_endpoint_ends_nevertheless(pair: FakePair) -> None:
    pair.b.post(0, 8)
    send = pair.a.send(b"late", pair.b)
    pair.a.say(RequestKind.CLOSE_ENDPOINT, endpoint=1)
    assert only(pair.a.replies()).kind == ReplyKind.ANSWER
    pair.run()
    reply = only(pair.a.replies())
    assert (reply.kind, reply.id, reply.error) == (ReplyKind.DONE, send, 0)
    assert pair.a.connection.loaded_bytes == 0


def test_nothing_is_written_for_an_endpoint_that_is_closed(pair: FakePair) -> None:
    receive = pair.b.post(1000, 100, flags=WireFlag.MULTI, data=20)
    pair.a.send(b"late", pair.b)
    pair.wire.pass_time(100 * MS)  # it has arrived, and is told to nobody yet
    pair.b.say(RequestKind.CLOSE_ENDPOINT, endpoint=1)
    done, answer = pair.b.replies()
    assert (done.id, done.flags) == (receive, WireFlag.LAST)
    assert answer.kind == ReplyKind.ANSWER
    assert pair.b.at(1000, 4) == bytes(4)


def register(program: FakeProgram, address: int, length: int, access: int = 14, key: int = 5) -> ProviderReply:
    body = PLACE.pack(BASE + address, length)
    return program.ask(RequestKind.REGISTER, body, places=1, tag=key, data=access)


def test_a_peer_writes_and_reads_the_memory_of_a_program(pair: FakePair) -> None:
    assert register(pair.b, 1000, 400_000).tag == 5
    pair.a.memory.content[: len(BIG)] = BIG
    place = PLACE.pack(BASE, len(BIG))
    there = {"endpoint": 1, "peer": pair.b.name, "tag": 5, "places": 1}
    pair.a.say(RequestKind.WRITE, place, length=len(BIG), ignore=64, data=8, flags=WireFlag.HAS_DATA, **there)
    pair.run(5000)
    assert only(pair.a.replies()).error == 0
    assert pair.b.at(1064, len(BIG)) == BIG
    told = only(pair.b.replies())
    assert (told.kind, told.length, told.data, told.endpoint) == (ReplyKind.WRITTEN, len(BIG), 8, 1)
    back = PLACE.pack(BASE + 500_000, len(BIG))
    pair.a.say(RequestKind.READ, back, length=len(BIG), ignore=64, **there)
    pair.run(5000)
    assert only(pair.a.replies()).error == 0
    assert pair.a.at(500_000, len(BIG)) == BIG


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"tag": 6}, LibfabricError.NO_KEY),
        ({"tag": 1 << 48}, LibfabricError.INVALID),
        ({"ignore": 95}, LibfabricError.INVALID),
        ({"ignore": 1 << 63}, LibfabricError.INVALID),
    ],
)
def test_memory_is_refused_by_key_and_range(pair: FakePair, fields: dict[str, int], error: int) -> None:
    register(pair.b, 0, 100)
    asked = {"tag": 5, "ignore": 0, **fields}
    flags = WireFlag.INLINE
    pair.a.say(RequestKind.WRITE, b"sixbyt", length=6, endpoint=1, peer=pair.b.name, flags=flags, **asked)
    pair.run()
    assert only(pair.a.replies()).error == error
    assert pair.b.at(0, 200) == bytes(200)


def test_memory_is_refused_by_access_and_after_its_end(pair: FakePair) -> None:
    register(pair.b, 0, 100, access=2)

    def write() -> int:
        flags = WireFlag.INLINE
        pair.a.say(RequestKind.WRITE, b"x", length=1, endpoint=1, peer=pair.b.name, tag=5, flags=flags)
        pair.run()
        return only(pair.a.replies()).error

    assert write() == LibfabricError.ACCESS
    assert pair.b.ask(RequestKind.DEREGISTER, tag=5).error == 0
    assert write() == LibfabricError.NO_KEY
    assert pair.b.ask(RequestKind.DEREGISTER, tag=5).error == LibfabricError.NO_KEY


def test_keys_are_those_of_one_program(pair: FakePair) -> None:
    other = FakeProgram(pair, pair.rail_b, 1000)
    other.open()
    assert register(pair.b, 0, 100).error == register(other, 0, 100).error == 0
    assert register(pair.b, 0, 100).error == LibfabricError.NO_KEY
    flags = WireFlag.INLINE
    pair.a.say(RequestKind.WRITE, b"mine", length=4, endpoint=1, peer=other.name, tag=5, flags=flags)
    pair.run()
    assert (other.at(0, 4), pair.b.at(0, 4)) == (b"mine", bytes(4))


def test_a_region_may_begin_at_an_address_and_have_a_key_that_is_chosen_for_it(pair: FakePair) -> None:
    body = PLACE.pack(BASE + 4096, 64)
    flags = WireFlag.OWN_KEY
    answer = pair.b.ask(RequestKind.REGISTER, body, places=1, data=14, ignore=BASE + 4096, flags=flags)
    inline = WireFlag.INLINE
    there = {"endpoint": 1, "peer": pair.b.name, "tag": answer.tag, "flags": inline}
    pair.a.say(RequestKind.WRITE, b"here", length=4, ignore=BASE + 4100, **there)
    pair.run()
    assert only(pair.a.replies()).error == 0
    assert pair.b.at(4100, 4) == b"here"


def atomic(pair: FakePair, op: int, datatype: int, operand: bytes, **more: int) -> ProviderReply:
    """An atomic operation on what `b` has registered as 5; with `fetch` its old value comes to that address."""
    fetch, compare = more.get("fetch"), more.get("compare")
    body, flags = operand, 0
    if compare is not None:
        body += compare.to_bytes(len(operand), "little", signed=True)
        flags |= WireFlag.COMPARE
    if fetch is not None:
        body += PLACE.pack(BASE + fetch, len(operand))
        flags |= WireFlag.FETCH
    pair.a.say(
        RequestKind.ATOMIC,
        body,
        length=len(operand),
        tag=5,
        ignore=more.get("at", 0),
        data=op | datatype << 8,
        endpoint=1,
        flags=flags,
        places=0 if fetch is None else 1,
        peer=pair.b.name,
    )
    pair.run()
    return only(pair.a.replies())


SUM, READ, CSWAP, INT64, DOUBLE = 2, 10, 12, 6, 9


def test_atomic_operations_act_on_the_memory_of_a_program(pair: FakePair) -> None:
    register(pair.b, 0, 100)
    pair.b.memory.content[:16] = struct.pack("<qq", 100, -1)
    assert atomic(pair, SUM, INT64, struct.pack("<qq", 5, 6)).error == 0
    assert struct.unpack("<qq", pair.b.at(0, 16)) == (105, 5)
    assert atomic(pair, SUM, INT64, struct.pack("<q", 1), fetch=200).error == 0
    assert (struct.unpack("<q", pair.a.at(200, 8)), struct.unpack("<q", pair.b.at(0, 8))) == ((105,), (106,))
    assert atomic(pair, CSWAP, INT64, struct.pack("<q", -9), compare=106, fetch=200).error == 0
    assert (struct.unpack("<q", pair.a.at(200, 8)), struct.unpack("<q", pair.b.at(0, 8))) == ((106,), (-9,))
    assert atomic(pair, READ, INT64, bytes(8), fetch=200).error == 0
    assert struct.unpack("<q", pair.a.at(200, 8)) == (-9,)
    pair.b.memory.content[16:24] = struct.pack("<d", 0.5)
    assert atomic(pair, SUM, DOUBLE, struct.pack("<d", 0.25), at=16).error == 0
    assert struct.unpack("<d", pair.b.at(16, 8)) == (0.75,)


def test_atomic_operations_that_there_are_not_are_refused(pair: FakePair) -> None:
    register(pair.b, 0, 100)
    assert atomic(pair, 6, DOUBLE, bytes(8)).error == LibfabricError.NOT_SUPPORTED  # bits of a real number
    assert atomic(pair, 99, INT64, bytes(8)).error == LibfabricError.INVALID
    assert atomic(pair, SUM, 99, bytes(8)).error == LibfabricError.INVALID
    assert atomic(pair, SUM, INT64, bytes(8), at=3).error == LibfabricError.INVALID  # not aligned
    assert pair.b.at(0, 100) == bytes(100)


def test_memory_that_a_program_does_not_have_is_a_fault_of_its_operation(pair: FakePair) -> None:
    pair.a.say(RequestKind.SEND, PLACE.pack(1, 5000), length=5000, places=1, endpoint=1, peer=pair.b.name)
    assert only(pair.a.replies()).error == LibfabricError.FAULT
    pair.b.say(RequestKind.RECEIVE, PLACE.pack(1, 8), length=8, places=1, endpoint=1)
    pair.a.send(b"x", pair.b)
    pair.run()
    assert only(pair.b.replies()).error == LibfabricError.FAULT
    register(pair.b, 0, 100)
    pair.b.memory.is_gone = True
    pair.a.say(RequestKind.WRITE, b"x", length=1, endpoint=1, peer=pair.b.name, tag=5, flags=WireFlag.INLINE)
    pair.run()
    assert [reply.error for reply in pair.a.replies()] == [0, LibfabricError.FAULT]


def test_a_peer_that_is_not_there_is_unreachable(pair: FakePair) -> None:
    nobody = FakeProgram(pair, pair.rail_b, 10)
    nobody.name = (pair.b.name[0], 77, 1)
    pair.a.send(b"x", nobody)
    pair.run()
    assert only(pair.a.replies()).error == LibfabricError.UNREACHABLE


def test_what_is_asked_for_beyond_the_memory_of_this_process_waits_in_order() -> None:
    half = MOST_LOADED_BYTES // 2 + 1
    pair = FakePair.opened(size=half, ordered=True)
    place = PLACE.pack(BASE, half)
    sends = [
        pair.a.say(RequestKind.SEND, place, length=half, places=1, endpoint=1, peer=pair.b.name),
        pair.a.say(RequestKind.SEND, place, length=half, places=1, endpoint=1, peer=pair.b.name),
        pair.a.send(b"behind", pair.b),
    ]
    assert pair.a.connection.loaded_bytes == half
    pair.a.say(RequestKind.CLOSE_ENDPOINT, endpoint=1)
    told = pair.a.replies()
    assert [(reply.id, reply.error) for reply in told[:2]] == [
        (sends[1], LibfabricError.CANCELLED),
        (sends[2], LibfabricError.CANCELLED),
    ]


def test_the_end_of_a_program_frees_all_that_it_had(pair: FakePair) -> None:
    register(pair.b, 0, 100)
    pair.b.post(0, 8, tag=1)
    pair.b.connection.close(pair.wire.now)
    assert pair.b.memory.is_closed
    assert len(pair.wire.b.memory) == 0
    assert [endpoint.address.job_id for endpoint in pair.wire.b.endpoints] == [7]  # that of the wire itself
    flags = WireFlag.INLINE
    pair.a.say(RequestKind.WRITE, b"x", length=1, endpoint=1, peer=pair.b.name, tag=5, flags=flags)
    pair.a.send(b"x", pair.b, tag=1)
    pair.run()
    assert {reply.error for reply in pair.a.replies()} == {LibfabricError.NO_KEY, LibfabricError.ACCESS}
    again = FakeProgram(pair, pair.rail_b, 10)
    again.open()
    assert again.name[1] == 1  # not the one that messages to its forerunner may be on their way to
