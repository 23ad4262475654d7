"""The guards of access ports: which port belongs to which host, and which addresses are those of switches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address

from testbed.errors import PlanError
from testbed.model import BACKEND, DelayBy, Guards, Lab, NodeKind
from testbed.plan.operations import CreateBridge, GuardedPort, GuardSwitch, Operation, PortPlan, SwitchPlan
from testbed.plan.overlay.policies import passing


def guard_switches(
    lab: Lab, ports: Sequence[PortPlan], before: Iterable[Operation], switches: Sequence[SwitchPlan]
) -> list[GuardSwitch]:
    """One operation for each switch, and each VRF on it, whose network has guards and that has hosts on it.

    `before` has the operations that make the bridges of switches and of VRFs.

    Raises `PlanError` where the kernel delays what a guarded port receives: it would come in past the guards.
    """
    guards = {BACKEND: lab.guards, **{network.name: network.guards for network in lab.networks}}
    if not any(guards.values()):
        return []
    ends = {f"{port.node}:{port.name}": port for port in ports}
    hosts = {node.name for node in lab.nodes if node.kind is NodeKind.HOST}
    access: dict[str, list[tuple[PortPlan, PortPlan]]] = defaultdict(list)
    for port in ports:
        if port.node not in hosts and ends[port.peer].node in hosts and guards[port.network]:
            _check_delay(port)
            access[port.place].append((port, ends[port.peer]))
    stations: dict[str, list[str]] = defaultdict(list)
    for bridge in before:
        if isinstance(bridge, CreateBridge):
            stations[bridge.node].append(bridge.mac)
    found = []
    for place, pairs in access.items():
        network, tenant = pairs[0][0].network, pairs[0][0].tenant
        addresses = _switch_addresses(lab, network, tenant, ports, switches, hosts)
        if tenant:  # behind another leaf of the tenant is known, too
            stations[place] += [port.mac for port in ports if port.tenant == tenant and port.node in hosts]
        found.append(_guard(guards[network], pairs, addresses, stations[place]))
    return found


def _check_delay(port: PortPlan) -> None:
    if port.delay_ns and port.delay_by is DelayBy.KERNEL:
        raise PlanError(
            f"{port.node}:{port.name} cannot be guarded: the kernel delays what it receives, past the guards",
            code="guards",
            hint="delay: {value: ..., by: endpoint} for links to hosts, or guards: off",
        )


def _switch_addresses(
    lab: Lab, network: str, tenant: str, ports: Sequence[PortPlan], switches: Sequence[SwitchPlan], hosts: Iterable[str]
) -> tuple[IPv4Address, ...]:
    """Every address of a switch in a network that a tenant's hosts ("": those of none) are kept from.

    Loopbacks, those of routed links, and their gateways: addresses of other tenants mean something else to them, as
    does one of the underlay that is in a prefix that the tenant reaches.
    """
    found = {switch.loopback.ip for switch in switches if switch.network == network}
    mine = [port for port in ports if port.network == network]
    known = set(hosts)
    found |= {port.gateway for port in mine if port.gateway is not None and not port.tenant}
    found |= {port.address.ip for port in mine if port.node not in known and port.address is not None}
    if tenant:
        reached = {tenant, *(b for a, b in passing(lab) if a == tenant)}
        prefixes = {port.address.network for port in ports if port.tenant in reached and port.address is not None}
        found = {address for address in found if not any(address in prefix for prefix in prefixes)}
        found |= {port.gateway for port in mine if port.gateway is not None and port.tenant == tenant}
    return tuple(sorted(found))


def _guard(
    guards: Guards,
    pairs: Sequence[tuple[PortPlan, PortPlan]],
    switches: tuple[IPv4Address, ...],
    stations: Sequence[str],
) -> GuardSwitch:
    macs = {mac for pair in pairs for mac in (pair[0].mac, pair[1].mac)}
    return GuardSwitch(
        node=pairs[0][0].node,
        vrf=pairs[0][0].vrf,
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
