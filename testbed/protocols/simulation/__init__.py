"""A simulator for transports without I/O: endpoints, links and switches under a fake clock of integer nanoseconds.

It moves `Outgoing` of one endpoint to `Incoming` of another through switches that store and forward, and keeps every
count that is needed to say where a datagram went. Nothing in it waits, and the same seed gives the same run. Switches
have the ports of a lab: traffic classes over a shared buffer, ECN, trimming, pauses, and the load balancing of the
emulated ones, hash for hash.
"""

from testbed.protocols.simulation.errors import ConfigurationError, ContractError, Deadlock, Livelock, SimulationError
from testbed.protocols.simulation.events import Call, Ended, Events
from testbed.protocols.simulation.faults import ALL_PRIORITIES, Impairments
from testbed.protocols.simulation.frame import WIRE_OVERHEAD_BYTES, Frame
from testbed.protocols.simulation.link import Line, LinkSettings
from testbed.protocols.simulation.network import FabricNetwork
from testbed.protocols.simulation.nic import Endpoint, NicHost
from testbed.protocols.simulation.port import ClassQueue, OutputPort
from testbed.protocols.simulation.settings import FabricPortSettings, PacketKind, SwitchSettings
from testbed.protocols.simulation.switch import FabricSwitch, InputPort, SwitchMemory
