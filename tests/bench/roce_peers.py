"""Processes for the benchmarks of RoCE beside UET, started as `roce_peers.py ROLE ...`.

Both transports are driven by the same program, so that what differs is theirs: `serve` is written to and answers
`ping`, `flow` writes messages for a while. `idle`, `traced` and `resident` tell what queue pairs cost
that nobody uses.

Nothing has to be exchanged: both sides number their queue pairs alike, and their memory has one key and address.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import time
import tracemalloc
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

from testbed.endpoints.agent import Agent
from testbed.protocols.datagram import Incoming
from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.roce.memory import Access as RoceAccess
from testbed.protocols.roce.qp import QueuePair
from testbed.protocols.roce.rnic import Rnic
from testbed.protocols.roce.work import RemoteBuffer as RoceBuffer
from testbed.protocols.uet.addressing import FepAddress
from testbed.protocols.uet.config import UetConfig
from testbed.protocols.uet.memory import Access as UetAccess
from testbed.protocols.uet.memory import RemoteBuffer as UetBuffer
from testbed.protocols.uet.paths import PathKind
from testbed.protocols.uet.semantics.operations import OpKind

SECOND_NS = 1_000_000_000
PATIENCE_NS = 30 * SECOND_NS
SERVED_NS = 60 * SECOND_NS
LINK_RATE_BPS = 100 * 10**9
"""More than either transport reaches, so that neither is held back."""
MESSAGE_BYTES = 1 << 20
DEPTH = 8
"""Messages under way: as many bytes as perftest's 128 of 64 KiB."""
PACKET_BYTES = 4096
WORD_BYTES = 8
WARM_UP = 200
"""Round trips that do not count."""
SPIN_NS = 200_000
JOB, KEY, BASE = 7, 1, 1 << 20


class Side(ABC):
    """One end of a connection: it writes to the memory of the other end, and is written to."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.memory = memoryview(bytearray(MESSAGE_BYTES))
        """What the other end writes to."""
        self.data = memoryview(bytearray(MESSAGE_BYTES))

    @abstractmethod
    def write(self, size: int, now: int) -> None:
        """Post a write of so many bytes."""

    @abstractmethod
    def ended(self) -> int:
        """Return how many writes have ended since the last call."""


class Roce(Side):
    """A queue pair, and as many idle ones as are asked for."""

    def __init__(self, agent: Agent, own: str, peer: str, idle_qps: int = 0) -> None:
        super().__init__(agent)
        self.rnic = agent.open_rnic(own, RoceConfig(link_rate_bps=LINK_RATE_BPS))
        for _ in range(idle_qps):
            idle = self.rnic.create_qp()
            idle.connect(peer, idle.number)
        self.qp = self.rnic.create_qp()
        self.qp.connect(peer, self.qp.number)
        self.rnic.regions.register(self.memory, RoceAccess.REMOTE_WRITE, base=BASE, rkey=KEY)
        self.remote = RoceBuffer(BASE, KEY)

    def write(self, size: int, now: int) -> None:
        self.qp.write(self.data[:size], self.remote, now)

    def ended(self) -> int:
        completions = self.qp.completions
        count = len(completions)
        while completions:
            request = completions.popleft()
            assert request.ok, request.error
        return count


class Uet(Side):
    """A reliable unordered PDC, opened by the first write."""

    def __init__(self, agent: Agent, own: str, peer: str, idle_qps: int = 0) -> None:
        assert not idle_qps
        super().__init__(agent)
        # There is one path between the two; a spraying sender's packets leave in smaller bursts.
        config = UetConfig(link_rate_bps=LINK_RATE_BPS, paths=PathKind.SINGLE)
        self.fep = agent.open(own, config)
        self.endpoint = self.fep.endpoint(job_id=JOB, resource_index=1)
        self.fep.register(self.memory, UetAccess.REMOTE_WRITE, JOB, key=KEY)
        self.peer = FepAddress(peer, 0, 1, JOB)
        self.remote = UetBuffer(KEY)

    def write(self, size: int, now: int) -> None:
        self.endpoint.write(self.peer, self.data[:size], self.remote, now)

    def ended(self) -> int:
        completions = self.endpoint.completions
        count = 0
        while completions:
            operation = completions.popleft()
            assert operation.ok, operation.error
            count += operation.kind is OpKind.WRITE
        return count


SIDES: dict[str, type[Side]] = {"roce": Roce, "uet": Uet}


@contextmanager
def side_of(transport: str, own: str, peer: str, idle_qps: int, spin_ns: int) -> Iterator[Side]:
    with Agent(spin_ns=spin_ns) as agent:
        yield SIDES[transport](agent, own, peer, idle_qps)  # type: ignore[call-arg]


def serve(transport: str, own: str, peer: str, idle_qps: int, *, busy: bool) -> None:
    """Write back what is written to the memory's first byte, whenever it changes, but for 0. Until it is killed.

    `busy`: poll before sleeping, as the latency tools do.
    """
    with side_of(transport, own, peer, idle_qps, SPIN_NS if busy else 0) as side:
        memory, data = side.memory, side.data
        latest = 0

        def answer() -> bool:
            nonlocal latest
            side.ended()
            if memory[0] not in (0, latest):
                latest = data[0] = memory[0]
                side.write(WORD_BYTES, time.monotonic_ns())
                side.agent.loop.touch()
            return False

        print("ready", flush=True)
        side.agent.drive(answer, SERVED_NS)


def flow(transport: str, own: str, peer: str, idle_qps: int, seconds: float) -> None:
    """Goodput in bit/s of messages that end within so many seconds, as many under way as perftest has."""
    with side_of(transport, own, peer, idle_qps, 0) as side:
        moved = under_way = 0
        begun = time.monotonic_ns()
        latest = begun
        until = begun + round(seconds * SECOND_NS)

        def turn() -> bool:
            nonlocal moved, under_way, latest
            count = side.ended()
            now = time.monotonic_ns()
            if count:
                latest = now
                moved += count * MESSAGE_BYTES
                under_way -= count
            if now < until and under_way < DEPTH:
                for _ in range(DEPTH - under_way):
                    side.write(MESSAGE_BYTES, now)
                under_way = DEPTH
                side.agent.loop.touch()
            return not under_way

        assert side.agent.drive(turn, PATIENCE_NS)
        print(moved * 8e9 / (latest - begun))


def ping(transport: str, own: str, peer: str, idle_qps: int, count: int) -> None:
    """Median of half a round trip of eight bytes, in us."""
    with side_of(transport, own, peer, idle_qps, SPIN_NS) as side:
        memory, data = side.memory, side.data
        times = []
        for number in range(count + WARM_UP):
            word = number % 255 + 1
            data[0] = word
            begun = time.monotonic_ns()
            side.write(WORD_BYTES, begun)
            side.agent.loop.touch()
            assert side.agent.drive(lambda word=word: memory[0] == word, PATIENCE_NS)  # type: ignore[misc]
            times.append(time.monotonic_ns() - begun)
            side.ended()
        print(statistics.median(times[WARM_UP:]) / 2e3)


def idle(count: int, seconds: float) -> None:
    """CPU (%) of an agent with so many queue pairs, all of which have sent and received a little."""
    addresses = ("127.79.0.1", "127.79.0.2")
    with Agent() as own:
        near, far = (own.open_rnic(address, RoceConfig()) for address in addresses)
        region = far.register(bytearray(WORD_BYTES), RoceAccess.REMOTE_WRITE)
        qps = joined(near, far, count // 2)
        now = time.monotonic_ns()
        for qp in qps:
            qp.write(bytes(WORD_BYTES), RoceBuffer(region.base, region.rkey), now)
        own.loop.touch()
        assert own.drive(lambda: all(qp.completions for qp in qps), PATIENCE_NS)
        own.drive(lambda: False, SECOND_NS)
        begun, used = time.monotonic(), time.process_time()
        own.drive(lambda: False, round(seconds * SECOND_NS))
        print(100 * (time.process_time() - used) / (time.monotonic() - begun))


def joined(near: Rnic, far: Rnic, count: int) -> list[QueuePair]:
    """So many connections; those of the near side."""
    qps = []
    for _ in range(count):
        here, there = near.create_qp(), far.create_qp()
        here.connect(far.address, there.number)
        there.connect(near.address, here.number)
        qps.append(here)
    return qps


def state(count: int, account: Callable[[], int]) -> None:
    """Bytes of each of so many connected queue pairs, both ends of a connection counted as one each: new ones, and when
    each has written, read, sent and received packets, and its completions are gone."""
    near, far = (Rnic(address, RoceConfig(), Random(0), 0) for address in ("10.0.0.1", "10.0.0.2"))
    memory = bytearray(3 * PACKET_BYTES)
    region = far.register(memory, RoceAccess.REMOTE_WRITE | RoceAccess.REMOTE_READ)
    remote = RoceBuffer(region.base, region.rkey)
    gc.collect()
    before = account()
    qps = joined(near, far, count // 2)
    gc.collect()
    new = (account() - before) / count
    exchange(near, far, qps, memory, remote)
    gc.collect()
    used = (account() - before) / count
    assert len(near.qps) + len(far.qps) == count
    print(json.dumps({"new": new, "used": used}))


def exchange(near: Rnic, far: Rnic, qps: Sequence[QueuePair], memory: bytearray, remote: RoceBuffer) -> None:
    """Messages of several packets on every connection, in both directions, one connection after the other: what is
    under way is no state of the others."""
    now = 0
    others = {qp.number: qp for qp in far.qps}
    for here in qps:
        there = others[here.remote_qpn]
        there.receive(memory, now)
        here.write(memory, remote, now)
        here.read(memory, remote, now)
        here.send(memory, now)
        while not (here.idle and there.idle):
            now += 1_000
            for source, target in ((near, far), (far, near)):
                timer = source.next_timer()
                if timer is not None and timer <= now:
                    source.handle_timer(now)
                out = source.transmit(now)
                target.receive([Incoming(source.address, item.entropy, item.to_bytes()) for item in out], now)
        for qp in (here, there):
            assert qp.completions and all(request.ok for request in qp.completions)
            qp.completions.clear()


def traced_bytes() -> int:
    """What all objects of the interpreter take."""
    return tracemalloc.get_traced_memory()[0]


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(role: str, *words: str) -> None:
    match role:
        case "serve":
            serve(words[0], words[1], words[2], int(words[3]), busy=words[4] == "1")
        case "flow":
            flow(words[0], words[1], words[2], int(words[3]), float(words[4]))
        case "ping":
            ping(words[0], words[1], words[2], int(words[3]), int(words[4]))
        case "idle":
            idle(int(words[0]), float(words[1]))
        case "traced":
            tracemalloc.start()
            state(int(words[0]), traced_bytes)
        case "resident":
            state(int(words[0]), resident_bytes)


if __name__ == "__main__":
    main(*sys.argv[1:])
