"""How a switch spreads packets over equal-cost paths."""

from __future__ import annotations

from enum import StrEnum


class BalancingMode(StrEnum):
    """By the flow's hash, by its flowlets, or packet by packet. The order is that of the data path's codes."""

    FLOW = "flow"
    FLOWLET = "flowlet"
    SPRAY = "spray"
