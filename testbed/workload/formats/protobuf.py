"""The wire format of protocol buffers, read: fields of a message, strictly and within bounds.

Source: protobuf.dev, "Encoding". Written by hand because the one schema read here (Chakra's `et_def.proto`) has three
messages that matter: a library with generated code would weigh more than these lines. Groups (wire types 3 and 4) are
refused: no proto3 schema has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

MAX_VARINT_BYTES = 10
MAX_FIELD_NUMBER = (1 << 29) - 1


class WireType(IntEnum):
    VARINT = 0
    FIXED64 = 1
    LENGTH_DELIMITED = 2
    FIXED32 = 5


class WireError(Exception):
    """The bytes are no message. `offset` is that of the byte at fault, from the file's beginning."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class WireField:
    """A field of a message. `value` is that of a varint or fixed field; other contents are `data[start:end]`."""

    number: int
    wire_type: WireType
    value: int
    start: int
    end: int
    offset: int


def decode_varint(data: bytes, offset: int, end: int) -> tuple[int, int]:
    """An unsigned number of up to 64 bits and the offset behind it. Raises `WireError`."""
    value = shift = 0
    for index in range(offset, min(end, offset + MAX_VARINT_BYTES)):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 1 << 64:
                raise WireError("a number has more than 64 bits", offset)
            return value, index + 1
        shift += 7
    if end - offset < MAX_VARINT_BYTES:
        raise WireError("the bytes end within a number", offset)
    raise WireError(f"a number has more than {MAX_VARINT_BYTES} bytes", offset)


def decode_fields(data: bytes, start: int, end: int) -> Iterator[WireField]:
    """The fields of the message `data[start:end]`. Raises `WireError`."""
    offset = start
    while offset < end:
        tag, content = decode_varint(data, offset, end)
        number, kind = tag >> 3, tag & 7
        if not 1 <= number <= MAX_FIELD_NUMBER:
            raise WireError(f"field number {number} is not allowed", offset)
        value, first, last = 0, content, content
        match kind:
            case WireType.VARINT:
                value, last = decode_varint(data, content, end)
            case WireType.FIXED64 | WireType.FIXED32:
                last = content + (8 if kind == WireType.FIXED64 else 4)
                if last > end:
                    raise WireError(f"field {number} ends outside its message", offset)
                value = int.from_bytes(data[content:last], "little")
            case WireType.LENGTH_DELIMITED:
                length, first = decode_varint(data, content, end)
                last = first + length
                if last > end:
                    raise WireError(f"field {number} has {length} bytes, its message {end - first} more", offset)
            case _:
                raise WireError(f"field {number} has wire type {kind}, which proto3 does not have", offset)
        yield WireField(number, WireType(kind), value, first, last, offset)
        offset = last


def expect(field: WireField, wire_type: WireType, what: str) -> None:
    """Raise `WireError` unless the field is coded as its schema says."""
    if field.wire_type is not wire_type:
        raise WireError(f"{what} has wire type {field.wire_type.value}, not {wire_type.value}", field.offset)


def decode_string(data: bytes, field: WireField, what: str) -> str:
    """A string field's text. Raises `WireError` if it is no UTF-8."""
    expect(field, WireType.LENGTH_DELIMITED, what)
    try:
        return data[field.start : field.end].decode()
    except UnicodeDecodeError as error:
        raise WireError(f"{what} is not UTF-8 text", field.start + error.start) from None


def decode_repeated_varints(data: bytes, field: WireField, what: str) -> list[int]:
    """The numbers of a repeated field, packed or one by one. Raises `WireError`."""
    if field.wire_type is WireType.VARINT:
        return [field.value]
    expect(field, WireType.LENGTH_DELIMITED, what)
    values = []
    offset = field.start
    while offset < field.end:
        value, offset = decode_varint(data, offset, field.end)
        values.append(value)
    return values


def signed(value: int, bits: int = 64) -> int:
    """An unsigned field's value as two's complement."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def zigzag(value: int) -> int:
    """The number that `sint32` and `sint64` code as `value`."""
    return (value >> 1) ^ -(value & 1)
