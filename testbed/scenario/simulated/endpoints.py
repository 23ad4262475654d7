"""Hosts on the simulator: a worker's own program and its UET endpoints, on simulated time instead of sockets."""

from __future__ import annotations

import hashlib
import select
from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Final

from testbed.transport.datagram import Incoming, Outgoing
from testbed.transport.errors import UsageError
from testbed.transport.simulation.fabric import FabricNetwork
from testbed.transport.simulation.fabric.nic import NicHost
from testbed.transport.uet.config import UetConfig
from testbed.transport.uet.fep import Fep
from testbed.worker.datagram_traffic import named
from testbed.worker.errors import TrafficError
from testbed.worker.poll_loop import WatchingLoop
from testbed.worker.program import Program, Step
from testbed.worker.traffic import Listener, Traffic
from testbed.worker.transports.uet import UetSettings
from testbed.worker.uet_traffic import RESOURCE_INDEX, NicEndpoint, UetTraffic
from testbed.worker.worker import Event, ProgramRun

if TYPE_CHECKING:
    from collections import deque

    from testbed.worker.buffers import CollectiveBuffers


ASKED_EVERY: Final = 4_096
"""After so many actions of endpoints, whoever watches is told how far the run is, and may end it."""


class NoLoop:
    """What stands in for a worker's loop: no sockets, nothing to wait for."""

    def watch(self, fd: int, callback: Callable[[int], None], events: int = select.EPOLLIN) -> None: ...

    def modify(self, fd: int, events: int) -> None: ...

    def unwatch(self, fd: int) -> None: ...

    def run_once(self, until: int | None = 0) -> bool:
        return False

    def close(self) -> None: ...


class FepHost(NicHost):
    """A NIC whose endpoint is a FEP: what compiled code knows, it calls three times as fast as what might be any."""

    __slots__ = ()

    def _next_timer(self) -> int | None:
        fep = self.endpoint
        assert isinstance(fep, Fep)
        return fep.next_timer()

    def _receive(self, incoming: Incoming, now: int) -> None:
        fep = self.endpoint
        assert isinstance(fep, Fep)
        fep.receive((incoming,), now)

    def _transmit(self, now: int) -> list[Outgoing]:
        fep = self.endpoint
        assert isinstance(fep, Fep)
        return fep.transmit(now, 1)


class Site:
    """What all hosts of a run share: the network, once it is built, its clock, and memory that carries nothing."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.network: FabricNetwork | None = None
        self.feps: dict[str, Fep] = {}
        """By address, in the order in which they were opened."""
        self._room = memoryview(b"")

    def now(self) -> int:
        """Simulated ns since the begin."""
        return 0 if self.network is None else self.network.now

    def room(self, size: int) -> memoryview:
        """Memory for transfers that are traffic alone. All have the same: nobody looks at what is in it."""
        if len(self._room) < size:
            self._room = memoryview(bytearray(size))
        return self._room[:size]


class SimulatedUet(UetTraffic):
    """A worker's UET traffic whose endpoints are hosts of the simulated network."""

    def __init__(
        self, program: Program, site: Site, loop: WatchingLoop, buffers: CollectiveBuffers | None, listener: Listener
    ) -> None:
        self._site = site
        assert isinstance(program.transport, UetSettings)
        super().__init__(program, program.transport, loop, buffers, listener)
        self._shared = site.room(len(self._shared))

    @property
    def nics(self) -> Mapping[str, NicEndpoint]:
        """Its endpoints by address."""
        return self._nics

    def _attach(self, loop: WatchingLoop) -> None: ...

    def _now(self) -> int:
        return self._site.now()

    def _touch(self, nic: NicEndpoint) -> None:
        network = self._site.network
        if network is not None:
            network.hosts[nic.fep.address].wake()

    def _received_bytes(self, nic: NicEndpoint) -> int:
        network = self._site.network
        return 0 if network is None else network.hosts[nic.fep.address].delivered_bytes

    def _open(self, address: str, source_port: int, to_post: deque[Step]) -> NicEndpoint:
        settings = self._settings
        entropies = {"entropies": (source_port,)} if source_port else {}
        try:
            config = UetConfig(**settings.config, **entropies)  # type: ignore[arg-type]
            random = Random(f"{self._site.seed} {address}")
            fep = Fep(address, config, random, 0, security=self._security())
            endpoint = fep.endpoint(job_id=settings.job_id, resource_index=RESOURCE_INDEX)
        except (ValueError, TypeError, UsageError, ImportError) as error:
            raise TrafficError(f"cannot open a fabric endpoint at {address}: {error}") from error
        self._site.feps[address] = fep
        return NicEndpoint(fep, endpoint, to_post)

    def _first_counter(self) -> int:
        """There was no life of this endpoint before."""
        return 1

    def counters(self) -> Mapping[str, int]:
        """Return those of the FEPs by their names, and the datagrams that the NICs sent and got."""
        total: dict[str, int] = {"datagrams_received": 0, "datagrams_sent": 0}
        network = self._site.network
        for address, nic in self._nics.items():
            nic.fep.peers.settle()
            for name, count in named(nic.fep.counters).items():
                total[name] = total.get(name, 0) + count
            if network is not None:
                total["datagrams_received"] += network.hosts[address].delivered
                total["datagrams_sent"] += network.hosts[address].sent
        return total

    def close(self) -> None:
        self._closed = True


class Watch:
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

    def __init__(self, program: Program, site: Site, on_end: Callable[[SimulatedProgram], None]) -> None:
        super().__init__(program, NoLoop(), self._hear, clock_ns=site.now)
        self.failure = ""
        """Why it cannot go on; "" as long as it can."""
        self._site = site
        self._on_end = on_end
        self._ended = False
        self._armed: int | None = None

    @property
    def arrived_bytes(self) -> int:
        """About how many bytes have arrived here so far."""
        return self._arrived_bytes

    @property
    def nics(self) -> Mapping[str, NicEndpoint]:
        """Its endpoints by address; none before it is prepared."""
        return self._traffic.nics if isinstance(self._traffic, SimulatedUet) else {}

    def begin(self) -> None:
        """Begin the workload, now that the network is there."""
        self.connect()
        self.act()
        self.start(self._site.now())
        self.act()

    def act(self) -> None:
        """Look at what has ended, begin what is due, and see to it that this happens again in time."""
        self.turn()
        due, network = self.deadline(), self._site.network
        if due is not None and network is not None and (self._armed is None or due < self._armed):
            self._armed = due
            network.at(due, self._on_deadline)

    def _on_deadline(self, now: int) -> None:
        if self._armed is not None and now >= self._armed:
            self._armed = None
            self.act()

    def _make_traffic(self) -> Traffic:
        return SimulatedUet(self._program, self._site, self._loop, self.buffers, self)

    def _hear(self, event: Event) -> None:
        kind = event["event"]
        if kind == "failed":
            self.failure = str(event["reason"])
        if kind in ("failed", "done") and not self._ended:
            self._ended = True
            self._on_end(self)


def simulated_key(seed: int) -> str:
    """Return the key of TSS of a run, in hexadecimal digits: another one for each seed."""
    return hashlib.sha256(f"tss {seed}".encode()).hexdigest()
