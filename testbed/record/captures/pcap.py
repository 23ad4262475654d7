"""Frames from capture files: pcap and pcapng, read as a stream, from files that may be damaged or hostile.

Source: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng. Of pcapng the section, interface, enhanced packet and
simple packet blocks are read, and the packet blocks of old programs; of the options those that say what a timestamp
means (if_tsresol, if_tsoffset); all else is skipped. No length in a file makes this read more than `MAX_BLOCK_BYTES`
into memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, NoReturn

from testbed.base.errors import TestbedError
from testbed.protocols.captured.content import CapturedFrame

MAX_FRAME_BYTES = 262_144
"""The longest frame that tcpdump and Wireshark take."""
MAX_BLOCK_BYTES = 1 << 20
"""Longest pcapng block that is taken apart; of blocks of other types only this much is held at a time."""
MAX_INTERFACES = 65_536
"""Interfaces of one pcapng section."""

_NS = 1_000_000_000

_PCAP_MAGICS: dict[bytes, tuple[str, int]] = {
    b"\xa1\xb2\xc3\xd4": (">", 1_000),
    b"\xd4\xc3\xb2\xa1": ("<", 1_000),
    b"\xa1\xb2\x3c\x4d": (">", 1),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
}
"""Byte order, and nanoseconds in the unit of the fraction of a timestamp."""
_PCAPNG_MAGIC = b"\x0a\x0d\x0d\x0a"
_BYTE_ORDERS = {b"\x1a\x2b\x3c\x4d": ">", b"\x4d\x3c\x2b\x1a": "<"}
_GZIP_MAGIC = b"\x1f\x8b"

_INTERFACE = 1
_PACKET = 2
"""Obsolete since 2009; an enhanced packet block whose first word is a number of 16 bits and a count of drops."""
_SIMPLE_PACKET = 3
_ENHANCED_PACKET = 6

_OPTION_END = 0
_OPTION_TSRESOL = 9
_OPTION_TSOFFSET = 14


class CaptureError(TestbedError):
    """This is no capture, or it is damaged. `offset` counts bytes from the start of the file."""

    def __init__(self, offset: int, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"at byte {offset} of the capture: {reason}", hint=hint)
        self.offset = offset
        self.reason = reason


@dataclass(frozen=True, slots=True)
class _Interface:
    link_type: int
    snaplen: int
    numerator: int
    denominator: int
    """A tick is `numerator / denominator` nanoseconds."""
    offset_ns: int


class _Source:
    """A stream that knows where it is and takes no short reads."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.offset = 0

    def read(self, length: int) -> bytes:
        """`length` bytes, or what is left of them at the end of the file; `length` has been checked."""
        parts = []
        while length > 0:
            part = self._stream.read(length)
            if not part:
                break
            parts.append(part)
            length -= len(part)
        data = b"".join(parts)
        self.offset += len(data)
        return data

    def exactly(self, length: int, what: str) -> bytes:
        start = self.offset
        data = self.read(length)
        if len(data) < length:
            self.fail(start, f"the file ends within {what}: {len(data)} of {length} bytes are there")
        return data

    def skip(self, length: int, what: str) -> None:
        while length > 0:
            step = min(length, MAX_BLOCK_BYTES)
            self.exactly(step, what)
            length -= step

    @staticmethod
    def fail(offset: int, reason: str) -> NoReturn:
        raise CaptureError(offset, reason)


def read_capture(stream: BinaryIO) -> Iterator[CapturedFrame]:
    """The frames of a pcap or pcapng file, in its order. What precedes damage is yielded before `CaptureError`."""
    source = _Source(stream)
    magic = source.read(4)
    if magic == _PCAPNG_MAGIC:
        return _read_pcapng(source)
    if magic in _PCAP_MAGICS:
        return _read_pcap(source, *_PCAP_MAGICS[magic])
    if not magic:
        raise CaptureError(0, "the file is empty")
    hint = "`testbed capture NODE:IF -w FILE` writes one, and so do tcpdump and Wireshark"
    if magic.startswith(_GZIP_MAGIC):
        hint = "it is compressed: gunzip -c FILE | testbed decode -"
    raise CaptureError(0, f"this is neither pcap nor pcapng: it begins with {magic.hex(' ')}", hint=hint)


def _read_pcap(source: _Source, order: str, unit_ns: int) -> Iterator[CapturedFrame]:
    header = struct.Struct(f"{order}HHiIII")
    major, minor, _, _, _, link_type = header.unpack(source.exactly(header.size, "the file header"))
    if major != 2:
        source.fail(4, f"pcap version {major}.{minor} is not known, 2.4 is")
    link_type &= 0xFFFF  # the upper half tells of frame check sequences
    record = struct.Struct(f"{order}IIII")
    number = 0
    while True:
        start = source.offset
        head = source.read(record.size)
        if not head:
            return
        if len(head) < record.size:
            source.fail(start, "the file ends within the header of a record")
        seconds, fraction, captured, length = record.unpack(head)
        if captured > MAX_FRAME_BYTES:
            source.fail(start, f"a record of {captured} bytes, more than any frame has ({MAX_FRAME_BYTES})")
        data = source.exactly(captured, "a record")
        number += 1
        yield CapturedFrame(number, seconds * _NS + fraction * unit_ns, link_type, data, max(length, captured))


def _read_pcapng(source: _Source) -> Iterator[CapturedFrame]:
    """The first block's type has been read."""
    order = _read_section(source, 0)
    interfaces: list[_Interface] = []
    number = 0
    while True:
        start = source.offset
        head = source.read(4)
        if not head:
            return
        if head == _PCAPNG_MAGIC:  # the same in both byte orders
            order = _read_section(source, start)
            interfaces = []
            continue
        head += source.read(4)
        if len(head) < 8:
            source.fail(start, "the file ends within the header of a block")
        kind, length = struct.unpack(f"{order}II", head)
        if length < 12 or length % 4:
            source.fail(start, f"a block of {length} bytes")
        if kind not in (_INTERFACE, _PACKET, _SIMPLE_PACKET, _ENHANCED_PACKET):
            source.skip(length - 12, "a block")
            _read_trailer(source, order, length)
            continue
        if length > MAX_BLOCK_BYTES:
            source.fail(start, f"a block of {length} bytes, more than any frame needs ({MAX_BLOCK_BYTES})")
        body = source.exactly(length - 12, "a block")
        _read_trailer(source, order, length)
        if kind == _INTERFACE:
            if len(interfaces) == MAX_INTERFACES:
                source.fail(start, f"more than {MAX_INTERFACES} interfaces")
            interfaces.append(_interface(source, start, order, body))
            continue
        number += 1
        if kind == _SIMPLE_PACKET:
            yield _simple_packet(source, start, order, body, interfaces, number)
            continue
        first = "IIIII" if kind == _ENHANCED_PACKET else "HxxIIII"
        yield _enhanced_packet(source, start, f"{order}{first}", body, interfaces, number)


def _read_section(source: _Source, start: int) -> str:
    """A section header block after its type: its byte order."""
    raw = source.exactly(8, "a section header")
    order = _BYTE_ORDERS.get(raw[4:])
    if order is None:
        source.fail(start + 8, f"no byte-order magic of a section: {raw[4:].hex(' ')}")
    length: int = struct.unpack(f"{order}I", raw[:4])[0]
    if length < 28 or length % 4:
        source.fail(start, f"a section header of {length} bytes")
    major, minor = struct.unpack(f"{order}HH", source.exactly(4, "a section header"))
    if major != 1:
        source.fail(start + 12, f"pcapng version {major}.{minor} is not known, 1.0 is")
    source.skip(length - 20, "a section header")
    _read_trailer(source, order, length)
    return order


def _read_trailer(source: _Source, order: str, length: int) -> None:
    start = source.offset
    (again,) = struct.unpack(f"{order}I", source.exactly(4, "the end of a block"))
    if again != length:
        source.fail(start, f"a block of {length} bytes says {again} at its end")


def _interface(source: _Source, start: int, order: str, body: bytes) -> _Interface:
    if len(body) < 8:
        source.fail(start, "an interface block without its fields")
    link_type, _, snaplen = struct.unpack_from(f"{order}HHI", body)
    numerator, denominator, offset_ns = _NS, 1_000_000, 0
    at = 8
    while at + 4 <= len(body):
        code, length = struct.unpack_from(f"{order}HH", body, at)
        if code == _OPTION_END:
            break
        value = body[at + 4 : at + 4 + length]
        if len(value) < length:
            source.fail(start + 8 + at, f"option {code} of an interface is longer than its block")
        if code == _OPTION_TSRESOL and length == 1:
            denominator = 2 ** (value[0] & 0x7F) if value[0] & 0x80 else 10 ** value[0]
        elif code == _OPTION_TSOFFSET and length == 8:
            offset_ns = struct.unpack(f"{order}q", value)[0] * _NS
        at += 4 + length + -length % 4
    return _Interface(link_type, snaplen, numerator, denominator, offset_ns)


def _enhanced_packet(
    source: _Source, start: int, fields: str, body: bytes, interfaces: list[_Interface], number: int
) -> CapturedFrame:
    if len(body) < 20:
        source.fail(start, "a packet block without its fields")
    index, high, low, captured, length = struct.unpack_from(fields, body)
    if index >= len(interfaces):
        source.fail(start + 8, f"a packet of interface {index}, of {len(interfaces)}")
    if captured > len(body) - 20:
        source.fail(start + 20, f"a packet of {captured} bytes in a block that has {len(body) - 20} left")
    interface = interfaces[index]
    time_ns = (high << 32 | low) * interface.numerator // interface.denominator + interface.offset_ns
    return CapturedFrame(number, time_ns, interface.link_type, body[20 : 20 + captured], max(length, captured))


def _simple_packet(
    source: _Source, start: int, order: str, body: bytes, interfaces: list[_Interface], number: int
) -> CapturedFrame:
    if len(body) < 4:
        source.fail(start, "a simple packet block without its fields")
    if not interfaces:
        source.fail(start, "a packet before any interface")
    (length,) = struct.unpack_from(f"{order}I", body)
    limit = min(length, interfaces[0].snaplen or length)
    data = body[4 : 4 + limit]
    if len(data) < limit:
        source.fail(start + 8, f"a packet of {limit} bytes in a block that has {len(body) - 4} left")
    return CapturedFrame(number, None, interfaces[0].link_type, data, length)
