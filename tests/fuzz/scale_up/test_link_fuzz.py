"""Bytes of anybody's making: both decoders refuse them at the same byte or find the same in them, and a link takes all.

The C is built so that undefined behaviour traps, and reads each frame from the end of a page behind which there is
none. TESTBED_FUZZ_CASES sets how many cases each test has (20,000 by default, some seconds).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import native_link as native
import pytest
from encoded_frames import encode_ctlos, encode_frame, numbered, seal
from link_end import LinkConfig, ScaleUpLink
from link_samples import LinkSamples
from native_link import build, credit_config

from testbed.protocols.errors import DecodeError
from testbed.protocols.scale_up.ctlos import CTLOS_BYTES
from testbed.protocols.scale_up.frames import (
    CC_UPDATE_BYTES,
    CONTROL_FRAME_BYTES,
    CcUpdateFrame,
    ControlFrame,
    DataFrame,
    Frame,
    FrameCheck,
    check_frame,
    decode_frame,
)
from testbed.protocols.scale_up.headers import HeaderKind, destination_of, kind_of
from testbed.protocols.scale_up.retry import RetryConfig

CASES = int(os.environ.get("TESTBED_FUZZ_CASES", "20000"))
SHAPES = {DataFrame: 0, CcUpdateFrame: 1, ControlFrame: 2}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed")
    cache: Path = tmp_path_factory.mktemp("scale-up")
    return native.bound(build(cache, "-fsanitize=undefined", "-fsanitize-trap=undefined"))


class LastBytes:
    """Memory that ends where its last byte is: reading on ends the process."""

    def __init__(self, pages: int = 2) -> None:
        page = mmap.PAGESIZE
        self._map = mmap.mmap(-1, (pages + 1) * page)
        self._start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._end = self._start + pages * page
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mprotect(ctypes.c_void_p(self._end), page, 0) == 0

    def hold(self, data: bytes) -> ctypes.c_char_p:
        at = self._end - len(data)
        ctypes.memmove(at, data, len(data))
        return ctypes.c_char_p(at)


@pytest.fixture(scope="module")
def memory() -> Iterator[LastBytes]:
    yield LastBytes()


def hostile(samples: LinkSamples) -> Iterator[bytes]:
    """Random bytes, and frames that were changed, cut, and sealed again or not."""
    chance = samples.chance
    while True:
        for frame in samples.of_every_kind():
            data = bytearray(encode_frame(frame))
            for _ in range(chance.choice((0, 0, 1, 1, 3))):
                data[chance.randrange(12, min(len(data), 70))] ^= 1 << chance.randrange(8)
            cut = len(data) if chance.random() < 0.7 else chance.randrange(len(data))
            yield seal(bytes(data[:cut])[:-4]) if chance.random() < 0.5 else bytes(data[:cut])
        yield chance.randbytes(chance.randrange(100))
        yield chance.randbytes(12) + b"\x88\xb6" + chance.choice((b"\x5c", b"\x70", b"")) + chance.randbytes(46)


def found(frame: Frame) -> dict[str, object]:
    """What the C has of it."""
    shown: dict[str, object] = {"shape": SHAPES[type(frame)], "check": frame.check}
    match frame:
        case DataFrame():
            shown |= {"kind": kind_of(frame.header), "vc": frame.vc, "destination": destination_of(frame.header)}
            shown |= {"payload_bytes": len(frame.payload)}
        case CcUpdateFrame():
            shown |= {"kind": HeaderKind.CC_UPDATE, "count": len(frame.counts)}
        case ControlFrame():
            shown |= {"count": len(frame.items), "sent_ns": frame.sent_ns}
    if not isinstance(frame, ControlFrame):
        shown |= {"eligible": frame.sequence is not None, "sequence": frame.sequence or 0}
    return shown


def test_both_decoders_find_the_same(library: Any, memory: LastBytes) -> None:
    outcomes: Counter[str] = Counter()
    native_frame = native.NativeFrame()
    for _, data in zip(range(CASES), hostile(LinkSamples(1)), strict=False):
        place = library.wire_decode(memory.hold(data), len(data), native_frame)
        assert native_frame.check == check_frame(data)
        try:
            frame = decode_frame(data)
        except DecodeError as error:
            assert 0 <= error.offset <= len(data)
            assert error.reason
            assert place == -1 - error.offset, (data.hex(), str(error))
            outcomes["refused"] += 1
            continue
        assert place == 0, data.hex()
        wanted = found(frame)
        assert {name: getattr(native_frame, name) for name in wanted} == wanted, data.hex()
        if isinstance(frame, DataFrame):
            at = native_frame.payload_at
            assert data[at : at + native_frame.payload_bytes] == frame.payload
        if isinstance(frame, CcUpdateFrame):
            assert tuple((item.vc, item.consumed) for item in native_frame.counts[: native_frame.count]) == frame.counts
        if isinstance(frame, ControlFrame):
            assert tuple(item.value() for item in native_frame.items[: native_frame.count]) == frame.items
        outcomes[FrameCheck(frame.check).name] += 1
        if frame.check is not FrameCheck.BAD:
            assert decode_frame(encode_frame(frame)) == frame
    assert min(outcomes[name] for name in ("refused", "GOOD", "POISONED", "BAD")) > CASES / 100, outcomes


def test_both_encoders_write_the_same(library: Any) -> None:
    samples = LinkSamples(2)
    for _ in range(max(1, CASES // 100)):
        for item in samples.sets():
            room = ctypes.create_string_buffer(CTLOS_BYTES)
            assert library.ctlos_encode(room, native.NativeCtlos.of(item)) == 0
            assert room.raw == encode_ctlos(item)
        for frame in samples.of_every_kind():
            data = encode_frame(frame)
            match frame:
                case ControlFrame(to, source, items, sent_ns):
                    sets = (native.NativeCtlos * len(items))(*map(native.NativeCtlos.of, items))
                    room = ctypes.create_string_buffer(CONTROL_FRAME_BYTES)
                    assert library.wire_control(room, to, source, sets, len(items), sent_ns) == 0
                    assert room.raw == data
                case CcUpdateFrame(to, source, counts):
                    array = (native.NativeCount * len(counts))(*counts)
                    room = ctypes.create_string_buffer(CC_UPDATE_BYTES)
                    assert library.wire_cc_update(room, to, source, array, len(counts)) == 0
                    assert room.raw == encode_frame(frame._replace(sequence=None))
                case DataFrame(to, source, vc, header):
                    poisoned = frame.check is FrameCheck.POISONED
                    bare = encode_frame(frame._replace(sequence=None))
                    room = ctypes.create_string_buffer(bare, len(bare))
                    library.wire_start(room, to, source, kind_of(header), vc)
                    library.wire_seal(room, len(bare), poisoned)
                    assert room.raw == bare
                    number = samples.bits(20)
                    assert library.wire_number(room, len(bare), number, poisoned) == 0
                    assert room.raw == numbered(bare, number)


@pytest.mark.parametrize(
    "length",
    [
        0,
        1,
        7,
        8,
        15,
        16,
        17,
        63,
        64,
        127,
        128,
        129,
        143,
        144,
        191,
        192,
        *range(511, 514),
        *range(527, 658, 16),
        4130,
        8191,
    ],
)
def test_the_check_sequence_of_any_length(library: Any, memory: LastBytes, length: int) -> None:
    data = Random(length).randbytes(length)
    assert library.fcs_of(memory.hold(data), length) == zlib.crc32(data)


def test_what_does_not_fit_is_not_written(library: Any) -> None:
    room = ctypes.create_string_buffer(CC_UPDATE_BYTES)
    address = bytes(6)
    sets = (native.NativeCtlos * 5)(*[native.NativeCtlos(type=1)] * 5)
    assert library.wire_control(room, address, address, sets, 5, 0) == -1
    assert library.wire_control(room, address, address, sets, 0, 0) == -1
    for wrong in ((9, 0), (1, 1 << 20), (3, 0, 1 << 16), (16, 0, 0, 32), (16, 0, 0, 0, 1 << 15)):
        assert library.ctlos_encode(room, native.NativeCtlos(*wrong)) == -1
    counts = (native.NativeCount * 11)(*[(0, 0)] * 11)
    assert library.wire_cc_update(room, address, address, counts, 11) == -1
    for wrong in ((32, 0), (0, 1 << 20)):
        assert library.wire_cc_update(room, address, address, (native.NativeCount * 1)(wrong), 1) == -1
    assert library.wire_number(room, 21, 0, False) == -1


def test_a_hostile_peer_makes_nothing_fail(library: Any) -> None:
    """A link that sends meanwhile takes whatever comes, and no credit goes astray."""
    samples = LinkSamples(3)
    chance = samples.chance
    credits = credit_config(100, 50, unit_bytes=64, port_limit=120, cf_min_ns=10, cf_max_ns=500, cc_period_ns=99)
    retry = RetryConfig(
        outstanding_frames_max=8,
        replay_timer_ns=300,
        replay_count_max=2,
        data_age_timeout_ns=2000,
        re_init_on_flush=True,
    )
    ends = {"address": bytes(6), "peer": bytes(6), "sending": credits, "receiving": credits}
    link = ScaleUpLink(LinkConfig(**ends, retry=retry, library=library))
    assert link.sender is not None
    assert link.receiver is not None
    assert link.retry_sender is not None
    link.start(0)
    taken = sent = 0
    bytes_of = hostile(samples)
    for now in range(0, CASES * 2, 5):
        frame = link.receive(next(bytes_of), now)
        if frame is not None:
            taken += 1
            if chance.random() < 0.9:
                link.free(frame.vc, len(encode_frame(frame)))
        if chance.random() < 0.3:
            sent += (
                link.offer(samples.data(samples.headers()[0])._replace(vc=chance.randrange(3)), now).data is not None
            )
        if chance.random() < 0.02:
            link.set_pcs(chance.random() < 0.8, now)
        link.poll(now)
        link.next_frame(now)
        assert 0 <= link.retry_sender.outstanding <= 8
        assert 0 <= link.receiver.port_held <= 120
        assert 0 <= link.sender.port_in_use <= 120
        assert link.sender.in_use(0) <= 100
        assert link.receiver.held(1) <= 50
    assert min(taken, sent, link.counters.malformed, link.counters.bad_control) > CASES / 1000
