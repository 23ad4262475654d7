"""Pairs of endpoints in each of the situations in which something hostile may meet them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from hostile_wire import Hostile
from wire_pair import JOB, MS, WirePair

from testbed.protocols.datagram import Outgoing
from testbed.protocols.uet.atomics import Amo
from testbed.protocols.uet.fep import Fep
from testbed.protocols.uet.memory import Access, RemoteBuffer
from testbed.protocols.uet.packets.codes import AmoOpcode, AmoType, Mode
from testbed.protocols.uet.security.key_derivation import DomainKey
from testbed.protocols.uet.security.tss import SecureDomain
from testbed.protocols.uet.security.tss_header import Tsc
from testbed.protocols.uet.semantics.endpoint import SendKind, TaggedMessage
from testbed.protocols.uet.semantics.operations import Operation

SIZE = 4096
KEY = 0x1122_3344_5566_7788
"""The key of memory that all of the job may use: anybody who has seen it used knows it."""
READ_ONLY_KEY = 0x2122_3344_5566_7788
FOREIGN_KEY = 0x3122_3344_5566_7788
"""The key of memory of another job."""
SECRET_KEY = 0x4122_3344_5566_7788
"""Never on the wire."""
OTHER_JOB = JOB + 1
GUARD = 64
LIMITS = {
    "payload_bytes": 256,
    "max_pdcs": 64,
    "max_messages": 64,
    "max_unexpected": 32,
    "max_unexpected_bytes": 1 << 16,
}


class Memory:
    """The memory that one endpoint has registered."""

    def __init__(self, fep: Fep) -> None:
        self.shared = bytearray(SIZE)
        self.read_only = bytearray(b"r" * SIZE)
        self.foreign = bytearray(b"f" * SIZE)
        self.secret = bytearray(b"s" * SIZE)
        everything = Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
        fep.register(self.shared, everything, JOB, KEY)
        fep.register(self.read_only, Access.REMOTE_READ, JOB, READ_ONLY_KEY)
        fep.register(self.foreign, everything, OTHER_JOB, FOREIGN_KEY)
        fep.register(self.secret, everything, JOB, SECRET_KEY)


class Scene(WirePair):
    """A pair that somebody listens to. `wire` says which datagrams arrive while the scene is set."""

    def __init__(self, random: Random, hostile: Hostile, *, secure: bool = False, **settings: object) -> None:
        key = DomainKey(bytes(range(32)))
        domains = None
        if secure:
            start = Tsc(counter=1)
            domains = (SecureDomain(5, key, first_tsc=start), SecureDomain(5, key, first_tsc=start))
        super().__init__(random.getrandbits(32), security=domains, **{**LIMITS, **settings})
        self.random = random
        self.hostile = hostile
        self.secure = secure
        self.memory = {self.a.address: Memory(self.a), self.b.address: Memory(self.b)}
        self.operations: list[Operation] = []
        self.buffers: list[bytearray] = []

    def take(self, fep: Fep, limit: int = 10_000) -> list[Outgoing]:
        datagrams = super().take(fep, limit)
        for datagram in datagrams:
            self.hostile.capture(fep.address, datagram)
        return datagrams

    def buffer(self, size: int) -> memoryview:
        """A buffer whose surroundings are watched."""
        whole = bytearray(size + 2 * GUARD)
        self.buffers.append(whole)
        return memoryview(whole)[GUARD : GUARD + size]

    def exchange(self, mode: Mode = Mode.RUD, size: int = 1500) -> None:
        """Something of everything, in both directions."""
        random = self.random
        for end, to in ((self.ea, self.to_b), (self.eb, self.to_a)):
            add = self.operations.append
            data = random.randbytes(size)
            add(end.recv(self.buffer(2 * size), self.now))
            add(end.trecv(self.buffer(2 * size), random.randrange(4), self.now, ignore=random.choice((0, 3))))
            add(end.send(to, data, self.now, mode=mode, header_data=random.choice((None, 9))))
            add(end.tsend(to, TaggedMessage(data[:100], random.randrange(4)), self.now, mode=mode))
            add(end.write(to, data, RemoteBuffer(KEY, 64), self.now, mode=mode))
            add(end.write(to, data[:9], RemoteBuffer(READ_ONLY_KEY, 64), self.now, mode=mode))
            add(end.write(to, data[:9], RemoteBuffer(FOREIGN_KEY, 64), self.now, mode=mode))
            add(end.read(to, self.buffer(size), RemoteBuffer(KEY), self.now, mode=mode))
            add(end.read(to, self.buffer(8), RemoteBuffer(READ_ONLY_KEY), self.now, mode=mode))
            one = (1).to_bytes(8, "little")
            increment = Amo(AmoOpcode.SUM, AmoType.INT64, one)
            swap = Amo(AmoOpcode.CSWAP, AmoType.UINT64, one, compare=bytes(8))
            add(end.atomic(to, increment, RemoteBuffer(KEY), self.now, mode=mode, fetch=self.buffer(8)))
            add(end.atomic(to, swap, RemoteBuffer(KEY, 8), self.now, mode=mode))
            for how in (SendKind.RENDEZVOUS, SendKind.DEFERRABLE):
                add(end.tsend(to, TaggedMessage(data, random.randrange(4, 6)), self.now, mode=mode, how=how))
            add(end.trecv(self.buffer(2 * size), 4, self.now, ignore=1))
            add(end.send(to, data[:30], self.now, mode=Mode.UUD))

    def some_arrive(self, share: float) -> Callable[[Outgoing], bool]:
        return lambda _: self.random.random() < share


def creating(random: Random, hostile: Hostile) -> Scene:
    scene = Scene(random, hostile)
    scene.exchange()
    scene.take(scene.a)
    scene.take(scene.b)
    return scene


def established(random: Random, hostile: Hostile, **settings: object) -> Scene:
    scene = Scene(random, hostile, **settings)  # type: ignore[arg-type]
    mode = random.choice((Mode.RUD, Mode.ROD))
    scene.exchange(mode, 100)
    scene.settle()
    scene.exchange(mode, 3000)
    scene.settle(scene.some_arrive(0.7), rounds=100)
    return scene


def receiver_credits(random: Random, hostile: Hostile) -> Scene:
    return established(random, hostile, cc="both", trimming=True)


def reads_pending(random: Random, hostile: Hostile) -> Scene:
    scene = Scene(random, hostile)
    for _ in range(4):
        scene.operations.append(scene.ea.read(scene.to_b, scene.buffer(SIZE), RemoteBuffer(KEY), scene.now))
    for packet in scene.take(scene.a):
        scene.give(packet)
    for packet in scene.take(scene.b)[::3]:
        scene.give(packet)
    return scene


def quiesce(random: Random, hostile: Hostile) -> Scene:
    scene = established(random, hostile)
    scene.exchange(size=600)
    scene.a.close(scene.now)
    scene.b.close(scene.now)
    scene.take(scene.a)
    return scene


def ack_wait(random: Random, hostile: Hostile) -> Scene:
    scene = Scene(random, hostile)
    scene.operations.append(scene.ea.write(scene.to_b, bytes(100), RemoteBuffer(KEY), scene.now))
    scene.settle()
    scene.a.close(scene.now)
    scene.take(scene.a)
    return scene


def close_wait(random: Random, hostile: Hostile) -> Scene:
    scene = established(random, hostile)
    for fep in (scene.a, scene.b):
        for pdc in fep.pdcs:
            pdc.ask_to_close(scene.now)
    scene.take(scene.a)
    scene.take(scene.b)
    return scene


def many_pdcs(random: Random, hostile: Hostile) -> Scene:
    scene = Scene(random, hostile, pdcs_per_peer=12)
    for mode in (Mode.RUD, Mode.ROD) * 12:
        scene.exchange(mode, 300)
        scene.settle(scene.some_arrive(0.9), rounds=50)
    return scene


def rudi(random: Random, hostile: Hostile) -> Scene:
    scene = Scene(random, hostile)
    for _ in range(3):
        for end, to in ((scene.ea, scene.to_b), (scene.eb, scene.to_a)):
            scene.operations.append(end.write(to, bytes(2000), RemoteBuffer(KEY), scene.now, mode=Mode.RUDI))
            scene.operations.append(end.read(to, scene.buffer(2000), RemoteBuffer(KEY), scene.now, mode=Mode.RUDI))
        scene.settle(scene.some_arrive(0.5))
    return scene


def unexpected(random: Random, hostile: Hostile) -> Scene:
    scene = Scene(random, hostile)
    for how in (SendKind.EAGER, SendKind.RENDEZVOUS, SendKind.DEFERRABLE):
        for tag in range(5):
            data = random.randbytes(200 * tag)
            scene.operations.append(scene.ea.tsend(scene.to_b, TaggedMessage(data, tag), scene.now, how=how))
            scene.operations.append(scene.ea.send(scene.to_b, data, scene.now, how=how))
    scene.settle(scene.some_arrive(0.8), rounds=100)
    for tag in range(3):
        scene.operations.append(scene.eb.trecv(scene.buffer(1000), tag, scene.now))
    return scene


def idle(random: Random, hostile: Hostile) -> Scene:
    return Scene(random, hostile)


def secured(random: Random, hostile: Hostile) -> Scene:
    return established(random, hostile, secure=True)


SCENES: dict[str, Callable[[Random, Hostile], Scene]] = {
    scene.__name__: scene
    for scene in (
        creating,
        established,
        receiver_credits,
        reads_pending,
        quiesce,
        ack_wait,
        close_wait,
        many_pdcs,
        rudi,
        unexpected,
        idle,
        secured,
    )
}
STEP_NS = MS
