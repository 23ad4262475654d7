"""The generator of a network that another one carries: hosts have ports of their own for it, on that one's leaves.

A host's port is on a leaf that the host is on already, or on any leaf where it is on none: on the one with the fewest
ports of the network so far. So a host that is added moves no other one. Where the network has services, its server is
one more, the first of all, and switches and storage targets have ports in it, too, after the hosts. Those of the
carrier's switches have none: FRR takes no EVPN route to a MAC that is one of its own (`bgp_mac_entry_exists`), and so
nobody beyond its leaf would reach it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from testbed.base.errors import FabricError
from testbed.base.names import MAX_INTERFACE_NAME
from testbed.lab.core.fabric.networks import GeneratedNetwork, NetworkParams, describe_network
from testbed.lab.core.model import End, Lab, Link, LinkKind, Node, NodeKind, Role

_LEAVES = (Role.LEAF, Role.RAIL, None)


def check_carried(params: NetworkParams, lab: Lab) -> tuple[FabricError, ...]:
    """Every fault of a network that another one of `lab` carries, with the key in it that is at fault."""
    return tuple(_faults(params, lab))


def _faults(params: NetworkParams, lab: Lab) -> Iterator[FabricError]:
    if not params.hosts:
        yield FabricError("no host attaches to it", field="hosts", code="no-hosts")
        return
    if not _leaves(lab, params.carrier):
        yield FabricError(f"{params.carrier} has no leaf that hosts could attach to", field="on", code="no-leaves")
        return
    links = list(_links(params, lab))
    longest = max((link.b.interface for link in links), key=len)
    if len(longest) > MAX_INTERFACE_NAME:
        message = f"ports called {longest} have names longer than {MAX_INTERFACE_NAME}"
        yield FabricError(message, field="short", code="bad-name", hint="short: a shorter name for its ports")
        return
    if params.server and any(node.name == params.server for node in lab.nodes):
        yield FabricError(f"{params.server} is there already", field="services", code="name-taken", hint="rename it")
        return
    taken = {end for link in lab.links for end in (link.a, link.b)}
    for end in (end for link in links for end in (link.a, link.b) if end in taken):
        yield FabricError(f"{end} is there already", field="short", code="name-taken", hint="short: another beginning")
        return
    room = params.addresses.num_addresses - 3
    if room < len(links):
        nodes = "node" if room == 1 else "nodes"
        message = f"{params.addresses} has room for {room} {nodes} beside its gateway, not for {len(links)}"
        yield FabricError(message, field="prefix", code="prefix-too-small", hint="a shorter prefix")


def carry_network(params: NetworkParams, lab: Lab) -> GeneratedNetwork:
    """A network that another one of `lab` carries. Pure. Raises the first fault of `check_carried`."""
    for fault in check_carried(params, lab):
        raise fault
    servers = (Node(name=params.server, kind=NodeKind.SERVER, network=params.name),) if params.server else ()
    return GeneratedNetwork(
        network=describe_network(params, 0), nodes=servers, links=tuple(_links(params, lab)), rail_subnets=()
    )


def _leaves(lab: Lab, carrier: str) -> list[str]:
    return [node.name for node in lab.switches if node.network == carrier and node.role in _LEAVES]


def _managed(params: NetworkParams, lab: Lab) -> list[str]:
    """The nodes beside hosts that a management network reaches; none in a network without a server."""
    if not params.server:
        return []
    targets = [node.name for node in lab.targets]
    return [*(node.name for node in lab.switches if node.network != params.carrier), *targets]


def _links(params: NetworkParams, lab: Lab) -> Iterator[Link]:
    leaves = _leaves(lab, params.carrier)
    switches = {node.name for node in lab.nodes if node.kind is NodeKind.SWITCH}
    near: dict[str, dict[str, None]] = {}
    for link in lab.links:
        if link.network == params.carrier:
            for end, other in ((link.a, link.b), (link.b, link.a)):
                if end.node not in switches and other.node in switches:
                    near.setdefault(end.node, {})[other.node] = None
    ports: Counter[str] = Counter()
    for host in (*([params.server] if params.server else []), *params.hosts, *_managed(params, lab)):
        leaf = min(near.get(host, leaves), key=lambda name: ports[name])
        ports[leaf] += 1
        yield Link(
            a=End(node=host, interface=f"{params.short_name}1"),
            b=End(node=leaf, interface=f"{params.short_name}-down{ports[leaf]}"),
            kind=LinkKind.ACCESS,
            rate=params.rate,
            mtu_bytes=params.mtu,
            rail=1,
            network=params.name,
            host_number=ports[leaf],
        )
