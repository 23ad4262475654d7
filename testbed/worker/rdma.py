"""Transfers over verbs: a reliable queue pair of the host's RDMA device for each channel, as rsocket(7) has them.

How packets are marked is the device's affair (`drivers.rdma.mark_connections`), and so are retransmissions. The kernel
chooses the UDP source ports, by the numbers of the queue pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from testbed.worker.curves import MOST_CHANNELS, ChannelState
from testbed.worker.errors import TrafficError
from testbed.worker.rsocket import RSocket
from testbed.worker.stream_traffic import StreamTraffic
from testbed.worker.traffic import ChannelEnd


class RdmaTraffic(StreamTraffic[RSocket]):
    """Raises `TrafficError` where something cannot be set up. `Traffic` says what the methods do."""

    def _socket(self, what: str) -> RSocket:
        try:
            return RSocket()
        except OSError as error:
            raise TrafficError(f"{what}: {error.strerror or error}") from error

    def _accepted(self, listener: RSocket) -> tuple[RSocket, tuple[str, int]]:
        return listener.accept()

    def _error(self, item: RSocket) -> int:
        return item.error()

    # --- what is known -----------------------------------------------------------------------------------

    def sample(self) -> Iterable[tuple[int, ChannelState]]:
        for channel in self._outgoing[:MOST_CHANNELS]:
            end = self._sending.get(channel.index)
            if end is not None:
                yield channel.index, ChannelState(end.sent_bytes, 0, 0.0, 0)

    def ends(self) -> list[ChannelEnd]:
        found = [ChannelEnd(channel=index, sent_bytes=end.sent_bytes) for index, end in self._sending.items()]
        return found + [ChannelEnd(channel=index) for index in self._receiving]

    def counters(self) -> Mapping[str, int]:
        return {}
