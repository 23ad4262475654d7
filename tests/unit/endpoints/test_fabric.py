"""The API under asyncio: every operation, its completion or its error, cancellation, room, and the end."""

import asyncio
import functools
import gc
import inspect
import tracemalloc
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest
from agent_io_fakes import own_address

from testbed.endpoints import sockets
from testbed.endpoints.fabric import Fabric
from testbed.endpoints.fabric_endpoint import CompletionError
from testbed.protocols.datagram import Incoming
from testbed.protocols.errors import UsageError
from testbed.protocols.uet.addressing import FepAddress
from testbed.protocols.uet.atomics import Amo
from testbed.protocols.uet.config import UetConfig
from testbed.protocols.uet.fep import Fep
from testbed.protocols.uet.memory import Access, RemoteBuffer
from testbed.protocols.uet.packets.codes import AmoOpcode, AmoType, Mode, ReturnCode
from testbed.protocols.uet.semantics.endpoint import SendKind
from testbed.protocols.uet.semantics.operations import OpKind

JOB = 7
KEY = 4711
SIZE = 30_000
MS = 1_000_000
CONFIG = UetConfig(base_rtt_ns=MS, payload_bytes=1024, rto_min_ns=20 * MS)
ALL_ACCESS = Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
RELIABLE = pytest.mark.parametrize("mode", [Mode.RUD, Mode.ROD])
PATIENCE_S = 20.0


class Pair:
    """Two FEPs in one process, an endpoint on each, and memory of 64 KiB under `KEY` at the second."""

    def __init__(self, fabric: Fabric, **depths: int) -> None:
        self.fabric = fabric
        self.near = fabric.open(own_address(), CONFIG)
        self.far = fabric.open(own_address(), CONFIG)
        self.a = self.near.endpoint(job_id=JOB, **depths)
        self.b = self.far.endpoint(job_id=JOB)
        self.memory = bytearray(1 << 16)
        self.region = self.far.memory_region(self.memory, access=ALL_ACCESS, key=KEY)
        self.to_b = self.far.address


def with_pair(**depths: int) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """Runs a test with a pair, whose first endpoint has such depths, as its first argument."""

    def decorate(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        async def whole(arguments: dict[str, Any]) -> None:
            async with asyncio.timeout(PATIENCE_S), Fabric(seed=1) as fabric:
                await test(Pair(fabric, **depths), **arguments)

        @functools.wraps(test)
        def run(**arguments: Any) -> None:
            asyncio.run(whole(arguments))

        given = inspect.signature(test)
        run.__signature__ = given.replace(parameters=list(given.parameters.values())[1:])  # type: ignore[attr-defined]
        return run

    return decorate


def begun(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.ensure_future(work)


async def settled(turns: int = 3) -> None:
    """Until tasks that can go on have done so."""
    for _ in range(turns):
        await asyncio.sleep(0)


def pattern(size: int) -> bytes:
    return Random(size).randbytes(size)


@RELIABLE
@pytest.mark.parametrize("how", SendKind)
@pytest.mark.parametrize("size", [0, 1, SIZE])
@with_pair()
async def test_send_and_recv(pair: Pair, mode: Mode, how: SendKind, size: int) -> None:
    buffer = bytearray(SIZE)
    receiving = begun(pair.b.recv(buffer))
    await settled()
    sent = await pair.a.send(pair.to_b, pattern(size), mode=mode, how=how)
    received = await receiving
    assert sent.length == received.length == size and buffer[:size] == pattern(size)
    assert received.source == pair.a.address


@with_pair()
async def test_header_data_comes_with_the_message(pair: Pair) -> None:
    receiving = begun(pair.b.recv(bytearray(10)))
    await pair.a.send(pair.to_b, b"x", header_data=99)
    assert (await receiving).header_data == 99


@with_pair()
async def test_tags_choose_the_receive(pair: Pair) -> None:
    buffers = {tag: bytearray(1) for tag in (1, 2, 3)}
    receiving = [begun(pair.b.trecv(buffer, tag, source=pair.a.address)) for tag, buffer in buffers.items()]
    await asyncio.gather(*(pair.a.tsend(pair.to_b, bytes([tag]), tag) for tag in (3, 1, 2)))
    await asyncio.gather(*receiving)
    assert {tag: buffer[0] for tag, buffer in buffers.items()} == {1: 1, 2: 2, 3: 3}


@pytest.mark.parametrize("mode", [Mode.RUD, Mode.ROD, Mode.RUDI])
@with_pair()
async def test_write_and_read(pair: Pair, mode: Mode) -> None:
    await pair.a.write(pair.to_b, pattern(SIZE), RemoteBuffer(KEY, 100), mode=mode)
    assert pair.memory[100 : 100 + SIZE] == pattern(SIZE)
    back = bytearray(SIZE)
    read = await pair.a.read(pair.to_b, back, RemoteBuffer(KEY, 100), mode=mode)
    assert read.length == SIZE and back == pattern(SIZE)


@with_pair()
async def test_atomics(pair: Pair) -> None:
    def number(value: int) -> bytes:
        return value.to_bytes(8, "little")

    await pair.a.atomic(pair.to_b, Amo(AmoOpcode.SUM, AmoType.UINT64, number(5)), RemoteBuffer(KEY, 8))
    old = bytearray(8)
    await pair.a.fetch_atomic(pair.to_b, Amo(AmoOpcode.SUM, AmoType.UINT64, number(2)), old, RemoteBuffer(KEY, 8))
    assert old == number(5)
    swap = Amo(AmoOpcode.CSWAP, AmoType.UINT64, number(1), compare=number(6))
    await pair.a.fetch_atomic(pair.to_b, swap, old, RemoteBuffer(KEY, 8))
    assert old == number(7) == pair.memory[8:16]
    await pair.a.atomic(pair.to_b, swap._replace(compare=number(7)), RemoteBuffer(KEY, 8))
    assert pair.memory[8:16] == number(1)


@with_pair()
async def test_datagrams(pair: Pair) -> None:
    receiving = begun(pair.b.recv(bytearray(10)))
    await settled()
    await pair.a.send(pair.to_b, b"once", mode=Mode.UUD)
    assert (await receiving).length == 4


@with_pair()
async def test_posted_operations_are_told_by_the_completion_queue(pair: Pair) -> None:
    data = b"x" * 8
    add = Amo(AmoOpcode.SUM, AmoType.UINT64, data)
    result = bytearray(8)
    receives = [pair.b.post_recv(bytearray(8), context="r"), pair.b.post_trecv(bytearray(8), 5, context="t")]
    posted = [
        pair.a.post_send(pair.to_b, data, context=1),
        pair.a.post_tsend(pair.to_b, data, 5, context=2),
        pair.a.post_write(pair.to_b, data, RemoteBuffer(KEY), context=3),
        pair.a.post_read(pair.to_b, bytearray(8), RemoteBuffer(KEY), context=4),
        pair.a.post_atomic(pair.to_b, add, RemoteBuffer(KEY), result=result, context=5),
        pair.a.post_write(pair.to_b, data, RemoteBuffer(KEY + 1), context=6),
    ]
    ended = [await anext(pair.a.completion_queue) for _ in posted]
    assert {item.context for item in ended} == {1, 2, 3, 4, 5, 6}
    assert [item.context for item in ended if not item.ok] == [6]
    assert {await anext(pair.b.completion_queue) for _ in receives} == set(receives)
    assert all(item.ok for item in receives) and pair.a.completion_queue.read() is None


@with_pair()
async def test_a_write_with_header_data_is_told_to_the_peer(pair: Pair) -> None:
    await pair.a.write(pair.to_b, b"news", RemoteBuffer(KEY), header_data=1234)
    async for notice in pair.b.completion_queue:
        assert (notice.kind, notice.header_data, notice.length) == (OpKind.REMOTE_WRITE, 1234, 4)
        break


@with_pair()
async def test_peers_are_named_by_address_or_text(pair: Pair) -> None:
    other = pair.far.endpoint(job_id=JOB, pid_on_fep=3, resource_index=9)
    for to in (f"{pair.to_b}/3/9", FepAddress(pair.to_b, 3, 9, JOB)):
        receiving = begun(other.recv(bytearray(1)))
        await pair.a.send(to, b"x")
        await receiving


@with_pair()
async def test_a_failure_raises_with_name_number_and_meaning_of_the_return_code(pair: Pair) -> None:
    with pytest.raises(CompletionError) as caught:
        await pair.a.write(pair.to_b, b"x", RemoteBuffer(KEY + 1))
    assert caught.value.code is ReturnCode.BAD_MKEY
    assert str(caught.value) == "write: BAD_MKEY (0x1c): no memory is registered under this key"
    pair.far.deregister(pair.region)
    with pytest.raises(CompletionError, match="BAD_MKEY"):
        await pair.a.read(pair.to_b, bytearray(1), RemoteBuffer(KEY))


@with_pair()
async def test_every_return_code_has_a_meaning(pair: Pair) -> None:
    for code in ReturnCode:
        operation = pair.a.post_recv(bytearray(1))
        operation.complete(code, 0, 0)
        assert code.name in str(CompletionError(operation))


@with_pair(transmit_depth=1)
async def test_what_can_never_work_raises_at_once_and_takes_no_room(pair: Pair) -> None:
    for _ in range(3):
        with pytest.raises(UsageError):
            pair.a.post_read(pair.to_b, bytearray(1), RemoteBuffer(KEY), mode=Mode.UUD)
        with pytest.raises(UsageError):
            await pair.a.send("nowhere", b"x")
    assert pair.a.under_way == 0
    await pair.a.write(pair.to_b, b"x", RemoteBuffer(KEY))


@with_pair()
async def test_a_peer_that_is_not_there(pair: Pair) -> None:
    with pytest.raises(CompletionError, match="UNDELIVERABLE"):
        await pair.a.send(own_address(), b"x")


@with_pair()
async def test_a_cancelled_receive_is_taken_back(pair: Pair) -> None:
    lost, kept = bytearray(4), bytearray(4)
    first, second = begun(pair.b.recv(lost)), begun(pair.b.recv(kept))
    await settled()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await pair.a.send(pair.to_b, b"data")
    await second
    assert kept == b"data" and lost == bytes(4)
    assert pair.b.under_way == 0 and len(pair.b.completion_queue) == 0


@with_pair()
async def test_a_cancelled_send_goes_on_and_is_told_by_the_queue(pair: Pair) -> None:
    data = bytearray(pattern(SIZE))
    buffer = bytearray(SIZE)
    receiving, sending = begun(pair.b.recv(buffer)), begun(pair.a.send(pair.to_b, data))
    await settled(1)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    with pytest.raises(BufferError):
        data.clear()  # it is still referenced, since it is still being sent
    assert (await receiving).length == SIZE and buffer == pattern(SIZE)
    told = await anext(pair.a.completion_queue)
    assert told.ok and told.kind is OpKind.SEND


@with_pair()
async def test_a_receive_cancelled_in_the_moment_of_its_end_is_not_lost(pair: Pair) -> None:
    receiving = begun(pair.b.recv(bytearray(4)))
    await settled()
    operation = next(iter(pair.b._under_way))
    await pair.a.send(pair.to_b, b"data")
    await pair.fabric.reached(lambda: operation.done, PATIENCE_S)
    if not receiving.done():
        receiving.cancel()
    [result] = await asyncio.gather(receiving, return_exceptions=True)
    told = pair.b.completion_queue.read()
    assert (told is None) is not isinstance(result, asyncio.CancelledError)


@with_pair(transmit_depth=2)
async def test_room_is_given_in_order_when_operations_end(pair: Pair) -> None:
    sending = [begun(pair.a.send(pair.to_b, bytes([number]), mode=Mode.ROD)) for number in range(10)]
    await settled()
    assert pair.a.under_way == 2
    sending[5].cancel()
    buffers = [bytearray(1) for _ in range(9)]
    for buffer in buffers:
        await pair.b.recv(buffer)
    await asyncio.gather(*sending, return_exceptions=True)
    assert b"".join(buffers) == bytes([0, 1, 2, 3, 4, 6, 7, 8, 9])


@with_pair(transmit_depth=2)
async def test_posting_without_room_raises_until_completions_are_read(pair: Pair) -> None:
    for _ in range(2):
        pair.a.post_write(pair.to_b, b"x", RemoteBuffer(KEY))
    with pytest.raises(BlockingIOError, match="2 operations"):
        pair.a.post_write(pair.to_b, b"x", RemoteBuffer(KEY))
    await pair.fabric.reached(lambda: len(pair.a.completion_queue) == 2, PATIENCE_S)
    with pytest.raises(BlockingIOError):
        pair.a.post_write(pair.to_b, b"x", RemoteBuffer(KEY))
    assert pair.a.completion_queue.read() is not None
    pair.a.post_write(pair.to_b, b"x", RemoteBuffer(KEY))


@with_pair()
async def test_depths_must_be_positive(pair: Pair) -> None:
    with pytest.raises(UsageError):
        pair.near.endpoint(job_id=JOB, pid_on_fep=1, receive_depth=0)


@pytest.mark.interpreted
@with_pair()
async def test_nothing_runs_while_nothing_happens(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    receiving = begun(pair.b.recv(bytearray(SIZE)))
    await pair.a.send(pair.to_b, pattern(SIZE))
    await receiving
    turns = 0
    take_turn = pair.fabric.agent.loop.turn

    def counted() -> bool:
        nonlocal turns
        turns += 1
        return take_turn()

    monkeypatch.setattr(pair.fabric.agent.loop, "turn", counted)
    assert not await pair.fabric.reached(lambda: False, 0.3)
    assert turns < 30  # time-outs of the transport, which come to nothing


@with_pair()
async def test_posted_receives_end_with_the_endpoint(pair: Pair) -> None:
    receiving = begun(pair.b.recv(bytearray(1)))
    await settled()
    pair.b.close()
    with pytest.raises(CompletionError, match="CANCELLED"):
        await receiving
    assert [item async for item in pair.b.completion_queue] == []
    with pytest.raises(UsageError, match="closed"):
        await pair.b.send(pair.to_b, b"x")


def test_leaving_closes_the_contexts_of_both_sides() -> None:
    async def whole() -> None:
        async with asyncio.timeout(PATIENCE_S), Fabric() as staying:
            far = staying.open(own_address(), CONFIG)
            endpoint = far.endpoint(job_id=JOB)
            async with Fabric() as leaving:
                near = leaving.open(own_address(), CONFIG)
                receiving = [begun(endpoint.recv(bytearray(1)))]
                gone = near.endpoint(job_id=JOB)
                await gone.send(far.address, b"x")
                receiving.append(begun(gone.recv(bytearray(1))))
                await endpoint.send(near.address, b"y")
                await asyncio.gather(*receiving)
                assert len(far.fep.pdcs) == len(near.fep.pdcs) == 2
            assert far.fep.pdcs == [] and "pdc-failed" not in far.fep.counters

    asyncio.run(whole())


def test_a_fabric_must_be_entered() -> None:
    async def whole() -> None:
        fabric = Fabric()
        with pytest.raises(UsageError, match="async with"):
            fabric.open(own_address(), CONFIG)
        await fabric.close()

    asyncio.run(whole())


def test_what_is_under_way_at_the_end_fails() -> None:
    async def whole() -> None:
        async with asyncio.timeout(PATIENCE_S):
            fabric = Fabric()
            async with fabric:
                endpoint = fabric.open(own_address(), UetConfig(base_rtt_ns=1000 * MS)).endpoint(job_id=JOB)
                sending = begun(endpoint.send(own_address(), b"x"))
                await settled()
                await fabric.close(patience_s=0.0)
            with pytest.raises(CompletionError, match="CANCELLED"):
                await sending

    asyncio.run(whole())


@with_pair()
async def test_a_domain_is_closed_alone_and_its_address_is_free_again(pair: Pair) -> None:
    receiving = begun(pair.b.recv(bytearray(1)))
    await pair.a.send(pair.to_b, b"x")
    await receiving
    await pair.near.close()
    again = pair.fabric.open(pair.near.address, CONFIG).endpoint(job_id=JOB)
    receiving = begun(pair.b.recv(bytearray(1)))
    await again.send(pair.to_b, b"x")
    await receiving
    with pytest.raises(OSError):
        pair.fabric.open(pair.to_b, CONFIG)


@pytest.mark.interpreted
@with_pair()
async def test_a_fault_of_the_transport_ends_what_waits(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    receiving = begun(pair.b.recv(bytearray(1)))
    await settled()

    def fails() -> bool:
        raise AssertionError("a fault")

    monkeypatch.setattr(pair.fabric.agent.loop, "turn", fails)
    pair.fabric.touch()
    with pytest.raises(CompletionError, match="a fault"):
        await receiving
    monkeypatch.undo()
    await pair.fabric.close()
    async with Fabric() as another:
        another.open(pair.to_b, CONFIG)  # its sockets are closed


def _exchange(here: Fep, there: Fep, now: int) -> None:
    """Deliver what both have to send, until they have nothing."""
    while True:
        sent = [(there, here, item) for item in here.transmit(now)]
        sent += [(here, there, item) for item in there.transmit(now)]
        if not sent:
            return
        for receiver, sender, item in sent:
            receiver.receive([Incoming(sender.address, item.entropy, item.to_bytes())], now)


@pytest.mark.skipif(not sockets.HAS_MOVER, reason="contexts are small in a build alone, whose objects have no dict")
def test_idle_contexts_are_small() -> None:
    count = 500
    config = UetConfig()
    hub = Fep("10.0.0.1", config, Random(1), 0)
    endpoint = hub.endpoint(job_id=JOB, resource_index=1)
    now = 0
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(count):
            peer = Fep(f"10.1.{number >> 8}.{number & 255}", config, Random(number), 0)
            peer.endpoint(job_id=JOB, resource_index=1)
            operation = endpoint.send(FepAddress(peer.address, job_id=JOB), b"x", now)
            _exchange(hub, peer, now)
            endpoint.completions.clear()
            assert operation.ok
            now += config.clear_wait_ns
            hub.handle_timer(now)
            _exchange(hub, peer, now)  # the message was unexpected: its response is cleared
        now += config.patience_ns
        hub.handle_timer(now)
        del operation, peer
        gc.collect()
        each = (tracemalloc.get_traced_memory()[0] - before) / count
    finally:
        tracemalloc.stop()
    assert len(hub.pdcs) == count and hub.next_timer() is None
    assert each <= 4096, f"{each:.0f} bytes for each context"
