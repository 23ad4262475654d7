"""What runs inside a host: sockets, clock and timers for the transports of `testbed.transport`.

It stands on the standard library and `testbed.transport` alone, so that it ships into a container without the rest.
"""

from testbed.agent.loop import Endpoint, Loop
from testbed.agent.sockets import Marking, SocketConfig, SocketCounters, SocketGroup
from testbed.agent.wire_delay import DelayLine

__all__ = ["DelayLine", "Endpoint", "Loop", "Marking", "SocketConfig", "SocketCounters", "SocketGroup"]
