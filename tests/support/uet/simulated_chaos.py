"""A random fabric, random faults and random operations under one seed, and what must hold whatever they are."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from simulated_topologies import leaf_spine, plane_port, star

from testbed.protocols.datagram import Incoming, Outgoing
from testbed.protocols.simulation import FabricNetwork, Impairments, LinkSettings
from testbed.protocols.uet.addressing import FepAddress
from testbed.protocols.uet.atomics import Amo
from testbed.protocols.uet.config import UetConfig
from testbed.protocols.uet.fep import Fep
from testbed.protocols.uet.memory import Access, RemoteBuffer
from testbed.protocols.uet.packets.codes import AmoOpcode, AmoType, Mode
from testbed.protocols.uet.security.key_derivation import DomainKey
from testbed.protocols.uet.security.tss import SecureDomain
from testbed.protocols.uet.security.tss_header import Tsc
from testbed.protocols.uet.semantics.endpoint import Endpoint, SendKind, TaggedMessage
from testbed.protocols.uet.semantics.operations import Operation, OpKind

JOB = 7
US = 1000
MS = 1_000_000
BASE_RTT_NS = 20 * US
COUNTERS, CONSTANTS, WRITTEN = 1, 2, 3
"""Keys of every host's regions: a counter for each peer, a pattern to be read, room for WRITEs."""
CONSTANT_BYTES = 8192
ROUNDING = 256
"""Rcvd_Bytes is rounded up to this."""
LIMIT_NS = 60_000 * MS
"""An operation that has not ended by then never will: time-outs and patience together are a few seconds."""
ACCESS = Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
RELIABLE = (Mode.RUD, Mode.RUD, Mode.ROD)


def pattern(number: int, size: int) -> bytes:
    """Starts with its number, as far as it has room."""
    return (number.to_bytes(4) + Random(number).randbytes(size))[:size]


@dataclass(slots=True)
class Issued:
    """An operation with what its success promises."""

    kind: str
    life: Life
    peer: Life
    operation: Operation
    source: int
    target: int
    number: int
    size: int
    mode: Mode
    offset: int = 0
    buffer: bytearray = field(default_factory=bytearray)


class Life:
    """One life of a host, from its start to its end: a restart begins another at the same address.

    Its clock may be ahead of the simulator's, and may jump further ahead.
    """

    def __init__(
        self,
        address: str,
        config: UetConfig,
        random: Random,
        now: int,
        room: tuple[int, int],
        security: SecureDomain | None,
    ) -> None:
        """`room`: for counters of so many hosts, and for so many bytes that are written."""
        self.address = address
        self.ahead = 0
        self.killed = False
        self.fep = Fep(address, config, random, now, security=security)
        self.endpoint: Endpoint = self.fep.endpoint(job_id=JOB)
        self.counters = bytearray(8 * room[0])
        self.written = bytearray(room[1])
        self.received: list[tuple[Operation, bytearray]] = []
        self.fep.register(self.counters, ACCESS, JOB, COUNTERS)
        self.fep.register(bytearray(pattern(0, CONSTANT_BYTES)), ACCESS, JOB, CONSTANTS)
        self.fep.register(self.written, ACCESS, JOB, WRITTEN)

    def receive(self, datagrams: Sequence[Incoming], now: int) -> None:
        self.fep.receive(datagrams, now + self.ahead)
        self.check()

    def transmit(self, now: int, limit: int = 64) -> list[Outgoing]:
        return self.fep.transmit(now + self.ahead, limit)

    def next_timer(self) -> int | None:
        timer = self.fep.next_timer()
        return None if timer is None else timer - self.ahead

    def handle_timer(self, now: int) -> None:
        self.fep.handle_timer(now + self.ahead)
        self.check()

    def check(self) -> None:
        """Check the laws that hold at any time."""
        least = self.fep.config.packet_bytes
        for pdc in self.fep.pdcs:
            congestion = pdc.sender.congestion
            assert congestion.inflight_bytes >= -ROUNDING, (congestion.inflight_bytes, pdc.sender.window)
            if congestion.window is not None:
                assert least <= congestion.cwnd_bytes <= congestion.max_wnd_bytes


class Chaos:
    """`calm`: faults that the protocol repairs, hence every operation succeeds; else hosts die and links stay down.
    `secure`: all under TSS, with one key."""

    def __init__(self, seed: int, hosts: int, operations: int, *, calm: bool, secure: bool = False) -> None:
        self.random = random = Random(seed)
        self.calm = calm
        self.secure = secure
        self.births = 0
        self.hosts = hosts
        self.room = 1 << 16
        payload = random.choice((256, 1024))
        self.trimming = random.random() < 0.5
        self.config = UetConfig(
            link_rate_bps=10_000_000_000,
            base_rtt_ns=BASE_RTT_NS,
            time_scale=1.0,
            payload_bytes=payload,
            trimming=self.trimming,
            cc=random.choice(("nscc", "nscc", "rccc", "both", "none")),
            paths=random.choice(("single", "oblivious", "bitmap", "reps")),
            entropies=tuple(range(50_000, 50_016)),
            pdcs_per_peer=random.choice((1, 1, 2)),
            rto_min_ns=10 * BASE_RTT_NS,
            max_rto_retx=15 if calm else 5,
            mpr=random.choice((1, 8)),
            medium_reads=random.random() < 0.5,
        )
        self.lives: list[list[Life]] = [[self.born(host, 0)] for host in range(hosts)]
        self.issued: list[Issued] = []
        self.network = self.build(10_000 + 4 * payload)
        self.impair()
        if not calm:
            self.break_things()
        self.left = operations
        for _ in range(operations):
            self.network.at(random.randrange(2000 * US), self.issue)

    def address(self, host: int) -> str:
        return f"10.0.{host >> 8}.{host & 255}"

    def born(self, host: int, now: int) -> Life:
        random = Random(self.random.random())
        security = None
        if self.secure:
            self.births += 1
            security = SecureDomain(1, DomainKey(bytes(range(32))), first_tsc=Tsc(counter=self.births << 32))
        return Life(self.address(host), self.config, random, now, (self.hosts, self.room), security)

    def build(self, plane_bytes: int) -> FabricNetwork:
        random = self.random
        port = plane_port(plane_bytes, trimming=self.trimming)
        link = LinkSettings(rate_bps=10_000_000_000, delay_ns=2 * US)
        endpoints = [lives[0] for lives in self.lives]
        if self.hosts % 2 or random.random() < 0.4:
            return star(endpoints, link=link, port=port, seed=random.getrandbits(32))
        spines = random.choice((2, 4))
        return leaf_spine(endpoints, 2, spines, link=link, port=port, seed=random.getrandbits(32))

    def impair(self) -> None:
        random = self.random
        if random.random() < 0.25:
            return
        impairments = Impairments(
            loss=random.choice((0.0, 0.0, 0.02, 0.1 if self.calm else 0.2)),
            duplicate=random.choice((0.0, 0.0, 0.1)),
            reorder=random.choice((0.0, 0.1, 0.5)),
            reorder_delay_ns=random.choice((5, 50, 500)) * US,
        )
        names = list(self.network.lines)
        self.network.impair(random.sample(names, random.randint(1, len(names))), impairments)

    def break_things(self) -> None:
        random = self.random
        uplinks = [name for name in self.network.lines if "spine" in name]
        if uplinks and random.random() < 0.5:
            dead = random.sample(uplinks, random.randint(1, len(uplinks) // 2))
            self.network.at(random.randrange(1000 * US), lambda _: self.network.set_up(dead, False))
        if random.random() < 0.5:
            host = random.randrange(self.hosts)
            when = random.randrange(2000 * US)
            self.network.at(when, lambda _: self.kill(host))
            if random.random() < 0.7:
                self.network.at(when + random.randrange(3000 * US), lambda now: self.restart(host, now))
        if random.random() < 0.3:
            life = random.choice(self.lives)[-1]
            self.network.at(random.randrange(2000 * US), lambda _: self.jump(life))

    def kill(self, host: int) -> None:
        self.lives[host][-1].killed = True
        self.network.nics[self.address(host)].kill()

    def restart(self, host: int, now: int) -> None:
        life = self.born(host, now)
        self.lives[host].append(life)
        self.network.nics[life.address].restart(life)

    def jump(self, life: Life) -> None:
        if not life.killed:
            life.ahead += self.random.choice((10 * US, 1 * MS, 1000 * MS))
            self.network.nics[life.address].wake()

    def issue(self, now: int) -> None:
        """One operation between two hosts that live."""
        self.left -= 1
        random = self.random
        living = [host for host, lives in enumerate(self.lives) if not lives[-1].killed]
        if len(living) < 2:
            return
        source, target = random.sample(living, 2)
        number = len(self.issued) + 1
        size = random.choice((0, 5, 100, 1024, 3000))
        kind = random.choice(("send", "tsend", "rendezvous", "deferrable", "write", "read", "atomic", "rudi"))
        mode = random.choice(RELIABLE)
        life, peer = self.lives[source][-1], self.lives[target][-1]
        at = now + life.ahead
        to = FepAddress(peer.address, job_id=JOB)
        endpoint = life.endpoint
        issued = Issued(
            kind, life, peer, Operation(OpKind.SEND, deque(), None, now), source, target, number, size, mode
        )
        data = pattern(number, size)
        if kind in ("send", "tsend", "rendezvous", "deferrable"):
            buffer = bytearray(4096)
            there = now + peer.ahead
            if kind == "send":
                received = peer.endpoint.recv(buffer, there)
                issued.operation = endpoint.send(to, data, at, mode=mode, header_data=number)
            else:
                received = peer.endpoint.trecv(buffer, number, there)
                how = SendKind.EAGER if kind == "tsend" else SendKind(kind)
                header = number if kind == "tsend" else None
                issued.operation = endpoint.tsend(to, TaggedMessage(data, number, header), at, mode=mode, how=how)
            peer.received.append((received, buffer))
        elif kind == "write" or (kind == "rudi" and random.random() < 0.5):
            issued.kind = "write"
            issued.mode = mode if kind == "write" else Mode.RUDI
            issued.offset = (number * 3000) % (self.room - 3000)
            issued.operation = endpoint.write(to, data, RemoteBuffer(WRITTEN, issued.offset), at, mode=issued.mode)
        elif kind in ("read", "rudi"):
            issued.kind = "read"
            issued.buffer = bytearray(size)
            issued.offset = random.randrange(CONSTANT_BYTES - size)
            issued.mode = mode if kind == "read" else Mode.RUDI
            constants = RemoteBuffer(CONSTANTS, issued.offset)
            issued.operation = endpoint.read(to, issued.buffer, constants, at, mode=issued.mode)
        else:
            increment = Amo(AmoOpcode.SUM, AmoType.UINT64, (1).to_bytes(8, "little"))
            counter = RemoteBuffer(COUNTERS, 8 * source)
            fetch = bytearray(8) if random.random() < 0.5 else None
            issued.operation = endpoint.atomic(to, increment, counter, at, fetch=fetch, mode=mode)
        self.issued.append(issued)
        self.network.nics[life.address].wake()
        self.network.nics[peer.address].wake()

    @property
    def over(self) -> bool:
        return self.left == 0 and all(
            issued.operation.done or issued.life.killed or self.may_wait(issued) for issued in self.issued
        )

    def may_wait(self, issued: Issued) -> bool:
        """Its target comes when it likes: it lives, knows of the send, and has no receive for it (any more)."""
        if issued.kind not in ("rendezvous", "deferrable") or self.calm:
            return False
        target = self.lives[issued.target][-1]
        offered = ((item.remote, item.header.memory_key) for item in target.fep.semantics.deferred._known.values())
        met = any(operation.tag == issued.number and operation.ok is operation.done for operation, _ in target.received)
        return not target.killed and (issued.life.address, issued.number) in offered and not met

    def run(self) -> None:
        """Everything ends, then everything that ended is as it says."""
        self.network.run(LIMIT_NS, lambda: self.over)
        assert self.over, [issued for issued in self.issued if not issued.operation.done]
        assert not any(issued.operation.ok and issued.operation.finished_ns > LIMIT_NS for issued in self.issued)
        if self.calm:
            assert all(issued.operation.ok for issued in self.issued), self.issued
        self.settle()
        self.check_contents()
        self.check_counters()
        self.check_messages()
        self.close()

    def settle(self) -> None:
        """Let what is still on its way arrive: acknowledgements of what has ended, credit."""
        self.network.run(self.network.now + 3000 * MS)

    def check_contents(self) -> None:
        for issued in self.issued:
            if not issued.operation.ok:
                continue
            if issued.kind == "read":
                wanted = pattern(0, CONSTANT_BYTES)[issued.offset : issued.offset + issued.size]
                assert issued.buffer == wanted, issued
            elif issued.kind == "write":
                begin, end = issued.offset, issued.offset + issued.size
                later = [other for other in self.issued if other is not issued and other.kind == "write"]
                if all(other.target != issued.target or abs(other.offset - begin) >= 3000 for other in later):
                    data = pattern(issued.number, issued.size)
                    # RUDI has no context: a target that begins anew has the packets from then on, not the others.
                    step = issued.life.fep.payload_bytes if issued.mode is Mode.RUDI else max(issued.size, 1)
                    for at in range(0, issued.size, step):
                        part, stop = data[at : at + step], min(begin + at + step, end)
                        lives = self.lives[issued.target]
                        assert any(life.written[begin + at : stop] == part for life in lives), issued

    def check_counters(self) -> None:
        """A fetching or plain SUM happened once if it says so, and at most once in any case."""
        ok: defaultdict[tuple[int, int], int] = defaultdict(int)
        tried: defaultdict[tuple[int, int], int] = defaultdict(int)
        for issued in self.issued:
            if issued.kind == "atomic":
                tried[issued.source, issued.target] += 1
                ok[issued.source, issued.target] += issued.operation.ok
        for (source, target), count in tried.items():
            cells = [life.counters[8 * source : 8 * source + 8] for life in self.lives[target]]
            done = [int.from_bytes(cell, "little") for cell in cells]
            # A target that has lost its memory may be told again what its life before had executed.
            assert max(done) <= count and ok[source, target] <= sum(done), (source, target, ok[source, target], done)

    def check_messages(self) -> None:
        """Every message that was sent arrived once, whole; those of one sender's ROD in their order."""
        by_number = {issued.number: issued for issued in self.issued}
        arrived: set[int] = set()
        for target, lives in enumerate(self.lives):
            for life in lives:
                order: dict[int, int] = {}
                here: set[int] = set()
                for operation, buffer in life.received:
                    if not operation.ok:
                        continue
                    number = operation.header_data or operation.tag
                    issued = by_number[number]
                    assert issued.target == target and operation.length == issued.size
                    assert buffer[: issued.size] == pattern(number, issued.size)
                    # Once in a life: one that begins anew knows nothing of what the one before executed.
                    assert number not in here, issued
                    here.add(number)
                    arrived.add(number)
                    if issued.kind == "send" and issued.mode is Mode.ROD and self.config.pdcs_per_peer == 1:
                        assert order.get(issued.source, 0) < number
                        order[issued.source] = number
        for issued in self.issued:
            if (
                issued.kind in ("send", "tsend", "deferrable", "rendezvous")
                and issued.operation.ok
                and not issued.peer.killed
            ):
                assert issued.number in arrived, issued

    def close(self) -> None:
        """All close: nothing is left of what was under way, where nobody died."""
        living = [lives[-1] for lives in self.lives if not lives[-1].killed]
        for life in living:
            for pdc in life.fep.pdcs:
                inflight = pdc.sender.congestion.inflight_bytes
                assert abs(inflight) < ROUNDING or not pdc.sender.idle, inflight
            life.endpoint.close(self.network.now + life.ahead)
            life.fep.close(self.network.now + life.ahead)
            self.network.nics[life.address].wake()
        self.network.run(self.network.now + 20_000 * MS)
        # With the receives gone, nothing is left that an offer could wait for.
        assert all(issued.operation.done or issued.life.killed for issued in self.issued), self.issued
        for life in living:
            assert all(operation.done for operation, _ in life.received), life.received
        if self.calm:
            for life in living:
                assert life.fep.idle
                assert retained(life.fep) == {}, life.address
                assert life.next_timer() is None
                assert life.transmit(self.network.now) == []


def retained(fep: Fep) -> dict[str, int]:
    """Sizes of what an endpoint still keeps of peers and operations, leaving out what is empty."""
    semantics = fep.semantics
    sizes = {
        **fep.table.retained(),
        "rudi": len(semantics.rudi._under_way) + len(semantics.rudi._waiting),
        "deferred": len(semantics.deferred._offers)
        + len(semantics.deferred._read_offers)
        + len(semantics.deferred._accepted)
        + len(semantics.deferred._known),
        "credits": 0 if fep._credits is None else len(fep._credits._senders) + len(fep._credits._announce),
        "ready": len(fep._ready) + len(fep._control),
    }
    return {name: size for name, size in sizes.items() if size}
