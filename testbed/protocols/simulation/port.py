"""An output port of a switch: three traffic classes, ECN, trimming, tail drop, and the line behind them.

Source: UE Specification 1.0, sections 3.6.17 (switch settings) and 4.1 (trimming). Where they are silent, this does as
the UEC congestion control simulator does: marking looks at what stays behind in the queue.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from testbed.protocols.datagram import Priority
from testbed.protocols.simulation.errors import ConfigurationError
from testbed.protocols.simulation.events import Actor, Events
from testbed.protocols.simulation.frame import Frame
from testbed.protocols.simulation.link import Line

if TYPE_CHECKING:
    from mypy_extensions import i64

CONTROL: Final = int(Priority.CONTROL)
"""It and what is above it, notifications, ride in the high class."""
RETRANSMISSION: Final = int(Priority.RETRANSMISSION)


@dataclass(frozen=True, slots=True, kw_only=True)
class EcnCurve:
    """Marking probability over the bytes in the low class: 0 up to `kmin`, linear to `pmax` at `kmax`, 1 beyond.

    `kmin == kmax` is a deterministic threshold: marked above it.
    """

    kmin_bytes: int
    kmax_bytes: int
    pmax: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.kmin_bytes <= self.kmax_bytes or not 0 <= self.pmax <= 1:
            raise ConfigurationError("an ECN curve needs 0 <= kmin <= kmax and 0 <= pmax <= 1")

    def probability(self, queue_bytes: int) -> float:
        if queue_bytes <= self.kmin_bytes:
            return 0.0
        if queue_bytes >= self.kmax_bytes:
            return 1.0 if queue_bytes > self.kmax_bytes else self.pmax
        return self.pmax * (queue_bytes - self.kmin_bytes) / (self.kmax_bytes - self.kmin_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortSettings:
    """Bytes are bytes on the wire; a frame joins a class if the class with it stays within the capacity.

    The frame on the line is no longer in the queue.
    """

    low_capacity_bytes: int
    medium_capacity_bytes: int
    high_capacity_bytes: int
    ecn: EcnCurve | None = None
    trim_threshold_bytes: int | None = None
    """Data that would bring its class above this is trimmed. None: no trimming, tail drop."""
    late_trim_threshold_bytes: int | None = None
    """The threshold for retransmissions, and for all data on the last hop. None: `trim_threshold_bytes`."""
    trim_bytes: int = 64
    """What trimming leaves of the UDP payload; shorter datagrams are not trimmed but dropped at the capacity."""
    retransmissions_medium: bool = False
    """Retransmissions ride in the medium class with what was trimmed, unmarked, instead of in the low class."""
    low_weight: int = 25
    medium_weight: int = 75
    """Shares in bytes of what the high class leaves, while both are backlogged."""

    def __post_init__(self) -> None:
        if min(self.low_capacity_bytes, self.medium_capacity_bytes, self.high_capacity_bytes) < 0:
            raise ConfigurationError("a capacity must not be negative")
        if min(self.low_weight, self.medium_weight) < 1:
            raise ConfigurationError("a weight must be at least 1")
        if self.trim_bytes < 24:
            raise ConfigurationError("trimming keeps at least MIN_TRIM_SIZE, 24 bytes (table 4-1)")
        if self.late_trim_threshold_bytes is not None and self.trim_threshold_bytes is None:
            raise ConfigurationError("late_trim_threshold_bytes needs a trim_threshold_bytes")

    @classmethod
    def for_plane(
        cls,
        plane_bdp_bytes: int,
        *,
        trimming: bool = True,
        deterministic_ecn: bool = False,
        drop_bdps: float = 5.0,
        medium_bdps: float = 1.0,
    ) -> PortSettings:
        """Return what section 3.6.17 advises; Plane_BDP is the lowest link rate times config_base_rtt.

        ECN from 0.2 to 0.8 Plane_BDP, or above 0.5. With trimming: low trims at 1 Plane_BDP (retransmissions and the
        last hop at 1.5), medium and high drop at 1. Without: low drops at `drop_bdps`, 2 to 5.

        `medium_bdps` is not the specification's: where a hundred hosts send to one, the headers of their first windows
        are more than 1 Plane_BDP, and each one that is dropped costs a time-out.
        """
        bdp = plane_bdp_bytes
        if deterministic_ecn:
            ecn = EcnCurve(kmin_bytes=bdp // 2, kmax_bytes=bdp // 2)
        else:
            ecn = EcnCurve(kmin_bytes=bdp * 2 // 10, kmax_bytes=bdp * 8 // 10)
        return cls(
            low_capacity_bytes=bdp * 3 // 2 if trimming else int(bdp * drop_bdps),
            medium_capacity_bytes=int(bdp * medium_bdps),
            high_capacity_bytes=bdp,
            ecn=ecn,
            trim_threshold_bytes=bdp if trimming else None,
            late_trim_threshold_bytes=bdp * 3 // 2 if trimming else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PortStatistics:
    """`frames` and `bytes` have left on the line; queues are bytes that wait, all classes together unless told."""

    frames: int
    bytes: int
    marked: int
    trimmed: int
    dropped: int
    dropped_low: int
    dropped_medium: int
    dropped_high: int
    max_queue_bytes: int
    max_low_queue_bytes: int
    mean_queue_bytes: float
    """Over time, from 0 to now."""
    queue_byte_ns: int
    """The integral under the mean, so that the mean over an interval is a difference of two."""


class Port(Actor):
    """Strict high class, then medium and low by weight; the queue is served as the line becomes free."""

    __slots__ = (
        "_balance",
        "_changed",
        "_draining",
        "_events",
        "_free",
        "_high",
        "_integral",
        "_low",
        "_medium",
        "_random",
        "dropped_high",
        "dropped_low",
        "dropped_medium",
        "high_bytes",
        "last_hop",
        "line",
        "low_bytes",
        "marked",
        "max_low_queue_bytes",
        "max_queue_bytes",
        "medium_bytes",
        "name",
        "settings",
        "trimmed",
    )

    def __init__(self, line: Line, settings: PortSettings, events: Events, random: Random, *, last_hop: bool) -> None:
        self.name = line.name
        self.line = line
        self.settings = settings
        self.last_hop = last_hop
        """The line leads to a host."""
        self.low_bytes = 0
        self.medium_bytes = 0
        self.high_bytes = 0
        self.marked = 0
        self.trimmed = 0
        self.dropped_low = 0
        self.dropped_medium = 0
        self.dropped_high = 0
        self.max_queue_bytes = 0
        self.max_low_queue_bytes = 0
        self._low: deque[Frame] = deque()
        self._medium: deque[Frame] = deque()
        self._high: deque[Frame] = deque()
        self._balance = 0
        """Above 0: medium has had more than its share, the low class is next."""
        self._free = 0
        """When the line is free."""
        self._draining = False
        """An event to serve the queue is scheduled."""
        self._integral = 0
        self._changed = 0
        """When the queue last changed: the integral is complete up to there."""
        self._events = events
        self._random = random

    @property
    def queued_bytes(self) -> int:
        return self.low_bytes + self.medium_bytes + self.high_bytes

    @property
    def queued_frames(self) -> int:
        return len(self._low) + len(self._medium) + len(self._high)

    def offer(self, now: int, frame: Frame) -> None:
        """Send, queue, trim or drop `frame`."""
        if not self._draining:
            if now >= self._free:
                self._free = self.line.send(now, frame)
                return
            if self._admit(now, frame):
                self._draining = True
                self._events.put(self._free, self, None)
            return
        self._admit(now, frame)

    def _admit(self, now: int, frame: Frame) -> bool:
        settings = self.settings
        size = frame.wire_bytes
        before = self.low_bytes + self.medium_bytes + self.high_bytes
        if frame.priority >= CONTROL:
            if self.high_bytes + size > settings.high_capacity_bytes:
                self.dropped_high += 1
                return False
            self.high_bytes += size
            self._high.append(frame)
        else:
            retransmission = frame.priority == RETRANSMISSION
            medium = frame.trimmed or (retransmission and settings.retransmissions_medium)
            if not frame.trimmed and self._is_to_trim(frame, medium, retransmission or self.last_hop):
                frame.trim(settings.trim_bytes, self.last_hop)
                self.trimmed += 1
                size = frame.wire_bytes
                medium = True
            if medium:
                if self.medium_bytes + size > settings.medium_capacity_bytes:
                    self.dropped_medium += 1
                    return False
                self.medium_bytes += size
                self._medium.append(frame)
            else:
                if self.low_bytes + size > settings.low_capacity_bytes:
                    self.dropped_low += 1
                    return False
                self.low_bytes += size
                self._low.append(frame)
                self.max_low_queue_bytes = max(self.max_low_queue_bytes, self.low_bytes)
        self._integral += before * (now - self._changed)
        self._changed = now
        self.max_queue_bytes = max(self.max_queue_bytes, before + size)
        return True

    def _is_to_trim(self, frame: Frame, medium: bool, late: bool) -> bool:
        settings = self.settings
        threshold = settings.trim_threshold_bytes
        if threshold is None or len(frame.data) <= settings.trim_bytes:
            return False
        if late and settings.late_trim_threshold_bytes is not None:
            threshold = settings.late_trim_threshold_bytes
        if medium:
            return self.medium_bytes + frame.wire_bytes > min(threshold, settings.medium_capacity_bytes)
        return self.low_bytes + frame.wire_bytes > min(threshold, settings.low_capacity_bytes)

    def act(self, now: i64, frame: Frame | None) -> None:
        """The line is free and something waits."""
        self._integral += (self.low_bytes + self.medium_bytes + self.high_bytes) * (now - self._changed)
        self._changed = now
        settings = self.settings
        low = self._low
        medium = self._medium
        if self._high:
            frame = self._high.popleft()
            self.high_bytes -= frame.wire_bytes
        elif medium and (not low or self._balance <= 0):
            frame = medium.popleft()
            self.medium_bytes -= frame.wire_bytes
            self._balance = self._balance + frame.wire_bytes * settings.low_weight if low else 0
        else:
            frame = low.popleft()
            self.low_bytes -= frame.wire_bytes
            self._balance = self._balance - frame.wire_bytes * settings.medium_weight if medium else 0
            ecn = settings.ecn
            if ecn is not None and self.low_bytes > ecn.kmin_bytes and not frame.ce:
                probability = ecn.probability(self.low_bytes)
                if probability >= 1 or self._random.random() < probability:
                    frame.ce = True
                    self.marked += 1
        self._free = free = self.line.send(now, frame)
        if low or medium or self._high:
            self._events.put(free, self, None)
        else:
            self._draining = False

    def statistics(self, now: int) -> PortStatistics:
        integral = self._integral + self.queued_bytes * (now - self._changed)
        return PortStatistics(
            frames=self.line.frames,
            bytes=self.line.bytes,
            marked=self.marked,
            trimmed=self.trimmed,
            dropped=self.dropped_low + self.dropped_medium + self.dropped_high,
            dropped_low=self.dropped_low,
            dropped_medium=self.dropped_medium,
            dropped_high=self.dropped_high,
            max_queue_bytes=self.max_queue_bytes,
            max_low_queue_bytes=self.max_low_queue_bytes,
            mean_queue_bytes=integral / now if now else 0.0,
            queue_byte_ns=integral,
        )
