"""A fabric of switches with traffic classes, under the simulator's clock.

Ports have the same parts as those of an emulated lab (`testbed/base/datapath/programs/port.bpf.c`): strict and weighted
classes, WRED, a shared buffer with dynamic thresholds, trimming, priority flow control and three ways of balancing
load. Every count that the emulated ports have is kept here, too.
"""

from testbed.protocols.simulation.fabric.network import FabricNetwork
from testbed.protocols.simulation.fabric.nic import NicHost
from testbed.protocols.simulation.fabric.port import ClassQueue, OutputPort
from testbed.protocols.simulation.fabric.settings import (
    Balancing,
    ClassSettings,
    FabricPortSettings,
    PacketKind,
    SwitchSettings,
)
from testbed.protocols.simulation.fabric.switch import FabricSwitch, InputPort, SharedBuffer

__all__ = [
    "Balancing",
    "ClassQueue",
    "ClassSettings",
    "FabricNetwork",
    "FabricPortSettings",
    "FabricSwitch",
    "InputPort",
    "NicHost",
    "OutputPort",
    "PacketKind",
    "SharedBuffer",
    "SwitchSettings",
]
