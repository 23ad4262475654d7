"""The settings of a simulated fabric's ports and switches: classes, thresholds in bytes, and load balancing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from testbed.base.datapath.abi import CLASSES, BalancingMode
from testbed.base.datapath.traffic_class import ClassPlan
from testbed.protocols.simulation.errors import ConfigurationError


class PacketKind(IntEnum):
    """The kinds of datagrams that a switch tells apart: all but the last are the transport's `Priority`."""

    DATA = 0
    RETRANSMISSION = 1
    CONTROL = 2
    NOTIFICATION = 3
    TRIMMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricPortSettings:
    """The classes of a port. `priority_of` has the priority of each `PacketKind`.

    With `trimming`, what a queue would refuse is cut to `trim_bytes` of UDP payload and goes on in the class of
    `PacketKind.TRIMMED`.
    """

    classes: tuple[ClassPlan, ...]
    priority_of: tuple[int, int, int, int, int]
    trimming: bool = False
    trim_bytes: int = 36

    def __post_init__(self) -> None:
        for item in self.classes:
            if not 0 <= item.priority < CLASSES:
                raise ConfigurationError(f"a priority is from 0 to {CLASSES - 1}, not {item.priority}")
            if not item.strict and item.quantum_bytes < 1:
                raise ConfigurationError(f"class {item.priority} would never have its turn: its quantum is 0")
        known = [item.priority for item in self.classes]
        if len(set(known)) != len(known):
            raise ConfigurationError("two classes of a port have the same priority")
        for priority in self.priority_of:
            if priority not in known:
                raise ConfigurationError(f"packets are to go to priority {priority}, which no class of the port has")


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchSettings:
    """`buffer_bytes` is what its queues share, 0 for no bound; `gap_ns` is that of flowlets."""

    balancing: BalancingMode = BalancingMode.FLOW
    seed: int = 0
    gap_ns: int = 0
    buffer_bytes: int = 0
