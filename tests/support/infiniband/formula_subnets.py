"""Subnets whose tables follow from a formula: no subnet manager is needed to know what they must do."""

from collections.abc import Callable

from testbed.protocols.infiniband.subnet import NO_PORT, Subnet, SubnetLink, SubnetNode

RATE_BPS = 400_000_000_000
FIRST_SWITCH_LID = 0x8000


def hca(leaf: int, number: int) -> str:
    """The name of an HCA, both from 0."""
    return f"l{leaf}h{number}:p1"


def fat_tree(leaves: int, hosts: int, spines: int, up: Callable[[int, int], int] | None = None) -> Subnet:
    """A fat tree of two tiers. HCA number d has the LID d + 1; a leaf's HCAs are at its first ports, its spines behind.

    `up(leaf, d)` is the spine to an HCA of another leaf; by default d modulo spines (D-mod-K).
    """
    choose = up or (lambda leaf, destination: destination % spines)
    nodes: dict[str, SubnetNode] = {}
    links: list[SubnetLink] = []
    lfts: dict[str, bytes] = {}
    count = leaves * hosts
    for leaf in range(leaves):
        name = f"leaf{leaf}"
        nodes[name] = _switch(name, leaf, hosts + spines)
        for number in range(hosts):
            mine = hca(leaf, number)
            nodes[mine] = _hca(mine, leaf * hosts + number)
            links.append(_link(mine, 1, name, number + 1))
        table = [NO_PORT] * (count + 1)
        for destination in range(count):
            own = destination // hosts == leaf
            table[destination + 1] = destination % hosts + 1 if own else hosts + 1 + choose(leaf, destination)
        lfts[name] = bytes(table)
    for spine in range(spines):
        name = f"spine{spine}"
        nodes[name] = _switch(name, leaves + spine, leaves)
        links += [_link(f"leaf{leaf}", hosts + 1 + spine, name, leaf + 1) for leaf in range(leaves)]
        lfts[name] = bytes([NO_PORT, *(destination // hosts + 1 for destination in range(count))])
    return Subnet(nodes=nodes, links=tuple(links), lfts=lfts)


def ring(switches: int, hosts: int, *, layers: int) -> Subnet:
    """A ring of switches by shortest ways, clockwise where both are as long. With two layers, paths over the link from
    the last switch to the first one, either way, have the service level 1 and a VL of their own, so that no waiting
    goes in a circle; with one, all paths share a VL."""
    nodes: dict[str, SubnetNode] = {}
    links: list[SubnetLink] = []
    lfts: dict[str, bytes] = {}
    clockwise, back = hosts + 1, hosts + 2
    for place in range(switches):
        name = f"leaf{place}"
        nodes[name] = _switch(name, place, hosts + 2)
        for number in range(hosts):
            mine = hca(place, number)
            nodes[mine] = _hca(mine, place * hosts + number)
            links.append(_link(mine, 1, name, number + 1))
        links.append(_link(name, clockwise, f"leaf{(place + 1) % switches}", back))
        table = [NO_PORT] * (switches * hosts + 1)
        for destination in range(switches * hosts):
            ahead = (destination // hosts - place) % switches
            port = destination % hosts + 1 if not ahead else clockwise if 2 * ahead <= switches else back
            table[destination + 1] = port
        lfts[name] = bytes(table)
    sls = {
        (a + 1, b + 1): 1
        for a in range(switches * hosts)
        for b in range(switches * hosts)
        if layers > 1 and _crosses(a // hosts, b // hosts, switches)
    }
    vls = 2 if layers > 1 else 1
    return Subnet(
        nodes=nodes, links=tuple(links), lfts=lfts, vls=vls, sl2vl=tuple(sl % vls for sl in range(16)), sls=sls
    )


def _crosses(a: int, b: int, switches: int) -> bool:
    ahead = (b - a) % switches
    return a + ahead >= switches if 2 * ahead <= switches else a - (switches - ahead) < 0


def _switch(name: str, number: int, ports: int) -> SubnetNode:
    return SubnetNode(name=name, guid=number + 1, lid=FIRST_SWITCH_LID + number, ports=ports, is_switch=True)


def _hca(name: str, number: int) -> SubnetNode:
    return SubnetNode(name=name, guid=FIRST_SWITCH_LID + number, lid=number + 1, ports=1, is_switch=False)


def _link(a: str, a_port: int, b: str, b_port: int) -> SubnetLink:
    return SubnetLink(a=a, a_port=a_port, b=b, b_port=b_port, rate_bps=RATE_BPS)
