"""A simulator for transports without I/O: endpoints, links and switches under a fake clock of integer nanoseconds.

It moves `Outgoing` of one endpoint to `Incoming` of another through switches that store and forward, and keeps every
count that is needed to say where a datagram went. Nothing in it waits, and the same seed gives the same run.
"""

from testbed.protocols.simulation.errors import ConfigurationError, ContractError, Deadlock, Livelock, SimulationError
from testbed.protocols.simulation.events import Call, Ended, Events
from testbed.protocols.simulation.faults import ALL_PRIORITIES, Impairments
from testbed.protocols.simulation.frame import WIRE_OVERHEAD_BYTES, Frame
from testbed.protocols.simulation.host import Endpoint, Host
from testbed.protocols.simulation.link import Line, LineStatistics, LinkSettings
from testbed.protocols.simulation.network import Network, NetworkStatistics, Switch
from testbed.protocols.simulation.port import EcnCurve, Port, PortSettings, PortStatistics
from testbed.protocols.simulation.topologies import LeafSpineSize, Tier, leaf_spine, point_to_point, star

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
