"""Hosts on the simulator: a worker's own program, on simulated time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from testbed.endpoints.worker.datagrams.datagram_traffic import DatagramTraffic
from testbed.endpoints.worker.domain import Domains
from testbed.endpoints.worker.program import Program, Step
from testbed.endpoints.worker.stack_sockets import StackLoop, StackSockets
from testbed.endpoints.worker.traffic import Traffic
from testbed.endpoints.worker.worker import Event, ProgramRun
from testbed.run.simulated.site import RunSite
from testbed.run.simulated.transport_registry import simulated_transport

if TYPE_CHECKING:
    from testbed.endpoints.worker.http.request_traffic import RequestTraffic

ASKED_EVERY: Final = 4_096
"""After so many actions of endpoints, whoever watches is told how far the run is, and may end it."""


class ProgramsWatch:
    """Tells after every action of an endpoint whether a run is over, and shows now and then how far it is."""

    def __init__(self, programs: int, look: Callable[[], bool]) -> None:
        self.going = programs
        """Programs that have not ended."""
        self.failed: SimulatedProgram | None = None
        """The first one that could not go on."""
        self.interrupted = False
        self._look = look
        self._asked = 0

    def on_end(self, program: SimulatedProgram) -> None:
        self.going -= 1
        if program.failure and self.failed is None:
            self.failed = program

    def is_over(self) -> bool:
        if not self.going or self.failed is not None:
            return True
        self._asked += 1
        if not self._asked % ASKED_EVERY:
            self.interrupted = self._look()
        return self.interrupted


class SimulatedProgram(ProgramRun):
    """One host's program under the simulated clock. `on_end` is called once, when it is done or has failed."""

    def __init__(
        self,
        program: Program,
        site: RunSite,
        on_end: Callable[[SimulatedProgram], None],
        domains: Domains | None = None,
    ) -> None:
        self._stacks = StackLoop()
        self._stacks.on_ready = self.act
        super().__init__(program, self._stacks, self._hear, clock_ns=site.now, domains=domains)
        self.failure = ""
        """Why it cannot go on; "" as long as it can."""
        self.ready = False
        """It has reached all that it is to reach, and may begin."""
        self._site = site
        self._on_end = on_end
        self._ended = False
        self._armed: int | None = None

    @property
    def arrived_bytes(self) -> int:
        """About how many bytes have arrived here so far."""
        return self._arrived_bytes

    @property
    def completions(self) -> Mapping[str, deque[Any]]:
        """Return the news of each of its endpoints that was not looked at yet, by address: operations that have ended,
        or connections on which there is something new. None before it is prepared."""
        return self._traffic.completions if isinstance(self._traffic, DatagramTraffic) else self._stacks.changed

    def set_up(self) -> None:
        """Reach whom it is to reach, now that the network is there. It is `ready` then, or later."""
        self.connect()
        self.act()

    def begin(self, at_ns: int) -> None:
        """Begin the workload at this time, which is now."""
        self.start(at_ns)
        self.act()

    def act(self) -> None:
        """Look at what has ended, begin what is due, and see to it that this happens again in time."""
        self._stacks.serve()
        self.turn()
        while self._stacks.serve():  # what has begun may write at once
            self.turn()
        due, network = self.deadline(), self._site.network
        if due is not None and network is not None and (self._armed is None or due < self._armed):
            self._armed = due
            network.at(due, self._on_deadline)

    def _expect(self, transfer: Step) -> None:
        if isinstance(self._traffic, DatagramTraffic):
            self._traffic.expect(transfer)
        else:
            super()._expect(transfer)

    def on_inside_arrived(self, step: Step, now: int, data: memoryview | None) -> None:
        super().on_inside_arrived(step, now, data)
        self._wake()

    def on_inside_sent(self, step: Step, now: int) -> None:
        super().on_inside_sent(step, now)
        self._wake()

    def _wake(self) -> None:
        """Act once more at this time: another host of the scale-up domain may have brought what ends a step."""
        now, network = self._site.now(), self._site.network
        if network is not None and (self._armed is None or now < self._armed):
            self._armed = now
            network.at(now, self._on_deadline)

    def _on_deadline(self, now: int) -> None:
        if self._armed is not None and now >= self._armed:
            self._armed = None
            self.act()

    def _make_traffic(self) -> Traffic:
        transport = simulated_transport(self._program.transport.kind)
        return transport.make_traffic(self._program, self._site, self.buffers, self, self._stacks)

    def _make_requests(self) -> RequestTraffic:
        from testbed.endpoints.worker.http.request_traffic import RequestTraffic  # most programs have none

        sockets = StackSockets(self._site, self._stacks)
        return RequestTraffic(self._program, self._stacks, self, self._site.now, sockets)

    def _hear(self, event: Event) -> None:
        kind = event["event"]
        if kind == "ready":
            self.ready = True
        if kind == "failed":
            self.failure = str(event["reason"])
        if kind in ("failed", "done") and not self._ended:
            self._ended = True
            self._on_end(self)
