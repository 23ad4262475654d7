"""The load of an InfiniBand subnet during a run, from the counters of its ports: in virtual time, or of live wires."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from testbed.protocols.infiniband.binding import ERRORS
from testbed.protocols.infiniband.data_path import PortCounts
from testbed.record.subnet_counters import SubnetLane, SubnetLoad, SubnetPort

_NS = 1e9
MOST_PORTS = 256
"""The most ports of a record: those that waited longest for credits, then those that sent most."""

DEADLOCKED = "deadlocked"
"""The event of a run that no frame can move any more; its detail names the lanes that wait for each other."""


def subnet_load(
    readings: Sequence[PortCounts],
    *,
    engine: str,
    vls: int,
    frames: int,
    lost: Mapping[str, int],
    elapsed_s: float,
    deadlock: tuple[int, float] | None = None,
) -> SubnetLoad:
    """Return what all ports of a subnet have counted in a run that lasted `elapsed_s`, and what came of its frames.

    `deadlock`: how many of them wait for each other's buffers for ever, and when the last one moved that could, in s
    from the begin.
    """
    ports = [_port(one) for one in readings]
    busiest = sorted(ports, key=lambda one: (-one.xmit_wait_s, -one.xmit_data, one.node, one.port))
    return SubnetLoad(
        engine=engine,
        vls=vls,
        frames=frames,
        marked=sum(lane.marked for port in ports for lane in port.lanes),
        discards=sum(port.xmit_discards for port in ports),
        lost={name: count for name, count in sorted(lost.items()) if count},
        stuck=0 if deadlock is None else deadlock[0],
        deadlocked_s=None if deadlock is None else deadlock[1],
        xmit_wait_share=max((port.xmit_wait_s for port in ports), default=0.0) / elapsed_s if elapsed_s else 0.0,
        ports=busiest[:MOST_PORTS],
    )


def _port(one: PortCounts) -> SubnetPort:
    counted = one.counters
    return SubnetPort(
        node=one.node,
        port=one.port,
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
            for vl, lane in one.lanes.items()
            if lane["xmit_pkts"] or lane["rcv_pkts"]
        ],
    )
