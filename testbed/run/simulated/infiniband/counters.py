"""The counters of an InfiniBand subnet in virtual time, as records keep them and as `perfquery` names them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from testbed.base.linux.port_counters import PortCounters
from testbed.lab.core.model.end import End
from testbed.protocols.infiniband.binding import ERRORS
from testbed.protocols.infiniband.subnet import Channel
from testbed.record.subnet_counters import SubnetLane, SubnetLoad, SubnetPort
from testbed.run.simulated.infiniband.carrier import SubnetCarrier

_NS = 1e9
MOST_PORTS = 256
"""The most ports of a record: those that waited longest for credits, then those that sent most."""


def subnet_load(carrier: SubnetCarrier, begin_ns: int, now_ns: int) -> SubnetLoad:
    """Return what all ports of a subnet have counted in a run."""
    ports = [_port(carrier, channel) for channel in _channels(carrier)]
    busiest = sorted(ports, key=lambda one: (-one.xmit_wait_s, -one.xmit_data, one.node, one.port))
    elapsed_s = max(0, now_ns - begin_ns) / _NS
    stuck = carrier.deadlocked_ns
    return SubnetLoad(
        engine=carrier.subnet.engine,
        vls=carrier.subnet.vls,
        frames=carrier.hops,
        marked=sum(lane.marked for port in ports for lane in port.lanes),
        discards=sum(port.xmit_discards for port in ports),
        lost=dict(sorted(carrier.lost.items())),
        stuck=carrier.in_flight if stuck is not None else 0,
        deadlocked_s=None if stuck is None else max(0, stuck - begin_ns) / _NS,
        xmit_wait_share=max((port.xmit_wait_s for port in ports), default=0.0) / elapsed_s if elapsed_s else 0.0,
        ports=busiest[:MOST_PORTS],
    )


def port_counters(carrier: SubnetCarrier, ends: Mapping[Channel, End]) -> dict[tuple[str, str], PortCounters]:
    """Return what each port has sent, and discarded, by the lab's names."""
    found = {}
    for channel in _channels(carrier):
        end = ends.get(channel)
        if end is None:
            continue
        counted = carrier.path.counters(*channel)
        lanes = _lanes(carrier, channel)
        found[end.node, end.interface] = PortCounters(
            tx_bytes=sum(lane["xmit_bytes"] for _, lane in lanes),
            tx_packets=counted["xmit_pkts"],
            tx_dropped=counted["xmit_discards"],
        )
    return found


def _channels(carrier: SubnetCarrier) -> Iterator[Channel]:
    for node in carrier.path.nodes:
        for port in range(1, node.ports + 1):
            yield node.name, port


def _lanes(carrier: SubnetCarrier, channel: Channel) -> list[tuple[int, dict[str, Any]]]:
    return [(vl, carrier.path.lane(*channel, vl)) for vl in range(carrier.subnet.vls)]


def _port(carrier: SubnetCarrier, channel: Channel) -> SubnetPort:
    node, port = channel
    counted = carrier.path.counters(node, port)
    return SubnetPort(
        node=node,
        port=port,
        xmit_data=counted["xmit_data"],
        rcv_data=counted["rcv_data"],
        xmit_pkts=counted["xmit_pkts"],
        rcv_pkts=counted["rcv_pkts"],
        xmit_wait_s=counted["xmit_wait_ns"] / _NS,
        **{name: counted[name] for name in ERRORS},
        lanes=[
            SubnetLane(
                vl=vl,
                xmit_pkts=lane["xmit_pkts"],
                xmit_wait_s=lane["xmit_wait_ns"] / _NS,
                deepest_blocks=lane["deepest"],
                marked=lane["marked"],
            )
            for vl, lane in _lanes(carrier, channel)
            if lane["xmit_pkts"] or lane["rcv_pkts"]
        ],
    )
