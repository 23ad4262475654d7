"""Whatever the wire does, a reliable connection executes every request once and in order, and memory is equal.

TESTBED_ROCE_CASES sets how many connections are tried (60 by default, a few seconds).
"""

import os
from random import Random

import pytest
from rnic_pair import RnicPair, Wire

from testbed.protocols.congestion.registry import CONTROLLERS
from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.roce.memory import ALL_ACCESS
from testbed.protocols.roce.qp import QueuePair
from testbed.protocols.roce.work import RemoteBuffer, WorkRequest

CASES = int(os.environ.get("TESTBED_ROCE_CASES", "60"))
REQUESTS = 30
SIZE = 600_000
WIRES = (Wire(), Wire(loss=0.02), Wire(detour=0.2), Wire(loss=0.02, detour=0.1, double=0.05), Wire(mark=0.3))
WORD = (1 << 64) - 1


class Model:
    """What a connection is asked to do, and what memory and buffers must be in the end."""

    def __init__(self, source: Random, pair: RnicPair, sender: QueuePair, receiver: QueuePair) -> None:
        self.source = source
        self.config = pair.config
        self.sender = sender
        self.receiver = receiver
        self.memory = bytearray(2 * SIZE)
        self.expected = bytearray(2 * SIZE)
        self.region = pair.second.register(self.memory, ALL_ACCESS)
        self.requests: list[WorkRequest] = []
        self.fetched: list[tuple[bytearray, bytes]] = []
        self.receives = []
        self._apart = SIZE

    def _place(self, length: int) -> int:
        """Where a write goes: out of order, only what does not overlap is defined."""
        if not self.config.ooo:
            return self.source.randrange(SIZE - length)
        self._apart += length
        return self._apart - length

    def _remote(self, offset: int) -> RemoteBuffer:
        return RemoteBuffer(self.region.base + offset, self.region.rkey)

    def post(self, number: int) -> None:
        """One request of a random kind and length."""
        mtu = self.config.mtu
        length = self.source.choice([0, 1, 3, 8, 100, mtu, mtu + 1, 5 * mtu + 7])
        immediate = number if self.source.random() < 0.5 else None
        kind = self.source.choice(["write", "send", "read", "add", "swap"])
        if kind == "write":
            data = self.source.randbytes(length)
            offset = self._place(length)
            if immediate is not None:
                self.receives.append((self.receiver.receive(bytearray(), 0), b"", immediate))
            self.requests.append(self.sender.write(data, self._remote(offset), 0, immediate=immediate, fence=True))
            self.expected[offset : offset + length] = data
        elif kind == "send":
            data = self.source.randbytes(length)
            self.receives.append((self.receiver.receive(bytearray(length), 0), data, immediate))
            self.requests.append(self.sender.send(data, 0, immediate=immediate, fence=True))
        elif kind == "read":
            offset = self.source.randrange(SIZE - length)
            into = bytearray(length)
            self.fetched.append((into, bytes(self.expected[offset : offset + length])))
            self.requests.append(self.sender.read(into, self._remote(offset), 0))
        else:
            self._post_atomic(kind)

    def _post_atomic(self, kind: str) -> None:
        offset = 8 * self.source.randrange(SIZE // 8)
        found = bytes(self.expected[offset : offset + 8])
        value = int.from_bytes(found, "little")
        into = bytearray(8)
        self.fetched.append((into, found))
        if kind == "add":
            self.requests.append(self.sender.fetch_add(into, self._remote(offset), 5, 0, fence=True))
            value = (value + 5) & WORD
        else:
            compare = value ^ self.source.randrange(2)
            self.requests.append(self.sender.compare_swap(into, self._remote(offset), (compare, 77), 0, fence=True))
            value = 77 if compare == value else value
        self.expected[offset : offset + 8] = value.to_bytes(8, "little")

    def check(self) -> None:
        assert [request.error for request in self.requests if not request.ok] == []
        assert self.memory == self.expected
        for into, wanted in self.fetched:
            assert bytes(into) == wanted
        for receive, data, immediate in self.receives:
            assert receive.ok and receive.immediate == immediate
            assert bytes(receive.buffer) == data


@pytest.mark.parametrize("seed", range(CASES))
def test_every_request_is_executed_once_and_in_order(seed: int) -> None:
    source = Random(seed)
    config = RoceConfig(
        recovery=source.choice(["go-back-n", "selective"]),
        ooo=source.random() < 0.5,
        mtu=source.choice([256, 1024, 4096]),
        timeout=4,
        ack_packets=source.choice([1, 4, 32]),
        window_packets=source.choice([8, 64, 4096]),
        most_reads=source.choice([1, 4, 16]),
        cc=source.choice(sorted(CONTROLLERS)),
    )
    pair = RnicPair(config, WIRES[seed % len(WIRES)], seed)
    psn = source.choice([0, (1 << 24) - 3, source.randrange(1 << 24)])
    model = Model(source, pair, *pair.connect(first_psn=psn, second_psn=source.randrange(1 << 24)))
    for number in range(REQUESTS):
        model.post(number)
    pair.finish(*model.requests)
    model.check()
