"""Exchanges whose bytes are changed on the way: no end raises, none touches memory that it was not given, and where
header and data digests guard them no change goes unnoticed.

TESTBED_FUZZ_CASES sets how many bytes are changed in all (20,000 by default, a few seconds).
"""

import os
from dataclasses import replace
from random import Random

import pytest
from nvme_pair import BLOCK, HOST, NvmePair, some_target

from testbed.protocols.nvme.commands import read_command, write_command
from testbed.protocols.nvme.config import ControllerConfig
from testbed.protocols.nvme.connection import Connection
from testbed.protocols.nvme.host_queue import HostRequest

EXCHANGES = int(os.environ.get("TESTBED_FUZZ_CASES", "20000")) // 100
GUARD = b"guard" * 20


class Changing(NvmePair):
    """A pair whose streams have a byte changed now and then, once `changing` is set."""

    changing = False

    def __init__(self, seed: int, *, digests: bool) -> None:
        self.source = Random(seed)
        host = replace(HOST, header_digest=digests, data_digest=digests)
        super().__init__(some_target(ControllerConfig(r2t_bytes=8192, max_h2c_data=4096)), host)

    def _carry(self, source: Connection, sink: Connection) -> bool:  # type: ignore[override]
        data = bytearray(source.take_to_send())
        if data and self.changing and self.source.random() < 0.3:
            most = min(len(data), 80) if self.source.random() < 0.7 else len(data)  # Headers are of more interest.
            at = self.source.randrange(most)
            data[at] ^= 1 << self.source.randrange(8)
        sink.receive(data, self.now)
        if source.finished and not sink.closed:
            sink.close("the stream has ended")
        return bool(data)


@pytest.mark.parametrize("digests", [False, True])
def test_changed_bytes(digests: bool) -> None:
    ends = {"well": 0, "failed": 0, "lost": 0}
    for seed in range(EXCHANGES):
        pair = Changing(seed, digests=digests)
        pair.deliver()
        pair.changing = True
        data = pair.source.randbytes(4 * BLOCK)
        memory = bytearray(GUARD + bytes(4 * BLOCK) + GUARD)
        place = memoryview(memory)[len(GUARD) : -len(GUARD)]
        write = HostRequest(write_command(1, 8, 4), data=data)
        pair.queue.submit(write)
        pair.deliver()
        read = HostRequest(read_command(1, 8, 4), place=place)
        if pair.queue.has_room:
            pair.queue.submit(read)
            pair.deliver()
        for request in (write, read):
            ends["well" if request.good else "lost" if request.lost else "failed"] += 1
        assert memory.startswith(GUARD) and memory.endswith(GUARD)
        outside = bytes(pair.store[: 8 * BLOCK]) + bytes(pair.store[12 * BLOCK :])
        assert not digests or outside.count(0) == len(outside)
        if digests and write.good and read.good and read.received:
            assert place == data
    assert ends["well"] > EXCHANGES // 4 and ends["lost"], ends
