"""The ports of a lab by number, as columns: names, rates, peers, classes. What turns an index of the maps into a place.

A port's number is that of its `InstallPort`, from 1 over all networks of the lab that have QoS; row 0 of every column
is no port. Columns of queues have the shape (ports + 1, CLASSES).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.base.datapath.abi import CLASSES
from testbed.base.datapath.markers import MARKERS, MarkAt
from testbed.base.datapath.traffic_class import ClassPlan
from testbed.base.errors import TestbedError
from testbed.base.names import choice_hint
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import CreateBridge, InstallPort


class NothingSelected(TestbedError):
    """A pattern or class name that no port of the lab has."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class UplinkGroup:
    """Equal uplinks of a switch: ports of one rate to the tier above, by number."""

    node: str
    ports: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PortTable:
    """The columns. `present` and `lossless` are of queues; `buffer` is an index of the map `buffers`, 0 for none."""

    lab: str
    k: float
    nodes: tuple[str, ...]
    interfaces: tuple[str, ...]
    rate_bps: NDArray[np.int64]
    peer: NDArray[np.int64]
    """The port at the other end of the link; 0 where that is on another machine."""
    switch: NDArray[np.bool_]
    buffer: NDArray[np.int64]
    profile: NDArray[np.int64]
    class_names: tuple[tuple[str, ...], ...]
    """By profile and priority; "" where the profile has no such class."""
    control_class: NDArray[np.int64]
    """The priority of ARP and neighbour discovery at each port."""
    seen: NDArray[np.bool_]
    """True for each port in the network that the table is of. Queues, switches, buffers and uplinks of others are left
    out."""
    present: NDArray[np.bool_]
    lossless: NDArray[np.bool_]
    marked_on_leaving: NDArray[np.bool_]
    """True for each queue whose marks are counted among the packets that leave it, not among those that enter it."""
    uplinks: tuple[UplinkGroup, ...]
    bridging: frozenset[str]
    """Nodes with a bridge, which may flood."""

    @property
    def count(self) -> int:
        return len(self.nodes) - 1

    def place(self, port: int) -> str:
        """`NODE:IF`; "" for no port."""
        return f"{self.nodes[port]}:{self.interfaces[port]}" if port else ""

    def class_name(self, port: int, priority: int) -> str:
        """The class's name, or its priority where the port has no such class."""
        return self.class_names[self.profile[port]][priority] or f"priority {priority}"

    def select(self, patterns: Sequence[str] = (), class_name: str | None = None) -> NDArray[np.bool_]:
        """Which queues the patterns (`NODE` or `NODE:IF`, with wildcards) and the class name mean; none: all.

        Raises `NothingSelected` for one that nothing matches.
        """
        chosen = np.zeros((self.count + 1, CLASSES), bool)
        numbers = np.flatnonzero(self.seen).tolist()
        places = [self.place(number) for number in numbers]
        chosen[[numbers[index] for index in matching_places(self.lab, places, patterns)]] = True
        if class_name is not None:
            wanted = np.array([[name == class_name for name in names] for names in self.class_names])
            if not wanted.any():
                known = sorted({name for names in self.class_names for name in names if name})
                raise NothingSelected(
                    f"{self.lab} has no traffic class {class_name!r}", hint=choice_hint(class_name, known)
                )
            chosen &= wanted[self.profile]
        return chosen


def matching_places(lab: str, places: Sequence[str], patterns: Sequence[str]) -> list[int]:
    """Indexes of the ports (`NODE:IF`) that the patterns (`NODE` or `NODE:IF`, with wildcards) mean; no pattern: all.

    Raises `NothingSelected` for a pattern that nothing matches.
    """
    if not patterns:
        return list(range(len(places)))
    found: set[int] = set()
    for pattern in patterns:
        whole = pattern if ":" in pattern else f"{pattern}:*"
        matching = [index for index, place in enumerate(places) if fnmatchcase(place, whole)]
        if not matching:
            known = places if ":" in pattern else [place.partition(":")[0] for place in places]
            hint = choice_hint(pattern, dict.fromkeys(known), "`testbed inspect links` lists the ports")
            raise NothingSelected(f"no port of {lab} matches {pattern!r}", hint=hint)
        found.update(matching)
    return sorted(found)


def tabulate_ports(plan: LabPlan) -> PortTable:
    """The table of a plan with QoS, of all networks or of that which it is seen in.

    Raises `ValueError` for a plan without QoS, whose ports have no maps.
    """
    if plan.tables is None:
        raise ValueError(f"{plan.lab} has no QoS, so no numbered ports")
    found = {item.port: item for item in plan.operations if isinstance(item, InstallPort)}
    inside = {item.port for item in plan.installs}
    installs = [found.get(number) for number in range(1, 1 + max(found, default=0))]  # None: a port that is gone

    def column(of: Callable[[InstallPort], Any], nothing: Any, kind: type) -> NDArray[Any]:
        """A value of each port, by number; `nothing` for a number that no port has."""
        return np.array([nothing, *(nothing if item is None else of(item) for item in installs)], kind)

    seen = column(lambda item: item.port in inside, False, bool)
    profile = column(lambda item: item.profile, 0, np.int64)
    peer = column(lambda item: item.peer if item.peer in found else 0, 0, np.int64)
    buffer = column(lambda item: item.buffer, 0, np.int64) * seen
    switch = column(lambda item: item.switch, False, bool) & seen
    names, present, lossless, leaving, control = [], [], [], [], []
    for item in plan.tables.profiles:
        by_priority = {each.priority: each for each in item.classes}
        names.append(tuple(by_priority[p].name if p in by_priority else "" for p in range(CLASSES)))
        present.append([p in by_priority for p in range(CLASSES)])
        lossless.append([p in by_priority and by_priority[p].lossless for p in range(CLASSES)])
        leaving.append([p in by_priority and _marks_on_leaving(by_priority[p]) for p in range(CLASSES)])
        control.append(item.control_class)
    rows_present = np.array(present, bool)[profile] & seen[:, None]
    return PortTable(
        lab=plan.lab,
        k=plan.k,
        nodes=("", *("" if item is None else item.node for item in installs)),
        interfaces=("", *("" if item is None else item.name for item in installs)),
        rate_bps=column(lambda item: item.rate_bps, 0, np.int64),
        peer=peer,
        switch=switch,
        buffer=buffer,
        profile=profile,
        class_names=tuple(names),
        control_class=np.array(control, np.int64)[profile],
        seen=seen,
        present=rows_present,
        lossless=np.array(lossless, bool)[profile] & rows_present,
        marked_on_leaving=np.array(leaving, bool)[profile] & rows_present,
        uplinks=_uplinks(plan),
        bridging=frozenset(item.node for item in plan.operations if isinstance(item, CreateBridge)),
    )


def _marks_on_leaving(item: ClassPlan) -> bool:
    """Marks at dequeue, and those of the kernel's qdiscs, are counted as a packet arrives at the link's other end."""
    return item.mark_at is MarkAt.DEQUEUE or bool(MARKERS[item.mark_by].qdisc)


def _uplinks(plan: LabPlan) -> tuple[UplinkGroup, ...]:
    roles = {switch.node: switch.role for switch in plan.switches}
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    numbers = plan.port_numbers
    for port in plan.ports:
        number = numbers.get(f"{port.node}:{port.name}")
        if number is None:
            continue
        own, other = roles.get(port.node), roles.get(port.peer.partition(":")[0])
        if own is not None and other is not None and other.tier > own.tier:
            groups[port.node, port.rate_bps].append(number)
    return tuple(UplinkGroup(node=node, ports=tuple(ports)) for (node, _), ports in groups.items() if len(ports) > 1)
