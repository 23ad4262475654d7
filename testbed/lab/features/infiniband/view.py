"""Rows of `inspect ib`: the nodes of a subnet with their LIDs, its tables, lanes, partitions and managers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.base.rows import column, for_programs
from testbed.lab.features.infiniband.live import LiveSubnet
from testbed.lab.features.infiniband.reading import ManagerState
from testbed.protocols.infiniband.subnet import NO_PORT, Subnet


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetRow:
    """A node of the subnet.

    `routes` counts the LIDs that a switch has an output for, and `partitions` are those that an HCA is a member of.
    """

    name: str
    kind: str
    lid: int
    guid: str
    links: str
    routes: int | None = None
    sm: str = column("sm", sparse=True, default="")
    partitions: Sequence[str] = column(sparse=True, default=())
    table: Sequence[int] = for_programs(default=())


def subnet_rows(
    subnet: Subnet, managers: Sequence[ManagerState], wired: Counter[str], nodes: Callable[[str], bool]
) -> list[SubnetRow]:
    """Return a row for each node. `wired` counts the links of each node that there are, up or not."""
    up = Counter(name for link in subnet.links for name in (link.a, link.b))
    roles = {state.hca: state.state for state in managers}
    members: dict[str, list[str]] = {}
    for partition in subnet.partitions:
        for name in partition.members:
            members.setdefault(name, []).append(partition.name)
    return [
        SubnetRow(
            name=node.name,
            kind="switch" if node.is_switch else "HCA",
            lid=node.lid,
            guid=f"{node.guid:#018x}",
            links=f"{up[node.name]}/{wired[node.name]}",
            routes=_routes(subnet.lfts[node.name]) if node.is_switch else None,
            sm=roles.get(node.name, ""),
            partitions=members.get(node.name, ()),
            table=tuple(subnet.lfts[node.name]) if node.is_switch else (),
        )
        for node in subnet.nodes.values()
        if nodes(node.name.partition(":")[0])
    ]


def _routes(table: bytes) -> int:
    return len(table) - table.count(NO_PORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetView:
    """A subnet for `inspect ib`: its rows, and what is the same for all of it."""

    rows: Sequence[SubnetRow]
    facts: Sequence[tuple[str, str]]
    document: dict[str, Any]


def view_subnet(live: LiveSubnet, nodes: Callable[[str], bool]) -> SubnetView:
    """Read a lab's subnet for people and programs. Raises `DriverError`."""
    subnet, managers = live.reader.read(), live.reader.managers()
    wired = Counter(name for link in live.planned.links for name in (link.a, link.b))
    facts = [
        ("routing engine", live.engine_sentence() or subnet.engine),
        ("virtual lanes", f"{subnet.vls} for data, SL to VL {','.join(map(str, subnet.sl2vl))}"),
        ("arbitration", f"high {_weights(subnet.vl_high)}, low {_weights(subnet.vl_low)}"),
    ]
    facts += [
        ("partition", f"{each.name}, P_Key {each.pkey:#06x}, SL {each.sl}, {len(each.members)} HCAs")
        for each in subnet.partitions
    ]
    facts += [("subnet manager", f"{each.hca}, LID {each.lid}, {each.state}") for each in managers]
    document = {
        "engine": subnet.engine,
        "vls": subnet.vls,
        "sl2vl": list(subnet.sl2vl),
        "vl_high": [list(pair) for pair in subnet.vl_high],
        "vl_low": [list(pair) for pair in subnet.vl_low],
        "partitions": [
            {"name": each.name, "pkey": each.pkey, "sl": each.sl, "members": list(each.members)}
            for each in subnet.partitions
        ],
        "managers": [
            {"hca": each.hca, "lid": each.lid, "priority": each.priority, "state": each.state} for each in managers
        ],
    }
    return SubnetView(rows=subnet_rows(subnet, managers, wired, nodes), facts=facts, document=document)


def _weights(table: Sequence[tuple[int, int]]) -> str:
    return " ".join(f"VL{lane}:{weight}" for lane, weight in table) or "none"
