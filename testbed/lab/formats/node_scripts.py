"""A lab's plan as shell scripts, a file for each node: addresses, routes, bridges and settings, by iproute2 and sysctl.

They are for labs that another tool brings up from the same links. What takes more than that (VRFs, VXLAN, bonds) is in
no script: a lab that has it gets none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from testbed.lab.core.plan.interfaces import LOOPBACK_IFINDEX
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import (
    AddAddress,
    AddRoute,
    AddRule,
    CreateBridge,
    CreateVeth,
    Operation,
    SetNeighbour,
    SetSysctl,
    SetUp,
)

_HEAD = "#!/bin/sh\n# Addresses and routes of {node}, as testbed has planned them.\n"


def node_scripts(plan: LabPlan, ports: Collection[str]) -> dict[str, str]:
    """Return the script of each node that has one of `ports` ("node:interface"), the only ones that are there."""
    names = _interface_names(plan, ports)
    lines: dict[str, list[str]] = {node: [] for node, _ in names}
    for operation in plan.operations:
        for node, line in _lines(operation, names):
            if node in lines:
                lines[node].append(line)
    return {node: _HEAD.format(node=node) + "".join(f"{line}\n" for line in found) for node, found in lines.items()}


def _interface_names(plan: LabPlan, ports: Collection[str]) -> dict[tuple[str, int], str]:
    """The name of each interface that is there by its node and the index that the plan gives it."""
    names: dict[tuple[str, int], str] = {}
    for operation in plan.operations:
        match operation:
            case CreateVeth():
                for end in (operation.a, operation.b):
                    if str(end) in ports:
                        names[end.node, end.ifindex] = end.name
                        names[end.node, LOOPBACK_IFINDEX] = "lo"
    for operation in plan.operations:
        match operation:
            case CreateBridge() if (operation.node, LOOPBACK_IFINDEX) in names:
                names[operation.node, operation.ifindex] = operation.name
    return names


def _lines(operation: Operation, names: Mapping[tuple[str, int], str]) -> Iterator[tuple[str, str]]:
    """The node and the command line of each command that an operation takes."""
    match operation:
        case SetSysctl() if not operation.optional and operation.key.startswith("net/"):
            yield operation.node, f"sysctl -w {operation.key.replace('/', '.')}={operation.value}"
        case CreateBridge():
            settings = f"address {operation.mac} mtu {operation.mtu_bytes}"
            yield operation.node, f"ip link add {operation.name} {settings} type bridge"
        case CreateVeth():
            for end in (operation.a, operation.b):
                if (end.node, end.ifindex) in names:
                    yield end.node, f"ip link set {end.name} address {end.mac} mtu {operation.mtu_bytes}"
                    if end.master:
                        yield end.node, f"ip link set {end.name} master {names[end.node, end.master]}"
        case AddAddress() if (operation.node, operation.ifindex) in names:
            yield operation.node, f"ip address add {operation.address} dev {operation.name}"
        case SetUp() if (operation.node, operation.ifindex) in names:
            yield operation.node, f"ip link set {operation.name} up"
        case AddRoute() if (operation.node, operation.ifindex) in names:
            yield operation.node, _route(operation, names[operation.node, operation.ifindex])
        case AddRule():
            yield operation.node, _rule(operation)
        case SetNeighbour() if (operation.node, operation.ifindex) in names:
            entry = f"{operation.address} lladdr {operation.mac} dev {operation.name} nud permanent"
            yield operation.node, f"ip neighbour replace {entry}"


def _rule(rule: AddRule) -> str:
    words = [f"ip -{rule.source.version} rule add pref {rule.priority} from {rule.source}"]
    words += [f"to {rule.destination}"] if rule.destination is not None else []
    words += [f"lookup {rule.table}" if rule.table else "unreachable"]
    words += ["suppress_prefixlength 0"] if rule.destination is not None and rule.table else []
    return " ".join(words)


def _route(route: AddRoute, interface: str) -> str:
    words = [f"ip -{route.destination.version} route add {route.destination}"]
    words += [f"via {route.gateway}"] if route.gateway is not None else []
    words += [f"dev {interface} table {route.table}"]
    words += [f"src {route.source}"] if route.source is not None else []
    words += [f"metric {route.metric}"] if route.metric else []
    words += ["onlink"] if route.onlink else []
    return " ".join(words)
