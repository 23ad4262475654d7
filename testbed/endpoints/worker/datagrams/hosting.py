"""The ground of a worker's endpoints: sockets of this machine, or hosts of a simulated network, and a clock."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Protocol

from testbed.base.program_errors import TrafficError
from testbed.endpoints.agent import Agent
from testbed.endpoints.loop import Endpoint, Loop
from testbed.endpoints.worker.poll_loop import WatchingLoop
from testbed.endpoints.worker.program import Program


class Hosting(Protocol):
    """Endpoints are known by their addresses. How one is opened is its transport's own affair."""

    def now(self) -> int:
        """Return the time of its clock (ns)."""

    def memory(self, size: int) -> memoryview:
        """Return memory for transfers that carry nothing of their own, whatever is in it."""

    def touch(self, endpoint: Endpoint) -> None:
        """An endpoint has been given work."""

    def received_bytes(self, address: str) -> int:
        """Return how many bytes of datagrams have come for an endpoint."""

    def counters(self, address: str) -> Mapping[str, int]:
        """Return what else was counted below an endpoint."""

    def first_packet_counter(self) -> int:
        """Return where counters of packets begin that no earlier life of an endpoint may have used."""

    def close(self) -> None:
        """Close all endpoints at once. The next program's know nothing of these."""


class AgentHosting:
    """An agent's sockets, on the loop of the worker. Raises `TrafficError` for a loop that knows no datagrams.

    `tick_ns` is how often the worker looks for what has come and is due, at most; 0: at once.
    """

    def __init__(self, program: Program, loop: WatchingLoop, tick_ns: int) -> None:
        if not isinstance(loop, Loop):
            raise TrafficError("this worker was started for another transport: its loop does not know datagrams")
        self._loop = loop
        self.agent = Agent(seed=agent_seed(program), loop=loop)
        loop.set_tick(tick_ns)

    def now(self) -> int:
        return time.monotonic_ns()

    def memory(self, size: int) -> memoryview:
        return memoryview(bytearray(size))

    def touch(self, endpoint: Endpoint) -> None:
        self._loop.touch(endpoint)

    def received_bytes(self, address: str) -> int:
        return self.agent.sockets(address).counters.received_bytes

    def counters(self, address: str) -> Mapping[str, int]:
        """Return those of an endpoint's sockets, and of what holds its datagrams for the path's delay.

        `socket_overflows`: datagrams that this process was too slow for.
        """
        group = self.agent.sockets(address)
        found = {
            "socket_overflows": group.overflows,
            "socket_drops": group.counters.dropped,
            "datagrams_received": group.counters.received,
            "datagrams_sent": group.counters.sent,
        }
        delay = self.agent.delay(address)
        if delay is not None:
            found |= {
                "delay_handed": delay.handed,
                "delay_excess_ns": delay.excess_ns,
                "delay_overruns": delay.overruns,
            }
        return found

    def first_packet_counter(self) -> int:
        from testbed.protocols.uet.security.tss import first_counter  # with its cryptography, which few need

        return first_counter(time.time_ns())

    def close(self) -> None:
        self.agent.close(patience_ns=0)


def agent_seed(program: Program) -> int:
    """Each host draws other numbers."""
    return program.seed << 20 | min(program.own, default=0)
