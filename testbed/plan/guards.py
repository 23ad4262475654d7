"""The guards of access ports: which port belongs to which host, and which addresses are those of switches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address

from testbed.errors import PlanError
from testbed.model import BACKEND, DelayBy, Guards, Lab, NodeKind
from testbed.plan.operations import CreateBridge, GuardedPort, GuardSwitch, PortPlan, SwitchPlan


def guard_switches(
    lab: Lab, ports: Sequence[PortPlan], bridges: Iterable[CreateBridge], switches: Sequence[SwitchPlan]
) -> list[GuardSwitch]:
    """One operation for each switch whose network has guards and that has hosts on it.

    Raises `PlanError` where the kernel delays what a guarded port receives: it would come in past the guards.
    """
    guards = {BACKEND: lab.guards, **{network.name: network.guards for network in lab.networks}}
    if not any(guards.values()):
        return []
    ends = {f"{port.node}:{port.name}": port for port in ports}
    hosts = {node.name for node in lab.nodes if node.kind is NodeKind.HOST}
    access: dict[str, list[tuple[PortPlan, PortPlan]]] = defaultdict(list)
    for port in ports:
        if port.vrf:
            continue  # of a tenant: files with such ports and guards are refused
        if port.node not in hosts and ends[port.peer].node in hosts and guards[port.network]:
            _check_delay(port)
            access[port.node].append((port, ends[port.peer]))
    stations: dict[str, list[str]] = defaultdict(list)
    for bridge in bridges:
        stations[bridge.node].append(bridge.mac)
    addresses = {name: _switch_addresses(name, ports, switches, hosts) for name, asked in guards.items() if asked}
    return [
        _guard(node, guards[pairs[0][0].network], pairs, addresses[pairs[0][0].network], stations[node])
        for node, pairs in access.items()
    ]


def _check_delay(port: PortPlan) -> None:
    if port.delay_ns and port.delay_by is DelayBy.KERNEL:
        raise PlanError(
            f"{port.node}:{port.name} cannot be guarded: the kernel delays what it receives, past the guards",
            code="guards",
            hint="delay: {value: ..., by: endpoint} for links to hosts, or guards: off",
        )


def _switch_addresses(
    network: str, ports: Sequence[PortPlan], switches: Sequence[SwitchPlan], hosts: Iterable[str]
) -> tuple[IPv4Address, ...]:
    """Every address of a switch in a network: loopbacks, gateways, and those of routed links."""
    found = {switch.loopback.ip for switch in switches if switch.network == network}
    mine = [port for port in ports if port.network == network]
    known = set(hosts)
    found |= {port.gateway for port in mine if port.gateway is not None}
    found |= {port.address.ip for port in mine if port.node not in known and port.address is not None}
    return tuple(sorted(found))


def _guard(
    node: str,
    guards: Guards,
    pairs: Sequence[tuple[PortPlan, PortPlan]],
    switches: tuple[IPv4Address, ...],
    stations: Sequence[str],
) -> GuardSwitch:
    macs = {mac for pair in pairs for mac in (pair[0].mac, pair[1].mac)}
    return GuardSwitch(
        node=node,
        guards=guards,
        ports=tuple(
            GuardedPort(
                name=port.name,
                ifindex=port.ifindex,
                mac=nic.mac,
                addresses=() if nic.address is None else (nic.address.ip,),
                gateway=nic.gateway,
            )
            for port, nic in pairs
        ),
        switches=switches,
        stations=tuple(sorted(macs.union(stations))),
    )


def guards_by_port(operations: Iterable[object]) -> Mapping[tuple[str, str], Guards]:
    """The guards that are in force at each port that has any, by node and interface."""
    return {
        (item.node, port.name): item.guards
        for item in operations
        if isinstance(item, GuardSwitch)
        for port in item.ports
    }
