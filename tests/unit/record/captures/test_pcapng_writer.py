"""Captures of several ports are written as pcapng, and read as what they were."""

import io
import struct

import pytest

from testbed.protocols.captured.content import CapturedFrame
from testbed.record.captures.pcap import read_capture
from testbed.record.captures.pcapng_writer import PcapngWriter

PORTS = ("p1-s1-h1:rail1", "p1-s1-rail1:uplink1")


def frame(data: bytes, *, time_ns: int | None = 1_796_000_000_123_456_789, length: int | None = None) -> CapturedFrame:
    return CapturedFrame(1, time_ns, 1, data, len(data) if length is None else length)


@pytest.mark.parametrize("data", [b"", b"x", b"four", b"seven b", bytes(1500)])
def test_what_is_written_is_read_again(data: bytes) -> None:
    stream = io.BytesIO()
    writer = PcapngWriter(stream, PORTS)
    sizes = [writer.write(1, frame(data, length=9000)), writer.write(0, frame(b"other"))]
    first, second = read_capture(io.BytesIO(stream.getvalue()))
    assert (first.data, first.length, first.time_ns, first.link_type) == (data, 9000, 1_796_000_000_123_456_789, 1)
    assert second.data == b"other" and second.number == 2
    head = io.BytesIO()
    PcapngWriter(head, PORTS)
    assert len(stream.getvalue()) == len(head.getvalue()) + sum(sizes), "what it says is what it has written"


def test_interfaces_have_the_names_of_their_ports() -> None:
    stream = io.BytesIO()
    PcapngWriter(stream, PORTS).write(1, frame(b"data"))
    content = stream.getvalue()
    assert all(port.encode() in content for port in PORTS)
    at = content.rindex(struct.pack("<I", 6), 0, content.index(b"data"))
    assert struct.unpack_from("<I", content, at + 8)[0] == 1, "a packet names the interface that it was seen at"


def test_a_frame_without_a_time_has_none() -> None:
    stream = io.BytesIO()
    PcapngWriter(stream, PORTS[:1]).write(0, frame(b"data", time_ns=None))
    (found,) = read_capture(io.BytesIO(stream.getvalue()))
    assert found.time_ns == 0
