"""The generator of an out-of-band network: a switch, a server, and a management port on every node of the lab.

Its addresses are those of one subnet: the server has the first, the nodes follow in the order of the lab. A node that
is added at the end moves no other one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from testbed.base.errors import FabricError
from testbed.base.names import MAX_INTERFACE_NAME
from testbed.lab.core.fabric.networks import GeneratedNetwork, NetworkParams, describe_network
from testbed.lab.core.model import End, Lab, Link, LinkKind, Node, NodeKind

SHORT = "mgmt"
"""The beginning of the names of the switch, the server and the ports, where the file does not say another."""
MAX_MANAGED = 1022
"""Nodes beside the server: a bridge of Linux has 1,023 ports (BR_MAX_PORTS)."""
_MANAGED = (NodeKind.HOST, NodeKind.STORAGE, NodeKind.SWITCH)


def check_out_of_band(params: NetworkParams, lab: Lab) -> tuple[FabricError, ...]:
    """Every fault of the network of management ports of `lab`, with the key in it that is at fault."""
    return tuple(_faults(params, lab))


def _faults(params: NetworkParams, lab: Lab) -> Iterator[FabricError]:
    nodes, names = _managed(lab), _Names(params)
    if len(nodes) > MAX_MANAGED:
        message = f"{len(nodes):,} nodes have management ports, and the switch has {MAX_MANAGED:,} for them"
        yield FabricError(message, field="design", code="size")
        return
    if len(names.port) > MAX_INTERFACE_NAME:
        message = f"ports called {names.port} have names longer than {MAX_INTERFACE_NAME}"
        yield FabricError(message, field="short", code="bad-name", hint="short: a shorter name for its ports")
        return
    there = {node.name for node in lab.nodes}
    used = {end for link in lab.links for end in (link.a, link.b)}
    taken = [name for name in (names.switch, names.server) if name in there]
    taken += [str(end) for node in nodes if (end := End(node=node.name, interface=names.port)) in used]
    if taken:
        message = f"{taken[0]} is there already"
        yield FabricError(message, field="short", code="name-taken", hint="short: another beginning")
    room = params.addresses.num_addresses - 3
    if room < len(nodes):
        message = f"{params.addresses} has room for {room} nodes beside the server, and there are {len(nodes)}"
        longest = 32 - (len(nodes) + 2).bit_length()
        yield FabricError(message, field="prefix", code="prefix-too-small", hint=f"a prefix of /{longest} or shorter")


def generate_out_of_band(params: NetworkParams, lab: Lab) -> GeneratedNetwork:
    """The network of management ports of `lab`. Pure. Raises the first fault of `check_out_of_band`."""
    for fault in check_out_of_band(params, lab):
        raise fault
    names = _Names(params)
    server = Node(name=names.server, kind=NodeKind.SERVER, network=params.name)
    return GeneratedNetwork(
        network=describe_network(params, 0),
        nodes=(Node(name=names.switch, kind=NodeKind.BRIDGE, network=params.name), server),
        links=tuple(
            Link(
                a=End(node=node.name, interface=names.port),
                b=End(node=names.switch, interface="uplink1" if node is server else f"down{number - 1}"),
                kind=LinkKind.MANAGEMENT,
                rate=params.rate,
                mtu_bytes=params.mtu,
                network=params.name,
                host_number=number,
            )
            for number, node in enumerate((server, *_managed(lab)), 1)
        ),
        rail_subnets=(),
    )


def _managed(lab: Lab) -> Sequence[Node]:
    """The nodes that have a management port: all but routers outside, which are somebody else's."""
    return [node for node in lab.nodes if node.kind in _MANAGED]


def server_name(short: str | None) -> str:
    """The name of the server of a management network whose file calls it `short`."""
    return f"{short or SHORT}1"


class _Names:
    """The names of the switch, the server and the management ports."""

    def __init__(self, params: NetworkParams) -> None:
        short = params.short or SHORT
        self.switch = f"{short}-sw1"
        self.server = server_name(params.short)
        self.port = f"{short}0"
