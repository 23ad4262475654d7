"""Bytes of anybody's making: decoders raise DecodeError or give what encodes to the same again, and an RNIC takes
everything, raises nothing and touches no memory that it was not given.

TESTBED_FUZZ_CASES sets how many cases each test has (20,000 by default, a few seconds).
"""

import json
import os
from collections import Counter
from random import Random

import pytest
from rnic_pair import FIRST, RnicPair, sealed

from testbed.protocols.datagram import Incoming
from testbed.protocols.errors import DecodeError
from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.roce.dynamic import DynamicConnections
from testbed.protocols.roce.dynamic_initiator import CONNECT_BODY, SESSION_BODY
from testbed.protocols.roce.memory import ALL_ACCESS
from testbed.protocols.roce.packets.headers import Bth, Deth, Reth
from testbed.protocols.roce.packets.opcodes import LAYOUTS, Opcode, Service
from testbed.protocols.roce.packets.packet import decode_roce, describe
from testbed.protocols.roce.work import RemoteBuffer

CASES = int(os.environ.get("TESTBED_FUZZ_CASES", "20000"))
OPCODES = list(Opcode)
KEY = 0x5EC0DE
TARGET = 0x777
GUARD = b"guard" * 20


def some_header(source: Random, qpns: list[int], psns: list[int], places: list[tuple[int, int]]) -> bytes:
    """A BTH, mostly of a queue pair that is there and near its window, and what its opcode brings."""
    opcode = source.choice(OPCODES)
    psn = (source.choice(psns) + source.randrange(-3, 12)) & 0xFF_FFFF
    bth = Bth(opcode, source.choice(qpns), psn, source.random() < 0.5, source.randrange(4)).encode()
    layout = LAYOUTS[opcode]
    assert layout is not None
    if layout.reth and source.random() < 0.8:
        base, rkey = source.choice(places)
        address = (base + source.choice([0, 0, -1, 8, 60, 1 << 40])) & ((1 << 64) - 1)
        length = source.choice([0, 1, 64, 64, 65, 1024, 0xFFFF_FFFF])
        return bth + Reth(address, source.choice([rkey, rkey, rkey ^ 1]), length).encode()
    return bth


def test_what_is_decoded_is_encoded_to_the_same() -> None:
    source = Random(1)
    kinds: Counter[str] = Counter()
    for _ in range(CASES):
        opcode = source.choice(OPCODES) if source.random() < 0.9 else source.randrange(256)
        data = bytearray(source.randbytes(source.choice([0, 5, 12, 16, 20, 24, 28, 32, 44, 60, 300])))
        if len(data) > 1:
            data[0], data[1] = opcode, data[1] & 0xF0
        try:
            packet = decode_roce(data)
        except DecodeError as error:
            assert 0 <= error.offset <= len(data)
            assert error.reason
            continue
        kinds[Opcode(packet.bth.opcode).name] += 1
        again = packet.encode()
        assert len(again) == len(data)
        assert decode_roce(again).encode() == again
        assert json.dumps(describe(packet))
    assert len(kinds) == len(OPCODES), set(Opcode.__members__) - set(kinds)


@pytest.mark.parametrize(
    "config",
    [RoceConfig(mtu=256), RoceConfig(mtu=256, recovery="selective"), RoceConfig(mtu=256, ooo=True)],
    ids=["go-back-n", "selective", "ooo"],
)
def test_a_hostile_peer_touches_nothing_that_it_was_not_given(config: RoceConfig) -> None:
    source = Random(2)
    pair = RnicPair(config)
    kinds: Counter[str] = Counter()
    for round_ in range(max(1, CASES // 200)):
        victims = [pair.connect(service)[1] for service in (Service.RC, Service.RC, Service.UC)]
        for victim in victims:
            victim.receive(bytearray(64), 0)
            victim.read(bytearray(64), RemoteBuffer(0, 1), 0) if victim.service is Service.RC else None
        arena = bytearray(GUARD + bytes(64) + GUARD)
        region = pair.second.register(memoryview(arena)[len(GUARD) : len(GUARD) + 64], ALL_ACCESS)
        qpns = [victim.number for victim in victims]
        for _ in range(200):
            header = some_header(source, qpns, [0], [(region.base, region.rkey)])
            payload = source.randbytes(source.choice([0, 0, 4, 8, 64, 252, 256, 260, 1500]))
            incoming = sealed(header, payload)
            data = incoming.data if source.random() < 0.95 else header + payload
            pair.second.receive([Incoming(FIRST, incoming.entropy, data, source.random() < 0.2)], pair.now)
            pair.second.transmit(pair.now)
            pair.now += 1000
        assert arena[: len(GUARD)] == GUARD and arena[-len(GUARD) :] == GUARD
        kinds.update(pair.second.counters)
        for victim in victims:
            pair.second.destroy_qp(victim, pair.now)
        pair.second.regions.invalidate(region.rkey, 0)
        assert len(pair.second.qps) == 0 and len(pair.second.regions) == 0, round_
    assert {"refusals", "duplicate", "out-of-order", "malformed", "wrong-service"} <= set(kinds), kinds


def test_a_hostile_peer_of_dynamic_connections_is_bounded_and_touches_nothing() -> None:
    source = Random(3)
    pair = RnicPair(RoceConfig(mtu=256, timeout=4))
    there = DynamicConnections(pair.second, initiators=2, most_responders=4)
    target = there.create_target(KEY, number=TARGET)
    arena = bytearray(GUARD + bytes(64) + GUARD)
    region = pair.second.register(memoryview(arena)[len(GUARD) : len(GUARD) + 64], ALL_ACCESS)
    remotes = [FIRST, *(f"10.9.0.{host}" for host in range(8))]
    for remote in remotes[:3]:
        there.destination(remote, TARGET, KEY).write(bytes(600), RemoteBuffer(0, 1), 0)
    for number in range(CASES):
        if len(target.receives) < 4:
            target.receive(bytearray(64))
        remote = source.choice(remotes)
        initiators = [one.number for one in there.initiators]
        header = some_header(source, [TARGET, TARGET, *initiators], [0, 77], [(region.base, region.rkey)])
        if header[0] >= Opcode.DC_CONNECT or source.random() < 0.2:
            opcode = source.choice([Opcode.DC_CONNECT, Opcode.DC_CONNECT, Opcode.DC_DISCONNECT, Opcode.DC_UNATTACHED])
            key = KEY if source.random() < 0.9 else source.randrange(1 << 32)
            header = Bth(opcode, source.choice([TARGET, TARGET, TARGET + 1]), source.choice([0, 77])).encode()
            header += Deth(key, source.choice([0x40, *initiators])).encode()
            body = CONNECT_BODY if opcode == Opcode.DC_CONNECT else SESSION_BODY
            values = [source.choice([0, number, 1 << 60]), source.choice([256, 256, 4096, 7])]
            payload = body.pack(*values[: 2 if body is CONNECT_BODY else 1])
            payload = payload if source.random() < 0.9 else payload[:5]
        else:
            payload = source.randbytes(source.choice([0, 4, 8, 64, 252, 256, 260, 1500]))
        pair.second.receive([sealed(header, payload, remote)], pair.now)
        pair.second.transmit(pair.now)
        assert len(there.responders) <= 4
        pair.now += 1000
        pair.second.handle_timer(pair.now)
    assert arena[: len(GUARD)] == GUARD and arena[-len(GUARD) :] == GUARD
    assert {"attached", "refusals", "unattached", "late-connect", "responders-full"} <= set(pair.second.counters)
    pair.second.handle_timer(pair.now + 2 * there.forget_ns)
    assert not there.responders


def test_a_stranger_who_knows_a_queue_pair_changes_nothing() -> None:
    pair = RnicPair()
    here, there = pair.connect()
    memory = bytearray(64)
    region = pair.second.register(memory, ALL_ACCESS)
    header = Bth(Opcode.RC_WRITE_ONLY, there.number, 0, True).encode() + Reth(region.base, region.rkey, 8).encode()
    pair.second.receive([sealed(header, b"12345678", "10.0.0.66")], 0)
    assert memory == bytes(64) and pair.second.counters["stray"] == 1
    pair.second.receive([sealed(header, b"12345678")], 0)  # the same from the peer arrives
    assert memory[:8] == b"12345678" and here.state is there.state
