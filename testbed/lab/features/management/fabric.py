"""The generator of an out-of-band network: a switch, a server, and a management port on every node of the lab.

Its addresses are those of one subnet: the server has the first, the nodes follow in the order of the lab. A node that
is added at the end moves no other one; in a lab that is up, none that is added anywhere does (`keep_places`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

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
                b=End(node=names.switch, interface=_switch_port(number)),
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


def _switch_port(number: int) -> str:
    """The name of the port of the switch that the node with this number is on; the server is the first."""
    return "uplink1" if number == 1 else f"down{number - 1}"


def keep_places(old: Lab, new: Lab) -> Lab:
    """Return `new` with the places on the network of management that nodes have in `old`, which is up.

    Their addresses and their ports of the switch stay what they are, and a node that is new has the first place that is
    free. Where the network has another prefix or another name for its ports, nothing is kept.
    """
    network, before = new.out_of_band, {link.a.node: link for link in _links(old)}
    if network is None or old.out_of_band is None or network.prefix != old.out_of_band.prefix:
        return new
    kept = {
        link.a.node: before[link.a.node].host_number
        for link in _links(new)
        if link.a.node in before and (link.a, link.b.node) == (before[link.a.node].a, before[link.a.node].b.node)
    }
    taken = set(kept.values())
    free = (number for number in count(1) if number not in taken)
    numbers = {link.a.node: kept[link.a.node] if link.a.node in kept else next(free) for link in _links(new)}
    links = tuple(
        _placed(link, numbers[link.a.node]) if link.kind is LinkKind.MANAGEMENT else link for link in new.links
    )
    return new if links == new.links else replace(new, links=links)


def _placed(link: Link, number: int) -> Link:
    """A management link with its node at another place."""
    return replace(link, b=replace(link.b, interface=_switch_port(number)), host_number=number)


def _links(lab: Lab) -> Iterator[Link]:
    return (link for link in lab.links if link.kind is LinkKind.MANAGEMENT)


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
