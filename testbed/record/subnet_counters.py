"""The counters of an InfiniBand subnet, as a record keeps them of a run."""

from __future__ import annotations

from dataclasses import dataclass, field

from testbed.record.samples import Count, Number


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetLane:
    """The counters of a virtual lane of an InfiniBand port."""

    vl: Count
    xmit_pkts: Count
    """Frames that it sent."""
    xmit_wait_s: Number
    """PortVLXmitWait: how long frames of it could not be sent for want of credits."""
    deepest_blocks: Count
    """The most that its input buffer held, in blocks of 64 bytes."""
    marked: Count
    """Frames that got their FECN here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetPort:
    """The counters of an InfiniBand port, by the names of `perfquery`; data in words of 4 bytes."""

    node: str
    """The switch, or the HCA as HOST:INTERFACE."""
    port: Count
    xmit_data: Count
    rcv_data: Count
    xmit_pkts: Count
    rcv_pkts: Count
    xmit_wait_s: Number
    """PortXmitWait, as a time."""
    xmit_discards: Count
    rcv_errors: Count
    rcv_switch_relay_errors: Count
    xmit_constraint_errors: Count
    rcv_constraint_errors: Count
    vl15_dropped: Count
    lanes: list[SubnetLane] = field(default_factory=list)
    """The lanes that carried something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetLoad:
    """The load of an InfiniBand subnet while traffic ran."""

    engine: str
    """The routing engine whose tables were in force at the end."""
    vls: Count
    frames: Count
    """Frames that were put on a link, anywhere."""
    marked: Count
    """Frames that switches marked."""
    discards: Count
    """PortXmitDiscards of all ports."""
    lost: dict[str, Count]
    """Frames that went nowhere, by the counter that has them."""
    stuck: Count
    """Frames that wait for each other's buffers for ever."""
    deadlocked_s: Number | None
    """When the last frame moved that could, from the begin of the traffic; None: there was no deadlock."""
    xmit_wait_share: Number
    """The longest PortXmitWait of a port, over the time of the run."""
    ports: list[SubnetPort] = field(default_factory=list)
    """The ports that waited longest, and of those that did not, the busiest."""
