"""Ends of scale-up links on a fake clock: ports with a rate, wires that delay, lose and damage, sinks."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from link_end import LinkConfig, Offered, ScaleUpLink

from testbed.protocols.scale_up.credits import NEVER
from testbed.protocols.scale_up.frames import DataFrame, FrameCheck
from testbed.protocols.scale_up.headers import SueHeader

FIRST, SECOND = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")
OVERHEAD_BYTES = 14 + 4 + 8 + 4
"""The overhead of a frame with a SUE header: Ethernet, prefix, header, FCS."""
Fault = Callable[[bytes], bytes | None]
"""Turns a frame into what arrives of it: the same, a damaged one, or None."""


def frame_of(size: int, *, vc: int = 0, number: int = 0, check: FrameCheck = FrameCheck.GOOD) -> DataFrame:
    """A frame of `size` bytes in all whose payload begins with `number`, as far as there is room."""
    room = size - OVERHEAD_BYTES
    payload = number.to_bytes(8, "big")[-room:] if room < 8 else number.to_bytes(8, "big") + bytes(room - 8)
    header = SueHeader(operation=0, xpu=1, next_psn=number & 0xFFFF, vc=0, partition=0, acked_psn=0)
    return DataFrame(SECOND, FIRST, vc, header, payload if room else b"", check=check)


def number_of(frame: DataFrame) -> int:
    return int.from_bytes(frame.payload[:8], "big")


def damaged(data: bytes) -> bytes:
    """As the lab's wire damages a frame: one bit of its last byte."""
    return data[:-1] + bytes([data[-1] ^ 0x40])


def never_lost(data: bytes) -> bytes | None:
    return data


class Clock:
    """Runs what is due in the order of time, and of asking for it."""

    def __init__(self) -> None:
        self.now = 0
        self.events = 0
        """That have happened."""
        self._turn = count()
        self._events: list[tuple[int, int, Callable[[], None]]] = []

    def at(self, time: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(time, self.now), next(self._turn), action))

    def run(self, until: int) -> None:
        """Up to a time, or until nothing is left to happen."""
        while self._events and self._events[0][0] <= until:
            self.now, _, action = heapq.heappop(self._events)
            self.events += 1
            action()
        self.now = max(self.now, until)


@dataclass
class Backlog:
    """Frames that wait at a port, of some VCs in turn."""

    frames: dict[int, deque[DataFrame]] = field(default_factory=dict)
    endless: dict[int, DataFrame] = field(default_factory=dict)
    """By VC: a frame that is sent again and again."""
    _last: int = -1

    def add(self, frame: DataFrame) -> None:
        self.frames.setdefault(frame.vc, deque()).append(frame)

    def heads(self) -> Iterator[tuple[int, DataFrame]]:
        vcs = sorted({vc for vc, waiting in self.frames.items() if waiting} | set(self.endless))
        for vc in [vc for vc in vcs if vc > self._last] + [vc for vc in vcs if vc <= self._last]:
            waiting = self.frames.get(vc)
            yield vc, waiting[0] if waiting else self.endless[vc]

    def taken(self, vc: int) -> None:
        self._last = vc
        if waiting := self.frames.get(vc):
            waiting.popleft()

    def __len__(self) -> int:
        return sum(map(len, self.frames.values()))


class LinkEnd:
    """A port: one end of a link, what waits to be sent, and what happens to what arrives."""

    def __init__(self, clock: Clock, config: LinkConfig, *, rate_bps: int, delay_ns: int = 500) -> None:
        self.clock = clock
        self.link = ScaleUpLink(config)
        self.rate_bps, self.delay_ns = rate_bps, delay_ns
        self.backlog = Backlog()
        self.fault: Fault = never_lost
        self.peer: LinkEnd | None = None
        self.received: list[DataFrame] = []
        self.drain_bps: dict[int, int] = {}
        """By VC: how fast frames leave the buffer; 0: not at all; not there: at once."""
        self.on_frame: Callable[[DataFrame, int], None] = self._drain
        self.sent_bytes: dict[int, int] = {}
        self.drained_bytes: dict[int, int] = {}
        self.discarded = 0
        self._busy_until = 0
        self._drained_at: dict[int, int] = {}
        self._waiting: dict[int, deque[int]] = {}
        self._wake_at = NEVER

    def start(self) -> None:
        self.link.start(self.clock.now)
        self.pump()

    def pump(self) -> None:
        """Send what may be sent now, and come back when there may be more."""
        now = self.clock.now
        self._send_control(now)
        while now >= self._busy_until and (data := self._next(now)) is not None:
            self._busy_until = now + len(data) * 8 * 1_000_000_000 // self.rate_bps
            self._carry(data, self._busy_until)
            self.clock.at(self._busy_until, self.pump)
        self._sleep(now)

    def arrive(self, data: bytes) -> None:
        frame = self.link.receive(data, self.clock.now)
        if frame is not None:
            self.received.append(frame)
            self.on_frame(frame, len(data))
        self.pump()

    def free(self, vc: int, size: int) -> None:
        self.drained_bytes[vc] = self.drained_bytes.get(vc, 0) + size
        self.link.free(vc, size)

    def resume(self, vc: int, bps: int | None) -> None:
        """Drain a VC at another rate from now on; None: at once."""
        if bps is None:
            self.drain_bps.pop(vc, None)
        else:
            self.drain_bps[vc] = bps
        self._drain_next(vc)

    def _send_control(self, now: int) -> None:
        for data in self.link.poll(now):
            self._carry(data, now)

    def _next(self, now: int) -> bytes | None:
        data = self.link.next_frame(now)
        if data is not None:
            return data
        for vc, frame in self.backlog.heads():
            offered, data = self.link.offer(frame, now)
            if offered is Offered.DISCARDED:
                self.discarded += 1
            if offered in (Offered.SENT, Offered.DISCARDED):
                self.backlog.taken(vc)
            if data is not None:
                self.sent_bytes[vc] = self.sent_bytes.get(vc, 0) + len(data)
                return data
        return None

    def _carry(self, data: bytes, leaves_at: int) -> None:
        assert self.peer is not None
        carried = self.fault(data)
        if carried is not None:
            peer = self.peer
            self.clock.at(leaves_at + self.delay_ns, lambda: peer.arrive(carried))

    def _sleep(self, now: int) -> None:
        """Be called when a timer of the link expires, once for each time that is nearer than the one before."""
        due = self.link.next_timer()
        if now < due < NEVER and (due < self._wake_at or self._wake_at <= now):
            self._wake_at = due
            self.clock.at(due, self.pump)

    def _drain(self, frame: DataFrame, size: int) -> None:
        if frame.vc not in self.drain_bps:
            self.free(frame.vc, size)
            return
        waiting = self._waiting.setdefault(frame.vc, deque())
        waiting.append(size)
        if len(waiting) == 1:
            self._drain_next(frame.vc)

    def _drain_next(self, vc: int) -> None:
        waiting, bps = self._waiting.get(vc), self.drain_bps.get(vc)
        if not waiting or bps == 0:
            return
        begun = max(self.clock.now, self._drained_at.get(vc, 0))
        self._drained_at[vc] = begun + (waiting[0] * 8 * 1_000_000_000 // bps if bps else 0)
        self.clock.at(self._drained_at[vc], lambda: self._drained(vc))

    def _drained(self, vc: int) -> None:
        waiting = self._waiting[vc]
        if waiting and self.drain_bps.get(vc) != 0:
            self.free(vc, waiting.popleft())
            self._drain_next(vc)
            self.pump()


def connect(first: LinkEnd, second: LinkEnd) -> None:
    first.peer, second.peer = second, first
