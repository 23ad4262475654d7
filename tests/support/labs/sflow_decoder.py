"""Decoding datagrams of sFlow version 5 as its specification has them, apart from what makes them: for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Any

_SAMPLES = {1: "flow", 2: "counters", 5: "drop"}
_RECORDS = {1: "header", 1036: "egress_queue", 1038: "function", 1040: "queue_depth"}


class Reader:
    """Reads XDR (RFC 4506). Bytes that are left over, or missing, fail the test."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def take(self, count: int) -> bytes:
        assert self._at + count <= len(self._content), "the datagram ends early"
        found = self._content[self._at : self._at + count]
        self._at += count
        return found

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "big")

    def opaque(self) -> bytes:
        length = self.u32()
        found = self.take(length)
        assert not any(self.take(-length % 4)), "padding is zero"
        return found

    def inside(self) -> Reader:
        return Reader(self.take(self.u32()))

    def end(self) -> None:
        assert self._at == len(self._content), "bytes are left over"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedSample:
    """A sample: its kind, its fields in their order, and its records by name."""

    kind: str
    fields: Mapping[str, int]
    records: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedDatagram:
    agent: IPv4Address
    sub_agent: int
    sequence: int
    uptime_ms: int
    samples: tuple[DecodedSample, ...]

    def of(self, kind: str) -> list[DecodedSample]:
        return [sample for sample in self.samples if sample.kind == kind]


def decode_datagram(content: bytes) -> DecodedDatagram:
    """Decode a datagram whole."""
    reader = Reader(content)
    assert reader.u32() == 5, "version"
    assert reader.u32() == 1, "an agent's address of IPv4"
    agent = IPv4Address(reader.take(4))
    sub_agent, sequence, uptime = reader.u32(), reader.u32(), reader.u32()
    samples = tuple(_sample(reader) for _ in range(reader.u32()))
    reader.end()
    return DecodedDatagram(agent=agent, sub_agent=sub_agent, sequence=sequence, uptime_ms=uptime, samples=samples)


def _sample(reader: Reader) -> DecodedSample:
    number = reader.u32()
    kind, inside = _SAMPLES[number], reader.inside()
    names = {
        "flow": ("sequence", "source", "rate", "pool", "drops", "input", "output"),
        "counters": ("sequence", "source"),
        "drop": ("sequence", "source_type", "source", "drops", "input", "output", "reason"),
    }[kind]
    fields = {name: inside.u32() for name in names}
    records = dict(_counters(inside) if kind == "counters" else _record(inside) for _ in range(inside.u32()))
    inside.end()
    return DecodedSample(kind=kind, fields=fields, records=records)


def _record(reader: Reader) -> tuple[str, Any]:
    name, inside = _RECORDS[reader.u32()], reader.inside()
    found: Any
    match name:
        case "header":
            found = {name: inside.u32() for name in ("protocol", "length", "stripped")} | {"bytes": inside.opaque()}
        case "function":
            found = inside.opaque().decode()
        case _:
            found = inside.u32()
    inside.end()
    return name, found


_GENERIC = (
    ("ifindex", 4), ("type", 4), ("speed", 8), ("direction", 4), ("status", 4), ("in_octets", 8), ("in_ucast", 4),
    ("in_multicast", 4), ("in_broadcast", 4), ("in_discards", 4), ("in_errors", 4), ("in_unknown", 4),
    ("out_octets", 8), ("out_ucast", 4), ("out_multicast", 4), ("out_broadcast", 4), ("out_discards", 4),
    ("out_errors", 4), ("promiscuous", 4),
)  # fmt: skip


def _counters(reader: Reader) -> tuple[str, Any]:
    number, inside = reader.u32(), reader.inside()
    found: Any
    if number == 1:
        name, found = "generic", {key: int.from_bytes(inside.take(size), "big") for key, size in _GENERIC}
    else:
        assert number == 1005
        name, found = "port_name", inside.opaque().decode()
    inside.end()
    return name, found
