"""Messages that begin and never end: what an endpoint keeps of them is bounded by bytes and by age, and counted."""

import gc
import tracemalloc

import pytest
from encoded import encoded
from wire_pair import JOB, MS, WirePair

from testbed.protocols.datagram import Incoming
from testbed.protocols.uet.delivery import admission
from testbed.protocols.uet.memory import Access, RemoteBuffer
from testbed.protocols.uet.packets.codes import Mode, NextHeader, Opcode, PdsType, RequestBit, RequestFlag, ReturnCode
from testbed.protocols.uet.packets.pds import Request
from testbed.protocols.uet.packets.psn import psn_add
from testbed.protocols.uet.packets.ses import StandardRequest
from testbed.protocols.uet.semantics.partial import EACH_BYTES

KEY = 5
SIZE = 1 << 20


class Stranger(WirePair):
    """`b` has memory and an endpoint; packets of messages that never end come from somewhere. `heard`: from peers who
    have shown that they hear it."""

    def __init__(self, *, heard: bool = False, **settings: object) -> None:
        super().__init__(payload_bytes=1024, **settings)  # type: ignore[arg-type]
        self.memory = bytearray(SIZE)
        self.b.register(self.memory, Access.REMOTE_WRITE, JOB, KEY)
        self.number = 0
        self.heard = heard

    def begin(self, count: int, *, opcode: Opcode = Opcode.WRITE, key: int = KEY, total: int = 2000) -> None:
        """The first byte of each of so many messages, over PDCs of 500 packets each."""
        for _ in range(count):
            source, number = divmod(self.number, 500)
            self.number += 1
            pds = Request(
                type=PdsType.RUD_REQ,
                next_header=NextHeader.REQUEST_STD,
                flags=RequestFlag.SYN,
                clear_psn_offset=-number - 1,
                psn=psn_add(9, number),
                spdcid=1,
                psn_offset=number,
            )
            ses = StandardRequest(
                opcode=opcode,
                flags=RequestBit.SOM,
                message_id=number + 1,
                ri_generation=0,
                job_id=JOB,
                pid_on_fep=0,
                resource_index=1,
                buffer_offset=0,
                initiator=0,
                memory_key=key,
                header_data=0,
                payload_length=0,
                message_offset=0,
                request_length=total,
                extension=None,
            )
            data = encoded(pds) + encoded(ses) + b"x"
            assert len(data) == 57
            remote = f"10.9.{source >> 8}.{source & 255}"
            self.b.receive([Incoming(remote, 50000, data)], self.now)
            pdc = self.b.table.targets.get((remote, 1))
            if self.heard and pdc is not None:
                self.b.table.targets.confirm(pdc)
            if not number % 50:
                self.b.transmit(self.now, 10_000)
        self.b.transmit(self.now, 10_000)

    @property
    def kept(self) -> int:
        return len(self.b.semantics.partial)


def growth(pair: Stranger, count: int, **message: object) -> float:
    """Bytes that are kept of each of so many messages, which are begun on PDCs that are open already."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    pair.begin(count, **message)  # type: ignore[arg-type]
    gc.collect()
    each = (tracemalloc.get_traced_memory()[0] - before) / count
    tracemalloc.stop()
    return each


@pytest.mark.parametrize(
    ("opcode", "key", "refusal"),
    [(Opcode.WRITE, KEY + 1, "refused-bad-mkey"), (Opcode.WRITE, KEY, ""), (Opcode.SEND, KEY, "")],
)
def test_what_is_kept_of_each_message(opcode: Opcode, key: int, refusal: str) -> None:
    pair = Stranger(heard=not refusal)
    pair.begin(1, opcode=opcode, key=key)
    each = growth(pair, 400, opcode=opcode, key=key, total=2000)
    if refusal:
        assert pair.kept == 0 and pair.b.counters[refusal] == 401
        assert each < 250  # the guaranteed response
    else:
        assert pair.kept == 401
        data = 2000 if opcode is Opcode.SEND else 0
        assert pair.b.semantics.partial.bytes == 401 * (EACH_BYTES + data)
        assert each < 1.25 * (EACH_BYTES + data)


def test_refused_messages_leave_nothing_behind() -> None:
    pair = Stranger()
    pair.begin(20_000, key=KEY + 1)
    assert pair.kept == 0 and not any(pdc.transfers.incoming for pdc in pair.b.pdcs)  # type: ignore[union-attr]


def test_responses_to_strangers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is guaranteed, and none of them will ever be cleared."""
    most = 1 << 8
    monkeypatch.setattr(admission, "MOST_RESPONSES_UNCONFIRMED", most)
    pair = Stranger()
    pair.begin(20_000, key=KEY + 1)
    held = sum(pdc.receiver.tracker.holds for pdc in pair.b.pdcs)
    assert len(pair.b.pdcs) == 40
    assert held <= most * sum(1 / number for number in range(1, 41))
    assert pair.b.counters["no-room-for-responses"] == 20_000 - held


@pytest.mark.parametrize("opcode", [Opcode.WRITE, Opcode.SEND])
def test_a_flood_is_bounded_by_bytes(opcode: Opcode) -> None:
    limit = 1 << 20
    pair = Stranger(max_incoming_bytes=limit, heard=True)
    pair.begin(5000, opcode=opcode)
    assert limit <= pair.b.semantics.partial.bytes <= limit + EACH_BYTES + 2000
    assert pair.b.counters["refused"] == 5000 - pair.kept
    # Nothing has come of those for a time-out: they make room, all of a PDC at once.
    kept = pair.kept
    pair.now += pair.b.config.rto_ns
    pair.begin(kept + 1, opcode=opcode)
    assert pair.b.semantics.partial.bytes <= limit + EACH_BYTES + 2000
    assert pair.b.counters["incomplete-message"] > kept // 2
    write = pair.ea.write(pair.to_b, b"w" * 5000, RemoteBuffer(KEY), pair.now)
    pair.run(write)
    assert write.ok and pair.memory[:5000] == b"w" * 5000


def test_a_message_that_stands_still_is_let_go_and_others_are_not() -> None:
    """Also where its PDC is in use."""
    pair = Stranger(cc="none", new_pdc_ns=60_000 * MS, heard=True)
    pair.begin(10, opcode=Opcode.SEND)
    buffers = pair.eb.untagged.unexpected
    assert (pair.kept, buffers) == (10, 10)
    patience = pair.b.config.patience_ns
    write = pair.ea.write(pair.to_b, b"w" * 50_000, RemoteBuffer(KEY), pair.now)
    packets = pair.take(pair.a)
    for packet in packets:  # one at a time, as long as the others have stood still
        pair.give(packet)
        pair.take(pair.b)
        pair.begin(1, opcode=Opcode.SEND, total=1)
        pair.now += 2 * patience // len(packets)
        pair.b.handle_timer(pair.now)
    assert pair.memory[:50_000] == b"w" * 50_000
    assert pair.kept == 0 and pair.b.counters["incomplete-message"] == 10
    assert pair.eb.untagged.unexpected_bytes < 100  # those of one byte
    assert "10.0.0.1" in [pdc.remote for pdc in pair.b.pdcs]
    assert not write.done  # its acknowledgements were lost


def test_the_initiator_of_a_message_that_was_let_go_learns_it() -> None:
    pair = Stranger(cc="none")
    receive = pair.eb.recv(bytearray(5000), pair.now)
    send = pair.ea.send(pair.to_b, b"s" * 5000, pair.now)
    for packet in pair.take(pair.a)[:2]:
        pair.give(packet)
    pair.take(pair.b)
    pair.now += 2 * pair.b.config.patience_ns
    pair.b.semantics.partial.handle_timer(pair.now)
    assert receive.status is ReturnCode.UNDELIVERABLE and pair.b.pdcs == [] and pair.kept == 0
    pair.pass_time(5000 * MS)
    assert send.status is ReturnCode.UNDELIVERABLE


@pytest.mark.parametrize("mode", [Mode.RUD, Mode.ROD])
def test_nothing_is_left_of_messages_that_are_whole(mode: Mode) -> None:
    pair = Stranger()
    operations = [pair.ea.write(pair.to_b, bytes(5000), RemoteBuffer(KEY), pair.now, mode=mode) for _ in range(5)]
    operations += [pair.ea.send(pair.to_b, bytes(5000), pair.now, mode=mode) for _ in range(5)]
    pair.run(*operations)
    assert all(operation.ok for operation in operations)
    assert (pair.kept, pair.b.semantics.partial.bytes) == (0, 0)
    refused = pair.ea.write(pair.to_b, bytes(5000), RemoteBuffer(KEY + 1), pair.now, mode=mode)
    pair.run(refused)
    assert refused.status is ReturnCode.BAD_MKEY and pair.kept == 0
