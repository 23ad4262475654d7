"""Frames of scale-up links in a capture. A document has `scale_up` with the fields as they stand in the frame, and what
its check sequence says.

A frame is taken for a replay when its sequence number is not ahead of all that went the same way before, since LLR
began.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from testbed.collect.captured.packet import MALFORMED, CapturedPacket, Document, Refusal
from testbed.collect.datagrams import ETHERNET, CapturedDatagram
from testbed.collect.pcap import CapturedFrame
from testbed.scale_up.ctlos import Ack, CfUpdate, Ctlos, CtlosType, Init, InitEcho, LinkSignal, Nack
from testbed.scale_up.cyclic import HALF_CYCLE, advance, distance
from testbed.scale_up.frames import (
    ETHERNET_BYTES,
    ETHERTYPE,
    FCS_BYTES,
    OTHER_USERS,
    PREFIX_BYTES,
    CcUpdateFrame,
    ControlFrame,
    DataFrame,
    Frame,
    FrameCheck,
    decode_frame,
)
from testbed.scale_up.headers import command_of, destination_of, header_bytes, kind_of
from testbed.transport.errors import DecodeError

NAME: Final = "scale-up"
_CUT: Final = "the capture has no more of the frame"


@dataclass(frozen=True, slots=True)
class ScaleUpCapture(CapturedPacket):
    """A frame of a scale-up link, and what it was found to be.

    `datagram` has the frame from behind its Ethernet header, Ethernet addresses, and nothing of IP and UDP.
    """

    content: Frame | DecodeError
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
            case _:
                return f"MALFORMED {frame}"
        number = None if isinstance(frame, ControlFrame) else frame.sequence
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
            return {"error": {"offset": frame.offset, "reason": frame.reason}}
        shown: Document = {"kind": self.kind, "fcs": None if self._check is None else self._check.name}
        match frame:
            case DataFrame():
                shown |= {"sequence": frame.sequence, "vc": frame.vc, "header": frame.header._asdict()}
                shown |= {"payload_length": len(frame.payload)}
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
            case CcUpdateFrame() | ControlFrame():
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
        nack = isinstance(frame, ControlFrame) and any(isinstance(item, Nack) for item in frame.items)
        return Refusal.NAK if nack else None

    @property
    def damaged(self) -> bool:
        return self._check is FrameCheck.BAD

    @property
    def _check(self) -> FrameCheck | None:
        """What the check sequence says; None: not all of the frame is there."""
        return None if isinstance(self.content, DecodeError) or self.datagram.snapped else self.content.check


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
    """Finds the frames of scale-up links in one capture: call `find` with its frames, in their order."""

    def __init__(self) -> None:
        self._highest: dict[tuple[bytes, bytes], int] = {}
        """The number that is furthest on, by source and destination."""

    def find(self, frame: CapturedFrame) -> ScaleUpCapture | None:
        """The frame with what is in it; None: it is none of a scale-up link."""
        data = frame.data
        if frame.link_type != ETHERNET or data[12:14] != ETHERTYPE.to_bytes(2, "big") or data[:6] == OTHER_USERS:
            return None
        content = _decode(data, frame.length)
        seen = CapturedDatagram(
            frame=frame.number,
            time_ns=frame.time_ns,
            source=data[6:12].hex(":"),
            destination=data[:6].hex(":"),
            source_port=0,
            destination_port=0,
            dscp=0,
            ecn=0,
            length=frame.length - ETHERNET_BYTES,
            payload=data[ETHERNET_BYTES:],
            trimmed=False,
            snapped=len(data) < frame.length,
            fragment=False,
        )
        return ScaleUpCapture(seen, content, self._was_seen(content))

    def _was_seen(self, content: Frame | DecodeError) -> bool:
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


def _decode(data: bytes, length: int) -> Frame | DecodeError:
    """What the start of a frame of `length` bytes says; what the capture has not counts as zeros."""
    try:
        frame = decode_frame(data.ljust(length, b"\0"))
    except DecodeError as error:
        return error if error.offset < len(data) or len(data) == length else DecodeError(len(data), _CUT)
    needed = length - FCS_BYTES
    if isinstance(frame, DataFrame):
        needed = ETHERNET_BYTES + PREFIX_BYTES + header_bytes(kind_of(frame.header))
    return frame if len(data) >= min(needed, length) else DecodeError(len(data), _CUT)
