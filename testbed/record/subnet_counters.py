"""The counters of an InfiniBand subnet, as a record keeps them of a run."""

from __future__ import annotations

from dataclasses import dataclass, field

from testbed.record.samples import Count, Number


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetLane:
    """The counters of a virtual lane of an InfiniBand port."""

    vl: Count
    """The number of the virtual lane."""
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
    """The number of the port."""
    xmit_data: Count
    """PortXmitData: words of 4 bytes that it sent."""
    rcv_data: Count
    """PortRcvData: words of 4 bytes that it received."""
    xmit_pkts: Count
    """PortXmitPkts: frames that it sent."""
    rcv_pkts: Count
    """PortRcvPkts: frames that it received."""
    xmit_wait_s: Number
    """PortXmitWait, as a time."""
    xmit_discards: Count
    """PortXmitDiscards: frames that it discarded instead of sending them."""
    rcv_errors: Count
    """PortRcvErrors: frames that came with an error."""
    rcv_switch_relay_errors: Count
    """PortRcvSwitchRelayErrors: frames that the switch had no way on for."""
    xmit_constraint_errors: Count
    """PortXmitConstraintErrors: frames that were not sent for their P_Key."""
    rcv_constraint_errors: Count
    """PortRcvConstraintErrors: frames that were refused for their P_Key."""
    vl15_dropped: Count
    """VL15Dropped: frames of management that found no room."""
    lanes: list[SubnetLane] = field(default_factory=list)
    """The lanes that carried something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetLoad:
    """The load of an InfiniBand subnet while traffic ran."""

    engine: str
    """The routing engine whose tables were in force at the end."""
    vls: Count
    """The virtual lanes that links have."""
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
