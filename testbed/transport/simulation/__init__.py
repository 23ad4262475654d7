"""A simulator for transports without I/O: endpoints, links and switches under a fake clock of integer nanoseconds.

It moves `Outgoing` of one endpoint to `Incoming` of another through switches that store and forward, and keeps every
count that is needed to say where a datagram went. Nothing in it waits, and the same seed gives the same run.
"""

from testbed.transport.simulation.errors import (
    ConfigurationError,
    ContractError,
    Deadlock,
    Livelock,
    SimulationError,
)
from testbed.transport.simulation.events import Call, Ended, Events
from testbed.transport.simulation.faults import ALL_PRIORITIES, Impairments
from testbed.transport.simulation.frame import WIRE_OVERHEAD_BYTES, Frame
from testbed.transport.simulation.host import Endpoint, Host
from testbed.transport.simulation.link import Line, LineStatistics, LinkSettings
from testbed.transport.simulation.network import Network, NetworkStatistics, Switch
from testbed.transport.simulation.port import EcnCurve, Port, PortSettings, PortStatistics
from testbed.transport.simulation.topologies import LeafSpineSize, Tier, leaf_spine, point_to_point, star

__all__ = [
    "ALL_PRIORITIES",
    "WIRE_OVERHEAD_BYTES",
    "Call",
    "ConfigurationError",
    "ContractError",
    "Deadlock",
    "EcnCurve",
    "Ended",
    "Endpoint",
    "Events",
    "Frame",
    "Host",
    "Impairments",
    "LeafSpineSize",
    "Line",
    "LineStatistics",
    "LinkSettings",
    "Livelock",
    "Network",
    "NetworkStatistics",
    "Port",
    "PortSettings",
    "PortStatistics",
    "SimulationError",
    "Switch",
    "Tier",
    "leaf_spine",
    "point_to_point",
    "star",
]
