"""Tables of switches whose paths are not chosen by a hash: the order of destinations, and the queues of ports.

With `mode: static` each destination is pinned to a path. Destinations are numbered leaf by leaf, in the order of their
addresses; so those of one leaf are divided evenly over the paths to it, and transfers from one leaf that go to
different hosts of another do not meet. With `mode: adaptive` a switch has to know which of its ports, and so
which queues, are behind a path.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace
from ipaddress import IPv4Address

from testbed.lab.core.model import BalancingMode
from testbed.lab.core.plan.lab_plan import HostPlan
from testbed.lab.core.plan.operations import InstallPort, Operation
from testbed.lab.core.plan.qos.qos_plan import BufferPlan, QosTables


def with_paths(tables: QosTables, hosts: Sequence[HostPlan], operations: Iterable[Operation]) -> QosTables:
    """Return the tables with the addresses of these hosts' NICs and the ports of switches, where some switch needs
    them."""
    modes = {buffer.mode for buffer in tables.buffers if buffer.node}
    if BalancingMode.STATIC in modes:
        tables = replace(tables, destinations=_numbered(hosts))
    if BalancingMode.ADAPTIVE in modes:
        adapting = {number for number, item in enumerate(tables.buffers) if item.mode is BalancingMode.ADAPTIVE}
        ports = (item for item in operations if isinstance(item, InstallPort) and item.buffer in adapting)
        egresses = sorted((item.buffer, item.ifindex, item.port) for item in ports if not item.vrf)
        tables = replace(tables, egresses=tuple(egresses))
    return tables


def _numbered(hosts: Sequence[HostPlan]) -> tuple[tuple[int, int], ...]:
    """The addresses of these hosts' NICs, ascending, each with its number: leaf by leaf, in the order of addresses."""
    leaf_of: dict[int, str] = {}
    for host in hosts:
        for nic in host.nics:
            if nic.address is not None:
                leaf_of.setdefault(int(nic.address.ip), nic.peer.partition(":")[0])
    first: dict[str, int] = {}
    for address in sorted(leaf_of):
        first.setdefault(leaf_of[address], address)
    ordered = sorted(leaf_of, key=lambda address: (first[leaf_of[address]], address))
    return tuple(sorted((address, number) for number, address in enumerate(ordered)))


def number_of(tables: QosTables, destination: IPv4Address) -> int:
    """Return the number of a destination; one that is no NIC of the lab has that of its place among the addresses."""
    place = bisect_left(tables.destinations, (int(destination), 0))
    found = tables.destinations[place : place + 1]
    return found[0][1] if found and found[0][0] == int(destination) else place


def pinned_path(tables: QosTables, buffer: BufferPlan, destination: IPv4Address, paths: int) -> int:
    """Return which of so many paths, from 0, a switch with `mode: static` pins a destination to."""
    return number_of(tables, destination) // buffer.stride % paths
