"""Transfers over verbs: a reliable queue pair of the host's RDMA device for each channel, as rsocket(7) has them.

How packets are marked is the device's affair (`drivers.rdma.mark_connections`), and so are retransmissions. The kernel
chooses the UDP source ports, by the numbers of the queue pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from testbed.base.program_errors import TrafficError
from testbed.endpoints.worker.curves import MOST_CHANNELS, ChannelState
from testbed.endpoints.worker.poll_loop import PollLoop, WatchingLoop
from testbed.endpoints.worker.program import Program, Settings
from testbed.endpoints.worker.streams.rsocket import RSocket
from testbed.endpoints.worker.streams.stream_traffic import StreamTraffic
from testbed.endpoints.worker.traffic import ChannelEnd, Listener
from testbed.endpoints.worker.transport_registry import WorkerTransport

if TYPE_CHECKING:
    from testbed.endpoints.worker.buffers import CollectiveBuffers


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaSettings(Settings):
    """There is nothing to set here: the host's devices have what there is."""

    kind: ClassVar[str] = "rdma"


class RdmaTraffic(StreamTraffic):
    """Raises `TrafficError` where something cannot be set up. `Traffic` says what the methods do."""

    def __init__(
        self, program: Program, loop: WatchingLoop, buffers: CollectiveBuffers | None, listener: Listener
    ) -> None:
        if not isinstance(loop, PollLoop):
            raise TrafficError("this worker was not started for RDMA: its loop does not know such streams")
        super().__init__(program, loop, buffers, listener)

    def _socket(self, what: str) -> RSocket:
        try:
            return RSocket()
        except OSError as error:
            raise TrafficError(f"{what}: {error.strerror or error}") from error

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


TRANSPORT = WorkerTransport(settings=RdmaSettings, make_traffic=RdmaTraffic, make_loop=PollLoop)
