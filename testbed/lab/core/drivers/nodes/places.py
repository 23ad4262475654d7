"""The places of operations: the nodes in whose namespaces they are carried out, and the interfaces they are about."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from testbed.daemons.lag.groups import CreateBond
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import (
    AddAddress,
    AddRoute,
    CreateBridge,
    CreateNode,
    CreateRdma,
    CreateVeth,
    DelayPort,
    GuardSwitch,
    InstallPort,
    Operation,
    SetBridgePort,
    SetNeighbour,
    SetSysctl,
    SetUp,
    ShapePort,
    StartContainer,
    place_of,
)
from testbed.lab.core.plan.overlay_operations import CreateVrf, CreateVrfDevice, CreateVxlan, SetBorder, SetPolicy

Creator = CreateVeth | CreateVxlan | CreateBridge | CreateBond | CreateVrfDevice
"""The operations that make interfaces, with which goes what is on them."""
SPACES = CreateNode | CreateVrf | StartContainer
"""The operations that make network namespaces."""


def places_of(operation: Operation) -> tuple[str, ...]:
    """Return the nodes in whose namespaces something is done: both ends of a link."""
    match operation:
        case CreateVeth():
            return operation.a.node, operation.b.node
        case CreateVxlan():
            return operation.node, operation.switch
        case ShapePort() | InstallPort() | DelayPort() | SetUp() | GuardSwitch():
            return (operation.vrf or operation.node,)
    return (operation.node,)


def spaces_of(plan: LabPlan) -> set[str]:
    """Return the nodes that have network namespaces, and the VRFs that are some."""
    return spaces_among(plan.operations)


def spaces_among(operations: Iterable[Operation]) -> set[str]:
    """Return the nodes and VRFs whose network namespaces operations make."""
    return {item.node for item in operations if isinstance(item, SPACES)}


def ends_of(operations: Iterable[Operation]) -> set[tuple[str, int | str]]:
    """The interfaces that operations make, each by its index and by its name in its node."""
    found: set[tuple[str, int | str]] = set()
    for item in operations:
        if isinstance(item, CreateVeth):
            found |= {(end.node, key) for end in (item.a, item.b) for key in (end.ifindex, end.name)}
        elif isinstance(item, Creator):
            found |= {(item.node, item.ifindex), (item.node, item.name)}
    return found


def is_on(operation: Operation, ends: Collection[tuple[str, int | str]]) -> bool:
    """Tell whether what an operation does is lost with interfaces, and there again only when it is done again."""
    match operation:
        case SetSysctl():
            conf = operation.key.split("/")[2:]
            return len(conf) == 3 and conf[0] == "conf" and (operation.node, conf[1]) in ends
        case CreateRdma() | SetBorder():
            return (operation.node, operation.name) in ends
        case GuardSwitch() | SetPolicy():
            place = operation.node if isinstance(operation, SetPolicy) else place_of(operation)
            return any((place, port.ifindex) in ends for port in operation.ports)
        case ShapePort() | InstallPort() | DelayPort() | SetUp() | AddAddress() | AddRoute() | SetNeighbour():
            return (place_of(operation), operation.ifindex) in ends
        case SetBridgePort():
            return (operation.node, operation.ifindex) in ends
    return False
