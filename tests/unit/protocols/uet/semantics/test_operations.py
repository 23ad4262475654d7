"""Every operation of an endpoint, on a wire without faults and on one with them."""

import struct
from collections.abc import Callable
from random import Random

import pytest
from wire_pair import JOB, MS, WirePair, header

from testbed.protocols.datagram import Outgoing
from testbed.protocols.errors import UsageError
from testbed.protocols.uet.addressing import FepAddress
from testbed.protocols.uet.atomics import Amo
from testbed.protocols.uet.fep import Fep
from testbed.protocols.uet.memory import Access, RemoteBuffer
from testbed.protocols.uet.packets.codes import AmoOpcode, AmoType, Mode, PdsType, ReturnCode
from testbed.protocols.uet.semantics.endpoint import SendKind, TaggedMessage
from testbed.protocols.uet.semantics.operations import OpKind

KEY = 99
SIZE = 50_000
RELIABLE = pytest.mark.parametrize("mode", [Mode.RUD, Mode.ROD])
ALL_ACCESS = Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC


def pattern(size: int) -> bytes:
    return Random(size).randbytes(size)


def lossy(seed: int, share: float = 0.2) -> Callable[[Outgoing], bool]:
    random = Random(seed)
    return lambda _: random.random() >= share


@RELIABLE
@pytest.mark.parametrize("size", [0, 1, 1024, 1025, SIZE])
def test_send(mode: Mode, size: int) -> None:
    pair = WirePair(payload_bytes=1024)
    buffer = bytearray(SIZE)
    received = pair.eb.recv(buffer, pair.now, context="r")
    sent = pair.ea.send(pair.to_b, pattern(size), pair.now, mode=mode, header_data=17, context="s")
    pair.run(sent, received)
    assert sent.ok and received.ok
    assert received.length == size and buffer[:size] == pattern(size)
    assert received.source == pair.to_a and received.header_data == 17
    assert [item.context for item in pair.ea.completions] == ["s"]
    assert [item.context for item in pair.eb.completions] == ["r"]


@RELIABLE
def test_tags_choose_the_receive(mode: Mode) -> None:
    pair = WirePair()
    buffers = {tag: bytearray(1) for tag in (1, 2, 3)}
    receives = [pair.eb.trecv(buffer, tag, pair.now) for tag, buffer in buffers.items()]
    sends = [pair.ea.tsend(pair.to_b, TaggedMessage(bytes([tag]), tag), pair.now, mode=mode) for tag in (3, 1, 2)]
    pair.run(*receives, *sends)
    assert {tag: buffer[0] for tag, buffer in buffers.items()} == {1: 1, 2: 2, 3: 3}


@pytest.mark.parametrize("size", [10, SIZE])
def test_a_message_that_comes_before_its_receive(size: int) -> None:
    pair = WirePair(payload_bytes=1024)
    sent = pair.ea.tsend(pair.to_b, TaggedMessage(pattern(size), 5), pair.now)
    pair.run(sent)
    buffer = bytearray(size)
    received = pair.eb.trecv(buffer, 4, pair.now, ignore=1)
    assert received.ok and buffer == pattern(size)
    assert pair.eb.tagged.unexpected == 0


def test_a_receive_posted_in_the_middle_of_its_message() -> None:
    pair = WirePair(payload_bytes=1024)
    sent = pair.ea.send(pair.to_b, pattern(SIZE), pair.now)
    packets = pair.take(pair.a)
    for packet in packets[1::2]:
        pair.give(packet)
    buffer = bytearray(SIZE)
    received = pair.eb.recv(buffer, pair.now)
    assert not received.done
    for packet in packets[::2]:
        pair.give(packet)
    pair.run(sent, received)
    assert received.ok and buffer == pattern(SIZE)


@pytest.mark.parametrize("posted_before", [False, True])
def test_a_message_whose_last_packet_comes_first(posted_before: bool) -> None:
    pair = WirePair(payload_bytes=1024)
    buffer = bytearray(3000)
    if posted_before:
        received = pair.eb.recv(buffer, pair.now)
    sent = pair.ea.send(pair.to_b, pattern(3000), pair.now)
    for packet in reversed(pair.take(pair.a)):
        pair.give(packet)
    if not posted_before:
        received = pair.eb.recv(buffer, pair.now)
    pair.run(sent, received)
    assert sent.ok and received.ok and buffer == pattern(3000)


def test_a_buffer_that_is_too_small() -> None:
    pair = WirePair(payload_bytes=1024)
    received = pair.eb.recv(bytearray(5000), pair.now)
    sent = pair.ea.send(pair.to_b, bytes(5001), pair.now)
    pair.run(sent, received)
    assert sent.status is ReturnCode.TOO_LONG and received.status is ReturnCode.TOO_LONG


@pytest.mark.parametrize("mode", [Mode.RUD, Mode.ROD, Mode.RUDI])
@pytest.mark.parametrize("size", [0, 3, 1024, SIZE])
def test_write_and_read(mode: Mode, size: int) -> None:
    pair = WirePair(payload_bytes=1024)
    memory = bytearray(SIZE + 100)
    pair.b.register(memory, ALL_ACCESS, JOB, KEY)
    written = pair.ea.write(pair.to_b, pattern(size), RemoteBuffer(KEY, 50), pair.now, mode=mode)
    pair.run(written)
    assert written.ok and memory[50 : 50 + size] == pattern(size)
    back = bytearray(size)
    read = pair.ea.read(pair.to_b, back, RemoteBuffer(KEY, 50), pair.now, mode=mode)
    pair.run(read)
    assert read.ok and back == pattern(size)


def test_a_write_with_header_data_is_told_to_the_target() -> None:
    pair = WirePair(payload_bytes=1024)
    pair.b.register(bytearray(SIZE), ALL_ACCESS, JOB, KEY)
    pair.run(pair.ea.write(pair.to_b, bytes(SIZE), RemoteBuffer(KEY), pair.now, header_data=4))
    (notice,) = pair.eb.completions
    assert (notice.kind, notice.header_data, notice.length) == (OpKind.REMOTE_WRITE, 4, SIZE)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"key": KEY + 1}, ReturnCode.BAD_MKEY),
        ({"offset": 1}, ReturnCode.AT_OUT_OF_RANGE),
        ({"offset": (1 << 64) - 1}, ReturnCode.AT_OUT_OF_RANGE),
        ({"access": Access.REMOTE_READ}, ReturnCode.PERM_VIOLATION),
        ({"job": JOB + 1}, ReturnCode.BAD_JOB_ID),
    ],
)
@pytest.mark.parametrize("mode", [Mode.RUD, Mode.RUDI])
def test_memory_that_is_not_ours_to_write(change: dict[str, int], status: ReturnCode, mode: Mode) -> None:
    pair = WirePair()
    memory = bytearray(100)
    pair.b.register(memory, Access(change.get("access", ALL_ACCESS)), change.get("job", JOB), KEY)
    remote_buffer = RemoteBuffer(change.get("key", KEY), change.get("offset", 0))
    written = pair.ea.write(pair.to_b, b"x" * 100, remote_buffer, pair.now, mode=mode)
    pair.run(written)
    assert written.status is status
    assert memory == bytes(100)


@pytest.mark.parametrize(
    ("to", "status"),
    [
        (FepAddress("10.0.0.2", 1, 1, JOB), ReturnCode.BAD_PID),
        (FepAddress("10.0.0.2", 0, 2, JOB), ReturnCode.BAD_INDEX),
    ],
)
def test_nobody_has_this_address(to: FepAddress, status: ReturnCode) -> None:
    pair = WirePair()
    sent = pair.ea.send(to, b"x", pair.now)
    pair.run(sent)
    assert sent.status is status


def test_an_unknown_job() -> None:
    pair = WirePair()
    stranger = pair.a.endpoint(job_id=JOB + 1)
    sent = stranger.send(pair.to_b, b"x", pair.now)
    pair.run(sent)
    assert sent.status is ReturnCode.BAD_JOB_ID


@RELIABLE
def test_atomics(mode: Mode) -> None:
    pair = WirePair()
    memory = bytearray(struct.pack("<q", 40))
    pair.b.register(memory, ALL_ACCESS, JOB, KEY)
    two = struct.pack("<q", 2)
    add = Amo(AmoOpcode.SUM, AmoType.INT64, two)
    added = pair.ea.atomic(pair.to_b, add, RemoteBuffer(KEY), pair.now, mode=mode)
    pair.run(added)
    assert added.ok and struct.unpack("<q", memory) == (42,)
    old = bytearray(8)
    maximum = Amo(AmoOpcode.MAX, AmoType.INT64, two)
    fetched = pair.ea.atomic(pair.to_b, maximum, RemoteBuffer(KEY), pair.now, fetch=old, mode=mode)
    pair.run(fetched)
    assert fetched.ok and struct.unpack("<q", old) == (42,)
    swap = Amo(AmoOpcode.CSWAP, AmoType.INT64, two, compare=struct.pack("<q", 42))
    swapped = pair.ea.atomic(pair.to_b, swap, RemoteBuffer(KEY), pair.now, fetch=old, mode=mode)
    pair.run(swapped)
    assert swapped.ok and struct.unpack("<q", memory) == (2,)


def test_a_long_fetching_atomic_comes_back_as_packets() -> None:
    pair = WirePair()
    memory = bytearray(struct.pack("<100i", *range(100)))
    pair.b.register(memory, ALL_ACCESS, JOB, KEY)
    old = bytearray(400)
    ones = struct.pack("<100i", *[1] * 100)
    fetched = pair.ea.atomic(pair.to_b, Amo(AmoOpcode.SUM, AmoType.INT32, ones), RemoteBuffer(KEY), pair.now, fetch=old)
    pair.run(fetched)
    assert fetched.ok
    assert struct.unpack("<100i", old) == tuple(range(100))
    assert struct.unpack("<100i", memory) == tuple(range(1, 101))


def test_an_atomic_refused() -> None:
    pair = WirePair()
    pair.b.register(bytearray(16), ALL_ACCESS, JOB, KEY)
    old = bytearray(8)
    add = Amo(AmoOpcode.SUM, AmoType.INT64, bytes(8))
    for offset, fetch in ((1, None), (1, old)):
        operation = pair.ea.atomic(pair.to_b, add, RemoteBuffer(KEY, offset), pair.now, fetch=fetch)
        pair.run(operation)
        assert operation.status is ReturnCode.AMO_UNALIGNED


def test_datagrams() -> None:
    pair = WirePair()
    buffer = bytearray(100)
    received = pair.eb.recv(buffer, pair.now)
    sent = pair.ea.send(pair.to_b, b"hello", pair.now, mode=Mode.UUD)
    pair.run(sent, received)
    assert received.ok and buffer[:5] == b"hello" and received.source == pair.to_a
    pair.ea.send(pair.to_b, b"nobody", pair.now, mode=Mode.UUD)
    pair.settle()
    assert pair.b.counters["datagram-dropped"] == 1


@RELIABLE
@pytest.mark.parametrize("posted", [True, False])
@pytest.mark.parametrize("size", [10, SIZE])
@pytest.mark.parametrize("how", [SendKind.RENDEZVOUS, SendKind.DEFERRABLE])
def test_deferred_sends(mode: Mode, posted: bool, size: int, how: SendKind) -> None:
    pair = WirePair(payload_bytes=1024)
    buffer = bytearray(SIZE)
    if posted:
        received = pair.eb.trecv(buffer, 8, pair.now)
    sent = pair.ea.tsend(pair.to_b, TaggedMessage(pattern(size), 8), pair.now, mode=mode, how=how)
    pair.pass_time(100 * MS)
    if not posted:
        assert not sent.done or size <= 1024
        assert pair.eb.tagged.unexpected == 1
        received = pair.eb.trecv(buffer, 8, pair.now)
    pair.run(sent, received)
    assert sent.ok and received.ok and received.length == size
    assert buffer[:size] == pattern(size)
    assert pair.eb.tagged.unexpected == 0
    assert len(pair.a.memory) == 0


@RELIABLE
@pytest.mark.parametrize("seed", range(5))
def test_everything_arrives_once_on_a_lossy_wire(mode: Mode, seed: int) -> None:
    pair = WirePair(payload_bytes=1024, max_rto_retx=12)
    memory = bytearray(struct.pack("<q", 0)) + bytearray(SIZE)
    pair.b.register(memory, ALL_ACCESS, JOB, KEY)
    buffers = [bytearray(SIZE) for _ in range(4)]
    receives = [pair.eb.recv(buffer, pair.now) for buffer in buffers]
    back = bytearray(SIZE)
    operations = [pair.ea.send(pair.to_b, pattern(SIZE), pair.now, mode=mode) for _ in buffers]
    increment = Amo(AmoOpcode.SUM, AmoType.INT64, struct.pack("<q", 1))
    operations += [pair.ea.atomic(pair.to_b, increment, RemoteBuffer(KEY), pair.now, mode=mode) for _ in range(20)]
    operations.append(pair.ea.read(pair.to_b, back, RemoteBuffer(KEY, 8), pair.now, mode=mode))
    wire = lossy(seed)
    for _ in range(600):
        pair.pass_time(100 * MS, wire)
        if all(operation.done for operation in operations + receives):
            break
    assert all(operation.ok for operation in operations + receives), operations + receives
    assert all(buffer == pattern(SIZE) for buffer in buffers)
    assert struct.unpack_from("<q", memory) == (20,)


@pytest.mark.parametrize("mode", [Mode.RUD, Mode.ROD, Mode.RUDI])
def test_a_peer_that_is_not_there(mode: Mode) -> None:
    pair = WirePair()
    operations = [pair.ea.write(pair.to_b, bytes(10_000), RemoteBuffer(KEY), pair.now, mode=mode) for _ in range(2)]
    pair.pass_time(30_000 * MS, lambda _: False)
    assert all(operation.status is ReturnCode.UNDELIVERABLE for operation in operations)
    assert all("time-outs" in operation.error for operation in operations)
    assert pair.a.pdcs == []


def test_a_read_of_a_peer_that_dies() -> None:
    pair = WirePair(payload_bytes=1024)
    pair.b.register(bytearray(SIZE), ALL_ACCESS, JOB, KEY)
    read = pair.ea.read(pair.to_b, bytearray(SIZE), RemoteBuffer(KEY), pair.now)
    for packet in pair.take(pair.a):
        pair.give(packet)
    for packet in pair.take(pair.b, limit=3):
        pair.give(packet)
    pair.pass_time(60_000 * MS, lambda _: False)
    assert read.status is ReturnCode.UNDELIVERABLE


def test_closing() -> None:
    pair = WirePair()
    pair.b.register(bytearray(100), ALL_ACCESS, JOB, KEY)
    written = pair.ea.write(pair.to_b, b"last", RemoteBuffer(KEY), pair.now)
    pair.a.close(pair.now)
    pair.run(written)
    pair.pass_time(100 * MS)
    assert written.ok
    assert pair.a.pdcs == [] and pair.b.pdcs == []
    assert pair.a.next_timer() is None and pair.b.next_timer() is None
    again = pair.ea.write(pair.to_b, b"more", RemoteBuffer(KEY), pair.now)
    pair.run(again)
    assert again.ok


def test_what_cannot_be_asked_for() -> None:
    pair = WirePair()
    with pytest.raises(UsageError, match="at most 4096"):
        pair.ea.send(pair.to_b, bytes(5000), pair.now, mode=Mode.UUD)
    with pytest.raises(UsageError, match="written"):
        pair.ea.recv(memoryview(b"constant"), pair.now)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="RUDI"):
        pair.ea.send(pair.to_b, b"x", pair.now, mode=Mode.RUDI)
    with pytest.raises(UsageError, match="in use"):
        pair.a.endpoint(job_id=JOB)
    assert pair.take(pair.a) == []


@RELIABLE
def test_a_rendezvous_ends_when_the_target_has_the_rest(mode: Mode) -> None:
    """Not when it asks for it: the memory may be used again only then."""
    pair = WirePair(payload_bytes=1024)
    buffer = bytearray(SIZE)
    received = pair.eb.recv(buffer, pair.now)
    sent = pair.ea.send(pair.to_b, pattern(SIZE), pair.now, mode=mode, how=SendKind.RENDEZVOUS)
    for packet in pair.take(pair.a):
        pair.give(packet)
    asked = pair.take(pair.b)
    for packet in asked:
        pair.give(packet)
    data = pair.take(pair.a)
    assert len(data) > SIZE // 1024 and not sent.done and not received.done
    pair.pass_time(60_000 * MS, lambda _: False)
    assert sent.status is ReturnCode.UNDELIVERABLE and received.status is ReturnCode.UNDELIVERABLE
    assert len(pair.a.memory) == 0


@RELIABLE
@pytest.mark.parametrize("how", [SendKind.RENDEZVOUS, SendKind.DEFERRABLE])
def test_an_offer_ends_when_its_target_is_gone(mode: Mode, how: SendKind) -> None:
    pair = WirePair(payload_bytes=1024)
    sent = pair.ea.tsend(pair.to_b, TaggedMessage(pattern(SIZE), 8), pair.now, mode=mode, how=how)
    pair.pass_time(20_000 * MS)
    assert not sent.done  # the target lives, and has no receive for it yet: that may last
    pair.pass_time(20_000 * MS, lambda _: False)
    assert sent.status is ReturnCode.UNDELIVERABLE
    assert len(pair.a.memory) == 0 and pair.a.next_timer() is None


@pytest.mark.parametrize("how", [SendKind.RENDEZVOUS, SendKind.DEFERRABLE])
def test_an_offer_ends_when_its_target_has_begun_anew(how: SendKind) -> None:
    pair = WirePair(payload_bytes=1024)
    sent = pair.ea.tsend(pair.to_b, TaggedMessage(pattern(SIZE), 8), pair.now, how=how)
    pair.pass_time(100 * MS)
    pair.b = Fep(pair.b.address, pair.b.config, Random(5), pair.now)
    pair.pass_time(20_000 * MS)
    assert sent.status is ReturnCode.UNDELIVERABLE


@pytest.mark.parametrize("how", [SendKind.RENDEZVOUS, SendKind.DEFERRABLE])
def test_an_offer_ends_though_its_target_has_met_us_since_it_began_anew(how: SendKind) -> None:
    """On a fresh PDC the new one looks alive; but it does not know the offer."""
    pair = WirePair(payload_bytes=1024)
    sent = pair.ea.tsend(pair.to_b, TaggedMessage(pattern(SIZE), 8), pair.now, how=how)
    pair.pass_time(100 * MS)
    pair.b = Fep(pair.b.address, pair.b.config, Random(5), pair.now)
    pair.eb = pair.b.endpoint(job_id=JOB)
    for _ in range(2):  # the first ends with the old PDC
        met = pair.ea.tsend(pair.to_b, TaggedMessage(b"x", 9), pair.now)
        pair.run(met)
    assert met.ok and not sent.done
    pair.pass_time(3 * pair.a.config.patience_ns + 100 * MS)
    assert sent.status is ReturnCode.UNDELIVERABLE and "knows" in sent.error
    assert len(pair.a.memory) == 0 and pair.a.next_timer() is None


@pytest.mark.parametrize("how", [SendKind.RENDEZVOUS, SendKind.DEFERRABLE])
def test_an_offer_ends_when_the_endpoint_that_it_waits_for_is_closed(how: SendKind) -> None:
    pair = WirePair(payload_bytes=1024)
    sent = pair.ea.tsend(pair.to_b, TaggedMessage(pattern(SIZE), 8), pair.now, how=how)
    pair.pass_time(10_000 * MS)
    assert not sent.done
    pair.eb.close(pair.now)
    pair.pass_time(3 * pair.a.config.patience_ns)
    assert sent.status is ReturnCode.UNDELIVERABLE


def test_a_receive_does_not_wait_for_a_restart_by_one_that_has_begun_anew() -> None:
    """Neither if it is asked for the restart itself, nor if it began anew when it had been asked."""
    for asked_before in (False, True):
        pair = WirePair(payload_bytes=1024)
        pair.ea.tsend(pair.to_b, TaggedMessage(pattern(SIZE), 8), pair.now, how=SendKind.DEFERRABLE)
        pair.pass_time(100 * MS)
        received = None
        if asked_before:
            received = pair.eb.trecv(bytearray(SIZE), 8, pair.now)
            for packet in pair.take(pair.b):
                pair.give(packet)
            answers = pair.take(pair.a)
            assert len(answers) > 1
            pair.give(next(item for item in answers if header(item).type is PdsType.ACK_CC))
        pair.a = Fep(pair.a.address, pair.a.config, Random(5), pair.now)
        pair.ea = pair.a.endpoint(job_id=JOB)
        pair.run(pair.ea.tsend(pair.to_b, TaggedMessage(b"x", 9), pair.now))
        if received is None:
            received = pair.eb.trecv(bytearray(SIZE), 8, pair.now)
        pair.pass_time(4 * pair.b.config.patience_ns)
        assert received.done and not received.ok
        assert pair.b.semantics.deferred.next_timer() is None


def test_a_long_deferral_outlives_many_questions() -> None:
    pair = WirePair(payload_bytes=1024)
    operations = [
        pair.ea.tsend(pair.to_b, TaggedMessage(pattern(SIZE), tag), pair.now, how=how)
        for tag, how in enumerate((SendKind.RENDEZVOUS, SendKind.DEFERRABLE))
    ]
    pair.pass_time(20 * pair.a.config.patience_ns)
    buffers = [bytearray(SIZE) for _ in operations]
    operations += [pair.eb.trecv(buffer, tag, pair.now) for tag, buffer in enumerate(buffers)]
    pair.run(*operations)
    assert all(operation.ok for operation in operations)
    assert all(buffer == pattern(SIZE) for buffer in buffers)


def test_a_buffer_that_cannot_be_written_is_refused_at_once() -> None:
    """It raised inside `Fep.receive` when the data came."""
    pair = WirePair()
    constant = memoryview(b"constant")
    add = Amo(AmoOpcode.SUM, AmoType.UINT64, bytes(8))
    with pytest.raises(UsageError, match="can be written"):
        pair.ea.read(pair.to_b, constant, RemoteBuffer(1), pair.now)
    with pytest.raises(UsageError, match="can be written"):
        pair.ea.atomic(pair.to_b, add, RemoteBuffer(1), pair.now, fetch=constant)
    with pytest.raises(UsageError, match="can be written"):
        pair.eb.recv(constant, pair.now)
    assert pair.take(pair.a) == []


def test_the_sender_of_a_rendezvous_says_ok_when_the_last_bytes_have_arrived() -> None:
    """Six bytes are left to be read, which would ride in an ACK: whether that arrives is not known before CLEAR."""
    pair = WirePair(payload_bytes=1024)
    buffer = bytearray(1030)
    received = pair.eb.trecv(buffer, 5, pair.now)
    message = TaggedMessage(bytes(range(206)) * 5, 5)
    sent = pair.ea.tsend(pair.to_b, message, pair.now, how=SendKind.RENDEZVOUS)
    while not any(pdc.initiator for pdc in pair.b.pdcs):
        for datagram in pair.take(pair.a) + pair.take(pair.b):
            pair.give(datagram)
    for datagram in pair.take(pair.b):
        pair.give(datagram)  # the READ
    lost = pair.take(pair.a)
    assert lost and not sent.done and not received.done
    pair.run(sent, received)
    assert sent.ok and received.ok and buffer == message.data
