"""Capture files: every shape that tcpdump and Wireshark write, and files that are damaged or lie."""

import io
import random
import struct
import tracemalloc

import capture_files as make
import pytest

from testbed.protocols.captured.content import CapturedDatagram, CapturedFrame
from testbed.record.captures.layers.walk import find_datagram
from testbed.record.captures.pcap import MAX_FRAME_BYTES, CaptureError, read_capture

PAYLOAD = b"sixteen bytes..."


def frames(data: bytes) -> list[CapturedFrame]:
    return list(read_capture(io.BytesIO(data)))


def datagram(data: bytes, link_type: int = make.ETHERNET, length: int | None = None) -> CapturedDatagram | None:
    frame = CapturedFrame(1, 5, link_type, data, len(data) if length is None else length)
    return find_datagram(frame, make.UET_PORT)


def found(data: bytes, link_type: int = make.ETHERNET, length: int | None = None) -> CapturedDatagram:
    seen = datagram(data, link_type, length)
    assert seen is not None
    return seen


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(("ns", "unit"), [(True, 1), (False, 1000)])
def test_pcap_of_both_byte_orders_and_resolutions(order: str, ns: bool, unit: int) -> None:
    assert frames(make.pcap([b"first", b"second"], order=order, ns=ns)) == [
        CapturedFrame(1, 1_000_000_000_000, make.ETHERNET, b"first", 5),
        CapturedFrame(2, 1_001_000_000_000 + unit, make.ETHERNET, b"second", 6),
    ]


def test_a_limited_capture_tells_the_length_on_the_wire() -> None:
    (frame,) = frames(make.pcap([b"x" * 100], snaplen=30))
    assert (len(frame.data), frame.length) == (30, 100)


def test_the_link_type_is_the_lower_half_of_its_word() -> None:
    (frame,) = frames(make.pcap([b"x"], link_type=0x2400_0000 | make.COOKED))
    assert frame.link_type == make.COOKED


@pytest.mark.parametrize("order", "<>")
def test_pcapng_blocks_and_what_is_skipped(order: str) -> None:
    data = (
        make.section(order, make.option(2, b"hardware", order))
        + make.block(5, b"statistics", order)
        + make.interface(order=order)
        + make.block(0x0BAD, b"something else", order)
        + make.enhanced(b"odd", 1_000_001, order, options=make.option(1, b"comment", order), length=77)
        + make.block(3, struct.pack(f"{order}I", 4) + b"bare", order)
    )
    assert frames(data) == [
        CapturedFrame(1, 1_000_001_000, make.ETHERNET, b"odd", 77),
        CapturedFrame(2, None, make.ETHERNET, b"bare", 4),
    ]


@pytest.mark.parametrize("order", "<>")
def test_packet_blocks_of_old_programs_are_packets(order: str) -> None:
    """Before 2009 a block had the interface in 16 bits, and the packets dropped since the last one."""
    fields = struct.pack(f"{order}HHIIII", 1, 0xFFFF, 0, 3, 5, 77)
    links = make.interface(order=order) + make.interface(make.RAW, order)
    data = make.section(order) + links + make.block(2, fields + b"third\0\0\0", order)
    assert frames(data) == [CapturedFrame(1, 3_000, make.RAW, b"third", 77)]


@pytest.mark.parametrize(
    ("options", "ticks", "time_ns"),
    [
        (b"", 3, 3_000),
        (make.option(9, b"\x09"), 3, 3),
        (make.option(9, b"\x03"), 3, 3_000_000),
        (make.option(9, b"\x0c"), 3_500, 3),
        (make.option(9, b"\x8a"), 512, 500_000_000),
        (make.option(2, b"eth0") + make.option(9, b"\x00"), 3, 3_000_000_000),
        (make.option(14, struct.pack("<q", -2)) + make.option(9, b"\x09"), 5_000_000_000, 3_000_000_000),
        (make.option(0, b"") + make.option(9, b"\x09"), 3, 3_000),
        (make.option(9, b"\xff"), 1 << 63, (1 << 63) * 1_000_000_000 >> 127),
    ],
    ids=["default", "ns", "ms", "ps", "1/1024", "seconds", "offset", "after the end", "absurd"],
)
def test_the_resolution_of_pcapng_timestamps(options: bytes, ticks: int, time_ns: int) -> None:
    (frame,) = frames(make.section() + make.interface(options=options) + make.enhanced(b"x", ticks))
    assert frame.time_ns == time_ns


def test_each_section_has_its_own_byte_order_and_interfaces() -> None:
    first = make.section("<") + make.interface(make.RAW, "<") + make.enhanced(b"a", 1, "<")
    second = make.section(">") + make.interface(make.COOKED, ">") + make.interface(make.COOKED_2, ">")
    data = first + second + make.enhanced(b"b", 1, ">", index=1)
    assert [(frame.number, frame.link_type) for frame in frames(data)] == [(1, make.RAW), (2, make.COOKED_2)]
    with pytest.raises(CaptureError, match="a packet of interface 0, of 0"):
        frames(first + make.section() + make.enhanced(b"c"))


GOOD = make.pcap([b"first", b"second"])
GOOD_NG = make.section() + make.interface() + make.enhanced(b"first") + make.enhanced(b"second")


@pytest.mark.parametrize(
    ("data", "offset", "reason"),
    [
        (b"", 0, "the file is empty"),
        (b"#!/b", 0, "neither pcap nor pcapng: it begins with 23 21 2f 62"),
        (b"\xa1\xb2\xcd\x34" + bytes(20), 0, "neither pcap nor pcapng"),
        (GOOD[:20], 4, "ends within the file header"),
        (b"\xd4\xc3\xb2\xa1" + struct.pack("<HH", 3, 0) + bytes(16), 4, "pcap version 3.0 is not known"),
        (GOOD[:30], 24, "within the header of a record"),
        (GOOD[:-1], 61, "ends within a record: 5 of 6 bytes"),
        (GOOD[:32] + b"\xff\xff\xff\xff" + GOOD[36:], 24, "4294967295 bytes, more than any frame"),
        (make.section()[:9], 4, "within a section header"),
        (make.section().replace(b"\x4d\x3c\x2b\x1a", b"oops"), 8, "no byte-order magic"),
        (make.section().replace(b"\x01\x00\x00\x00", b"\x02\x00\x00\x00"), 12, "pcapng version 2.0"),
        (make.section() + b"\x06\0\0\0", 28, "within the header of a block"),
        (make.section() + struct.pack("<II", 6, 11), 28, "a block of 11 bytes"),
        (make.section() + struct.pack("<II", 6, 33), 28, "a block of 33 bytes"),
        (make.section() + struct.pack("<II", 6, 0xFFFF_FFFC), 28, "more than any frame needs"),
        (make.section() + struct.pack("<II", 99, 0xFFFF_FFFC), 36, "ends within a block"),
        (make.section()[:-4] + b"\x20\0\0\0", 24, "a block of 28 bytes says 32 at its end"),
        (make.section() + make.block(1, b""), 28, "interface block without its fields"),
        (make.section() + make.interface(options=struct.pack("<HH", 9, 400)), 44, "longer than its block"),
        (make.section() + make.block(6, bytes(16)), 28, "a packet block without its fields"),
        (make.section() + make.block(3, bytes(4)), 28, "before any interface"),
        (make.section() + make.interface() + make.block(3, b""), 48, "simple packet block without its fields"),
        (make.section() + make.interface() + make.block(3, b"\x09\0\0\0"), 56, "a packet of 9 bytes in a block"),
        (GOOD_NG.replace(b"\x05\0\0\0", b"\xff\0\0\0", 1), 68, "255 bytes in a block that has 8 left"),
    ],
)
def test_damage_is_named_with_its_place(data: bytes, offset: int, reason: str) -> None:
    with pytest.raises(CaptureError) as raised:
        frames(data)
    assert reason in raised.value.reason
    assert raised.value.offset == offset
    assert raised.value.exit_code == 3


def test_a_compressed_capture_comes_with_advice() -> None:
    with pytest.raises(CaptureError) as raised:
        frames(b"\x1f\x8b\x08\x00")
    assert "gunzip -c" in raised.value.hint


@pytest.mark.parametrize("data", [GOOD[:-1], GOOD_NG[:-1]], ids=["pcap", "pcapng"])
def test_what_precedes_damage_is_there(data: bytes) -> None:
    seen = []
    with pytest.raises(CaptureError):
        for frame in read_capture(io.BytesIO(data)):
            seen.append(frame.data)
    assert seen == [b"first"]


class Trickle(io.RawIOBase):
    """A pipe that hands over one byte at a time."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        part = self._data.read(1)
        buffer[: len(part)] = part
        return len(part)


@pytest.mark.parametrize("data", [GOOD, GOOD_NG], ids=["pcap", "pcapng"])
def test_a_pipe_may_hand_over_byte_by_byte(data: bytes) -> None:
    assert [frame.data for frame in read_capture(Trickle(data))] == [b"first", b"second"]  # type: ignore[arg-type]


class Endless(io.RawIOBase):
    """A stream that never ends: a head, and zeros."""

    def __init__(self, head: bytes) -> None:
        self._head = io.BytesIO(head)
        self.served = 0

    def read(self, size: int = -1) -> bytes:
        assert size >= 0, "a stream is not to be read whole"
        self.served += size
        assert self.served < 1 << 32, "read on for ever"
        return self._head.read(size) or bytes(size)


@pytest.mark.parametrize(
    "head",
    [
        GOOD[:24] + struct.pack("<IIII", 0, 0, MAX_FRAME_BYTES + 1, 0),
        make.section() + struct.pack("<II", 99, 0x0400_0000),
        make.section() + struct.pack("<II", 6, 0xFFFF_FFFC),
        b"\x0a\x0d\x0d\x0a" + struct.pack("<IIHH", 0x0400_0000, 0x1A2B3C4D, 1, 0),
    ],
    ids=["record", "unknown block", "packet block", "section"],
)
def test_no_length_in_a_file_fills_the_memory(head: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CaptureError):
            list(read_capture(Endless(head)))  # type: ignore[arg-type]
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_interfaces_of_a_section_are_limited() -> None:
    data = make.section() + make.interface() * 65_537
    with pytest.raises(CaptureError, match="more than 65536 interfaces"):
        frames(data)


@pytest.mark.parametrize("seed", range(4))
def test_any_bytes_give_frames_or_one_error(seed: int) -> None:
    chance = random.Random(seed)
    for good in (GOOD, GOOD_NG) * 500:
        data = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        try:
            for frame in read_capture(io.BytesIO(data[: chance.randint(0, len(data))])):
                assert frame.length >= len(frame.data)
                find_datagram(frame, make.UET_PORT)
        except CaptureError as error:
            assert 0 <= error.offset <= len(data)


@pytest.mark.parametrize(
    ("data", "link_type"),
    [
        (make.ethernet(make.ipv4(make.udp(PAYLOAD))), make.ETHERNET),
        (make.ethernet(make.ipv4(make.udp(PAYLOAD)), tags=[0x8100]), make.ETHERNET),
        (make.ethernet(make.ipv4(make.udp(PAYLOAD)), tags=[0x88A8, 0x8100, 0x9100]), make.ETHERNET),
        (make.ethernet(make.ipv4(make.udp(PAYLOAD), options=bytes(40))), make.ETHERNET),
        (make.cooked(make.ipv4(make.udp(PAYLOAD))), make.COOKED),
        (make.cooked_2(make.ipv4(make.udp(PAYLOAD))), make.COOKED_2),
        (make.ipv4(make.udp(PAYLOAD)), make.RAW),
        (make.ipv4(make.udp(PAYLOAD)), 228),
    ],
    ids=["Ethernet", "VLAN", "QinQinQ", "IPv4 options", "cooked", "cooked 2", "raw", "LINKTYPE_IPV4"],
)
def test_ipv4_below_every_link_layer(data: bytes, link_type: int) -> None:
    seen = found(data, link_type)
    assert (seen.source, seen.destination, seen.payload) == ("10.0.0.1", "10.0.0.2", PAYLOAD)
    assert (seen.source_port, seen.destination_port, seen.length) == (50_000, make.UET_PORT, len(PAYLOAD))
    assert not (seen.trimmed or seen.snapped or seen.fragment)


EIGHT = b"\x00" + bytes(6)
SIXTEEN = b"\x01" + bytes(14)
AUTHENTICATION = b"\x04" + bytes(22)


@pytest.mark.parametrize(
    "extensions",
    [
        [],
        [(0, EIGHT)],
        [(0, EIGHT), (60, SIXTEEN), (43, SIXTEEN)],
        [(51, AUTHENTICATION), (60, EIGHT)],
        [(44, bytes(7))],
    ],
    ids=["none", "hop by hop", "three", "authentication", "whole fragment"],
)
def test_ipv6_with_extension_headers(extensions: list[tuple[int, bytes]]) -> None:
    packet = make.ipv6(make.udp(PAYLOAD), extensions=extensions)
    for seen in (found(make.ethernet(packet)), found(packet, make.RAW), found(packet, 229)):
        assert (seen.source, seen.destination, seen.payload) == ("fd00::1", "fd00::2", PAYLOAD)


@pytest.mark.parametrize("packet", [make.ipv4(make.udp(b""), tos=0xBB), make.ipv6(make.udp(b""), traffic_class=0xBB)])
def test_dscp_and_ecn(packet: bytes) -> None:
    seen = found(packet, make.RAW)
    assert (seen.dscp, seen.ecn) == (46, 3)


@pytest.mark.parametrize(
    "data",
    [
        make.ethernet(make.ipv4(make.udp(PAYLOAD, port=53))),
        make.ethernet(make.ipv4(make.udp(PAYLOAD, source_port=make.UET_PORT, port=53))),
        make.ethernet(make.ipv4(make.udp(PAYLOAD), protocol=6)),
        make.ethernet(make.ipv4(make.udp(PAYLOAD), fragment=0x0010)),
        make.ethernet(make.ipv6(make.udp(PAYLOAD), extensions=[(44, b"\0\0\x10" + bytes(4))])),
        make.ethernet(make.ipv6(make.udp(PAYLOAD), extensions=[(59, EIGHT)])),
        make.ethernet(b"\x42" + make.ipv4(make.udp(PAYLOAD))[1:]),
        make.ethernet(make.ipv6(make.udp(PAYLOAD))[:14]),
        b"\x01\x80\xc2\x00\x00\x01" + b"\x02" * 6 + b"\x88\x08" + bytes(46),
        b"",
        b"\x02" * 12 + b"\x81\x00",
    ],
    ids=["port", "EV", "TCP", "later", "later6", "no next", "IHL 8", "cut", "pause", "nothing", "cut tag"],
)
def test_what_is_no_datagram_to_that_port(data: bytes) -> None:
    assert datagram(data) is None


def test_an_unknown_link_type_is_not_guessed_at() -> None:
    assert datagram(make.ethernet(make.ipv4(make.udp(PAYLOAD))), 127) is None


TRIMMED = [make.ethernet(wrap(make.udp(PAYLOAD, length=4096))) for wrap in (make.ipv4, make.ipv6)]
WHOLE = make.ethernet(make.ipv4(make.udp(PAYLOAD)))


@pytest.mark.parametrize(
    ("data", "on_wire", "trimmed", "snapped", "length", "payload"),
    [
        (TRIMMED[0], None, True, False, 4096, PAYLOAD),
        (TRIMMED[1], None, True, False, 4096, PAYLOAD),
        (make.ethernet(make.ipv4(make.udp(b"abc")), pad=True), None, False, False, 3, b"abc"),
        (make.ethernet(make.ipv4(make.udp(PAYLOAD, length=4))), None, False, False, 4, PAYLOAD[:4]),
        (WHOLE[:-6], len(WHOLE), False, True, len(PAYLOAD), PAYLOAD[:-6]),
        (TRIMMED[0][:-6], len(TRIMMED[0]), True, True, 4096, PAYLOAD[:-6]),
        (make.ethernet(make.ipv4(make.udp(PAYLOAD, length=-5))), None, False, False, 0, b""),
        (make.ethernet(make.ipv4(make.udp(PAYLOAD), length=0)), None, False, False, len(PAYLOAD), PAYLOAD),
    ],
    ids=["trimmed", "trimmed6", "padding", "what follows", "limited", "both", "below a header", "all that is there"],
)
def test_what_is_there_of_a_datagram(
    data: bytes, on_wire: int | None, trimmed: bool, snapped: bool, length: int, payload: bytes
) -> None:
    """UDP's length tells what a switch has trimmed, the frame's what the capture has cut, and neither is padding."""
    seen = found(data, length=on_wire)
    assert (seen.trimmed, seen.snapped, seen.length, seen.payload) == (trimmed, snapped, length, payload)


@pytest.mark.parametrize("wrap", [bytes, make.vxlan], ids=["plain", "in VXLAN"])
def test_a_packet_that_a_mirror_sliced_is_cut_and_not_trimmed(wrap: object) -> None:
    """A packet broker that cuts frames to 80 bytes leaves IP's length, which a trimming switch writes anew."""
    frame = make.ethernet(make.ipv4(make.udp(PAYLOAD * 20)))
    if wrap is make.vxlan:
        frame = make.ethernet(make.ipv4(make.vxlan(frame)))
    sliced = frame[: len(frame) - 240]
    seen = found(sliced)
    assert (seen.snapped, seen.trimmed, seen.length) == (True, False, len(PAYLOAD) * 20)
    assert seen.payload == (PAYLOAD * 20)[:80]


def test_a_first_fragment_is_no_trimmed_packet() -> None:
    seen = found(make.ethernet(make.ipv4(make.udp(PAYLOAD, length=4096), fragment=0x2000)))
    assert (seen.trimmed, seen.fragment, seen.length) == (False, True, 4096)
    more = make.ipv6(make.udp(PAYLOAD, length=4096), extensions=[(44, b"\0\0\x01" + bytes(4))])
    assert found(make.ethernet(more)).fragment


def test_lengths_of_zero_mean_all_that_is_there() -> None:
    jumbo = struct.pack("!HHHH", 9, make.UET_PORT, 0, 0) + PAYLOAD
    seen = found(make.ethernet(make.ipv6(jumbo, length=0)))
    assert (seen.payload, seen.trimmed) == (PAYLOAD, False)
