"""The numbers by which a lab's data path knows its ports, profiles and buffers, and how a changed plan keeps them.

A plan numbers them in the order of its links and switches, so that one link more in the middle renumbers all that
follow. The maps of a lab that is up are indexed by these numbers, and counters stand in them. So a plan that changes
such a lab is renumbered (`keep_numbers`): what was there keeps its number, what is new takes the lowest free one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TypeVar

from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import DelayPort, InstallPort, Operation
from testbed.lab.core.plan.qos.qos_plan import BufferPlan, PortProfile, QosTables

_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPathNumbers:
    """The numbers of a lab as it is up: of ports by "node:interface", of buffers by switch, of profiles by a digest of
    all that they say."""

    ports: Mapping[str, int]
    buffers: Mapping[str, int]
    profiles: Mapping[str, int]

    def to_json(self) -> dict[str, Mapping[str, int]]:
        """Return them for the record of the lab, from which they are made again."""
        return {"ports": self.ports, "buffers": self.buffers, "profiles": self.profiles}


def numbers_of(plan: LabPlan) -> DataPathNumbers:
    """Return the numbers that a plan gives; none where no network has QoS."""
    tables = plan.tables
    if tables is None:
        return DataPathNumbers(ports={}, buffers={}, profiles={})
    named = {item.profile for item in plan.operations if isinstance(item, InstallPort)}  # others are placeholders
    return DataPathNumbers(
        ports=plan.port_numbers,
        buffers={buffer.node: index for index, buffer in enumerate(tables.buffers) if buffer.node},
        profiles={_digest(tables.profiles[index]): index for index in sorted(named)},
    )


def keep_numbers(plan: LabPlan, before: DataPathNumbers) -> LabPlan:
    """Return the plan with the numbers of `before` for all that was there. Raises `ValueError` without QoS."""
    if plan.tables is None:
        raise ValueError(f"{plan.lab} has no data path")
    installs = [item for item in plan.operations if isinstance(item, InstallPort)]
    ports = _kept((f"{item.node}:{item.name}" for item in installs), before.ports, first=1)
    profiles = _kept(map(_digest, plan.tables.profiles), before.profiles, first=0)
    buffers = _kept((buffer.node for buffer in plan.tables.buffers if buffer.node), before.buffers, first=1)
    port = {item.port: ports[f"{item.node}:{item.name}"] for item in installs}
    profile = {index: profiles[_digest(each)] for index, each in enumerate(plan.tables.profiles)}
    buffer = {index: buffers.get(each.node, 0) for index, each in enumerate(plan.tables.buffers)}

    def renumbered(item: Operation) -> Operation:
        match item:
            case InstallPort():
                number, peer = port[item.port], port[item.peer]
                its, shared = profile[item.profile], buffer[item.buffer]
                if (number, peer, its, shared) != (item.port, item.peer, item.profile, item.buffer):
                    return replace(item, port=number, peer=peer, profile=its, buffer=shared)
            case DelayPort() if not item.clsact and port[item.port] != item.port:
                return replace(item, port=port[item.port])
        return item

    tables = QosTables(
        profiles=_placed(plan.tables.profiles, profile),
        buffers=_placed(plan.tables.buffers, buffer),
        destinations=plan.tables.destinations,
        egresses=tuple(
            sorted((buffer[switch], interface, port[number]) for switch, interface, number in plan.tables.egresses)
        ),
    )
    return replace(plan, operations=tuple(map(renumbered, plan.operations)), tables=tables)


def _kept(keys: Iterable[_Key], before: Mapping[_Key, int], *, first: int) -> dict[_Key, int]:
    """Number `keys`: as before what was there, and with the lowest numbers that nothing had what is new.

    A number that is given up is free from the next change on: until this one is through, the old one is still in use.
    """
    taken = set(before.values())
    free = (number for number in count(first) if number not in taken)
    return {key: before[key] if key in before else next(free) for key in keys}


_Item = TypeVar("_Item", PortProfile, BufferPlan)


def _placed(items: Sequence[_Item], number: Mapping[int, int]) -> tuple[_Item, ...]:
    """Put items at their numbers. A number that nothing has any more is that of the first item: no port names it."""
    places = {number[index]: item for index, item in enumerate(items)}
    return tuple(places.get(place, items[0]) for place in range(1 + max(places)))


def _digest(profile: PortProfile) -> str:
    return hashlib.blake2s(repr(profile).encode(), digest_size=12).hexdigest()
