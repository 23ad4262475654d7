"""Whatever the wire does, and however connections come and go, every request is executed once and in its peer's order.

TESTBED_ROCE_CASES sets how many pools are tried (60 by default, a few seconds).
"""

import os
from random import Random

import pytest
from rnic_pair import SECOND, RnicPair, Wire

from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.roce.dynamic import DynamicConnections
from testbed.protocols.roce.memory import ALL_ACCESS
from testbed.protocols.roce.rnic import Rnic
from testbed.protocols.roce.work import ReceiveRequest, RemoteBuffer, WorkRequest

CASES = int(os.environ.get("TESTBED_ROCE_CASES", "60"))
PEERS = 4
REQUESTS = 60
ROOM = 1 << 18
KEY = 7
TARGET = 0x777
WIRES = (
    Wire(),
    Wire(loss=0.03),
    Wire(detour=0.2),
    Wire(loss=0.03, detour=0.1, double=0.05),
    Wire(loss=0.1, double=0.1),
)


class Peer:
    """A target, and what its memory and its receives must be in the end."""

    def __init__(self, rnic: Rnic, pool: DynamicConnections) -> None:
        self.connections = DynamicConnections(rnic, initiators=1)
        self.target = self.connections.create_target(KEY, number=TARGET)
        self.destination = pool.destination(rnic.address, TARGET, KEY)
        self.memory = bytearray(ROOM)
        self.expected = bytearray(ROOM)
        self.region = rnic.register(self.memory, ALL_ACCESS)
        self.apart = 8
        self.adds = 0
        self.receives: list[tuple[ReceiveRequest, bytes, int]] = []
        self.fetched: list[tuple[bytearray, int]] = []
        self.read: list[tuple[bytearray, bytes]] = []

    def post(self, source: Random, number: int, mtu: int, now: int) -> WorkRequest:
        length = source.choice([0, 1, 100, mtu, mtu + 1, 3 * mtu + 7])
        data = source.randbytes(length)
        kind = source.choice(["write", "send", "add", "read"])
        at = RemoteBuffer(self.region.base + self.apart, self.region.rkey)
        if kind == "write":
            self.expected[self.apart : self.apart + length] = data
            self.apart += length
            return self.destination.write(data, at, now, fence=True)
        if kind == "send":
            self.receives.append((self.target.receive(bytearray(length)), data, number))
            return self.destination.send(data, now, immediate=number, fence=True)
        if kind == "add":
            self.fetched.append((bytearray(8), self.adds))
            self.adds += 5
            counter = RemoteBuffer(self.region.base, self.region.rkey)
            return self.destination.fetch_add(self.fetched[-1][0], counter, 5, now)
        start = source.randrange(8, ROOM - 20_000)
        self.read.append((bytearray(length), bytes(self.expected[start : start + length])))
        place = RemoteBuffer(self.region.base + start, self.region.rkey)
        request = self.destination.read(self.read[-1][0], place, now, fence=True)
        self.apart = max(self.apart, start + length)  # what is written later lies elsewhere
        return request

    def check(self) -> None:
        assert self.memory[8:] == self.expected[8:]
        assert int.from_bytes(self.memory[:8], "little") == self.adds
        for into, found in self.fetched:
            assert int.from_bytes(into, "little") == found
        for buffer, wanted in self.read:
            assert bytes(buffer) == wanted
        for receive, data, number in self.receives:
            assert receive.ok and receive.immediate == number and bytes(receive.buffer) == data


@pytest.mark.parametrize("seed", range(CASES))
def test_every_request_is_executed_once_over_connections_that_come_and_go(seed: int) -> None:
    source = Random(seed)
    config = RoceConfig(
        recovery=source.choice(["go-back-n", "selective"]),
        mtu=source.choice([256, 1024]),
        timeout=4,
        base_rtt_ns=20_000,
        ack_packets=source.choice([1, 4, 32]),
        window_packets=source.choice([8, 4096]),
    )
    pair = RnicPair(config, WIRES[seed % len(WIRES)], seed)
    pool = DynamicConnections(
        pair.first, initiators=source.choice([1, 2, 8]), detach_ns=source.choice([0, 10_000, 100_000])
    )
    peers = [Peer(pair.second if not host else pair.add(f"10.0.3.{host}"), pool) for host in range(PEERS)]
    assert peers[0].destination.remote_ip == SECOND
    requests: list[WorkRequest] = []
    for number in range(REQUESTS):
        requests.append(source.choice(peers).post(source, number, config.mtu, pair.now))
        if source.random() < 0.3:  # work that comes while others have ended, and idle initiators detach
            pair.pass_time(source.choice([1_000, 15_000, 120_000]))
    pair.finish(*requests)
    assert [request.error for request in requests if not request.ok] == []
    for peer in peers:
        peer.check()
    pair.run(lambda: all(one.destination is None for one in pool.initiators))
    assert pair.first.counters["connects"] >= len({id(peer) for peer in peers if peer.destination.sent})
    assert pair.first.counters["disconnects"] <= pair.first.counters["connects"]
