"""Peers that disagree on the size of a full packet: what cannot be told apart on the wire must not end as success."""

from random import Random

import pytest
from wire_pair import JOB, WirePair

from testbed.protocols.uet.config import UetConfig
from testbed.protocols.uet.fep import Fep
from testbed.protocols.uet.memory import Access, RemoteBuffer
from testbed.protocols.uet.packets.codes import ReturnCode

SIZE = 30_000
KEY = 5


@pytest.mark.parametrize(("ours", "theirs"), [(1024, 4096), (4096, 1024), (1024, 1025)])
def test_a_read_fails_rather_than_bring_a_part(ours: int, theirs: int) -> None:
    pair = WirePair(payload_bytes=ours)
    pair.b = Fep("10.0.0.2", UetConfig(payload_bytes=theirs), Random(2), 0)
    pair.eb = pair.b.endpoint(job_id=JOB)
    pair.b.register(bytearray(Random(3).randbytes(SIZE)), Access.REMOTE_READ, JOB, KEY)
    read = pair.ea.read(pair.to_b, bytearray(SIZE), RemoteBuffer(KEY), pair.now)
    pair.run(read)
    assert read.status is ReturnCode.UNSUPPORTED_SIZE


@pytest.mark.parametrize(("ours", "theirs"), [(1024, 4096), (4096, 1024)])
def test_messages_and_writes_arrive_whole(ours: int, theirs: int) -> None:
    pair = WirePair(payload_bytes=ours)
    pair.b = Fep("10.0.0.2", UetConfig(payload_bytes=theirs), Random(2), 0)
    pair.eb = pair.b.endpoint(job_id=JOB)
    data = Random(3).randbytes(SIZE)
    memory, buffer = bytearray(SIZE), bytearray(SIZE)
    pair.b.register(memory, Access.REMOTE_WRITE, JOB, KEY)
    received = pair.eb.recv(buffer, pair.now)
    sent = pair.ea.send(pair.to_b, data, pair.now)
    written = pair.ea.write(pair.to_b, data, RemoteBuffer(KEY), pair.now)
    pair.run(sent, written, received)
    assert memory == data == buffer
