"""A packet of a transport as a capture has it: as one line and as a document, malformed ones with where and why.

A document begins with what was seen of the datagram. Then follow the fields of the transport, by the names that its
specification has for them; or `error`, with the byte of the UDP payload where decoding ended.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from testbed.protocols.captured.content import CapturedDatagram, LinkFrame
from testbed.protocols.errors import DecodeError

Document = dict[str, object]

ECN_NAMES = ("-", "ECT1", "ECT0", "CE")
"""RFC 3168, by the two bits."""
MALFORMED = "malformed"
"""The kind of a packet that cannot be decoded."""
CUT = "cut"
"""The kind of a packet of which so little was captured that its type is not there."""


class Refusal(StrEnum):
    """A packet says that another one was not taken."""

    NAK = "naks"
    NOT_READY = "rnr_naks"
    """RoCE: the receiver had no receive posted."""


@dataclass(frozen=True, slots=True)
class CapturedPacket(ABC):
    """A datagram to a transport's port. What is wrong with it is part of the answer: nothing here raises."""

    datagram: CapturedDatagram
    transport: ClassVar[str]
    """The name that people know it by."""
    checksum: ClassVar[str] = "ICRC"
    """The checksum that `damaged` goes by."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """Type of the packet by the specification's name, or `MALFORMED`."""

    @property
    @abstractmethod
    def text(self) -> str:
        """The packet in one line."""

    @abstractmethod
    def fields(self) -> Document:
        """Return the document's entries about the packet, beside those about the datagram."""

    @property
    def flow(self) -> str:
        """Return the word that tells the flows between two hosts apart; "" where nothing is known."""
        return ""

    @property
    def payload_bytes(self) -> int:
        """Bytes of users' messages."""
        return 0

    @property
    def repeated(self) -> bool:
        """Tell whether it was sent before."""
        return False

    @property
    def carried(self) -> str:
        """Return what the packet's line says of the datagram: entropy value, DSCP, ECN field."""
        seen = self.datagram
        return f"EV {seen.source_port:5}  DSCP {seen.dscp:2} {ECN_NAMES[seen.ecn]:4}"

    @property
    def notifies(self) -> bool:
        """It tells a sender of congestion, and nothing else."""
        return False

    @property
    def refusal(self) -> Refusal | None:
        """It says that another packet was not taken, in this way."""
        return None

    @property
    def damaged(self) -> bool:
        """It did not arrive as it was sent, as far as a checksum tells."""
        return False

    @property
    def cut(self) -> str:
        """Return how much of it is missing, and why; "" if nothing is."""
        seen = self.datagram
        reasons = (("trimmed", seen.trimmed), ("fragment", seen.fragment), ("cut by the capture", seen.snapped))
        why = ", ".join(name for name, applies in reasons if applies)
        return f"{why}: {len(seen.payload)} of {seen.length} B" if why else ""

    def line(self) -> str:
        """The packet in one line, without when and where it was seen."""
        around = ", ".join(map(str, self.datagram.around))
        return " ".join(part for part in (self.text, around and f"(in {around})", self.cut and f"({self.cut})") if part)

    def document(self) -> Document:
        """All there is to say."""
        seen = self.datagram
        return {
            "frame": seen.frame,
            "time_ns": seen.time_ns,
            "transport": self.transport,
            "src": seen.source,
            "dst": seen.destination,
            **self.envelope(),
            "encapsulation": [one.document() for one in seen.around],
            "cut": seen.snapped,
            "malformed": self.kind == MALFORMED,
            **self.fields(),
        }

    def envelope(self) -> Document:
        """Return the document's entries about the headers that carry the packet: those of IP and UDP."""
        seen = self.datagram
        return {
            "ev": seen.source_port,
            "dscp": seen.dscp,
            "ecn": ECN_NAMES[seen.ecn],
            "udp_length": seen.length + 8,
            "captured_length": len(seen.payload),
            "trimmed": seen.trimmed,
            "fragment": seen.fragment,
        }


def error_fields(error: DecodeError) -> Document:
    """Return what the document of a malformed packet says: where decoding ended, and why."""
    return {"error": {"offset": error.offset, "reason": error.reason}}


Decoder = Callable[[CapturedDatagram], CapturedPacket]
LinkDecoder = Callable[[LinkFrame], CapturedPacket | None]
"""Return what a frame is; None for one that is none of the protocol after all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedTransport:
    """A transport that is found in captures."""

    name: str
    port: int
    """The UDP port of its packets."""
    make_decoder: Callable[[], Decoder]
    """For one capture: a decoder may remember what it has seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedLink:
    """A link protocol that is found in captures, by the EtherType of its frames, or what stands for one."""

    name: str
    ethertype: int
    make_decoder: Callable[[], LinkDecoder]
    """For one capture, as that of `CapturedTransport`."""


def flatten(document: Document, above: str = "") -> Iterator[tuple[str, object]]:
    """Every field with its dotted name: `pds.psn`, `ses.extension.amo_opcode`, `encapsulation.id` of each."""
    for name, value in document.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{above}{name}.")
        elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
            for item in value:
                yield from flatten(item, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
