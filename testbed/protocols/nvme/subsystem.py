"""A target: its NVM subsystems, who may have them, and the controllers that hosts have of them.

    Target ── Subsystem (NQN, namespaces, allowed hosts) ── Controller (one for each association with a host)
       └───── ControllerQueue (a connection) ─────────────────┘ admin queue, then I/O queues

A target owns everything. A connection that arrives becomes a `ControllerQueue`, which belongs to nobody until its
Connect command makes a controller (queue 0) or joins one (another queue). A controller ends with its admin queue, and
takes its I/O queues along. The I/O layer asks `take_ready` which queues have events for it or bytes to send, and
`next_timer` when to call `on_timer`.

The discovery subsystem is there in every target: a host sees in it what it is allowed to have, and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from testbed.protocols.errors import UsageError
from testbed.protocols.nvme.codes import DISCOVERY_NQN, Status
from testbed.protocols.nvme.config import ControllerConfig
from testbed.protocols.nvme.controller import Controller
from testbed.protocols.nvme.controller_queue import ConnectRefused, ControllerQueue
from testbed.protocols.nvme.data_structures import DiscoveryEntry, NamespaceData

_LAST_CNTLID = 0xFFEF


class Subsystem:
    """An NVM subsystem. `allowed_hosts` are NQNs; None lets every host in."""

    def __init__(
        self,
        nqn: str,
        serial: str,
        namespaces: Iterable[NamespaceData] = (),
        allowed_hosts: frozenset[str] | None = None,
        *,
        first_cntlid: int = 1,
    ) -> None:
        """`first_cntlid` keeps the controllers of targets that share a subsystem apart."""
        self.nqn = nqn
        self.serial = serial
        self.allowed_hosts = allowed_hosts
        self.controllers: dict[int, Controller] = {}
        self.namespaces: dict[int, NamespaceData] = {item.nsid: item for item in namespaces}
        self._next_cntlid = first_cntlid

    @property
    def is_discovery(self) -> bool:
        return self.nqn == DISCOVERY_NQN

    def allows(self, hostnqn: str) -> bool:
        return self.allowed_hosts is None or hostnqn in self.allowed_hosts

    def change_namespace(self, nsid: int, namespace: NamespaceData | None) -> None:
        """Put a namespace in, change it, or take it away (None); hosts that want to know are told."""
        if namespace is None:
            self.namespaces.pop(nsid, None)
        else:
            self.namespaces[nsid] = namespace
        for controller in self.controllers.values():
            controller.on_namespace_changed(nsid)

    def new_cntlid(self) -> int:
        """A controller identifier that is free; the last to be used again is the one used last."""
        while True:
            cntlid = self._next_cntlid
            self._next_cntlid = cntlid + 1 if cntlid < _LAST_CNTLID else 1
            if cntlid not in self.controllers:
                return cntlid


class Target:
    """Times in ns. Nothing in here raises because of what a peer sends."""

    def __init__(self, subsystems: Iterable[Subsystem], config: ControllerConfig | None = None) -> None:
        self.config = config or ControllerConfig()
        self.subsystems: dict[str, Subsystem] = {item.nqn: item for item in subsystems}
        if DISCOVERY_NQN in self.subsystems:
            raise UsageError(f"{DISCOVERY_NQN} is there in every target")
        self.discovery = Subsystem(DISCOVERY_NQN, "discovery")
        self.addresses: list[tuple[str, int]] = []
        """The place at which the target is had, for the discovery log: IP address and port."""
        self.queues: dict[ControllerQueue, None] = {}
        self.counts: Counter[str] = Counter()
        """Connections, terminations by their FES, refusals, keep-alive time-outs."""
        self._ready: dict[ControllerQueue, None] = {}

    # --- connections --------------------------------------------------------------------------------------

    def accept(self, now: int) -> ControllerQueue:
        """A connection has arrived. Of too many that have not sent Connect the oldest ends: a host that means it is
        through in two round trips, and those that hold places open keep nobody out."""
        unconnected = [queue for queue in self.queues if queue.controller is None and not queue.closed]
        if len(unconnected) >= self.config.most_unconnected:
            self.counts["connections displaced"] += 1
            unconnected[0].close("a newer connection took its place")
        self.counts["connections"] += 1
        queue = ControllerQueue(self, now)
        self.queues[queue] = None
        return queue

    def forget(self, queue: ControllerQueue) -> None:
        """The socket of a queue is closed."""
        queue.close("the connection is closed")
        self.queues.pop(queue, None)
        self._ready.pop(queue, None)

    def make_ready(self, queue: ControllerQueue) -> None:
        """A queue has something for the I/O layer."""
        self._ready[queue] = None

    def take_ready(self) -> list[ControllerQueue]:
        """The queues that have events or bytes to send, or are closed, since this was asked last."""
        found = list(self._ready)
        self._ready.clear()
        return found

    # --- timers -------------------------------------------------------------------------------------------

    def controllers(self) -> Iterable[Controller]:
        for subsystem in (self.discovery, *self.subsystems.values()):
            yield from subsystem.controllers.values()

    def next_timer(self) -> int | None:
        """When `on_timer` is to be called; None: for nothing."""
        times = [queue.handshake_until for queue in self.queues if queue.controller is None and not queue.closed]
        times += [item.alive_until for item in self.controllers() if item.alive_until is not None]
        return min(times, default=None)

    def on_timer(self, now: int) -> None:
        """End the associations whose host has not been heard of, and connections without Connect."""
        for controller in [item for item in self.controllers() if item.is_overdue(now)]:
            self.counts["keep-alive time-outs"] += 1
            controller.fail("the host was not heard of within its keep-alive time-out")
        for queue in list(self.queues):
            if queue.controller is None and now >= queue.handshake_until and not queue.closed:
                self.counts["handshake time-outs"] += 1
                queue.close("no Connect came")

    # --- hosts --------------------------------------------------------------------------------------------

    def find_subsystem(self, nqn: str, hostnqn: str) -> Subsystem:
        """The subsystem that a host asks for. Raises `ConnectRefused`."""
        subsystem = self.discovery if nqn == DISCOVERY_NQN else self.subsystems.get(nqn)
        if subsystem is None:
            raise ConnectRefused(Status.CONNECT_INVALID_PARAMETERS, 256, in_data=True)
        if not subsystem.allows(hostnqn):
            self.counts["hosts refused"] += 1
            raise ConnectRefused(Status.CONNECT_INVALID_HOST, 512, in_data=True)
        if len(subsystem.controllers) >= self.config.most_controllers:
            raise ConnectRefused(Status.CONNECT_CONTROLLER_BUSY, 0, in_data=True)
        return subsystem

    def discovery_entries(self, hostnqn: str) -> list[DiscoveryEntry]:
        """Return the entries that a host is told of."""
        return [
            DiscoveryEntry(
                subnqn=subsystem.nqn, address=address, port=port, port_id=index, entries=self.config.queue_entries
            )
            for subsystem in self.subsystems.values()
            if subsystem.allows(hostnqn)
            for index, (address, port) in enumerate(self.addresses, 1)
        ]
