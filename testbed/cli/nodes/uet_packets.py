"""What `decode` prints: the UET packets of a capture file, or of a capture that is still going on."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import BinaryIO

from testbed.cli.output import Format
from testbed.collect.datagrams import LINK_TYPES, find_datagram
from testbed.collect.pcap import CapturedFrame, read_capture
from testbed.collect.uet_capture import ECN_NAMES, UetCapture, decode_datagram, flatten
from testbed.errors import TestbedError
from testbed.names import nearest
from testbed.transport.uet.packets.codes import UDP_PORT
from testbed.transport.uet.packets.packet import Packet
from testbed.transport.uet.packets.pds import Ack, ControlPacket, Nack, Request

_BOOLEANS = {"yes": True, "true": True, "no": False, "false": False}


@dataclass(frozen=True, slots=True)
class FieldFilter:
    """Accepts packets by FIELD=VALUE or FIELD!=VALUE. FIELD is a dotted name or the end of one."""

    name: str
    value: str
    equal: bool

    @classmethod
    def parse(cls, text: str) -> FieldFilter:
        name, separator, value = text.partition("=")
        equal = not name.endswith("!")
        name = name.removesuffix("!").strip()
        if not separator or not name or not value.strip():
            raise TestbedError(
                f"--filter {text}: expected FIELD=VALUE or FIELD!=VALUE",
                hint="for example type=NACK, psn=17, ecn=CE, flags=RETX; --format json shows the fields",
            )
        return cls(name, value.strip(), equal)

    def names(self, field_name: str) -> bool:
        return field_name == self.name or field_name.endswith(f".{self.name}")

    def accepts(self, fields: Sequence[tuple[str, object]]) -> bool:
        met = any(self.names(name) and self._meets(value) for name, value in fields)
        return met == self.equal

    def _meets(self, value: object) -> bool:
        if isinstance(value, list):
            return any(self._meets(item) for item in value)
        if isinstance(value, bool):
            return _BOOLEANS.get(self.value.lower()) is value
        text = str(value)
        if text.lower() == self.value.lower():
            return True
        number, wanted = _number(text), _number(self.value)
        return number is not None and number == wanted


@dataclass(frozen=True, slots=True)
class PdcFilter:
    """Accepts packets of PDCID or PDCID@ADDRESS: with the address of the side that gave it, both ways of that PDC."""

    pdcid: int
    address: str | None

    @classmethod
    def parse(cls, text: str) -> PdcFilter:
        number, separator, address = text.partition("@")
        pdcid = _number(number)
        try:
            if pdcid is None or not 0 < pdcid < 1 << 16:
                raise ValueError
            return cls(pdcid, str(ip_address(address)) if separator else None)
        except ValueError:
            raise TestbedError(
                f"--pdc {text}: expected PDCID or PDCID@ADDRESS", hint="for example 17, or 17@10.0.0.1"
            ) from None

    def accepts(self, capture: UetCapture) -> bool:
        match capture.content:
            case Packet(pds=Request() | Ack() | Nack() | ControlPacket() as pds):
                seen = capture.datagram
                return (pds.spdcid == self.pdcid and self.address in (None, seen.source)) or (
                    pds.dpdcid == self.pdcid and self.address in (None, seen.destination)
                )
            case _:
                return False


@dataclass(slots=True)
class Tally:
    """Counts what a capture held, for the line at its end."""

    frames: int = 0
    shown: int = 0
    trimmed: int = 0
    marked: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    unread_link_types: Counter[int] = field(default_factory=Counter)
    field_names: set[str] = field(default_factory=set)

    def add(self, capture: UetCapture) -> None:
        self.kinds[capture.kind] += 1
        self.trimmed += capture.datagram.trimmed
        self.marked += capture.datagram.ecn == 3

    def __str__(self) -> str:
        packets = self.kinds.total()
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.kinds.most_common())
        text = f"{_counted(self.frames, 'frame')}, {_counted(packets, 'UET packet')}" + (f": {kinds}" if kinds else "")
        text += f"; {self.trimmed} trimmed, {self.marked} marked CE"
        if self.shown != packets:
            text += f"; {self.shown} shown"
        for link_type, count in sorted(self.unread_link_types.items()):
            text += f"; {_counted(count, 'frame')} of link type {link_type}, which is not read"
        return text


def print_uet_packets(
    file: str,
    form: Format,
    *,
    count: int | None = None,
    filters: Sequence[str] = (),
    pdc: str | None = None,
    verbose: bool = False,
) -> None:
    """Print the packets of `file` that meet all filters, and on standard error what it held.

    Raises `CaptureError` where the file is damaged, after what precedes the damage was printed.
    """
    if form is Format.CSV:
        raise TestbedError("packets are no table with columns: --format table or json")
    if count is not None and count < 1:
        raise TestbedError(f"--count {count}: expected at least 1")
    chosen = [FieldFilter.parse(text) for text in filters]
    way = PdcFilter.parse(pdc) if pdc is not None else None
    tally = Tally()
    render = _json_line if form is Format.JSON else _verbose_text if verbose else _text_line
    with _opened(file) as stream:
        frames = read_capture(stream)
        try:
            _decode_frames(frames, tally, chosen, way, count, render)
        finally:
            sys.stdout.flush()
            print(tally, file=sys.stderr)
    _warn_of_unknown_fields(chosen, tally)


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
        return
    if Path(file).is_dir():
        raise TestbedError(f"{file} is a directory", hint="name a pcap or pcapng file, or - for standard input")
    with Path(file).open("rb") as stream:
        yield stream


def _decode_frames(
    frames: Iterator[CapturedFrame],
    tally: Tally,
    filters: Sequence[FieldFilter],
    pdc: PdcFilter | None,
    count: int | None,
    render: Callable[[UetCapture, int], str],
) -> None:
    start_ns: int | None = None
    for frame in frames:
        tally.frames += 1
        if start_ns is None:
            start_ns = frame.time_ns
        capture = _uet(frame, tally)
        if capture is None or not _accepted(capture, tally, filters, pdc):
            continue
        tally.shown += 1
        print(render(capture, start_ns or 0))
        if tally.shown == count:
            return


def _uet(frame: CapturedFrame, tally: Tally) -> UetCapture | None:
    if frame.link_type not in LINK_TYPES:
        tally.unread_link_types[frame.link_type] += 1
        return None
    datagram = find_datagram(frame, UDP_PORT)
    if datagram is None:
        return None
    capture = decode_datagram(datagram)
    tally.add(capture)
    return capture


def _accepted(capture: UetCapture, tally: Tally, filters: Sequence[FieldFilter], pdc: PdcFilter | None) -> bool:
    if pdc is not None and not pdc.accepts(capture):
        return False
    if not filters:
        return True
    fields = list(flatten(capture.document()))
    tally.field_names.update(name for name, _ in fields)
    return all(item.accepts(fields) for item in filters)


def _json_line(capture: UetCapture, _start_ns: int) -> str:
    return json.dumps(capture.document())


def _text_line(capture: UetCapture, start_ns: int) -> str:
    """Write seconds since the first frame, who to whom, entropy value, DSCP, ECN field, packet."""
    seen = capture.datagram
    time = "-" if seen.time_ns is None else f"{(seen.time_ns - start_ns) / 1e9:.9f}"
    way = f"{seen.source} > {seen.destination}"
    return f"{time:>14}  {way}  EV {seen.source_port:5}  DSCP {seen.dscp:2} {ECN_NAMES[seen.ecn]:4}  {capture.line()}"


def _verbose_text(capture: UetCapture, start_ns: int) -> str:
    lines = [_text_line(capture, start_ns)]
    for name, value in flatten(capture.document()):
        shown = " ".join(map(str, value)) if isinstance(value, list) else value
        lines.append(f"    {name}: {'-' if shown in (None, '') else shown}")
    return "\n".join(lines)


def _warn_of_unknown_fields(filters: Sequence[FieldFilter], tally: Tally) -> None:
    for item in filters:
        if not tally.field_names or any(item.names(name) for name in tally.field_names):
            continue
        guess = nearest(item.name, {name.rsplit(".", 1)[-1] for name in tally.field_names})
        hint = f"; did you mean {guess}?" if guess else ""
        print(f"warning: no packet has a field {item.name!r}{hint}", file=sys.stderr)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _number(text: str) -> int | None:
    try:
        return int(text, 0)
    except ValueError:
        return None
