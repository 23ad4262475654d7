"""Every transport whose packets are found in captures. A further one is a module, and its line here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from testbed.protocols.scale_up.frames import ETHERTYPE as SCALE_UP
from testbed.record.captures.decoders import infiniband, mac_control, roce, roce_v1, scale_up, uet
from testbed.record.captures.decoders.packet import CapturedPacket, CapturedTransport, Decoder
from testbed.record.captures.layers.content import CapturedDatagram, LeftAlone, LinkFrame
from testbed.record.captures.layers.names import name_ethertype
from testbed.record.captures.layers.walk import INFINIBAND, find_content
from testbed.record.captures.pcap import CapturedFrame

TRANSPORTS: Final[Mapping[int, CapturedTransport]] = MappingProxyType(
    {one.port: one for one in (uet.TRANSPORT, roce.TRANSPORT)}
)
"""By the UDP port of their packets."""
LINK_PROTOCOLS: Final[Mapping[int, str]] = MappingProxyType(
    {
        roce_v1.ETHERTYPE: roce_v1.NAME,
        SCALE_UP: scale_up.NAME,
        mac_control.ETHERTYPE: mac_control.NAME,
        INFINIBAND: infiniband.NAME,
    }
)
"""Names by the EtherType of their frames, or what stands for one."""
NAMES: Final[tuple[str, ...]] = (*(one.name for one in TRANSPORTS.values()), *LINK_PROTOCOLS.values())
"""The names of everything that is found."""


class PacketFinder:
    """Finds the packets of one capture: call `find` with its frames, in their order."""

    def __init__(self) -> None:
        self.left_alone: Counter[str] = Counter()
        """The number of frames that carried something else, by what people call it."""
        self._decoders: dict[int, Decoder] = {port: one.make_decoder() for port, one in TRANSPORTS.items()}
        self._links: dict[int, Callable[[LinkFrame], CapturedPacket | None]] = {
            roce_v1.ETHERTYPE: roce_v1.RoceV1Decoder(),
            SCALE_UP: scale_up.ScaleUpDecoder().find,
            mac_control.ETHERTYPE: mac_control.decode_frame,
            INFINIBAND: infiniband.InfinibandDecoder().find,
        }

    def find(self, frame: CapturedFrame) -> CapturedPacket | None:
        """The packet that a frame carries, in tunnels, too; None: it is left alone, and counted."""
        match find_content(frame, TRANSPORTS, LINK_PROTOCOLS):
            case CapturedDatagram() as datagram:
                return self._decoders[datagram.destination_port](datagram)
            case LinkFrame(ethertype=ethertype) as link_frame:
                found = self._links[ethertype](link_frame)
                if found is None:
                    name = "raw InfiniBand" if ethertype == INFINIBAND else name_ethertype(ethertype)
                    self.left_alone[name] += 1
                return found
            case LeftAlone(kind=kind):
                self.left_alone[kind] += 1
                return None
