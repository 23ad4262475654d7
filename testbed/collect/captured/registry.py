"""Every transport whose packets are found in captures. A further one is a module, and its line here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from testbed.collect.captured import roce, scale_up, uet
from testbed.collect.captured.packet import CapturedPacket, CapturedTransport, Decoder
from testbed.collect.datagrams import find_datagram
from testbed.collect.pcap import CapturedFrame

TRANSPORTS: Final[Mapping[int, CapturedTransport]] = MappingProxyType(
    {one.port: one for one in (uet.TRANSPORT, roce.TRANSPORT)}
)
"""By the UDP port of their packets."""
NAMES: Final[tuple[str, ...]] = (*(one.name for one in TRANSPORTS.values()), scale_up.NAME)
"""Of all that is found, scale-up links among it, which have no UDP."""


class PacketFinder:
    """Finds the packets of one capture: call `find` with its frames, in their order."""

    def __init__(self) -> None:
        self._decoders: dict[int, Decoder] = {port: one.make_decoder() for port, one in TRANSPORTS.items()}
        self._links = scale_up.ScaleUpDecoder()

    def find(self, frame: CapturedFrame) -> CapturedPacket | None:
        """The packet that a frame carries; None: it is none of a transport of ours."""
        datagram = find_datagram(frame, *TRANSPORTS)
        return self._links.find(frame) if datagram is None else self._decoders[datagram.destination_port](datagram)
