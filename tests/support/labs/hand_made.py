"""Labs of a few hosts and switches, put together link by link."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from testbed.base.units import Rate
from testbed.lab.core.model import End, Lab, Link, LinkKind, Node, NodeKind, Role


def by_hand(links: Iterable[tuple[str, str, int]], roles: Mapping[str, Role]) -> Lab:
    """A lab of links with rates in Gbit/s. Nodes with a role are switches; interfaces are numbered as they come."""
    used: Counter[str] = Counter()

    def end(node: str) -> End:
        used[node] += 1
        return End(node=node, interface=f"eth{used[node]}")

    resolved = tuple(
        Link(
            a=end(a),
            b=end(b),
            kind=LinkKind.FABRIC if a in roles and b in roles else LinkKind.ROUTED,
            rate=Rate(gigabits * 10**9),
            mtu_bytes=1500,
        )
        for a, b, gigabits in links
    )
    nodes = tuple(
        Node(name=name, kind=NodeKind.SWITCH if name in roles else NodeKind.HOST, role=roles.get(name)) for name in used
    )
    return Lab(name="hand", nodes=nodes, links=resolved)
