"""Metrics of an InfiniBand subnet: what its ports discarded, marked, and could not send."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from testbed.base.metric import Better, MetricFamily, MetricUnit, as_measured

INFINIBAND = MetricFamily()
_IBTA = "InfiniBand Architecture Specification volume 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetCarried:
    """The load of an InfiniBand subnet; counts are of frames."""

    xmit_wait_share: float
    """The longest that a port had data and could not send it, over the time of the run."""
    discards: int
    """Frames that ports discarded instead of sending them (PortXmitDiscards)."""
    lost: int
    """Frames that went nowhere, for whatever cause."""
    marked: int
    """Frames that switches marked (FECN), over all hops."""
    stuck: int
    """Frames that wait for each other's buffers, so that none of them ever moves; 0 where there is no deadlock."""


def _value(
    name: str, title: str, unit: MetricUnit, formula: str, source: str, read: Callable[[SubnetCarried], float]
) -> None:
    INFINIBAND.metric(
        name=f"ib_{name}",
        title=title,
        unit=unit,
        better=Better.LESS,
        formula=formula,
        source=source,
        takes=lambda run: (read(run[SubnetCarried]),),
    )(as_measured)


_value(
    "wait_share",
    "Longest wait of an InfiniBand port, share",
    MetricUnit.SHARE,
    "time that a port had data and sent none for want of credits, at the port where that was longest / time of the run",
    f"{_IBTA}, PortXmitWait",
    lambda run: run.xmit_wait_share,
)
_value(
    "discards",
    "InfiniBand frames discarded",
    MetricUnit.COUNT,
    "frames that ports discarded instead of sending them, such as those to a link that is down",
    f"{_IBTA}, PortXmitDiscards",
    lambda run: run.discards,
)
_value(
    "lost",
    "InfiniBand frames lost",
    MetricUnit.COUNT,
    "frames that went nowhere: discarded, refused for their P_Key, without a route, or on a link that went down",
    f"{_IBTA}, section 16.1.3.5 (PortCounters)",
    lambda run: run.lost,
)
_value(
    "marked",
    "InfiniBand frames marked",
    MetricUnit.COUNT,
    "frames that got their FECN at a switch",
    f"{_IBTA}, annex A10",
    lambda run: run.marked,
)
_value(
    "deadlocked",
    "InfiniBand deadlock",
    MetricUnit.COUNT,
    "1 where frames wait for each other's buffers, so that none of them ever moves, else 0",
    "Dally and Towles, Principles and Practices of Interconnection Networks, chapter 14",
    lambda run: float(run.stuck > 0),
)
