"""From a lab's InfiniBand back end to its data path: the tables that OpenSM computes, and what its file says of lanes
and congestion besides."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from testbed.base.cleanup import on_failure
from testbed.lab.core.model import InfinibandFabric
from testbed.lab.features.infiniband.wires import link_delays_ns, up_ports
from testbed.protocols.infiniband.data_path import Congestion, PathLink, PathNode, SubnetDataPath
from testbed.protocols.infiniband.subnet import NO_PORT, Channel, Subnet
from testbed.protocols.infiniband.tables import set_tables

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
    with on_failure(path.close):
        _fill_tables(path, fabric, subnet)
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
