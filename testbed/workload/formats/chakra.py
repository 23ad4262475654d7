"""Chakra execution traces (MLCommons), one rank's file: nodes with what they wait for.

Source: mlcommons/chakra, `schema/protobuf/et_def.proto`. A file is a row of messages, each after its length as a
varint: first `GlobalMetadata`, then one `Node` after another; the whole may be gzipped. Attributes are found by name.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import IntEnum

from testbed.workload.builder import MAX_STEPS
from testbed.workload.formats.protobuf import (
    WireError,
    WireField,
    WireType,
    decode_fields,
    decode_repeated_varints,
    decode_string,
    decode_varint,
    expect,
    signed,
    zigzag,
)
from testbed.workload.formats.source import MAX_WAITS, Faults, shown

MAX_TRACE_BYTES = 256 << 20
"""The traces of all ranks together, uncompressed, have no more."""
MAX_NAME = 200
"""Characters kept of a node's name."""
GZIP_MAGIC = b"\x1f\x8b"

_INTEGERS: dict[int, tuple[WireType, Callable[[int], int]]] = {
    7: (WireType.VARINT, lambda value: signed(value, 32)),
    9: (WireType.VARINT, signed),
    11: (WireType.VARINT, lambda value: value & 0xFFFFFFFF),
    13: (WireType.VARINT, lambda value: value),
    15: (WireType.VARINT, zigzag),
    17: (WireType.VARINT, zigzag),
    19: (WireType.FIXED32, lambda value: value),
    21: (WireType.FIXED64, lambda value: value),
    23: (WireType.FIXED32, lambda value: signed(value, 32)),
    25: (WireType.FIXED64, signed),
    27: (WireType.VARINT, lambda value: int(value != 0)),
}
"""Fields of `AttributeProto` that hold one whole number: how they are coded, and what they mean."""
_STRING_VALUE = 29
_INTEGER_NAMES = frozenset(
    {"num_ops", "comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag", "tensor_size", "is_cpu_op"}
)
_STRING_NAMES = frozenset({"pg_name"})


class NodeType(IntEnum):
    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7
    STORAGE = 8
    BATCH = 9
    CHECKPOINT = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ChakraNode:
    """A node of the graph. `offset` is that of its message in the uncompressed file."""

    identifier: int
    name: str
    kind: NodeType
    waits_for: tuple[int, ...]
    """Identifiers: control and data dependencies."""
    duration_us: int
    offset: int
    integers: dict[str, int] = field(default_factory=dict)
    group: str = ""
    """The process group (`pg_name`) of a collective."""

    @property
    def title(self) -> str:
        return f"node {self.identifier} {shown(self.name)}" if self.name else f"node {self.identifier}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChakraTrace:
    """One rank's nodes, in the order of the file."""

    file: str
    version: str
    size_bytes: int
    """The size of the trace, uncompressed."""
    nodes: tuple[ChakraNode, ...]
    rootless: int = 0
    """Waits for nodes before the first one of the file, which are taken to have ended."""


def decode_trace(data: bytes, *, file: str, limit: int = MAX_TRACE_BYTES) -> ChakraTrace:
    """Read one rank's trace. Raises `SpecError`; a problem's path is `byte <offset>`, uncompressed.

    Converters of PyTorch's traces leave the root out that their first nodes wait for: a wait for an identifier below
    all of the file's is none.
    """
    faults = Faults(file)
    data = decompress(data, faults, limit)
    if not data:
        faults.stop("empty", "the trace is empty", hint="its first message is GlobalMetadata")
    nodes: list[ChakraNode] = []
    version = ""
    offset = waits = 0
    try:
        while offset < len(data):
            length, start = decode_varint(data, offset, len(data))
            if length > len(data) - start:
                left = len(data) - start
                raise WireError(f"a message of {length} bytes begins {left} bytes before the end", offset)
            if offset == 0:
                version = _decode_metadata(data, start, start + length)
            else:
                nodes.append(_decode_node(data, start, start + length))
                waits += len(nodes[-1].waits_for)
                if len(nodes) > MAX_STEPS or waits > MAX_WAITS:
                    limits = f"more than {MAX_STEPS} nodes or {MAX_WAITS} dependencies"
                    faults.stop("too-large", f"the trace has {limits}", path=f"byte {offset}")
            offset = start + length
    except WireError as error:
        hint = "the file may be cut short, or is no Chakra execution trace"
        faults.stop("bad-protobuf", str(error), path=f"byte {error.offset}", hint=hint)
    seen: set[int] = set()
    for node in nodes:
        if node.identifier in seen:
            faults.add("duplicate-id", f"node {node.identifier} stands twice", path=f"byte {node.offset}")
        seen.add(node.identifier)
    least = min(seen, default=0)
    rootless = sum(before < least for node in nodes for before in node.waits_for)
    if rootless:
        nodes = [replace(node, waits_for=tuple(one for one in node.waits_for if one >= least)) for node in nodes]
    for node in nodes:
        for before in node.waits_for:
            if before not in seen:
                message = f"{node.title} waits for node {before}, which the trace does not have"
                faults.add("unknown-node", message, path=f"byte {node.offset}")
    faults.check()
    return ChakraTrace(file=file, version=version, size_bytes=len(data), nodes=tuple(nodes), rootless=rootless)


def decompress(data: bytes, faults: Faults, limit: int) -> bytes:
    """`data`, uncompressed if it is gzip, at most `limit` bytes of it."""
    if data.startswith(GZIP_MAGIC):
        stream = zlib.decompressobj(wbits=31)
        try:
            data = stream.decompress(data, limit + 1)
        except zlib.error as error:
            faults.stop("bad-gzip", f"the gzip stream is damaged: {error}")
        if len(data) <= limit and not stream.eof:
            faults.stop("bad-gzip", "the gzip stream ends early", hint="the file may be cut short")
        if stream.unused_data:
            faults.stop("bad-gzip", f"{len(stream.unused_data)} bytes stand behind the gzip stream")
    if len(data) > limit:
        faults.stop("too-large", f"the traces have more than {MAX_TRACE_BYTES} bytes, uncompressed")
    return data


def _decode_metadata(data: bytes, start: int, end: int) -> str:
    version = ""
    for one in decode_fields(data, start, end):
        if one.number == 1:
            version = decode_string(data, one, "GlobalMetadata.version")
        elif one.number == 2:
            _decode_attribute(data, one)
    return version


def _decode_node(data: bytes, start: int, end: int) -> ChakraNode:
    numbers = {1: 0, 3: 0, 7: 0}
    name = group = ""
    waits_for: dict[int, None] = {}
    integers: dict[str, int] = {}
    for one in decode_fields(data, start, end):
        match one.number:
            case 1 | 3 | 6 | 7:
                expect(one, WireType.VARINT, _NODE_FIELDS[one.number])
                numbers[one.number] = one.value
            case 2:
                name = decode_string(data, one, "Node.name")
            case 4 | 5:
                waits_for.update(dict.fromkeys(decode_repeated_varints(data, one, _NODE_FIELDS[one.number])))
            case 8 | 9:
                expect(one, WireType.LENGTH_DELIMITED, _NODE_FIELDS[one.number])
            case 10:
                key, value = _decode_attribute(data, one)
                if isinstance(value, str):
                    group = value
                elif value is not None:
                    integers[key] = value
    if numbers[3] not in NodeType.__members__.values():
        raise WireError(f"node {numbers[1]} has type {numbers[3]}, which the schema does not have", start)
    return ChakraNode(
        identifier=numbers[1],
        name=name[:MAX_NAME],
        kind=NodeType(numbers[3]),
        waits_for=tuple(waits_for),
        duration_us=numbers[7],
        offset=start,
        integers=integers,
        group=group,
    )


_NODE_FIELDS = {
    1: "Node.id",
    3: "Node.type",
    4: "Node.ctrl_deps",
    5: "Node.data_deps",
    6: "Node.start_time_micros",
    7: "Node.duration_micros",
    8: "Node.inputs",
    9: "Node.outputs",
}


def _decode_attribute(data: bytes, message: WireField) -> tuple[str, int | str | None]:
    """An attribute's name, and its value where it is one that is used here."""
    expect(message, WireType.LENGTH_DELIMITED, "an attribute")
    name = ""
    value: WireField | None = None
    for one in decode_fields(data, message.start, message.end):
        if one.number == 1:
            name = decode_string(data, one, "AttributeProto.name")
        elif one.number > 2:
            value = one
    if value is None or name not in _INTEGER_NAMES | _STRING_NAMES:
        return name, None
    if name in _STRING_NAMES:
        if value.number != _STRING_VALUE:
            raise WireError(f"attribute {name} is no string_val", value.offset)
        return name, decode_string(data, value, f"attribute {name}")
    if value.number not in _INTEGERS:
        raise WireError(f"attribute {name} is no whole number", value.offset)
    wire_type, meaning = _INTEGERS[value.number]
    expect(value, wire_type, f"attribute {name}")
    return name, meaning(value.value)
