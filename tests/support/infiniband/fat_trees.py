"""Subnets as a manager would set them up, worked out by hand: a fat tree of two tiers, and a ring."""

from testbed.protocols.infiniband.subnet import NO_PORT, Subnet, SubnetLink, SubnetNode

RATE_BPS = 400 * 10**9


def node(name: str, number: int, lid: int, ports: int, *, is_switch: bool) -> SubnetNode:
    """Return a node whose GUID follows from its number, as that of ibsim does."""
    guid = 0x200000 + number if is_switch else 0x100000 + 2 * number
    return SubnetNode(name=name, guid=guid, lid=lid, ports=ports, is_switch=is_switch)


def join(a: str, a_port: int, b: str, b_port: int) -> SubnetLink:
    """Return a link."""
    return SubnetLink(a=a, a_port=a_port, b=b, b_port=b_port, rate_bps=RATE_BPS)


def fat_tree(leaves: int, hosts: int, spines: int, *, by_destination: bool = True, engine: str = "ftree") -> Subnet:
    """Return a tree of two tiers. Up ports are taken by D-mod-K, the destination's place among the HCAs modulo the
    spines; else all of a leaf's traffic takes its first spine."""
    nodes, links, tables = {}, [], {}
    for leaf in range(leaves):
        for host in range(hosts):
            number = leaf * hosts + host
            nodes[f"h{number}"] = node(f"h{number}", number, number + 1, 1, is_switch=False)
            links.append(join(f"h{number}", 1, f"leaf{leaf}", host + 1))
        nodes[f"leaf{leaf}"] = node(f"leaf{leaf}", leaf, leaves * hosts + leaf + 1, hosts + spines, is_switch=True)
        links += [join(f"leaf{leaf}", hosts + spine + 1, f"spine{spine}", leaf + 1) for spine in range(spines)]
    for spine in range(spines):
        lid = leaves * hosts + leaves + spine + 1
        nodes[f"spine{spine}"] = node(f"spine{spine}", leaves + spine, lid, leaves, is_switch=True)
    for leaf in range(leaves):
        table = bytearray([NO_PORT] * (leaves * hosts + 1))
        for number in range(leaves * hosts):
            up = hosts + 1 + (number % spines if by_destination else 0)
            table[number + 1] = number % hosts + 1 if number // hosts == leaf else up
        tables[f"leaf{leaf}"] = bytes(table)
    for spine in range(spines):
        tables[f"spine{spine}"] = bytes([NO_PORT, *(number // hosts + 1 for number in range(leaves * hosts))])
    return Subnet(nodes=nodes, links=tuple(links), lfts=tables, engine=engine, sm="h0")


def ring(switches: int) -> Subnet:
    """Return a ring of switches with an HCA each, whose traffic all goes round in one direction."""
    nodes, links, tables = {}, [], {}
    for number in range(switches):
        nodes[f"h{number}"] = node(f"h{number}", number, number + 1, 1, is_switch=False)
        nodes[f"s{number}"] = node(f"s{number}", number, switches + number + 1, 3, is_switch=True)
        links.append(join(f"h{number}", 1, f"s{number}", 1))
        links.append(join(f"s{number}", 2, f"s{(number + 1) % switches}", 3))
        tables[f"s{number}"] = bytes([NO_PORT, *(1 if other == number else 2 for other in range(switches))])
    return Subnet(nodes=nodes, links=tuple(links), lfts=tables, engine="minhop", sm="h0")
