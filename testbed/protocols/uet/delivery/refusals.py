"""Packets that the peer has refused for want of room, and when each is sent again.

The first time a packet waits for NACK_Retx_Time, for room is often there again at once (UE Specification 1.0, figure
3-82). The specification leaves open how long it waits after that, and gives it Max_NACK_Retx_Cnt retransmissions. Here
the waits grow by a constant factor, to the longest time-out of a packet: so a peer that refuses is given about as much
time as one that is silent. They are spread by half, since those who were refused together would otherwise come again
together, and find no more room than before.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final

from testbed.protocols.uet.config import UetConfig
from testbed.protocols.uet.delivery.round_trips import LONGEST_RTO_NS
from testbed.protocols.uet.delivery.window import PacketState, TxPacket

_WAITING: Final = PacketState.WAITING
_PSN_FACTOR, _PDCID_FACTOR = 0x9E37_79B1, 0x85EB_CA6B
"""Odd and without a pattern: a product's upper bits are as good as random (multiplicative hashing)."""


class Refusals:
    """The refused packets of one sender."""

    def __init__(self, config: UetConfig, pdcid: int) -> None:
        self._config = config
        self._pdcid = pdcid
        self._waiting: list[tuple[int, int, TxPacket]] = []

    def add(self, packet: TxPacket, now: int) -> int:
        """Let a packet wait that was refused `packet.nacks` times; the time when it is sent again."""
        packet.state = _WAITING
        due = now + self._wait_ns(packet)
        heapq.heappush(self._waiting, (due, packet.psn, packet))
        return due

    def _wait_ns(self, packet: TxPacket) -> int:
        earlier = packet.nacks - 1
        first = self._config.nack_wait_ns
        if earlier == 0:
            return first
        word = (packet.psn + earlier) * _PSN_FACTOR + self._pdcid * _PDCID_FACTOR & 0xFFFF_FFFF
        spread = 0.5 + word / 0x1_0000_0000
        return int(min(first * self._config.nack_wait_growth**earlier * spread, LONGEST_RTO_NS))

    def due(self, now: int) -> Iterator[TxPacket]:
        """Take out the packets that are to be sent again now."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= now:
            _, _, packet = heapq.heappop(waiting)
            if packet.state == _WAITING:
                yield packet

    @property
    def next_due(self) -> int:
        """When the next one is to be sent again; 0: none waits."""
        return self._waiting[0][0] if self._waiting else 0
