"""Frames of scale-up links in a capture. A document has `scale_up` with the fields as they stand in the frame, and what
its check sequence says.

A frame is taken for a replay when its sequence number is not ahead of all that went the same way before, since LLR
began.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from testbed.protocols.captured.content import LinkFrame
from testbed.protocols.captured.packet import (
    CUT,
    MALFORMED,
    CapturedLink,
    CapturedPacket,
    Document,
    Refusal,
    error_fields,
)
from testbed.protocols.errors import DecodeError
from testbed.protocols.scale_up.ctlos import (
    CTLOS_BYTES,
    Ack,
    CfUpdate,
    Ctlos,
    CtlosType,
    Init,
    InitEcho,
    LinkSignal,
    Nack,
    decode_ctlos,
)
from testbed.protocols.scale_up.cyclic import HALF_CYCLE, advance, distance
from testbed.protocols.scale_up.frames import (
    CONTROL_FRAME_BYTES,
    CTLOS_SLOTS,
    ETHERNET_BYTES,
    ETHERTYPE,
    FCS_BYTES,
    LEAST_BYTES,
    OTHER_USERS,
    PREFIX_BYTES,
    CcUpdateFrame,
    ControlFrame,
    DataFrame,
    Frame,
    FrameCheck,
    LinkPrefix,
    decode_frame,
    decode_prefix,
    is_control,
)
from testbed.protocols.scale_up.headers import HeaderKind, command_of, destination_of, header_bytes, kind_of

NAME: Final = "scale-up"
_SETS_END: Final = ETHERNET_BYTES + CTLOS_SLOTS * CTLOS_BYTES


@dataclass(frozen=True, slots=True)
class CutFrame:
    """A frame that the capture cut within its headers."""

    kind: str
    """The kind of the frame, or `CUT`."""
    prefix: LinkPrefix | None = None
    sets: tuple[Ctlos, ...] = ()
    """The ordered sets of a control frame that are there."""


@dataclass(frozen=True, slots=True)
class ScaleUpCapture(CapturedPacket):
    """A frame of a scale-up link, and what it was found to be.

    `datagram` has the frame from behind its Ethernet header, Ethernet addresses, and nothing of IP and UDP.
    """

    content: Frame | CutFrame | DecodeError
    seen_before: bool
    transport: ClassVar[str] = NAME
    checksum: ClassVar[str] = "FCS"

    @property
    def kind(self) -> str:
        match self.content:
            case DataFrame(header=header):
                return kind_of(header).name
            case CcUpdateFrame():
                return "CC_UPDATE"
            case ControlFrame():
                return "CONTROL"
            case CutFrame(kind=kind):
                return kind
            case _:
                return MALFORMED

    @property
    def text(self) -> str:
        frame = self.content
        match frame:
            case DataFrame():
                asked = command_of(frame.header)
                to = f"VC {frame.vc} to {destination_of(frame.header)}"
                said = f"{self.kind} {asked}{asked and ' '}{to} | {len(frame.payload)} B"
            case CcUpdateFrame():
                said = "CC_UPDATE " + ", ".join(f"VC {vc} = {count}" for vc, count in frame.counts)
            case ControlFrame():
                said = "; ".join(map(describe_set, frame.items))
            case CutFrame(kind=kind, prefix=prefix, sets=sets):
                where = "" if prefix is None or kind == "CC_UPDATE" else f" VC {prefix.vc}"
                said = "; ".join(map(describe_set, sets)) or f"{kind}{where}"
            case _:
                return f"MALFORMED {frame}"
        number = self._sequence
        marks = [
            *(["AGAIN"] if self.seen_before else ()),
            *(["POISONED"] if self._check is FrameCheck.POISONED else ()),
            *(["BAD FCS"] if self.damaged else ()),
        ]
        return "".join(
            (
                said if number is None else f"seq {number} {said}",
                f" [{' '.join(marks)}]" if marks else "",
            )
        )

    def fields(self) -> Document:
        frame = self.content
        if isinstance(frame, DecodeError):
            return error_fields(frame)
        shown: Document = {"kind": self.kind, "fcs": None if self._check is None else self._check.name}
        if self._sequence is not None:
            shown["sequence"] = self._sequence
        match frame:
            case DataFrame():
                shown |= {"sequence": frame.sequence, "vc": frame.vc, "header": frame.header._asdict()}
                shown |= {"payload_length": len(frame.payload)}
            case CutFrame(prefix=LinkPrefix(kind=kind, vc=vc)) if kind is not HeaderKind.CC_UPDATE:
                shown |= {"vc": vc}
            case CutFrame(sets=sets) if sets:
                shown |= {"type": [set_name(item) for item in sets], "set": list(map(describe_set, sets))}
            case CcUpdateFrame():
                shown |= {"sequence": frame.sequence, "vcs": [vc for vc, _ in frame.counts]}
                shown |= {"consumed": [count for _, count in frame.counts]}
            case ControlFrame():
                shown |= {"type": [set_name(item) for item in frame.items], "set": list(map(describe_set, frame.items))}
                shown |= {"sent_ns": frame.sent_ns}
        return {NAME.replace("-", "_"): shown | {"replayed": self.seen_before}}

    def envelope(self) -> Document:
        seen = self.datagram
        return {
            "frame_length": seen.length + ETHERNET_BYTES,
            "captured_length": len(seen.payload) + ETHERNET_BYTES,
        }

    @property
    def carried(self) -> str:
        return ""

    @property
    def flow(self) -> str:
        match self.content:
            case DataFrame(vc=vc):
                return f"VC {vc}"
            case CutFrame(prefix=LinkPrefix(kind=kind, vc=vc)) if kind is not HeaderKind.CC_UPDATE:
                return f"VC {vc}"
            case CcUpdateFrame() | ControlFrame() | CutFrame():
                return "link"
            case _:
                return ""

    @property
    def payload_bytes(self) -> int:
        return len(self.content.payload) if isinstance(self.content, DataFrame) else 0

    @property
    def repeated(self) -> bool:
        return self.seen_before

    @property
    def refusal(self) -> Refusal | None:
        frame = self.content
        match frame:
            case ControlFrame(items=sets) | CutFrame(sets=sets):
                return Refusal.NAK if any(isinstance(item, Nack) for item in sets) else None
            case _:
                return None

    @property
    def damaged(self) -> bool:
        return self._check is FrameCheck.BAD

    @property
    def _check(self) -> FrameCheck | None:
        """Judge the check sequence; None where not all of the frame is there."""
        if isinstance(self.content, DecodeError | CutFrame) or self.datagram.snapped:
            return None
        return self.content.check

    @property
    def _sequence(self) -> int | None:
        match self.content:
            case DataFrame(sequence=number) | CcUpdateFrame(sequence=number):
                return number
            case CutFrame(prefix=LinkPrefix(sequence=number)):
                return number
            case _:
                return None


def set_name(item: Ctlos) -> str:
    """The type of an ordered set by the specification's name."""
    kinds = {
        Ack: CtlosType.LLR_ACK,
        Nack: CtlosType.LLR_NACK,
        Init: CtlosType.LLR_INIT,
        InitEcho: CtlosType.LLR_INIT_ECHO,
        CfUpdate: CtlosType.CF_UPDATE,
        LinkSignal: CtlosType.LINK_SIGNAL,
    }
    return kinds[type(item)].name


def describe_set(item: Ctlos) -> str:
    """An ordered set in a few words."""
    match item:
        case Ack(sequence) | Nack(sequence):
            return f"{set_name(item)} {sequence}"
        case Init(sequence, data) | InitEcho(sequence, data):
            return f"{set_name(item)} {sequence} data {data:#06x}"
        case LinkSignal(level, _):
            return f"LINK_SIGNAL {level / (1 << 20):.0%} of the rate" if level else "LINK_SIGNAL none"
        case CfUpdate(vc1, count1, vc2, count2):
            return f"CF_UPDATE VC {vc1} = {count1}, VC {vc2} = {count2}"


class ScaleUpDecoder:
    """Finds the frames of scale-up links in one capture: it is called with its frames, in their order."""

    def __init__(self) -> None:
        self._highest: dict[tuple[bytes, bytes], int] = {}
        """The number that is furthest on, by source and destination."""

    def __call__(self, frame: LinkFrame) -> ScaleUpCapture | None:
        """The frame with what is in it; None: it is none of a scale-up link."""
        if frame.ethernet is None or frame.ethernet.data[:6] == OTHER_USERS:
            return None
        data, length = frame.ethernet.data, frame.ethernet.length
        content = _decode_cut(data, length) if len(data) < length else _decode(data)
        return ScaleUpCapture(frame.seen, content, self._was_seen(content))

    def _was_seen(self, content: Frame | CutFrame | DecodeError) -> bool:
        match content:
            case ControlFrame(items=items, check=FrameCheck.GOOD):
                way = content.source, content.destination
                for item in items:
                    if isinstance(item, Init):
                        self._highest[way] = advance(item.sequence, -1)
                return False
            case DataFrame(sequence=int() as number) | CcUpdateFrame(sequence=int() as number):
                if content.check is FrameCheck.BAD:
                    return False
                way = content.source, content.destination
                ahead = distance(self._highest.get(way, advance(number, -1)), number)
                if 0 < ahead < HALF_CYCLE:
                    self._highest[way] = number
                    return False
                return True
            case _:
                return False


def _decode(data: bytes) -> Frame | DecodeError:
    try:
        return decode_frame(data)
    except DecodeError as error:
        return error


def _decode_cut(data: bytes, length: int) -> Frame | CutFrame | DecodeError:
    """Decode the captured start of a frame of `length` bytes."""
    if is_control(data):
        captured = range(ETHERNET_BYTES, min(len(data), _SETS_END) - CTLOS_BYTES + 1, CTLOS_BYTES)
        try:
            sets = tuple(decode_ctlos(data, at) for at in captured if any(data[at : at + CTLOS_BYTES]))
        except DecodeError as error:
            return error
        if length != CONTROL_FRAME_BYTES:
            return _decode(data.ljust(length, b"\0"))
        return CutFrame("CONTROL", sets=sets)
    if len(data) < ETHERNET_BYTES + PREFIX_BYTES:
        return CutFrame(CUT)
    frame = _decode(data.ljust(length, b"\0"))
    if isinstance(frame, DecodeError):
        if _is_certain(frame, len(data), length):
            return frame
        prefix = decode_prefix(data.ljust(LEAST_BYTES, b"\0"))
        return CutFrame(prefix.kind.name, prefix)
    if isinstance(frame, DataFrame):
        needed = ETHERNET_BYTES + PREFIX_BYTES + header_bytes(kind_of(frame.header))
    else:
        needed = length - FCS_BYTES
    if len(data) >= needed or isinstance(frame, ControlFrame):
        return frame
    prefix = decode_prefix(data.ljust(LEAST_BYTES, b"\0"))
    return CutFrame(prefix.kind.name, prefix)


def _is_certain(error: DecodeError, captured: int, length: int) -> bool:
    """Tell whether the rest of the frame, which the capture has not, could not have mended it."""
    return error.offset < captured or error.offset >= length - FCS_BYTES


LINK: Final = CapturedLink(name=NAME, ethertype=ETHERTYPE, make_decoder=ScaleUpDecoder)
