"""The output of `decode`: the packets of our transports in a capture file, or in a capture that is still going on."""

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

from testbed.base.errors import TestbedError
from testbed.base.names import nearest
from testbed.cli.options import Format
from testbed.cli.output import emit, warn
from testbed.protocols.captured.content import CapturedFrame
from testbed.protocols.captured.packet import CapturedPacket, flatten
from testbed.protocols.uet.captured import UetCapture
from testbed.protocols.uet.packets.packet import Packet
from testbed.protocols.uet.packets.pds import Ack, ControlPacket, Nack, Request
from testbed.record.captures.decoders.flows import FlowAccount, FlowAccounts
from testbed.record.captures.decoders.registry import NAMES, PacketFinder
from testbed.record.captures.layers.walk import LINK_TYPES
from testbed.record.captures.pcap import CaptureError, read_capture

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

    def accepts(self, capture: CapturedPacket) -> bool:
        match capture:
            case UetCapture(content=Packet(pds=Request() | Ack() | Nack() | ControlPacket() as pds)):
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
    notifications: int = 0
    repeated: int = 0
    damaged: Counter[str] = field(default_factory=Counter)
    """Damaged packets, by the checksum that is wrong."""
    kinds: dict[str, Counter[str]] = field(default_factory=dict)
    """Kinds of packets, by transport."""
    cut: int = 0
    left_alone: Counter[str] = field(default_factory=Counter)
    """By what they are instead."""
    unread_link_types: Counter[int] = field(default_factory=Counter)
    field_names: set[str] = field(default_factory=set)

    def add(self, capture: CapturedPacket) -> None:
        self.kinds.setdefault(capture.transport, Counter())[capture.kind] += 1
        self.trimmed += capture.datagram.trimmed
        self.marked += capture.datagram.marked
        self.cut += capture.datagram.snapped
        self.notifications += capture.notifies
        self.repeated += capture.repeated
        self.damaged[capture.checksum] += capture.damaged

    def __str__(self) -> str:
        packets = sum(kinds.total() for kinds in self.kinds.values())
        found = [
            f"{_counted(kinds.total(), f'{name} packet')}: "
            + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
            for name, kinds in self.kinds.items()
        ]
        text = f"{_counted(self.frames, 'frame')}, {'; '.join(found) or f'no {_listed(NAMES)} packet'}"
        text += f"; {self.trimmed} trimmed, {self.marked} marked CE, {self.repeated} retransmitted"
        if self.notifications:
            text += f", {_counted(self.notifications, 'CNP')}"
        for checksum, count in self.damaged.items():
            text += f", {count} with a bad {checksum}" if count else ""
        if self.cut:
            text += f", {self.cut} cut by the capture"
        if self.shown != packets:
            text += f"; {self.shown} shown"
        if self.left_alone:
            kinds = ", ".join(f"{count} {kind}" for kind, count in self.left_alone.most_common())
            text += f"; left alone: {kinds}"
        for link_type, count in sorted(self.unread_link_types.items()):
            text += f"; {_counted(count, 'frame')} of link type {link_type}, which is not read"
        return text

    def document(self) -> dict[str, object]:
        """Return the counts for JSON."""
        return {
            "frames": self.frames,
            "packets": {name: dict(kinds.most_common()) for name, kinds in self.kinds.items()},
            "trimmed": self.trimmed,
            "marked_ce": self.marked,
            "retransmitted": self.repeated,
            "cnps": self.notifications,
            "damaged": {checksum: count for checksum, count in self.damaged.items() if count},
            "cut": self.cut,
            "shown": self.shown,
            "left_alone": dict(self.left_alone.most_common()),
            "unread_link_types": {str(number): count for number, count in sorted(self.unread_link_types.items())},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketChoice:
    """Which packets of a capture are meant. Raises `TestbedError` for words that say nothing."""

    count: int | None
    """The first so many; None: all."""
    filters: Sequence[FieldFilter]
    pdc: PdcFilter | None

    @classmethod
    def parse(cls, count: int | None, filters: Sequence[str], pdc: str | None) -> PacketChoice:
        if count is not None and count < 1:
            raise TestbedError(f"--count {count}: expected at least 1")
        chosen = [FieldFilter.parse(text) for text in filters]
        return cls(count=count, filters=chosen, pdc=PdcFilter.parse(pdc) if pdc is not None else None)


def print_packets(
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
        raise TestbedError("packets are no table with columns: --format table or json", hint="--summary has columns")
    choice = PacketChoice.parse(count, filters, pdc)
    render = _json_line if form is Format.JSON else _verbose_text if verbose else text_line
    _read(file, choice, form, lambda capture, start_ns: print(render(capture, start_ns)))


def print_flows(
    file: str, form: Format, *, count: int | None = None, filters: Sequence[str] = (), pdc: str | None = None
) -> None:
    """Print what each flow of `file` had, of the packets that meet all filters, and on standard error what it held.

    Raises `CaptureError` where the file is damaged, after what precedes the damage was counted and printed.
    """
    flows = FlowAccounts()
    try:
        _read(file, PacketChoice.parse(count, filters, pdc), form, lambda capture, _: flows.add(capture))
    except CaptureError:
        emit(flows.accounts, FlowAccount, form)
        raise
    emit(flows.accounts, FlowAccount, form)


def _read(file: str, choice: PacketChoice, form: Format, show: Callable[[CapturedPacket, int], None]) -> None:
    tally = Tally()
    with _opened(file) as stream:
        frames = read_capture(stream)
        try:
            _decode_frames(frames, tally, choice, show)
        finally:
            sys.stdout.flush()
            print(json.dumps(tally.document()) if form is Format.JSON else tally, file=sys.stderr)
    if tally.frames and tally.frames == tally.unread_link_types.total():
        numbers = ", ".join(map(str, sorted(tally.unread_link_types)))
        raise TestbedError(
            f"{file}: link type {numbers} is not read",
            hint="Ethernet (1), Linux cooked (113, 276), raw IP (12, 14, 101, 228, 229), loopback (0, 108) and"
            " InfiniBand (247, and in ERF, 197) are",
        )
    _warn_of_unknown_fields(choice.filters, tally)


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
    choice: PacketChoice,
    show: Callable[[CapturedPacket, int], None],
) -> None:
    start_ns: int | None = None
    finder = PacketFinder()
    tally.left_alone = finder.left_alone
    for frame in frames:
        tally.frames += 1
        if start_ns is None:
            start_ns = frame.time_ns
        if frame.link_type not in LINK_TYPES:
            tally.unread_link_types[frame.link_type] += 1
            continue
        capture = finder.find(frame)
        if capture is None:
            continue
        tally.add(capture)
        if not _accepted(capture, tally, choice):
            continue
        tally.shown += 1
        show(capture, start_ns or 0)
        if tally.shown == choice.count:
            return


def _accepted(capture: CapturedPacket, tally: Tally, choice: PacketChoice) -> bool:
    if choice.pdc is not None and not choice.pdc.accepts(capture):
        return False
    if not choice.filters:
        return True
    fields = list(flatten(capture.document()))
    tally.field_names.update(name for name, _ in fields)
    return all(item.accepts(fields) for item in choice.filters)


def _json_line(capture: CapturedPacket, _start_ns: int) -> str:
    return json.dumps(capture.document())


def text_line(capture: CapturedPacket, start_ns: int) -> str:
    """Return seconds since the first frame, who to whom, what carried the packet, the packet."""
    seen = capture.datagram
    time = "-" if seen.time_ns is None else f"{(seen.time_ns - start_ns) / 1e9:.9f}"
    way = f"{seen.source} > {seen.destination}"
    return "  ".join(part for part in (f"{time:>14}", way, capture.carried, capture.line()) if part)


def _verbose_text(capture: CapturedPacket, start_ns: int) -> str:
    lines = [text_line(capture, start_ns)]
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
        warn(f"no packet has a field {item.name!r}{hint}")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _listed(names: Sequence[str]) -> str:
    """ "A, B or C"."""
    return " or ".join((", ".join(names[:-1]), names[-1]))


def _number(text: str) -> int | None:
    try:
        return int(text, 0)
    except ValueError:
        return None
