"""Subnets of a lab's fabrics without a subnet manager: shortest ways, destinations spread over those that are equal."""

from collections import defaultdict, deque
from collections.abc import Collection

from testbed.lab.core.model import InfinibandFabric
from testbed.lab.core.model.infiniband import port_numbers, subnet_names
from testbed.protocols.infiniband.subnet import NO_PORT, Channel, Subnet, SubnetLink, SubnetNode, SubnetPartition


def routed(fabric: InfinibandFabric, down: Collection[Channel] = ()) -> Subnet:
    """The subnet of a fabric without the links at these ports. An HCA's LID is its place in the file, from 1."""
    names, numbers = subnet_names(fabric), port_numbers(fabric)
    switches = [node.name for node in fabric.switches]
    hcas = list(dict.fromkeys(name for name in names.values() if name not in switches))
    ports: defaultdict[str, int] = defaultdict(int)
    for end, number in numbers.items():
        ports[names[end]] = max(ports[names[end]], number)
    lids = {name: lid for lid, name in enumerate((*hcas, *switches), start=1)}
    links = [
        SubnetLink(a=names[one.a], a_port=numbers[one.a], b=names[one.b], b_port=numbers[one.b], rate_bps=one.rate.bps)
        for one in fabric.links
        if not {(names[one.a], numbers[one.a]), (names[one.b], numbers[one.b])} & set(down)
    ]
    ways: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for link in links:
        ways[link.a].append((link.a_port, link.b))
        ways[link.b].append((link.b_port, link.a))
    tables = {name: bytearray([NO_PORT]) * (1 + len(lids)) for name in switches}
    for place, hca in enumerate(hcas):
        far = _distances(hca, ways)
        for name in switches:
            nearer = sorted(port for port, peer in ways[name] if far.get(peer, 1 << 30) < far.get(name, 1 << 30))
            if nearer:
                tables[name][lids[hca]] = nearer[place % len(nearer)]
    settings = fabric.settings
    return Subnet(
        nodes={
            name: SubnetNode(name=name, guid=lid, lid=lid, ports=ports[name], is_switch=name in tables)
            for name, lid in lids.items()
        },
        links=tuple(links),
        lfts={name: bytes(table) for name, table in tables.items()},
        vls=settings.vls,
        sl2vl=tuple(min(vl, 15) for vl in settings.sl2vl),
        partitions=tuple(
            SubnetPartition(
                name=one.name,
                pkey=number,
                sl=one.sl,
                members=tuple(hca for hca in hcas if hca.partition(":")[0] in one.hosts),
            )
            for number, one in enumerate(settings.partitions, start=1)
        ),
        engine="shortest ways",
    )


def _distances(hca: str, ways: defaultdict[str, list[tuple[int, str]]]) -> dict[str, int]:
    found = {hca: 0}
    waiting = deque([hca])
    while waiting:
        node = waiting.popleft()
        for _, peer in ways[node]:
            if peer not in found:
                found[peer] = found[node] + 1
                waiting.append(peer)
    return found
