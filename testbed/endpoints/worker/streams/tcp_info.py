"""The kernel's account of a TCP connection. Source: Linux, include/uapi/linux/tcp.h, struct tcp_info; tcp(7)."""

from __future__ import annotations

import socket
from struct import Struct
from typing import NamedTuple

from testbed.endpoints.worker.streams.tcp_socket import TcpSocket

_FIELDS = Struct("=8x24I4Q6I4Q2I2Q4I")
"""Up to `tcpi_snd_wnd` (Linux 5.4)."""
_SEND_MSS, _RTT, _CWND, _TOTAL_RETRANS = 2, 15, 18, 23
_BYTES_ACKED = 26
_MIN_RTT, _DATA_SEGS_IN, _DATA_SEGS_OUT = 31, 32, 33
_BUSY_TIME, _RWND_LIMITED, _SNDBUF_LIMITED = 35, 36, 37
_DELIVERED_CE = 39
_DSACK_DUPS, _REORD_SEEN, _RCV_OOOPACK = 42, 43, 44
_NO_RTT = (1 << 32) - 1


class TcpInfo(NamedTuple):
    """Packets are those with data; times in us."""

    cwnd_bytes: int
    rtt_us: int
    min_rtt_us: int | None
    acked_bytes: int
    retransmits: int
    sent_packets: int
    received_packets: int
    delivered_ce: int
    """Packets sent that were acknowledged as marked (0 where ECN was not negotiated)."""
    duplicate_sacks: int
    reorderings_seen: int
    out_of_order: int
    """Packets received out of order."""
    busy_us: int
    receive_window_limited_us: int
    send_buffer_limited_us: int


def read_tcp_info(connection: TcpSocket) -> TcpInfo:
    """Raises `OSError` if it is no TCP socket."""
    data = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _FIELDS.size)
    values = _FIELDS.unpack(data.ljust(_FIELDS.size, b"\0"))
    least = values[_MIN_RTT]
    return TcpInfo(
        cwnd_bytes=values[_CWND] * values[_SEND_MSS],
        rtt_us=values[_RTT],
        min_rtt_us=None if least == _NO_RTT else least,
        acked_bytes=values[_BYTES_ACKED],
        retransmits=values[_TOTAL_RETRANS],
        sent_packets=values[_DATA_SEGS_OUT],
        received_packets=values[_DATA_SEGS_IN],
        delivered_ce=values[_DELIVERED_CE],
        duplicate_sacks=values[_DSACK_DUPS],
        reorderings_seen=values[_REORD_SEEN],
        out_of_order=values[_RCV_OOOPACK],
        busy_us=values[_BUSY_TIME],
        receive_window_limited_us=values[_RWND_LIMITED],
        send_buffer_limited_us=values[_SNDBUF_LIMITED],
    )
