"""Port names and numbers of generated nodes: numbered so that growing the fabric renames little. Numbers start at 1.

Adding a host, segment, pod, spine or super-spine appends numbers; it never shifts one. A rail switch or a parallel link
more does; in a lab that is up, links keep the numbers that they have (`testbed.lab.core.fabric.kept_ports`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from testbed.base.names import plane_letter
from testbed.lab.core.model import End, Link, LinkKind

PORTS_PER_POD_BLOCK = 32
"""A super-spine reserves a block of ports for every spine position, one for each pod; for more pods two such blocks."""

PORT_MAPS: Mapping[str, tuple[tuple[int, ...], ...]] = MappingProxyType(
    {
        # Interfaces of a Cisco Nexus 9348D-GX2A; one row per rail, one column per host.
        "figure-13-6": (
            (1, 4, 7, 10),
            (13, 16, 19, 22),
            (25, 28, 31, 34),
            (37, 40, 43, 46),
            (2, 5, 8, 11),
            (14, 17, 20, 23),
            (26, 29, 32, 35),
            (38, 41, 44, 47),
        ),
        # Interfaces 1-4 in rail 1's VLAN, 5-8 in rail 2's, and so on.
        "figure-13-10": tuple(tuple(range(4 * slot + 1, 4 * slot + 5)) for slot in range(8)),
        # Interfaces 1-16 in rail 1's VLAN, 17-32 in rail 2's.
        "figure-13-11": tuple(tuple(range(16 * slot + 1, 16 * slot + 17)) for slot in range(2)),
    }
)
"""Access interface numbers by rail slot (0-based) and host (0-based), as a figure draws them."""


def nic_name(nic: int, plane: int, *, shared: bool) -> str:
    """`rail3`, `rail3b` on a host with one NIC per GPU; `nic1`, `nic1a` where GPUs share NICs."""
    return f"{'nic' if shared else 'rail'}{nic}{plane_letter(plane)}"


def access_port(host: int, slot: int, slots: int, port_map: str | None) -> str:
    """Port of a rail switch towards `host` (1-based) for the rail in `slot` (0-based) of `slots`."""
    if port_map is not None:
        return f"down{PORT_MAPS[port_map][slot][host - 1]}"
    return f"down{(host - 1) * slots + slot + 1}"


def parallel_links(
    below: str, position: int, above: Sequence[str], count: int, link: Callable[..., Link]
) -> Iterator[Link]:
    """Yield `count` links from a switch to each of those of the tier above, made by `link` of their ends.

    `position` (0-based) is that of the switch among the neighbours of each; ports side by side lead to one neighbour.
    """
    for number, switch in enumerate(above):
        for nth in range(1, count + 1):
            yield link(
                a=End(node=below, interface=f"uplink{number * count + nth}"),
                b=End(node=switch, interface=f"down{position * count + nth}"),
                kind=LinkKind.FABRIC,
                numbered=True,
            )


def super_spine_position(pod: int, spine_position: int, pods: int) -> int:
    """Position of a spine among a super-spine's neighbours: a block per spine position, a place per pod of `pods`.

    Numbering by pods first would shift with every spine added, by spines first with every pod added.
    """
    blocks = -(-pods // PORTS_PER_POD_BLOCK)
    return spine_position * blocks * PORTS_PER_POD_BLOCK + pod - 1
