"""A subnet's tables in force in its data path: forwarding, lanes, arbitration and partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from testbed.protocols.infiniband.data_path import SubnetDataPath
from testbed.protocols.infiniband.local_routing import DEFAULT_PKEY
from testbed.protocols.infiniband.subnet import Channel, Subnet

FULL_MEMBER: Final = 0x8000
LIMITED_DEFAULT: Final = DEFAULT_PKEY & ~FULL_MEMBER
"""The P_Key that every HCA has besides those of its partitions, by which it reaches the subnet manager alone."""


def set_tables(path: SubnetDataPath, subnet: Subnet) -> None:
    """Put all tables of a subnet in force."""
    for node in subnet.nodes.values():
        path.set_lanes(node.name, subnet.sl2vl)
        path.set_arbitration(node.name, high=subnet.vl_high, low=_low(subnet), limit=subnet.vl_high_limit)
    set_routes(path, subnet)
    for channel, keys in _partition_keys(subnet):
        path.set_partitions(channel[0], keys, port=channel[1])


def set_routes(path: SubnetDataPath, subnet: Subnet) -> None:
    """Put the forwarding tables of a subnet in force."""
    for switch in subnet.switches:
        path.set_forwarding(switch.name, subnet.lfts.get(switch.name, b""))


def keys_of(subnet: Subnet, hca: str) -> Sequence[int]:
    """Return the P_Keys that an HCA lets pass; none where all HCAs are in one partition, which lets everything pass."""
    if not subnet.partitions:
        return ()
    return [LIMITED_DEFAULT, *(FULL_MEMBER | one.pkey for one in subnet.partitions if hca in one.members)]


def _low(subnet: Subnet) -> Sequence[tuple[int, int]]:
    """The low-priority table; all lanes alike where nothing is said of any."""
    return subnet.vl_low or (() if subnet.vl_high else tuple((vl, 1) for vl in range(subnet.vls)))


def _partition_keys(subnet: Subnet) -> Iterator[tuple[Channel, Sequence[int]]]:
    """The P_Keys of each HCA and of the switch's port before it; nothing where all are in one partition."""
    if not subnet.partitions:
        return
    for hca in subnet.hcas:
        keys = keys_of(subnet, hca.name)
        yield (hca.name, 1), keys
        peer = subnet.peer(hca.name, 1)
        if peer is not None and subnet.nodes[peer[0]].is_switch:
            yield peer, keys
