"""The wires of a lab with QoS, as its topology declares them, in the data path: losses, and where delays are.

A loss belongs to the port that receives. A delay is an interface that a port's arrivals go through (`DelayPort`): its
index is written once it is there, and taken away before it goes, or packets would be sent to nowhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.base.datapath.abi import PROBABILITY_ONE
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import DelayPort, Operation

if TYPE_CHECKING:
    from testbed.base.datapath.maps import LabMaps


def probability(share: float) -> int:
    """A share as the data path takes it: 2^32 - 1 is all, and only 0 is none."""
    return max(1, round(share * PROBABILITY_ONE)) if share > 0 else 0


def declare_wires(directory: Path, plan: LabPlan) -> None:
    """Write the losses that the topology declares, and where delays are, into the fresh maps pinned in `directory`."""
    if not _delays(plan) and not any(_losses(plan).values()):
        return
    from testbed.base.datapath.maps import LabMaps

    with contextlib.closing(LabMaps.open(directory, writable=True)) as maps:
        fill_wires(maps, plan)


def fill_wires(maps: LabMaps, plan: LabPlan) -> None:
    """`declare_wires` for maps that are open."""
    for port, loss in _losses(plan).items():
        if loss:
            maps.ports["loss"][port] = probability(loss)
    for port, ifindex in _delays(plan).items():
        maps.ports["delay_ifindex"][port] = ifindex


def change_losses(maps: LabMaps, old: LabPlan, new: LabPlan) -> None:
    """Write the losses of wires that a new plan has otherwise into the maps of a lab that is up.

    Those that stay are not written, so that what was set by hand stays. A port may be at the end of another wire now.
    """
    before = _losses(old)
    for port, loss in _losses(new).items():
        if before.get(port) != loss:
            maps.ports["loss"][port] = probability(loss)


def lead_to_delays(maps: LabMaps, operations: Iterable[Operation], *, there: bool) -> None:
    """Lead what ports receive to the interfaces that delay it, which are `there`; or past them, before they go."""
    for item in operations:
        if isinstance(item, DelayPort) and not item.clsact:
            maps.ports["delay_ifindex"][item.port] = item.ifb_ifindex if there else 0


def _losses(plan: LabPlan) -> dict[int, float]:
    """The loss on the wire to each port, by the port's number."""
    numbers = plan.port_numbers
    return {numbers[port.peer]: port.loss for port in plan.ports if port.peer in numbers}


def _delays(plan: LabPlan) -> dict[int, int]:
    """The index of the interface that delays what a port receives, by the port's number."""
    return {item.port: item.ifb_ifindex for item in plan.operations if isinstance(item, DelayPort) and not item.clsact}
