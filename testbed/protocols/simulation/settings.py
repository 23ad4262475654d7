"""The settings of a simulated fabric's ports and switches: classes, thresholds in bytes, and load balancing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from testbed.base.datapath.abi import FIVE_TUPLE, BalancingMode, HashField
from testbed.base.datapath.traffic_class import ClassPlan

KINDS: Final = 8
"""The kinds of the hosts of one transport are so many: those of another one begin behind them."""


class PacketKind(IntEnum):
    """The kinds of datagrams that a switch tells apart: all but the last are the transport's `Priority`."""

    DATA = 0
    RETRANSMISSION = 1
    CONTROL = 2
    NOTIFICATION = 3
    TRIMMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricPortSettings:
    """The classes of a port. `priority_of` has the priority of each `PacketKind`; where hosts have several transports,
    those of each, `KINDS` places apart.

    With `trimming`, what a queue would refuse is cut to `trim_bytes` of UDP payload and goes on in the class of
    `PacketKind.TRIMMED`.
    """

    classes: tuple[ClassPlan, ...]
    priority_of: tuple[int, ...]
    trimming: bool = False
    trim_bytes: int = 36
    limit_packets: int = 0
    """So many packets may wait at the port, whatever their size; 0: there is no such bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchSettings:
    """`buffer_bytes` is what its queues share, 0 for no bound; `gap_ns` is that of flowlets.

    Where it adapts, a flow keeps to its path until another has `hysteresis_bytes` fewer queued; 0 with no `flowlets`:
    each packet goes where the least is. Where it pins destinations, `stride` of them in a row share a path.
    """

    balancing: BalancingMode = BalancingMode.FLOW
    seed: int = 0
    gap_ns: int = 0
    buffer_bytes: int = 0
    hash_fields: tuple[HashField, ...] = FIVE_TUPLE
    flowlets: bool = False
    hysteresis_bytes: int = 0
    stride: int = 1
