"""Telemetry of the switch ports of a lab: counters of queues, links and shared buffers at one moment, or between two.

Counters are since the lab was deployed, or since an earlier reading; `queue_bytes`, `held_bytes` and `used_bytes` are
of the moment, and their maxima since the deploy or the last reset. Packets are counted with their Ethernet header.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

DEPTH_LIMITS_BYTES = tuple(2 ** (8 + number) for number in range(15))
"""Upper ends (exclusive) of the bins of a depth histogram; one more bin takes what is deeper."""


class DropCause(StrEnum):
    """Why a packet is gone. `WIRE` and `CAP` count at the port that would have received it, all others at an egress
    queue."""

    TAIL = "tail"
    """The queue's static limit."""
    BUFFER = "buffer"
    """The dynamic threshold of the shared buffer, or a full buffer."""
    WRED = "wred"
    """Not ECT where an ECT packet would have been marked (RFC 3168)."""
    HEADROOM = "headroom"
    """A lossless queue without headroom left: pause came too late."""
    PURGED = "purged"
    """Lost with the queue when the link went down."""
    WIRE = "wire"
    """The emulated loss of the link."""
    CAP = "cap"
    """More than the cap of the tenant whose port it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """Packets, and their bytes."""

    packets: int = 0
    bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(packets=self.packets + other.packets, bytes=self.bytes + other.bytes)

    def __bool__(self) -> bool:
        return bool(self.packets or self.bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTelemetry:
    """One traffic class of one port: its egress queue, what came in, and pausing each way.

    `depth` counts arrivals by the depth they found, in the bins of `DEPTH_LIMITS_BYTES`. `held_bytes` of what came in
    here is still in the switch. Pause frames and times: "received" holds this queue back, "sent" the peer's.
    """

    port: int
    node: str
    interface: str
    priority: int
    class_name: str
    lossless: bool
    offered: Amount
    enqueued: Amount
    sent: Amount
    forwarded: Amount
    """The part of the offered packets that came in at another port."""
    drops: Mapping[DropCause, Amount]
    ce_packets: int
    ce_among_packets: int
    """The packets among which `ce_packets` are counted, at the same moments: the enqueued, or the sent where a
    packet's mark is decided or counted as it leaves."""
    ect_packets: int
    trimmed: Amount
    """`bytes`: cut off."""
    queue_bytes: int
    queue_max_bytes: int
    depth: tuple[int, ...]
    received: Amount
    received_ce_packets: int
    corrupted_packets: int
    held_bytes: int
    held_max_bytes: int
    pause_frames_received: int
    pause_frames_sent: int
    malformed_frames: int
    paused_us: float
    peer_paused_us: float
    watchdog_events: int
    paused: bool
    """The queue's gate is closed now."""

    @property
    def place(self) -> str:
        return f"{self.node}:{self.interface}"

    @property
    def ce_share(self) -> float | None:
        """Which part of the packets was marked here; None: there were none."""
        return self.ce_packets / self.ce_among_packets if self.ce_among_packets else None

    @property
    def dropped(self) -> Amount:
        """The drops of all causes."""
        return sum(self.drops.values(), Amount())


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTelemetry:
    """One direction of a link: what a port sent in `seconds`, and the share (0..1) of its lab rate that this is."""

    node: str
    interface: str
    peer: str
    rate_bps: int
    seconds: float
    sent_bytes: int
    utilisation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SprayTelemetry:
    """Use of equal uplinks by a class of a switch: the most loaded one over the mean, 1 where they share evenly."""

    node: str
    class_name: str
    priority: int
    interfaces: tuple[str, ...]
    sent: tuple[Amount, ...]
    max_over_mean_bytes: float
    max_over_mean_packets: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferTelemetry:
    """A switch's shared buffer."""

    node: str
    used_bytes: int
    max_bytes: int
    size_bytes: int
