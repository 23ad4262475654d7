"""The counters and queues of all interfaces of a namespace as columns, for who asks again and again.

RTM_GETSTATS tells a twentieth of what RTM_GETLINK does of an interface, and all its answers are of one size, so that
numpy takes them apart at once: of 4,096 interfaces in a few milliseconds. Formats: struct if_stats_msg of
linux/if_link.h, struct gnet_stats_queue of linux/gen_stats.h.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.base.linux import rtnetlink
from testbed.base.linux.rtnetlink import RouteSocket

RX_BYTES, TX_BYTES, RX_ERRORS, RX_DROPPED, TX_DROPPED = 2, 3, 4, 6, 7
"""The columns of `read_statistics` (struct rtnl_link_stats64)."""
_COUNTERS = 8
_REQUEST = struct.pack("=BBHII", 0, 0, 0, 0, 1)
"""Asks for IFLA_STATS_LINK_64 alone."""
_LINK_64 = 1
_ANSWER = np.dtype(
    [
        ("length", "<u4"),
        ("kind", "<u2"),
        ("header", "V10"),
        ("family", "V4"),
        ("ifindex", "<u4"),
        ("mask", "V4"),
        ("attribute_length", "<u2"),
        ("attribute", "<u2"),
        ("counters", "<u8", (_COUNTERS,)),
    ]
)
_RTM_NEWSTATS = 92
_HEADER = struct.Struct("=IHHII")
_TCA_STATS2, _TCA_STATS_QUEUE = 7, 3
_KIND = 16 + rtnetlink.TCMSG.size
"""The place in a message of the name of its queue's kind (TCA_KIND), its first attribute."""
_QUEUE = struct.Struct("=III")
"""Packets waiting, bytes waiting, drops."""


def read_statistics(route: RouteSocket) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the index of each interface, and its counters: packets, bytes, errors and drops, received and sent."""
    indexes, counters = [], []
    for data in route.dump_whole(rtnetlink.RTM_GETSTATS, _REQUEST):
        for part in _runs(data):
            chosen = part[(part["kind"] == _RTM_NEWSTATS) & (part["attribute"] == _LINK_64)]
            indexes.append(chosen["ifindex"])
            counters.append(chosen["counters"])
    return np.concatenate(indexes), np.concatenate(counters).astype(np.int64)


def _runs(data: bytes) -> Iterable[NDArray[Any]]:
    """Return the messages of a datagram as arrays: a run of messages of one size is one."""
    offset = 0
    while offset + _ANSWER.itemsize <= len(data):
        length = _HEADER.unpack_from(data, offset)[0]
        size = (length + 3) & ~3
        if length < _ANSWER.itemsize:
            return
        most = (len(data) - offset) // size
        lengths = np.ndarray((most,), "<u4", data, offset, (size,))
        others = np.flatnonzero(lengths != length)
        count = int(others[0]) if len(others) else most
        if not count:
            return
        yield np.ndarray((count,), _ANSWER, data, offset, (size,))
        offset += count * size


class QueueReader:
    """Reads the root queue of each interface of a namespace. Where a message has it is found once for each size and
    kind of queue."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, bytes], int] = {}

    def read(self, route: RouteSocket) -> list[tuple[int, int, int]]:
        """Return the index of each interface, the bytes that wait in its root queue, and its drops so far."""
        found = []
        for data in route.dump_whole(rtnetlink.RTM_GETQDISC, rtnetlink.TCMSG.pack(0, 0, 0, 0, 0)):
            offset, end = 0, len(data)
            while offset + 36 <= end:
                length, kind, _, _, _ = _HEADER.unpack_from(data, offset)
                if kind == rtnetlink.RTM_NEWQDISC:
                    _, ifindex, _, parent, _ = rtnetlink.TCMSG.unpack_from(data, offset + 16)
                    if parent == rtnetlink.TC_H_ROOT and (place := self._place(data, offset, length)):
                        _, waiting, dropped = _QUEUE.unpack_from(data, offset + place)
                        found.append((ifindex, waiting, dropped))
                offset += (max(length, 16) + 3) & ~3
        return found

    def _place(self, data: bytes, offset: int, length: int) -> int:
        """Return where in a message its queue is; 0 where it has none."""
        key = length, data[offset + _KIND : offset + _KIND + 12]
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = _queue_place(data[offset : offset + length])
        return place


def _queue_place(message: bytes) -> int:
    at = 16 + rtnetlink.TCMSG.size
    for kind, begin, end in _attributes(message, at, len(message)):
        if kind == _TCA_STATS2:
            for part, first, _ in _attributes(message, begin, end):
                if part == _TCA_STATS_QUEUE:
                    return first
    return 0


def _attributes(message: bytes, at: int, end: int) -> Iterable[tuple[int, int, int]]:
    """The kind of each attribute, and where its content begins and ends."""
    while at + 4 <= end:
        length, kind = struct.unpack_from("=HH", message, at)
        if length < 4:
            return
        yield kind & 0x3FFF, at + 4, at + length
        at += (length + 3) & ~3
