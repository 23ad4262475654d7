"""Host routing by source address, so that each NIC sends through its own rail; and the RDMA devices of NICs.

NIC n (from 1, in rail order) has table 100 + n with its subnet and a default route through its gateway,
and a rule `from <its address>` at priority 1000 + n. The main table has the subnet of every NIC
(the kernel adds it with the address) and a default route through the first NIC, for sockets that are
bound to no address. Where rails are isolated there is no such default: only a socket bound to a NIC
leaves the rail's subnet, and the rail switch then refuses it. (Without the per-NIC default such a
packet would fall through to the main table and cross rails inside the host.)

A NIC that is in a tenant gives way to one that is not: the default is the fabric's, and the main table has routes to
the tenant's other subnets (`testbed.lab.features.overlay.plan`).

What goes to the prefix of a network beside the back end leaves by the first NIC in that network whose link is up,
unless its socket is bound to the address of another. Hosts that speak BGP learn that route
(`testbed.lab.features.mlag.homing`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from ipaddress import IPv4Network, IPv6Network

from testbed.lab.core.model import BACKEND, Lab, Network
from testbed.lab.core.plan.lab_plan import HostPlan, PortPlan
from testbed.lab.core.plan.operations import AddRoute, AddRule, CreateRdma
from testbed.lab.core.plan.stable import stable_hash

MAIN_TABLE = 254
FIRST_TABLE = 100
FIRST_PRIORITY = 1000
FIRST_REFUSAL = 1100
"""Priority of rules that refuse what one before them did not send (`testbed.lab.features.mlag.homing`)."""
MAX_NICS = 100
"""Tables 101..200 and up to the reserved 253."""

_EVERYWHERE = IPv4Network("0.0.0.0/0")
_EVERYWHERE6 = IPv6Network("::/0")


def host_routes(
    nics: Sequence[PortPlan], *, isolated: bool, beside: Sequence[Network] = ()
) -> tuple[list[AddRoute], list[AddRule]]:
    """Routes and rules of a host with these NICs, in rail order. A NIC without a gateway needs none. `beside`: the
    networks beside the back end."""
    routes: list[AddRoute] = []
    rules: list[AddRule] = []
    main = isolated
    prefixes = {network.name: network.prefix for network in beside}
    ports: Counter[str] = Counter()
    backend = [nic for nic in nics if nic.network == BACKEND and nic.gateway is not None]
    first = next((nic for nic in backend if not nic.tenant), next(iter(backend), None))
    for number, nic in enumerate(nics, 1):
        if nic.address is None or nic.gateway is None:
            continue
        table, source = FIRST_TABLE + number, nic.address.ip
        route = partial(AddRoute, node=nic.node, ifindex=nic.ifindex, source=source)
        routes += (
            route(destination=nic.address.network, gateway=None, table=table),
            route(destination=_EVERYWHERE, gateway=nic.gateway, table=table),
        )
        prefix = None if nic.tenant else prefixes.get(nic.network)
        if prefix is not None:
            metric = ports[nic.network]
            routes.append(route(destination=prefix, gateway=nic.gateway, table=MAIN_TABLE, metric=metric))
            ports[nic.network] += 1
        if not main and nic is first:
            main = True
            routes.append(route(destination=_EVERYWHERE, gateway=nic.gateway, table=MAIN_TABLE))
        rules.append(AddRule(node=nic.node, source=source, table=table, priority=FIRST_PRIORITY + number))
    routes6, rules6 = _ipv6_routes(nics, isolated=isolated)
    return routes + routes6, rules + rules6


def _ipv6_routes(nics: Sequence[PortPlan], *, isolated: bool) -> tuple[list[AddRoute], list[AddRule]]:
    """Plan routes and rules of IPv6, by the same tables and priorities, for NICs that have some: those of tenants."""
    routes: list[AddRoute] = []
    rules: list[AddRule] = []
    for number, nic in enumerate(nics, 1):
        if nic.address6 is None:
            continue
        table, source = FIRST_TABLE + number, nic.address6.ip
        ways = [(table, nic.address6.network, None), (table, _EVERYWHERE6, nic.gateway6)]
        if not rules and not isolated:
            ways.append((MAIN_TABLE, _EVERYWHERE6, nic.gateway6))
        routes += [
            AddRoute(
                node=nic.node, destination=prefix, gateway=gateway, ifindex=nic.ifindex, table=where, source=source
            )
            for where, prefix, gateway in ways
        ]
        rules.append(AddRule(node=nic.node, source=source, table=table, priority=FIRST_PRIORITY + number))
    return routes, rules


LONGEST_NAME = 63
"""The longest name of an RDMA device: IB_DEVICE_NAME_MAX of rdma/ib_user_verbs.h, without the terminating byte."""


def device_name(lab: str, node: str, interface: str) -> str:
    """The name of an RDMA device: `<lab>-<node>-<interface>`, or where that is too long a part and a hash of the whole.

    It is its own in the whole kernel, whatever the namespace (drivers/infiniband/core/device.c, assign_name).
    """
    name = f"{lab}-{node}-{interface}"
    if len(name) <= LONGEST_NAME:
        return name
    digest = f"{stable_hash(f'rdma {name}', 48):012x}"
    return f"{name[: LONGEST_NAME - len(digest) - 1]}-{digest}"


def rdma_devices(lab: Lab, hosts: Iterable[HostPlan]) -> list[CreateRdma]:
    """An RDMA device for each NIC port of hosts with `rdma` that is on a rail, or for all of a host that is on none."""
    wanted = {node.name for node in lab.nodes if node.rdma is not None}
    devices: list[CreateRdma] = []
    for host in hosts:
        if host.node in wanted:
            ports = [port for port in host.nics if port.rail] or host.nics
            devices += [
                CreateRdma(node=port.node, name=port.name, device=device_name(lab.name, port.node, port.name))
                for port in ports
            ]
    return devices
