"""The cost of the headers of different kinds of scale-up networks: the bytes of a line that a payload takes.

A frame of the lab has one layout, with the fields of a UALink request (`frames`). How long it occupies its link can be
that of the same payload behind the headers of another network: then goodput, queues and credit loops in time are those
of that network, while the bytes on the lab's wire stay as they are. Preamble and gap (20 bytes, IEEE 802.3) are counted
in what goes over Ethernet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

_LINE: Final = (("preamble and gap", 20), ("FCS", 4))
_RELIABILITY: Final = (("reliability header", 8), ("R-CRC", 4))
LAB: Final = "lab"
"""The name of the stack of the lab's own frames, from Ethernet header to FCS, without preamble and gap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderStack:
    """The bytes before and behind the payload of a packet on a line."""

    title: str
    fields: tuple[tuple[str, int], ...]
    """Names and sizes of all that a packet has besides its payload."""
    packet: int
    """The most payload of a packet; more is cut into several."""
    grain: int = 1
    """Payloads are padded to a multiple of it."""
    expansion: tuple[int, int] = (1, 1)
    """Bytes of the line for bytes of packets: what a layer below adds in proportion."""
    source: str = ""

    @property
    def header(self) -> int:
        """Bytes of a packet besides its payload."""
        return sum(size for _, size in self.fields)

    def line_bytes(self, payload: int) -> float:
        """Return the bytes of the line that a payload takes; one of 0 bytes is a packet, too."""
        packets = max(1, -(-payload // self.packet))
        carried = -(-payload // self.grain) * self.grain + packets * self.header
        wide, narrow = self.expansion
        return carried * wide / narrow


_SUE_SOURCE: Final = "Scale-Up Ethernet 1.0.0 (OCP)"
HEADER_STACKS: Final[Mapping[str, HeaderStack]] = MappingProxyType(
    {
        "udp": HeaderStack(
            title="SUE over UDP/IP",
            fields=(("Ethernet", 14), ("IPv4", 20), ("UDP", 8), *_RELIABILITY, *_LINE),
            packet=4096,
            source=_SUE_SOURCE,
        ),
        "afh": HeaderStack(
            title="SUE with the AI fabric header, second generation",
            fields=(("AFH gen 2", 12), ("EtherType", 2), *_RELIABILITY, *_LINE),
            packet=4096,
            source=_SUE_SOURCE,
        ),
        "sue-lite": HeaderStack(
            title="SUE-Lite with the compressed AI fabric header",
            fields=(("AFH compressed", 6), ("EtherType", 2), *_LINE),
            packet=1024,
            source=_SUE_SOURCE,
        ),
        "ualink": HeaderStack(
            title="UALink 200G, up to four compressed writes of 256 B for each control half-flit",
            fields=(("control half-flit", 32),),
            packet=1024,
            grain=32,
            expansion=(640, 628),
            source="UALink_200 Rev 1.0, chapters 5 (half-flits of 32 B) and 6 (DL flits of 640 B for 628)",
        ),
    }
)
"""By the word of `fabric.scale_up.headers`."""
