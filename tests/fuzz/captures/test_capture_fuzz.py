"""Frames of anybody's making: `decode` finds a packet in each or counts it, in bounded depth, and raises nothing.

TESTBED_FUZZ_CASES sets how many cases each test has (20,000 by default, a few seconds).
"""

import json
import os
from collections import Counter
from dataclasses import asdict
from random import Random

import capture_files as make
import pytest
from encoded import encoded
from encoded_frames import encode_frame
from link_samples import LinkSamples
from packet_samples import PacketSamples
from pfc_frames import encode_pfc
from roce_samples import RoceSamples, roce_frame

from testbed.protocols.captured.content import CapturedFrame
from testbed.protocols.captured.packet import flatten
from testbed.record.captures.decoders.flows import FlowAccounts
from testbed.record.captures.decoders.registry import PacketFinder
from testbed.record.captures.layers.walk import LINK_TYPES, MAX_HEADERS

CASES = int(os.environ.get("TESTBED_FUZZ_CASES", "20000"))
STATION = bytes.fromhex("020000000001")


def some_frames(chance: Random) -> list[bytes]:
    """Ethernet frames of every transport that `decode` knows."""
    frames = [roce_frame(packet) for packet in RoceSamples(1).of_every_opcode()]
    frames += [make.ethernet(make.ipv6(make.udp(encoded(packet)))) for packet in PacketSamples(1).of_every_kind()]
    frames += map(encode_frame, LinkSamples(1).of_every_kind())
    frames += [encode_pfc(STATION, 0xFF, [chance.getrandbits(16) for _ in range(8)]) for _ in range(8)]
    packet = RoceSamples(2).of_every_opcode()
    frames += [b"\x02" * 12 + b"\x89\x15" + make.ipv6(item.encode(), protocol=0x1B) for item in packet]
    return frames


def wrapped(frame: bytes, chance: Random) -> bytes:
    """The frame in a few tunnels and tags."""
    for _ in range(chance.randrange(4)):
        match chance.randrange(8):
            case 0:
                frame = frame[:12] + b"\x81\x00" + chance.randbytes(2) + frame[12:]
            case 1:
                frame = make.ethernet(make.ipv4(make.vxlan(frame), options=bytes(4 * chance.randrange(3))))
            case 2:
                frame = make.ethernet(make.ipv6(make.geneve(frame, options=bytes(4 * chance.randrange(64)))))
            case 3:
                frame = make.ethernet(make.ipv4(make.gre(frame, 0x6558, key=7), protocol=47))
            case 4:
                frame = make.ethernet(make.ipv4(make.erspan_2(frame, truncated=chance.random() < 0.5), protocol=47))
            case 5:
                frame = make.ethernet(make.ipv6(make.erspan_3(frame, subheader=bytes(8)), protocol=47))
            case 6:
                frame = make.ethernet(make.ipv4(make.ipv4(make.vxlan(frame)), protocol=4))
            case _:
                extensions = [(0, b"\x00" + bytes(6)), (44, b"\0\0" + chance.randbytes(1) + bytes(4))]
                frame = make.ethernet(make.ipv6(make.vxlan(frame), extensions=extensions))
    return frame


def mutated(frame: bytes, chance: Random) -> bytes:
    data = bytearray(frame)
    for _ in range(chance.randrange(5)):
        place = chance.randrange(min(len(data), 200))
        match chance.randrange(4):
            case 0:
                data[place] ^= 1 << chance.randrange(8)
            case 1:
                data[place] = chance.choice((0, 1, 4, 6, 0x7F, 0x80, 0xFF))
            case 2:
                del data[place : place + chance.randrange(1, 9)]
            case _:
                data[place:place] = data[: chance.randrange(60)]
        if not data:
            break
    return bytes(data)


@pytest.mark.parametrize("seed", range(2))
def test_every_frame_is_a_packet_or_counted(seed: int) -> None:
    chance = Random(seed)
    frames = some_frames(chance)
    finder, flows, found = PacketFinder(), FlowAccounts(), Counter[str]()
    for number in range(CASES // 2):
        data = mutated(wrapped(chance.choice(frames), chance), chance)
        captured = data[: chance.choice((len(data), chance.randint(0, len(data))))]
        link_type = chance.choice((1, 1, 1, 1, *LINK_TYPES))
        capture = finder.find(CapturedFrame(number, 0, link_type, captured, len(data)))
        if capture is None:
            continue
        found[capture.transport] += 1
        flows.add(capture)
        assert capture.line() and capture.kind
        document = capture.document()
        assert json.dumps(document) and dict(flatten(document))
        assert capture.payload_bytes <= capture.datagram.length
        assert len(capture.datagram.around) <= MAX_HEADERS
        assert len(capture.datagram.payload) <= len(captured)
    assert found.total() + finder.left_alone.total() == CASES // 2
    assert set(found) == {"UET", "RoCE", "RoCEv1", "InfiniBand", "scale-up", "MAC control"}
    assert json.dumps(list(map(asdict, flows.accounts)))
