"""Every protocol whose packets are found in captures. A further one is a line here, by what its folder offers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from testbed.protocols.captured.content import CapturedDatagram, CapturedFrame, LeftAlone, LinkFrame
from testbed.protocols.captured.packet import CapturedLink, CapturedPacket, CapturedTransport, Decoder, LinkDecoder
from testbed.protocols.infiniband import captured as infiniband
from testbed.protocols.roce import captured as roce
from testbed.protocols.roce import captured_v1 as roce_v1
from testbed.protocols.scale_up import captured as scale_up
from testbed.protocols.uet import captured as uet
from testbed.record.captures.decoders import mac_control
from testbed.record.captures.layers.names import name_ethertype
from testbed.record.captures.layers.walk import find_content

TRANSPORTS: Final[Mapping[int, CapturedTransport]] = MappingProxyType(
    {one.port: one for one in (uet.TRANSPORT, roce.TRANSPORT)}
)
"""By the UDP port of their packets."""
LINKS: Final[Mapping[int, CapturedLink]] = MappingProxyType(
    {one.ethertype: one for one in (roce_v1.LINK, scale_up.LINK, mac_control.LINK, infiniband.LINK)}
)
"""By the EtherType of their frames, or what stands for one."""
NAMES: Final[tuple[str, ...]] = (
    *(one.name for one in TRANSPORTS.values()),
    *(one.name for one in LINKS.values()),
)
"""The names of everything that is found."""


class PacketFinder:
    """Finds the packets of one capture: call `find` with its frames, in their order."""

    def __init__(self) -> None:
        self.left_alone: Counter[str] = Counter()
        """The number of frames that carried something else, by what people call it."""
        self._decoders: dict[int, Decoder] = {port: one.make_decoder() for port, one in TRANSPORTS.items()}
        self._links: dict[int, LinkDecoder] = {number: one.make_decoder() for number, one in LINKS.items()}

    def find(self, frame: CapturedFrame) -> CapturedPacket | None:
        """The packet that a frame carries, in tunnels, too; None: it is left alone, and counted."""
        match find_content(frame, TRANSPORTS, LINKS):
            case CapturedDatagram() as datagram:
                return self._decoders[datagram.destination_port](datagram)
            case LinkFrame(ethertype=ethertype) as link_frame:
                found = self._links[ethertype](link_frame)
                if found is None:
                    name = "raw InfiniBand" if ethertype == infiniband.LINK.ethertype else name_ethertype(ethertype)
                    self.left_alone[name] += 1
                return found
            case LeftAlone(kind=kind):
                self.left_alone[kind] += 1
                return None
