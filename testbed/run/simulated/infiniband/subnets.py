"""From a lab's InfiniBand back end to its data path: the tables that OpenSM computes, and what its file says of lanes,
partitions and congestion besides."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from testbed.base.errors import ScenarioError
from testbed.lab.core.model import InfinibandFabric
from testbed.lab.core.model.end import End
from testbed.lab.core.model.infiniband import port_numbers, subnet_names
from testbed.lab.features.infiniband.wires import link_delays_ns, up_ports
from testbed.protocols.infiniband.data_path import Congestion, PathLink, PathNode, SubnetDataPath
from testbed.protocols.infiniband.local_routing import DEFAULT_PKEY
from testbed.protocols.infiniband.subnet import NO_PORT, Channel, Subnet
from testbed.protocols.infiniband.tables import FULL_MEMBER, set_tables

_computed: dict[tuple[str, frozenset[Channel]], Subnet] = {}


def subnet_of(fabric: InfinibandFabric, down: Collection[Channel] = ()) -> Subnet:
    """Return the subnet as OpenSM sets it up, without the links at these ports of switches. Those that were asked for
    in this process are kept: the points of a matrix mostly have one fabric.

    Raises `TestbedError` where OpenSM is missing, or refuses it.
    """
    from testbed.lab.features.infiniband.offline import compute_subnet

    key = repr(fabric), frozenset(down)
    if key not in _computed:
        _computed[key] = compute_subnet(fabric, down=tuple(sorted(down)))
    return _computed[key]


def rerouted(subnet: Subnet, fabric: InfinibandFabric, down: Collection[Channel]) -> Subnet:
    """Return the subnet once its manager has routed around the links at these ports.

    A manager that has been there all the time keeps every LID: the tables are those of one that has just begun, by the
    LIDs that nodes have. A switch that it does not reach any more keeps its table.
    """
    found = subnet_of(fabric, down)
    renamed = {
        node.lid: subnet.nodes[name].lid for name, node in found.nodes.items() if name in subnet.nodes and node.lid
    }
    reached = set(renamed.values())
    return replace(
        subnet,
        lfts={
            name: _renumbered(table, renamed) if found.nodes[name].lid else subnet.lfts.get(name, b"")
            for name, table in found.lfts.items()
        },
        sls={pair: sl for pair, sl in subnet.sls.items() if not reached.issuperset(pair)}
        | {
            (renamed[source], renamed[destination]): sl
            for (source, destination), sl in found.sls.items()
            if source in renamed and destination in renamed
        },
        engine=found.engine,
        sm=found.sm,
    )


def _renumbered(table: bytes, renamed: Mapping[int, int]) -> bytes:
    found = bytearray([NO_PORT]) * (1 + max(renamed.values(), default=0))
    for before, now in renamed.items():
        if before < len(table):
            found[now] = table[before]
    return bytes(found)


def build_data_path(fabric: InfinibandFabric, subnet: Subnet) -> SubnetDataPath:
    """Return the data path of a subnet, with all tables in force. Raises `UsageError`."""
    path = _empty_data_path(fabric, subnet)
    try:
        _fill_tables(path, fabric, subnet)
    except BaseException:
        path.close()
        raise
    return path


def _empty_data_path(fabric: InfinibandFabric, subnet: Subnet) -> SubnetDataPath:
    delays = dict(link_delays_ns(fabric))
    return SubnetDataPath(
        [
            PathNode(name=node.name, ports=node.ports, lid=node.lid, is_switch=node.is_switch)
            for node in subnet.nodes.values()
        ],
        [
            PathLink(
                a=link.a,
                a_port=link.a_port,
                b=link.b,
                b_port=link.b_port,
                rate_bps=link.rate_bps,
                delay_ns=delays.get((link.a, link.a_port), 0),
            )
            for link in subnet.links
        ],
        vls=subnet.vls,
        voq=fabric.settings.voq,
    )


def _fill_tables(path: SubnetDataPath, fabric: InfinibandFabric, subnet: Subnet) -> None:
    settings = fabric.settings
    set_tables(path, subnet)
    for switch in subnet.switches:
        if settings.congestion_control is not None:
            path.set_congestion(switch.name, Congestion(threshold=settings.congestion_control.threshold))
        if settings.adaptive_routing:
            path.set_up_ports(switch.name, up_ports(fabric, subnet, switch.name))


def require_lids(subnet: Subnet, hcas: Iterable[str]) -> None:
    """Raise `ScenarioError` where the subnet manager has found one of these HCAs nowhere."""
    for name in hcas:
        if name not in subnet.nodes or not subnet.nodes[name].lid:
            raise ScenarioError(
                f"{name} is no HCA of the subnet whose manager is at {subnet.sm or 'no HCA'}",
                hint="one plane whose rails are joined by spines, and NICs without link groups",
            )


def pkey_between(subnet: Subnet, source: str, destination: str) -> int:
    """Return the P_Key of packets from one HCA to another: that of the first partition that both are in.

    Raises `ScenarioError` where there is none.
    """
    if not subnet.partitions:
        return DEFAULT_PKEY
    for one in subnet.partitions:
        if source in one.members and destination in one.members:
            return FULL_MEMBER | one.pkey
    raise ScenarioError(
        f"{source} and {destination} are in no partition together, and the workload has one send to the other",
        hint="ranks of one partition, or fabric.infiniband.partitions with both",
    )


def ends_of(fabric: InfinibandFabric) -> Mapping[Channel, End]:
    """Return the port of the lab that each port of the subnet is."""
    names, numbers = subnet_names(fabric), port_numbers(fabric)
    return {(names[end], numbers[end]): end for end in _all_ends(fabric)}


def _all_ends(fabric: InfinibandFabric) -> Iterable[End]:
    return (end for link in fabric.links for end in (link.a, link.b))
