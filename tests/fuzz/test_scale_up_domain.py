"""Hostile frames at an endpoint and at the switch: whatever they say, memory outside of the windows stays as it is.

The frames have a right FCS and are mutations of sound ones, so that they come far.
"""

from __future__ import annotations

import ctypes
import random
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from encoded_frames import encode_frame, seal

from testbed.protocols.scale_up.domain import binding
from testbed.protocols.scale_up.domain import build as scale_up_domain
from testbed.protocols.scale_up.domain.link import FlowControl, LinkSettings
from testbed.protocols.scale_up.domain.switch_core import SwitchCore
from testbed.protocols.scale_up.frames import DataFrame, decode_frame
from testbed.protocols.scale_up.headers import UaRequest, UaResponse, destination_of

FRAMES = 20_000
GPUS = 4
GUARD = 4096
SIZE = 1 << 16
KEY = 0x1234
LINK = LinkSettings(rate_bps=1 << 40, flow_control=FlowControl.NONE, coarse=4, silence_ns=0)


@pytest.fixture(autouse=True)
def clang() -> None:
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed")


def links(count: int) -> Any:
    return (binding.LinkConfig * count)(*(LINK.native(bytes(6), bytes(6), epoch=0) for _ in range(count)))


def sound(draw: random.Random) -> bytes:
    """A frame that a peer might send: mostly within the window or at its edges."""
    source, destination = draw.randrange(GPUS), draw.randrange(GPUS)
    if draw.random() < 0.2:
        response = UaResponse(0, draw.randrange(2048), 0, 0, 0, draw.randrange(16), 0, 1, source, destination)
        return encode_frame(DataFrame(bytes(6), bytes(6), 1, response, draw.randbytes(draw.randrange(1000))))
    window, key = draw.choice((0, 0, 0, 1, 63)), draw.choice((KEY, KEY, KEY, 0))
    edge = draw.choice((0, 0, SIZE - 1024, SIZE - 64, SIZE - 4, SIZE, 1 << 34, (1 << 35) - 4))
    offset = max(0, edge + 4 * draw.randrange(-4, 4)) % (1 << 35)
    size = draw.choice((4, 8, 64, 256, 1024, 4 * draw.randrange(1, 256)))
    command = draw.choice((0x03, 0x28, 0x29, 0x2A, 0x30, 0x08, 0x2C, 0x2D, draw.randrange(64)))
    attributes = draw.choice((0, 0, 1, draw.randrange(256)))
    header = UaRequest(
        command,
        0,
        0,
        draw.randrange(2048),
        0,
        attributes,
        (size - 1) % 256 // 4,
        draw.choice(((size - 1) // 256, draw.randrange(256))),
        window << 51 | key << 35 | offset,
        source,
        destination,
    )
    payload = draw.randbytes(draw.choice((size, size, 0, 8, 16, draw.randrange(1025))))
    return encode_frame(DataFrame(bytes(6), bytes(6), 0, header, payload))


def hostile(draw: random.Random) -> bytes:
    data = bytearray(sound(draw)[:-4])
    for _ in range(draw.choice((0, 0, 1, 3))):
        data[draw.randrange(12, len(data))] = draw.randrange(256)
    if draw.random() < 0.05:
        del data[draw.randrange(len(data)) :]
    return seal(bytes(data)) if draw.random() < 0.98 else bytes(data)


@pytest.fixture
def endpoint() -> Iterator[int]:
    native = scale_up_domain.library()
    config = binding.EndpointConfig(
        timeout_ns=1_000_000,
        gpu=0,
        gpus=GPUS,
        planes=1,
        response_vc=1,
        coarse=4,
        outstanding=2048,
        frames=2048,
        frame_bytes=LINK.frame_bytes,
    )
    handle = native.endpoint_new(config, links(1), 0)
    assert handle
    yield handle
    native.endpoint_free(handle)


def test_an_endpoint(endpoint: int) -> None:
    native, draw = scale_up_domain.library(), random.Random(1)
    around = (ctypes.c_ubyte * (2 * GUARD + SIZE))()
    filler = draw.randbytes(len(around))
    ctypes.memmove(around, filler, len(filler))
    into = (ctypes.c_ubyte * (2 * GUARD + SIZE))()
    ctypes.memmove(into, filler, len(filler))
    assert native.endpoint_export(endpoint, ctypes.addressof(around) + GUARD, SIZE, KEY, 7) == 0
    for peer in (1, 2):
        native.endpoint_authorise(endpoint, 0, peer, True)
    read = native.endpoint_begin(
        endpoint, 1, 1, 0, ctypes.addressof(into) + GUARD, SIZE, 0, None, binding.VC_OF_REQUESTS, 0
    )
    assert read
    buffer = ctypes.create_string_buffer(LINK.frame_bytes)
    source = ctypes.c_uint32()
    now = 0
    for _ in range(FRAMES):
        data = hostile(draw)
        now += 100_000
        native.endpoint_put(endpoint, 0, data, len(data), now)
        native.endpoint_work(endpoint, now)
        while native.endpoint_get(endpoint, 0, buffer, len(buffer)):
            pass
        while native.endpoint_message(endpoint, buffer, len(buffer), source) >= 0:
            assert source.value < 1024
    counted = binding.as_dict(native.endpoint_counted(endpoint).contents)
    assert counted["served"] > FRAMES // 20 and counted["refused"] and counted["strays"] and counted["messages"]
    assert bytes(around)[:GUARD] == filler[:GUARD] and bytes(around)[-GUARD:] == filler[-GUARD:]
    assert bytes(into)[:GUARD] == filler[:GUARD] and bytes(into)[-GUARD:] == filler[-GUARD:]
    assert bytes(around)[GUARD:-GUARD] != filler[GUARD:-GUARD], "sound ones among them were carried out"


def test_the_switch() -> None:
    """Whatever comes in, what goes out was meant for that port and comes from the GPU whose name it has, or is the
    switch's own: an answer to a GPU that had it add up, copy or join, or what it asks the members of a group."""
    draw = random.Random(2)
    core = SwitchCore(scale_up_domain.library(), LINK, links(GPUS), gpus=GPUS, planes=1)
    passed = own = now = 0
    for _ in range(FRAMES):
        now += 1_000_000
        port = draw.randrange(GPUS)
        data = hostile(draw)
        core.receive(port, data, now)
        for output, sent in core.work(now + 500_000):
            if sent[14] == 0x5C:
                continue
            if sent == data:
                passed += 1
                assert output != port
                continue
            own += 1
            frame = decode_frame(sent)
            assert isinstance(frame, DataFrame) and destination_of(frame.header) == output
            assert isinstance(frame.header, UaResponse) or frame.header.source == binding.SWITCH_ID
    assert own > 10, "the switch was asked to do something"
    counters = core.counters()
    assert passed > FRAMES // 20
    assert sum(item["refused"] for item in counters) > FRAMES // 20
    assert sum(item["malformed"] for item in counters) and sum(item["bad_frames"] for item in counters)
    assert not any(core.held(port, vc) for port in range(GPUS) for vc in range(2))
    core.close()
