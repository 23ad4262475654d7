"""Marking curves as measured: the marks of switch queues by the depth that decided, whoever marks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from testbed.base.datapath.abi import CURVE_BINS, CURVE_BINS_TO_KMAX
from testbed.base.datapath.maps import LabMaps, Records
from testbed.base.datapath.markers import MARKERS
from testbed.base.datapath.traffic_class import ClassPlan
from testbed.base.linux.traffic_control import ETHERNET_HEADER_BYTES
from testbed.lab.core.plan.qos.qos_plan import PortProfile, QosTables
from testbed.lab.observe.port_table import PortTable
from testbed.record.samples import MarkingCurve
from testbed.workload.metrics.links import ideal_share

SLACK_FRAMES = 2
"""The packet that is being sent and the one on its way to the peer: our accounts still have them, the kernel's
markers have not."""


def read_marks(maps: LabMaps) -> Records:
    """A copy of what has been counted since the deploy, by port and priority."""
    copied: Records = maps.by_port("curves").copy()
    return copied


def watch_marks(maps: LabMaps, qos: QosTables, table: PortTable) -> Callable[[], list[MarkingCurve]]:
    """Read now; what is returned reads again and says what has been counted since."""
    before = read_marks(maps)
    return lambda: marking_curves(qos, table, before, read_marks(maps))


def marking_curves(qos: QosTables, table: PortTable, before: Records, after: Records) -> list[MarkingCurve]:
    """Return what was counted between two readings: the queues of one class with the same curve and marker together.

    Only those that met packets which allowed a mark.
    """
    grown: dict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
    kinds: dict[tuple[Any, ...], tuple[PortProfile, ClassPlan]] = {}
    counted = (after["packets"] - before["packets"]).sum(axis=2)
    for port, priority in np.argwhere(counted).tolist():
        if not table.seen[port]:
            continue
        profile = qos.profiles[int(table.profile[port])]
        item = next((each for each in profile.classes if each.priority == priority), None)
        if item is None or item.kmin_bytes is None or not item.kmax_bytes:
            continue
        key = (item.name, item.kmin_bytes, item.kmax_bytes, item.pmax, item.mark_by, item.mark_at)
        kinds[key] = profile, item
        grown[key].append((port, priority))
    return [_curve(*kinds[key], queues, before, after) for key, queues in grown.items()]


def _curve(
    profile: PortProfile, item: ClassPlan, queues: list[tuple[int, int]], before: Records, after: Records
) -> MarkingCurve:
    assert item.kmin_bytes is not None and item.kmax_bytes is not None
    rows = tuple(np.array(queues).T)
    width = item.kmax_bytes / CURVE_BINS_TO_KMAX
    edges = [number * width for number in range(CURVE_BINS)]
    slack = SLACK_FRAMES * (profile.mtu_bytes + ETHERNET_HEADER_BYTES)
    return MarkingCurve(
        class_name=item.name,
        marker=MARKERS[item.mark_by].title,
        queues=len(queues),
        kmin_bytes=item.kmin_bytes,
        kmax_bytes=item.kmax_bytes,
        pmax=item.pmax,
        edges_bytes=edges,
        packets=_sum(before, after, "packets", rows),
        marked=_sum(before, after, "marked", rows),
        ideal=[
            ideal_share(
                low,
                low + width,
                kmin_bytes=item.kmin_bytes,
                kmax_bytes=item.kmax_bytes,
                pmax=item.pmax,
                slack_bytes=slack,
            )
            for low in edges
        ],
    )


def _sum(before: Records, after: Records, name: str, rows: tuple[Any, ...]) -> list[int]:
    grown = after[name][rows] - before[name][rows]
    return [int(count) for count in grown.sum(axis=0)]
