"""What transports in user space have in common for a worker: endpoints at the addresses of its NICs, on one loop."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from testbed.agent.agent import Agent
from testbed.agent.loop import Loop
from testbed.worker.errors import TrafficError
from testbed.worker.poll_loop import WatchingLoop
from testbed.worker.program import Program, Step
from testbed.worker.traffic import Listener
from testbed.workload.steps import Combine

if TYPE_CHECKING:
    from testbed.worker.buffers import CollectiveBuffers


class DatagramTraffic:
    """The base class of such transports. `Traffic` says what the methods do.

    `tick_ns` is how often the worker looks for what has come and is due, at most; 0: at once.
    """

    def __init__(
        self,
        program: Program,
        tick_ns: int,
        loop: WatchingLoop,
        buffers: CollectiveBuffers | None,
        listener: Listener,
    ) -> None:
        self._program = program
        self._buffers = buffers
        self._listener = listener
        self._tick_ns = tick_ns
        self._attach(loop)
        self._addresses = {endpoint.rank: endpoint.address for endpoint in program.endpoints}
        self._outgoing = [channel for channel in program.channels if channel.source in program.own]
        self._incoming = [channel for channel in program.channels if channel.destination in program.own]
        self._names = {endpoint.rank: str(endpoint) for endpoint in program.endpoints}
        self._sent_bytes: Counter[int] = Counter()
        self._rooms: dict[int, memoryview] = {}
        """Where transfers arrive that are to be added, by step."""
        # All that carries nothing of its own shares its memory, whatever is in it.
        longest = max((step.size_bytes for step in program.steps if step.channel is not None), default=0)
        self._shared = memoryview(bytearray(longest))
        self._closed = False

    # --- what it stands on -------------------------------------------------------------------------------

    def _attach(self, loop: WatchingLoop) -> None:
        """Take what drives the endpoints: sockets and their loop, on this machine's clock."""
        if not isinstance(loop, Loop):
            raise TrafficError("this worker was started for another transport: its loop does not know datagrams")
        self._loop = loop
        self._agent = Agent(seed=_agent_seed(self._program), loop=loop)
        loop.set_tick(self._tick_ns)

    def _now(self) -> int:
        return time.monotonic_ns()

    @property
    def ready(self) -> bool:
        return not self._closed

    # --- data ---------------------------------------------------------------------------------------------

    def _room_of(self, step: Step) -> memoryview:
        """Where a transfer arrives: in the array, where it is copied, or in room of its own, where it is added."""
        if step.piece is None:
            return self._shared[: step.size_bytes]
        if step.piece.combine is Combine.REDUCE:
            room = self._rooms[step.number] = memoryview(bytearray(step.size_bytes))
            return room
        assert self._buffers is not None
        return self._buffers.landing(step)

    def _data_of(self, step: Step) -> memoryview:
        """What a transfer sends."""
        if step.piece is None:
            return self._shared[: step.size_bytes]
        assert self._buffers is not None
        return self._buffers.outgoing(step)

    def _deliver(self, step: Step) -> None:
        """Add a transfer that has arrived in room of its own."""
        room = self._rooms.pop(step.number, None)
        if room is not None:
            assert self._buffers is not None
            self._buffers.deliver(step, room)

    def _what(self, step: Step) -> str:
        assert step.destination is not None
        return f"step {step.number} from {self._names[step.source]} to {self._names[step.destination]}"

    # --- what is known ------------------------------------------------------------------------------------

    def _socket_counters(self, address: str) -> Mapping[str, int]:
        """Return those of an endpoint's sockets, and of what holds its datagrams for the path's delay.

        `socket_overflows`: datagrams that this process was too slow for.
        """
        group = self._agent.sockets(address)
        found = {
            "socket_overflows": group.overflows,
            "socket_drops": group.counters.dropped,
            "datagrams_received": group.counters.received,
            "datagrams_sent": group.counters.sent,
        }
        delay = self._agent.delay(address)
        if delay is not None:
            found |= {
                "delay_handed": delay.handed,
                "delay_excess_ns": delay.excess_ns,
                "delay_overruns": delay.overruns,
            }
        return found

    # --- the end ------------------------------------------------------------------------------------------

    def halt(self) -> None:
        """Do nothing: peers may still need our acknowledgements."""

    def close(self) -> None:
        """Close all at once. The next program's endpoints know nothing of these."""
        if not self._closed:
            self._closed = True
            self._agent.close(patience_ns=0)


def named(counters: Mapping[str, int]) -> dict[str, int]:
    """Return counters in a record's way of writing names, without those that are 0."""
    return {name.replace("-", "_"): count for name, count in counters.items() if count}


def _agent_seed(program: Program) -> int:
    """Each host draws other numbers."""
    return program.seed << 20 | min(program.own, default=0)
