"""Every transport whose packets are found in captures. A further one is a module, and its line here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from testbed.collect.captured import roce, uet
from testbed.collect.captured.packet import CapturedPacket, CapturedTransport, Decoder
from testbed.collect.datagrams import find_datagram
from testbed.collect.pcap import CapturedFrame

TRANSPORTS: Final[Mapping[int, CapturedTransport]] = MappingProxyType(
    {one.port: one for one in (uet.TRANSPORT, roce.TRANSPORT)}
)
"""By the UDP port of their packets."""


class PacketFinder:
    """Finds the packets of one capture: call `find` with its frames, in their order."""

    def __init__(self) -> None:
        self._decoders: dict[int, Decoder] = {port: one.make_decoder() for port, one in TRANSPORTS.items()}

    def find(self, frame: CapturedFrame) -> CapturedPacket | None:
        """The packet that a frame carries; None: it is none of a transport of ours."""
        datagram = find_datagram(frame, *TRANSPORTS)
        return None if datagram is None else self._decoders[datagram.destination_port](datagram)
