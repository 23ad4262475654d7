"""What the ports and switches of a simulated fabric are told: classes, thresholds in bytes, and load balancing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from testbed.protocols.simulation.errors import ConfigurationError

PRIORITIES: Final = 8
"""Of IEEE 802.1Q."""
UNLIMITED: Final = 1 << 61


class PacketKind(IntEnum):
    """What a switch sees of a datagram: all but the last are the transport's `Priority`."""

    DATA = 0
    RETRANSMISSION = 1
    CONTROL = 2
    NOTIFICATION = 3
    TRIMMED = 4


class Balancing(IntEnum):
    """How a switch spreads packets over ports that lead to the same place."""

    FLOW = 0
    """By a hash of the addresses and ports: a flow keeps its way."""
    FLOWLET = 1
    """The same, and another way after a gap."""
    SPRAY = 2
    """Packet by packet in turn, whatever they belong to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassSettings:
    """A traffic class of a port, in bytes. `priority` is its number, and that of its pause frames.

    A weighted class sends `quantum_bytes` in its turn. `limit_bytes` is the static tail drop; `alpha` the factor of
    what is free in the shared buffer, 0 for none; below `reserved_bytes` neither counts. `kmin_bytes` below 0: no ECN.
    `xoff_bytes`, `xon_bytes` and `hold_bytes` (XOFF and headroom together) are those of an input port, 0 for a lossy
    class.
    """

    priority: int
    strict: bool = False
    quantum_bytes: int = 1 << 14
    lossless: bool = False
    limit_bytes: int = UNLIMITED
    reserved_bytes: int = 0
    alpha: float = 0.0
    kmin_bytes: int = -1
    kmax_bytes: int = 0
    pmax: float = 1.0
    drop_non_ect: bool = False
    mark_at_dequeue: bool = False
    xoff_bytes: int = 0
    xon_bytes: int = 0
    hold_bytes: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.priority < PRIORITIES:
            raise ConfigurationError(f"a priority is from 0 to {PRIORITIES - 1}, not {self.priority}")
        if not self.strict and self.quantum_bytes < 1:
            raise ConfigurationError(f"class {self.priority} would never have its turn: its quantum is 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricPortSettings:
    """The classes of a port. `priority_of` has the priority of each `PacketKind`.

    With `trimming`, what a queue would refuse is cut to `trim_bytes` of UDP payload and goes on in the class of
    `PacketKind.TRIMMED`. `curve_bins` is how many bins there are to count marks by depth, `bins_to_kmax` how many of
    them lie below Kmax.
    """

    classes: tuple[ClassSettings, ...]
    priority_of: tuple[int, int, int, int, int]
    trimming: bool = False
    trim_bytes: int = 36
    curve_bins: int = 24
    bins_to_kmax: int = 16

    def __post_init__(self) -> None:
        known = [item.priority for item in self.classes]
        if len(set(known)) != len(known):
            raise ConfigurationError("two classes of a port have the same priority")
        for priority in self.priority_of:
            if priority not in known:
                raise ConfigurationError(f"packets are to go to priority {priority}, which no class of the port has")


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchSettings:
    """`buffer_bytes` is what its queues share, 0 for no bound; `gap_ns` is that of flowlets."""

    balancing: Balancing = Balancing.FLOW
    seed: int = 0
    gap_ns: int = 0
    buffer_bytes: int = 0
