"""The drift of a lab's data path: numbers in the maps of its eBPF programs that are others than its plan says.

What a port does with packets stands in maps: the numbers of the port, of its profile and of its switch's buffer, and
from when on it pauses its peer. Counters stand there as well, and what `link set`, faults and the seeds of runs change;
these are not compared.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from testbed.base.datapath import pins
from testbed.base.errors import DriverError
from testbed.base.names import first_few
from testbed.lab.core.deploy.changing.drift.kernel_drift import BY_HAND
from testbed.lab.core.drivers.netlink.port_programs import write_maps
from testbed.lab.core.plan.changes import ChangeRow, Effect
from testbed.lab.core.plan.operations import InstallPort

if TYPE_CHECKING:
    from testbed.base.datapath.maps import LabMaps
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.core.plan.lab_plan import LabPlan

OF_PORT = (
    "ifindex",
    "buffer",
    "flags",
    "balancing",
    "peer",
    "gap_ns",
    "hash_fields",
    "stride",
    "hysteresis_bytes",
    "cap_bps",
    "cap_burst_ns",
    "profile",
)
"""The numbers of a port that a plan alone decides."""
OF_INGRESS = ("limit_bytes", "xon_bytes", "xoff_bytes")
SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPathDrift:
    """The ports whose numbers are written again, with a row for each thing that has others than the plan's."""

    rows: tuple[ChangeRow, ...] = ()
    ports: Sequence[InstallPort] = field(default=())

    def __bool__(self) -> bool:
        return bool(self.rows)


def look_at_data_path(lab: RunningLab) -> DataPathDrift:
    """Return how the maps of a lab differ from its plan; nothing without QoS, or where they are gone, which its nodes
    tell. Touches nothing."""
    if lab.plan.tables is None:
        return DataPathDrift()
    from testbed.base.datapath.maps import LabMaps

    try:
        maps = LabMaps.open(pins.lab_directory(lab.processes_directory), with_room=True)
    except DriverError:
        return DataPathDrift()
    with contextlib.closing(maps):
        return data_path_drift(lab.plan, maps)


def data_path_drift(plan: LabPlan, maps: LabMaps) -> DataPathDrift:
    """Return how maps differ from a plan with QoS."""
    if plan.tables is None:
        raise ValueError(f"{plan.lab} has no data path")
    installs = [item for item in plan.operations if isinstance(item, InstallPort)]
    wanted = _empty_like(maps)
    write_maps(wanted, plan.tables, installs)
    profiles = [
        index
        for index in sorted({item.profile for item in installs})
        if maps.profiles[index].tobytes() != wanted.profiles[index].tobytes()
    ]
    buffers = [
        index
        for index in range(len(plan.tables.buffers))
        if maps.buffers["size_bytes"][index] != wanted.buffers["size_bytes"][index]
    ]
    others = {item: names for item in installs if (names := list(_differing(maps, wanted, item)))}
    rows = [_row(item.node, f"port {item.node}:{item.name}", "port", names) for item, names in others.items()]
    for index in profiles:
        named = [f"{item.node}:{item.name}" for item in installs if item.profile == index]
        rows.append(_row("", f"the QoS of {first_few(named, SHOWN)}", "profile", ["classes"]))
    for index in buffers:
        node = plan.tables.buffers[index].node
        rows.append(_row(node, f"the buffer of {node}", "buffer", ["size_bytes"]))
    again = [item for item in installs if item in others or item.profile in profiles]
    return DataPathDrift(rows=tuple(rows), ports=again or installs[:1] if rows else ())


def repair_data_path(lab: RunningLab, drift: DataPathDrift) -> None:
    """Write the numbers of a plan again where they are others. Raises `DriverError`."""
    if not drift or lab.plan.tables is None:
        return
    from testbed.base.datapath.maps import LabMaps

    directory = pins.lab_directory(lab.processes_directory)
    with contextlib.closing(LabMaps.open(directory, writable=True, with_room=True)) as maps:
        write_maps(maps, lab.plan.tables, drift.ports)


def _empty_like(maps: LabMaps) -> LabMaps:
    import numpy as np

    from testbed.base.datapath.maps import MAPS, LabMaps

    sizes = {name: len(getattr(maps, name)) for name in MAPS}
    return LabMaps({name: np.zeros(sizes[name], kind) for name, kind in MAPS.items()})


def _differing(maps: LabMaps, wanted: LabMaps, item: InstallPort) -> Iterator[str]:
    """Yield the names of the numbers of a port that are others."""
    found, meant = maps.ports[item.port], wanted.ports[item.port]
    yield from (name for name in OF_PORT if found[name] != meant[name])
    here, there = (each.by_port("ingress")[item.port] for each in (maps, wanted))
    yield from (name for name in OF_INGRESS if _others(here[name], there[name]))


def _others(one: Any, other: Any) -> bool:
    return bool((one != other).any())


def _row(node: str, what: str, kind: str, names: Sequence[str]) -> ChangeRow:
    detail = f"numbers of the data path: {first_few(names, SHOWN)}"
    return ChangeRow(effect=Effect.CHANGED, node=node, what=what, kind=kind, detail=detail, reason=BY_HAND)
