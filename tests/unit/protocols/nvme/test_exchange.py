"""Host and controller together: every way that data can take, whatever both have agreed on."""

from dataclasses import replace
from random import Random

import pytest
from nvme_pair import BLOCK, HOST, NAMESPACE, NQN, NvmePair, live_pair, some_target, split_pdus

from testbed.protocols.errors import UsageError
from testbed.protocols.nvme.codes import DO_NOT_RETRY, PduType, Status
from testbed.protocols.nvme.commands import (
    ConnectData,
    Sqe,
    deallocate_command,
    encode_ranges,
    flush_command,
    read_command,
    write_command,
    write_zeroes_command,
)
from testbed.protocols.nvme.config import ControllerConfig, HostConfig
from testbed.protocols.nvme.host_queue import HostQueue

DIGESTS = replace(HOST, header_digest=True, data_digest=True)
SMALL_STEPS = ControllerConfig(r2t_bytes=16384, max_h2c_data=4096, c2h_data_bytes=20000)
AGREEMENTS = {
    "plain": (HOST, ControllerConfig()),
    "digests": (DIGESTS, ControllerConfig()),
    "header digest alone": (DIGESTS, ControllerConfig(data_digest=False)),
    "no digest granted": (DIGESTS, ControllerConfig(header_digest=False, data_digest=False)),
    "aligned": (replace(HOST, hpda=31), ControllerConfig(cpda=15)),
    "aligned with digests": (replace(DIGESTS, hpda=7), ControllerConfig(cpda=31)),
    "one R2T at a time": (replace(HOST, maxr2t=1), SMALL_STEPS),
    "several R2Ts": (replace(DIGESTS, maxr2t=3), SMALL_STEPS),
    "flow control": (replace(HOST, flow_control=True, queue_entries=4), SMALL_STEPS),
    "three queues": (replace(HOST, io_queues=3), ControllerConfig(most_io_queues=2)),
}


@pytest.mark.parametrize("agreement", AGREEMENTS)
def test_what_is_written_is_read(agreement: str) -> None:
    pair = live_pair(*AGREEMENTS[agreement])
    source = Random(1)
    for queue in pair.host.io_queues:
        for blocks in (1, 2, 3, 17, 256):
            slba = source.randrange(NAMESPACE.blocks - blocks)
            data = source.randbytes(blocks * BLOCK)
            assert pair.submit(write_command(1, slba, blocks), data=data, qid=queue.qid).good
            place = bytearray(len(data))
            assert pair.submit(read_command(1, slba, blocks), place=place, qid=queue.qid).good
            assert place == data == pair.store[slba * BLOCK : (slba + blocks) * BLOCK]
    assert not any(far.error for _, far in pair.links)


def test_a_connect_that_is_lost_is_no_request_of_the_user() -> None:
    queue = HostQueue(HOST, 1, 32, ConnectData(HOST.hostid, 1, NQN, HOST.hostnqn))
    far = some_target().accept(0)
    far.receive(queue.take_to_send(), 0)
    queue.receive(far.take_to_send(), 0)
    assert queue.outstanding == 1 and not queue.live
    queue.close("the path is dead")
    assert queue.outstanding == 0 and not queue.ended


def test_granted_queues_are_the_lesser_number() -> None:
    assert len(live_pair(*AGREEMENTS["three queues"]).host.io_queues) == 2


def sent(pair: NvmePair, sqe: Sqe, data: bytes = b"", place: int = 0) -> tuple[list[PduType], list[PduType]]:
    """The PDUs of one command, to the controller and to the host."""
    near, far = pair.links[1]
    there, back = [], []
    near_take, far_take = near.take_to_send, far.take_to_send
    near.take_to_send = lambda: _note(there, near_take())  # type: ignore[method-assign]
    far.take_to_send = lambda: _note(back, far_take())  # type: ignore[method-assign]
    assert pair.submit(sqe, data=data, place=bytearray(place)).good
    kinds = ([PduType(pdu[0]) for pdu in split_pdus(b"".join(stream))] for stream in (there, back))
    return next(kinds), next(kinds)


def _note(kept: list[bytes], data: bytes) -> bytes:
    kept.append(data)
    return data


COMMAND, RESPONSE, R2T = PduType.CAPSULE_CMD, PduType.CAPSULE_RESP, PduType.R2T
H2C, C2H = PduType.H2C_DATA, PduType.C2H_DATA


def test_small_write_brings_its_data_along() -> None:
    assert sent(live_pair(), write_command(1, 0, 2), bytes(2 * BLOCK)) == ([COMMAND], [RESPONSE])


def test_large_write_waits_for_r2t() -> None:
    pair = live_pair(replace(HOST, maxr2t=2), SMALL_STEPS)
    there, back = sent(pair, write_command(1, 0, 12), bytes(12 * BLOCK))
    assert there == [COMMAND] + 12 * [H2C]
    assert back == 3 * [R2T] + [RESPONSE]


def test_read_ends_with_success_where_there_is_no_flow_control() -> None:
    assert sent(live_pair(), read_command(1, 0, 64), place=64 * BLOCK) == ([COMMAND], [C2H])
    pair = live_pair(replace(HOST, flow_control=True))
    assert sent(pair, read_command(1, 0, 64), place=64 * BLOCK) == ([COMMAND], [C2H, RESPONSE])


def test_zeroes_deallocation_and_flush() -> None:
    pair = live_pair()
    pair.store[:] = b"x" * len(pair.store)
    assert pair.submit(write_zeroes_command(1, 3, 2)).good
    assert pair.submit(deallocate_command(1, 2), data=encode_ranges([(0, 1), (8, 4)])).good
    assert pair.submit(flush_command(1)).good
    zero = [block for block in range(16) if not any(pair.store[block * BLOCK : (block + 1) * BLOCK])]
    assert zero == [0, 3, 4, 8, 9, 10, 11]


@pytest.mark.parametrize(
    ("sqe", "data", "place", "status"),
    [
        (read_command(2, 0, 1), 0, BLOCK, Status.INVALID_NAMESPACE_OR_FORMAT),
        (read_command(1, NAMESPACE.blocks - 1, 2), 0, 2 * BLOCK, Status.LBA_OUT_OF_RANGE),
        (read_command(1, 1 << 63, 1), 0, BLOCK, Status.LBA_OUT_OF_RANGE),
        (write_command(1, NAMESPACE.blocks, 1), BLOCK, 0, Status.LBA_OUT_OF_RANGE),
        (read_command(1, 0, 2), 0, BLOCK, Status.DATA_SGL_LENGTH_INVALID),
        (write_command(1, 0, 4), BLOCK, 0, Status.DATA_SGL_LENGTH_INVALID),
        (write_command(1, 0, 3), 4 * BLOCK, 0, Status.DATA_SGL_LENGTH_INVALID),
        (read_command(1, 0, 512), 0, 512 * BLOCK, Status.INVALID_FIELD_IN_COMMAND),  # more than MDTS
        (deallocate_command(1, 2), 16, 0, Status.DATA_SGL_LENGTH_INVALID),
        (Sqe(opcode=0x55, nsid=1), 0, 0, Status.INVALID_COMMAND_OPCODE),
        (Sqe(opcode=0x7F, nsid=0x33), 0, 0, Status.INVALID_COMMAND_OPCODE),
    ],
)
def test_command_that_cannot_be(sqe: Sqe, data: int, place: int, status: Status) -> None:
    pair = live_pair(controller=ControllerConfig(most_transfer=1 << 20))
    request = pair.submit(sqe, data=bytes(data), place=bytearray(place))
    assert request.status == status | DO_NOT_RETRY
    assert pair.submit(flush_command(1)).good


def test_range_outside_of_the_namespace_is_not_deallocated() -> None:
    pair = live_pair()
    request = pair.submit(deallocate_command(1, 1), data=encode_ranges([(NAMESPACE.blocks - 1, 2)]))
    assert request.status == Status.LBA_OUT_OF_RANGE | DO_NOT_RETRY


def test_data_that_were_changed_on_their_way_fail_the_command_alone() -> None:
    pair = live_pair(DIGESTS)
    near, far = pair.links[1]
    take = near.take_to_send
    near.take_to_send = lambda: _flip_last(take())  # type: ignore[method-assign]
    for blocks in (1, 16):
        request = pair.submit(write_command(1, 0, blocks), data=bytes(blocks * BLOCK))
        assert request.status == Status.TRANSIENT_TRANSPORT_ERROR  # It may be tried again.
    near.take_to_send = take  # type: ignore[method-assign]
    take = far.take_to_send
    far.take_to_send = lambda: _flip_last(take())  # type: ignore[method-assign]
    request = pair.submit(read_command(1, 0, 16), place=bytearray(16 * BLOCK))
    assert request.status == Status.TRANSIENT_TRANSPORT_ERROR
    assert not far.closed and not near.closed


def _flip_last(stream: bytes) -> bytes:
    """The last byte of the data digest, where a stream is long enough to end with one."""
    return stream[:-1] + bytes([stream[-1] ^ 1]) if len(stream) > BLOCK else stream


def test_full_queue_takes_no_more() -> None:
    pair = live_pair(replace(HOST, queue_entries=4))
    pair.hold = True
    for _ in range(3):
        pair.submit(flush_command(1))
    assert not pair.queue.has_room
    with pytest.raises(UsageError):
        pair.submit(flush_command(1))
    for command in pair.held:
        pair.step(command)
    pair.deliver()
    assert [request.good for request in pair.queue.ended] == [True] * 3
    assert pair.queue.has_room


def test_flow_control_follows_the_head_that_completions_tell() -> None:
    pair = live_pair(HostConfig(hostnqn="nqn.h", hostid=bytes(16), flow_control=True, queue_entries=3))
    for _ in range(20):
        assert pair.submit(flush_command(1)).good
    pair.hold = True
    pair.submit(flush_command(1))
    pair.submit(flush_command(1))
    assert not pair.queue.has_room


def test_request_outstanding_at_the_end_is_lost() -> None:
    pair = live_pair()
    pair.hold = True
    request = pair.submit(write_command(1, 0, 64), data=bytes(64 * BLOCK))
    pair.links[1][1].close("gone")
    pair.deliver()
    assert request.lost and not request.good
    assert pair.queue.ended.popleft() is request
