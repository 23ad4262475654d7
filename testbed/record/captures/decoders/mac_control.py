"""MAC control frames of a capture: priority-based flow control and the pause of a whole link.

Source: IEEE 802.3 clause 31 and annexes 31B (PAUSE) and 31D (PFC), IEEE 802.1Q clause 36 (802.1Qbb). A time counts
quanta of 512 bit times of the link; 0 resumes. The upper half of PFC's class-enable vector is reserved and
is ignored. `pfc` of a document has the enabled priorities and their quanta, `pause` the quanta of the link.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar, Final

from testbed.protocols.captured.content import LinkFrame
from testbed.protocols.captured.packet import CUT, MALFORMED, CapturedLink, CapturedPacket, Document, error_fields
from testbed.protocols.errors import DecodeError, truncated

NAME: Final = "MAC control"
ETHERTYPE: Final = 0x8808
PAUSE: Final = 0x0001
PFC: Final = 0x0101
PRIORITIES: Final = 8
_PAUSE_BYTES: Final = 4
_PFC_BYTES: Final = 4 + 2 * PRIORITIES


@dataclass(frozen=True, slots=True)
class MacControl:
    """A MAC control frame, as far as it is there."""

    opcode: int
    vector: int | None
    """PFC alone: bit p is set where the time of priority p counts; None: it was cut off."""
    quanta: tuple[int, ...]
    """PFC: by priority, as many as are there; PAUSE: one."""

    @property
    def enabled(self) -> dict[int, int]:
        """Quanta by the priorities whose time counts and is there."""
        vector = self.vector or 0
        return {number: time for number, time in enumerate(self.quanta) if vector >> number & 1}


@dataclass(frozen=True, slots=True)
class MacControlCapture(CapturedPacket):
    """A frame with the EtherType of MAC control. `datagram` has what is behind it, and Ethernet addresses."""

    content: MacControl | DecodeError | None
    """None: not even the opcode was captured."""
    transport: ClassVar[str] = NAME

    @property
    def kind(self) -> str:
        match self.content:
            case MacControl(opcode=opcode):
                return {PAUSE: "PAUSE", PFC: "PFC"}.get(opcode, f"opcode {opcode:#06x}")
            case None:
                return CUT
            case _:
                return MALFORMED

    @property
    def text(self) -> str:
        match self.content:
            case MacControl(opcode=opcode) as frame if opcode == PFC:
                times = ", ".join(f"priority {number} {_time(quanta)}" for number, quanta in frame.enabled.items())
                return f"PFC {times or ('-' if frame.vector is None or frame.vector else 'no priority')}"
            case MacControl(opcode=opcode, quanta=quanta) if opcode == PAUSE:
                return f"PAUSE {_time(quanta[0])}" if quanta else "PAUSE"
            case DecodeError() as error:
                return f"MALFORMED {error}"
            case _:
                return self.kind

    def fields(self) -> Document:
        match self.content:
            case DecodeError() as error:
                return error_fields(error)
            case MacControl(opcode=opcode) as frame if opcode == PFC:
                enabled = frame.enabled
                return {
                    "pfc": {
                        "class_enable_vector": frame.vector,
                        "priorities": list(enabled),
                        "quanta": {str(number): quanta for number, quanta in enabled.items()},
                    }
                }
            case MacControl(opcode=opcode, quanta=quanta) if opcode == PAUSE:
                return {"pause": {"quanta": quanta[0] if quanta else None}}
            case MacControl(opcode=opcode):
                return {"mac_control": {"opcode": opcode}}
            case _:
                return {}

    def envelope(self) -> Document:
        seen = self.datagram
        return {"payload_length": seen.length, "captured_length": len(seen.payload)}

    @property
    def carried(self) -> str:
        return ""

    @property
    def flow(self) -> str:
        """The priorities, as a flow of PFC frames is a link's; "link" for a pause of all."""
        match self.content:
            case MacControl(opcode=opcode) as frame if opcode == PFC:
                return "priority " + ",".join(map(str, frame.enabled)) if frame.enabled else ""
            case MacControl():
                return "link"
            case _:
                return ""


def _time(quanta: int) -> str:
    return f"{quanta} quanta" if quanta else "resume"


def decode_frame(frame: LinkFrame) -> MacControlCapture:
    """Return what a MAC control frame says. Raises nothing: what is wrong is part of the answer."""
    seen = frame.seen
    data = seen.payload
    if len(data) < 2:
        return MacControlCapture(seen, None if seen.snapped else truncated("a MAC control frame", 2, len(data)))
    (opcode,) = struct.unpack_from("!H", data)
    needed = {PAUSE: _PAUSE_BYTES, PFC: _PFC_BYTES}.get(opcode, 2)
    if seen.length < needed:
        return MacControlCapture(seen, truncated(f"opcode {opcode:#06x}", needed, seen.length))
    at = 4 if opcode == PFC else 2
    words = struct.unpack_from(f"!{max(min(len(data), needed) - at, 0) // 2}H", data, at) if len(data) >= at else ()
    vector = data[3] if opcode == PFC and len(data) >= 4 else None
    return MacControlCapture(seen, MacControl(opcode, vector, words))


LINK: Final = CapturedLink(name=NAME, ethertype=ETHERTYPE, make_decoder=lambda: decode_frame)
