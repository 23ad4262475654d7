"""Transfers over the kernel's TCP.

Connections have the ports of the program, so that ECMP hashes them the same each time. They are ended by RST once
everybody is done, so that no port stays in TIME_WAIT. Buffers are the kernel's, which fits them to what is under way.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from testbed.agent import namespace
from testbed.worker.curves import MOST_CHANNELS, ChannelState
from testbed.worker.errors import TrafficError
from testbed.worker.json_values import Json, read_text, read_whole
from testbed.worker.poll_loop import WatchingLoop
from testbed.worker.program import Program, Settings
from testbed.worker.streams.stream_traffic import StreamTraffic
from testbed.worker.streams.tcp_info import read_tcp_info
from testbed.worker.traffic import ChannelEnd, Listener
from testbed.worker.transport_registry import WorkerTransport

if TYPE_CHECKING:
    from testbed.worker.buffers import CollectiveBuffers

_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpSettings(Settings):
    """`congestion_control` is a name of the kernel's, None for its default; `tos` is the TOS byte without its ECN bits,
    which are the kernel's."""

    kind: ClassVar[str] = "tcp"
    congestion_control: str | None = None
    tos: int = 0


class TcpTraffic(StreamTraffic[socket.socket]):
    """Raises `TrafficError` where something cannot be set up. `Traffic` says what the methods do."""

    def __init__(
        self, program: Program, loop: WatchingLoop, buffers: CollectiveBuffers | None, listener: Listener
    ) -> None:
        assert isinstance(program.transport, TcpSettings)
        self._namespace = namespace.entered()
        self._settings = program.transport
        super().__init__(program, loop, buffers, listener)

    def _socket(self, what: str) -> socket.socket:
        namespace.enter(self._namespace)  # connections follow one another, between turns for other hosts
        item = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            item.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            item.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
            item.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            item.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, self._settings.tos)
            if self._settings.congestion_control is not None:
                wanted = self._settings.congestion_control.encode()
                item.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, wanted)
        except OSError as error:
            item.close()
            if error.errno in (errno.ENOENT, errno.EPERM):
                name = self._settings.congestion_control or ""
                raise TrafficError(
                    f"this kernel lets nobody use the congestion control {name!r}; `testbed doctor` lists what it has,"
                    " and the lab VM's has dctcp and bbr"
                ) from error
            raise TrafficError(f"{what}: {error.strerror or error}") from error
        return item

    def _accepted(self, listener: socket.socket) -> tuple[socket.socket, tuple[str, int]]:
        item, peer = listener.accept()
        item.setblocking(False)
        item.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        item.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return item, peer

    def _error(self, item: socket.socket) -> int:
        return item.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)

    # --- what is known -----------------------------------------------------------------------------------

    def sample(self) -> Iterable[tuple[int, ChannelState]]:
        for channel in self._outgoing[:MOST_CHANNELS]:
            end = self._sending.get(channel.index)
            if end is not None:
                info = read_tcp_info(end.connection)
                acked_bytes = max(0, info.acked_bytes - 1)  # without the SYN
                yield channel.index, ChannelState(acked_bytes, info.cwnd_bytes, info.rtt_us, info.retransmits)

    def ends(self) -> list[ChannelEnd]:
        found = []
        for index, sender in self._sending.items():
            info = read_tcp_info(sender.connection)
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
            info = read_tcp_info(receiver.connection)
            counters = {"out_of_order": info.out_of_order, "received_packets": info.received_packets}
            found.append(ChannelEnd(channel=index, counters=counters))
        return found

    def counters(self) -> Mapping[str, int]:
        return {}


def _decode(values: dict[str, Json]) -> TcpSettings:
    cc = values["congestion_control"]
    return TcpSettings(
        congestion_control=None if cc is None else read_text(cc, "transport.congestion_control"),
        tos=read_whole(values["tos"], "transport.tos", 256),
    )


TRANSPORT = WorkerTransport(settings=TcpSettings, decode=_decode, make_traffic=TcpTraffic)
