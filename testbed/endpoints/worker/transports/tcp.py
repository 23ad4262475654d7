"""Transfers over the kernel's TCP.

Connections have the ports of the program, so that ECMP hashes them the same each time. They are ended by RST once
everybody is done, so that no port stays in TIME_WAIT. Buffers are the kernel's, which fits them to what is under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta

from testbed.base.typed_json import Text
from testbed.endpoints.worker.curves import MOST_CHANNELS, ChannelState
from testbed.endpoints.worker.poll_loop import WatchingLoop
from testbed.endpoints.worker.program import Program, Settings
from testbed.endpoints.worker.streams.channel_streams import ReceivingEnd, SendingEnd
from testbed.endpoints.worker.streams.rsocket import RSocket
from testbed.endpoints.worker.streams.stream_traffic import StreamTraffic
from testbed.endpoints.worker.streams.tcp_info import TcpInfo, read_tcp_info
from testbed.endpoints.worker.streams.tcp_socket import KernelSockets, SocketSource, TcpSocket
from testbed.endpoints.worker.traffic import ChannelEnd, Listener
from testbed.endpoints.worker.transport_registry import WorkerTransport

if TYPE_CHECKING:
    from testbed.endpoints.worker.buffers import CollectiveBuffers


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpSettings(Settings):
    """`congestion_control` is a name of the kernel's, None for its default; `tos` is the TOS byte without its ECN bits,
    which are the kernel's."""

    kind: ClassVar[str] = "tcp"
    carries_http: ClassVar[bool] = True
    congestion_control: Text | None = None
    tos: Annotated[int, Meta(ge=0, lt=256)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StackTcpSettings(TcpSettings):
    """Settings of a TCP of our own beside those of the kernel's. `mtu_bytes` are those of NICs, by address."""

    mtu_bytes: Mapping[str, int] = field(default_factory=dict)


class TcpTraffic(StreamTraffic):
    """Raises `TrafficError` where something cannot be set up. `Traffic` says what the methods do."""

    def __init__(
        self,
        program: Program,
        loop: WatchingLoop,
        buffers: CollectiveBuffers | None,
        listener: Listener,
        sockets: SocketSource | None = None,
    ) -> None:
        assert isinstance(program.transport, TcpSettings)
        self._sockets = KernelSockets() if sockets is None else sockets
        self._settings = program.transport
        super().__init__(program, loop, buffers, listener, self._sockets.now)

    def _socket(self, what: str) -> TcpSocket:
        return self._sockets.open(self._settings.congestion_control, self._settings.tos, what)

    # --- what is known -----------------------------------------------------------------------------------

    def sample(self) -> Iterable[tuple[int, ChannelState]]:
        for channel in self._outgoing[:MOST_CHANNELS]:
            end = self._sending.get(channel.index)
            if end is not None:
                info = _info(end)
                acked_bytes = max(0, info.acked_bytes - 1)  # without the SYN
                yield channel.index, ChannelState(acked_bytes, info.cwnd_bytes, info.rtt_us, info.retransmits)

    def ends(self) -> list[ChannelEnd]:
        found = []
        for index, sender in self._sending.items():
            info = _info(sender)
            found.append(
                ChannelEnd(
                    channel=index,
                    sent_bytes=sender.sent_bytes,
                    retransmits=info.retransmits,
                    packets=info.sent_packets,
                    min_rtt_us=info.min_rtt_us,
                    counters={
                        "delivered_ce": info.delivered_ce,
                        "duplicate_sacks": info.duplicate_sacks,
                        "reorderings_seen": info.reorderings_seen,
                        "busy_us": info.busy_us,
                        "receive_window_limited_us": info.receive_window_limited_us,
                        "send_buffer_limited_us": info.send_buffer_limited_us,
                    },
                )
            )
        for index, receiver in self._receiving.items():
            info = _info(receiver)
            counters = {"out_of_order": info.out_of_order, "received_packets": info.received_packets}
            found.append(ChannelEnd(channel=index, counters=counters))
        return found

    def counters(self) -> Mapping[str, int]:
        return {}


def _info(end: SendingEnd | ReceivingEnd) -> TcpInfo:
    assert not isinstance(end.connection, RSocket)
    return read_tcp_info(end.connection)


TRANSPORT = WorkerTransport(settings=TcpSettings, make_traffic=TcpTraffic)
