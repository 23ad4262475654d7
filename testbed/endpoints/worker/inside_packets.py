"""Transfers inside a scale-up domain as frames: each GPU of an own rank has an endpoint at the domain's switch.

A transfer is a write into a window that its destination opens for it alone or, where its destination begins it, a read
from one that its source opens. A rank that is pooled memory has granted its windows before (`inside_pool`). The bytes
cross the links, and flow control, retry and the switch are what the topology says of them. What the switch adds up and
copies is of `inside_switch`. The endpoints of all domains of a process are served by one loop in C, in which that
process waits.

Before anything begins, every GPU writes a few bytes to the next one by each plane. That proves the links, and the
time of it is the idle round trip of this machine.
"""

from __future__ import annotations

import mmap
import statistics
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.base.program_errors import TrafficError
from testbed.endpoints.real_time import REAL_TIME
from testbed.endpoints.worker.inside_pool import PooledRank
from testbed.endpoints.worker.inside_switch import SwitchOperations
from testbed.endpoints.worker.program import ScaleUpPackets, ScaleUpPlace, Step
from testbed.protocols.errors import UsageError
from testbed.protocols.scale_up.domain.endpoint import Done, Endpoint, Endpoints, Gpu, Kind
from testbed.protocols.scale_up.domain.errors import OperationCancelled, ScaleUpError
from testbed.protocols.scale_up.domain.windows import Window, WindowReference

if TYPE_CHECKING:
    from testbed.endpoints.worker.domain import Domain

MOST_AT_ONCE = 64 << 20
"""Bytes of an operation, and of the memory that traffic alone comes from and goes to."""
OPEN_TRANSFERS = 48
"""Transfers at a time that a GPU begins, and to which it lends a window."""
OPEN_POOLED = 112
"""Loads and stores at a time that a GPU has under way to pooled memory, which need no window of their own."""
OPEN_PARTS = 8
"""Operations of a transfer at a time: those of all transfers are no more than an end has room for (1,024)."""
SETUP_NS, SETUP_RTTS = 5_000_000_000, 25
"""After so long, or so many round trips, a GPU that has no plane is given up."""
OPEN_NS = 30_000_000_000
"""Ends that are not open so long after the last one that was are given up."""
LOOK_NS = 20_000_000
"""The least time between two looks at whether anything moves."""
PINGS = 3
"""By each plane, one after the other; the first may wait for the link to come up."""
PINGING_GPUS = 8
"""So many GPUs measure. All others prove their planes alone."""
PING_BYTES = 64


class PacketEndpoints:
    """The endpoints of all domains of this process."""

    clock_ns: Callable[[], int] = staticmethod(time.monotonic_ns)
    """The time that they live in."""

    def __init__(self) -> None:
        self._endpoints: Endpoints | None = None
        self._owners: dict[Endpoint, InsidePackets] = {}
        self._watched: list[int] = []

    @property
    def live(self) -> bool:
        """Tell whether there are any: they are then to be waited in (`wait`)."""
        return bool(self._owners)

    def open(self, library: Path, gpu: Gpu, owner: InsidePackets) -> Endpoint:
        """Open a GPU's end in the namespace that this process is in. Raises `OSError`, `UsageError`."""
        if self._endpoints is None:
            self._endpoints = Endpoints(library)
            for descriptor in self._watched:
                self._endpoints.watch(descriptor)
        endpoint = self._endpoints.add(gpu)
        REAL_TIME.begin()  # a link's end in hardware is never late
        self._owners[endpoint] = owner
        return endpoint

    def shut(self, endpoint: Endpoint) -> None:
        """Close a GPU's end."""
        if self._owners.pop(endpoint, None) is not None and self._endpoints is not None:
            self._endpoints.remove(endpoint)
            REAL_TIME.end()

    def watch(self, descriptor: int) -> None:
        """Have `wait` return when this becomes readable."""
        self._watched.append(descriptor)

    def wait(self, until_ns: int | None) -> None:
        """Serve all endpoints until this time of CLOCK_MONOTONIC (0: once; None: for ever), an operation is done, or
        what is watched is readable. Then tell of what is done."""
        if self._endpoints is None:
            return
        self._endpoints.run_until(until_ns)
        for endpoint, owner in list(self._owners.items()):
            for done in endpoint.completions():
                owner.on_done(endpoint, done)

    def close(self) -> None:
        for endpoint in list(self._owners):
            self.shut(endpoint)
        if self._endpoints is not None:
            self._endpoints.close()
            self._endpoints = None


@dataclass(slots=True, kw_only=True)
class _Transfer:
    """A transfer that has begun."""

    step: Step
    window: Window | None
    """That of its own; None where it goes to or from pooled memory."""
    landing: memoryview | None
    """Memory that is to be added up when all of it is there."""
    parts: Iterator[int] = field(default_factory=lambda: iter(()))
    """Begins one more operation at each step, and yields its handle: traffic alone may be more than its memory."""
    left: int = 0
    """Operations under way."""
    error: ScaleUpError | None = None
    arrived: bool = False


@dataclass(slots=True)
class DomainCounts:
    """Counts of the transfers of a domain, in this process alone."""

    ended: int = 0
    failed: int = 0
    stalled: bool = False
    """Transfers waited, and none moved until they were given up."""
    stall_ns: int = 0
    """The time for which nothing had moved then."""
    progress_ns: int = 0
    """When something last moved (CLOCK_MONOTONIC)."""
    idle_rtts_ns: list[int] = field(default_factory=list)


class InsidePackets:
    """Carries the transfers of one domain. Of a rank it knows what has been opened here."""

    def __init__(self, packets: ScaleUpPackets, endpoints: PacketEndpoints, recipient: Domain) -> None:
        self.counts = DomainCounts()
        self._packets = packets
        self._endpoints = endpoints
        self._recipient = recipient
        self._places: dict[int, ScaleUpPlace] = {}
        self._expected: set[int] = set()
        """The ranks whose ends are open, or will be: nothing begins before all of them are."""
        self._open: dict[int, Endpoint] = {}
        self._pools: dict[int, PooledRank] = {}
        self._waiting: dict[int, deque[Step]] = {}
        self._begun: dict[int, int] = {}
        """By rank, the transfers under way that it begins."""
        self._lent: dict[int, int] = {}
        """By rank, those that it lends a window to."""
        self._transfers: dict[tuple[int, int], _Transfer] = {}
        """By GPU and handle."""
        self._landing: dict[tuple[int, int], _Transfer] = {}
        """Transfers whose destination waits for the bytes, by its GPU and window."""
        self._pings: dict[tuple[int, int], tuple[int, int]] = {}
        """By GPU and handle: the rank, and the number of the ping."""
        self._targets: dict[int, Window] = {}
        """By GPU, what is written to before anything begins."""
        self._setting_up = False
        self._since_ns = 0
        """When the last end was opened, or began to reach its neighbour."""
        self._pinging: set[int] = set()
        self._pinged: set[int] = set()
        self._unanswered: dict[int, int] = {}
        """By rank, the pings under way."""
        self._again: dict[int, int] = {}
        """By rank, the number of a ping that failed: its plane may not be up yet."""
        self._before: dict[int, Mapping[int, int]] = {}
        """By rank, the latencies of pings."""
        self._moved = -1
        self._busy_since_ns = 0
        self._look_at: int | None = None
        self._failed = False
        self._zeros = memoryview(mmap.mmap(-1, MOST_AT_ONCE))
        self._sink = memoryview(mmap.mmap(-1, MOST_AT_ONCE))
        self._switch = SwitchOperations(
            self._open, recipient.outgoing, recipient.landing, self._sink, self._on_switch_ended
        )

    @property
    def domain(self) -> str:
        """Return the name of its domain."""
        return self._packets.name

    # --- beginning and end -------------------------------------------------------------------------------

    def expect(self, places: Iterable[ScaleUpPlace]) -> None:
        """Say of which GPUs the ends will be opened. Hosts of a domain open theirs one after the other."""
        for place in places:
            self._places[place.rank] = place
            self._expected.add(place.rank)

    def open(self, places: Sequence[ScaleUpPlace], now: int) -> None:
        """Open the ends of some GPUs, in the namespace that this process is in. Raises `TrafficError`."""
        self._since_ns, self._setting_up = now, True
        self.expect(places)
        for place in places:
            if place.pool is not None:
                devices = [self._open_end(place, gpu) for gpu in place.pool.devices]
                self._pools[place.rank] = PooledRank(f"{self._name}: {place.name}", place.pool, devices)
            else:
                self._open[place.rank] = self._open_end(place, place.gpu)

    def _open_end(self, place: ScaleUpPlace, gpu: Gpu) -> Endpoint:
        """Open the end of a GPU, or of a device, with a window that all may write to. Raises `TrafficError`."""
        try:
            endpoint = self._endpoints.open(Path(self._packets.library), gpu, self)
        except (OSError, UsageError) as error:
            raise TrafficError(f"{self._name}: {place.name} cannot be opened: {error}") from error
        target = self._targets[endpoint.gpu] = endpoint.export(self._sink)
        for peer in range(gpu.gpus):
            target.authorise(peer)
        return endpoint

    def close(self, ranks: Iterable[int]) -> None:
        """Close the ends of some ranks' GPUs, and wait for them no longer. What is on its way is lost."""
        for rank in ranks:
            self._expected.discard(rank)
            self._pinging.discard(rank)
            self._pinged.discard(rank)
            self._again.pop(rank, None)
            ends = self._ends(rank)
            self._open.pop(rank, None)
            self._pools.pop(rank, None)
            for endpoint in ends:
                self._endpoints.shut(endpoint)
                gpu = endpoint.gpu
                self._transfers = {key: one for key, one in self._transfers.items() if key[0] != gpu}
                self._pings = {key: one for key, one in self._pings.items() if key[0] != gpu}

    def _ends(self, rank: int) -> Sequence[Endpoint]:
        """Return the open ends of a rank: of pooled memory there are several."""
        if (pool := self._pools.get(rank)) is not None:
            return pool.devices
        return [self._open[rank]] if rank in self._open else []

    def is_ready(self, now: int) -> bool:
        """Tell whether every GPU has reached the next one by each plane, which this begins when all ends are open.

        Raises `TrafficError` where an end is not opened, or reaches nothing.
        """
        if missing := sorted(self._expected - self._open.keys() - self._pools.keys()):
            if now - self._since_ns > OPEN_NS:
                names = ", ".join(self._places[rank].name for rank in missing[:4])
                raise TrafficError(f"{self._name}: {names}{' and more' if len(missing) > 4 else ''} did not open")
            return False
        ranks = list(self._open) if len(self._open) > 1 or self._pools else []
        for rank in ranks:
            if rank not in self._pinging:
                self._pinging.add(rank)
                self._since_ns = now
                self._ping(rank, 0)
        if left := [rank for rank in ranks if rank not in self._pinged]:
            answers_ns = max((end.settings.memory_ns for one in self._pools.values() for end in one.devices), default=0)
            if now - self._since_ns > max(SETUP_NS, SETUP_RTTS * self._packets.rtt_ns) + answers_ns:
                reason = f"{self._places[left[0]].name} reaches nothing{self._down_text(left[0])}"
                raise TrafficError(f"{self._name}: {reason}")
            return False
        self._setting_up = False
        return True

    def _ping(self, rank: int, number: int) -> None:
        """Write a few bytes to the next GPU by each plane, for the time of this number; once to all pooled memory."""
        ranks = list(self._open)
        other = self._open[ranks[(ranks.index(rank) + 1) % len(ranks)]]
        endpoint, gpu = self._open[rank], self._places[rank].gpu
        peers = [] if other is endpoint else [other]
        if not number:
            peers += [device for pool in self._pools.values() for device in pool.devices]
        for peer in peers:
            target = self._targets[peer.gpu].reference()
            for plane in range(len(gpu.interfaces)):
                handle = endpoint.write(target, self._zeros[:PING_BYTES], plane * gpu.link.payload_bytes)
                self._pings[endpoint.gpu, handle] = (rank, number)
        self._unanswered[rank] = len(peers) * len(gpu.interfaces)

    def _on_ping(self, rank: int, number: int, done: Done) -> None:
        if done.error is not None:
            self._again[rank] = number
        elif number:  # the first ones may have waited for the link
            self.counts.idle_rtts_ns.append(done.ended_ns - done.begun_ns)
        self._unanswered[rank] -= 1
        if self._unanswered[rank] or rank in self._again:
            return
        several = len(self._open) > 1 and rank in list(self._open)[:PINGING_GPUS]
        if number + 1 < (PINGS if several else 1):
            self._ping(rank, number + 1)
        else:
            self._pinged.add(rank)
            self._before[rank] = self._open[rank].latencies()

    @property
    def idle_rtt_ns(self) -> int | None:
        """The median of the idle round trips; None where there was nobody to write to."""
        found = self.counts.idle_rtts_ns
        return round(statistics.median(found)) if found else None

    # --- transfers ---------------------------------------------------------------------------------------

    def send(self, step: Step, now: int) -> None:
        """Begin a transfer, or have it wait for those that its GPUs have begun. Raises `TrafficError`."""
        if not self._transfers and not self._switch.busy:
            self._busy_since_ns = self._endpoints.clock_ns()  # before, there was nothing that could have moved
        if step.in_switch is not None:
            self._switch.send(step)
            return
        self._waiting.setdefault(step.begins_at, deque()).append(step)
        self._begin_waiting(step.begins_at)

    def _begin_waiting(self, rank: int) -> None:
        queue = self._waiting.get(rank)
        while queue:
            step = queue[0]
            lender = _lender(step)
            pooled = lender in self._pools
            if self._begun.get(rank, 0) >= (OPEN_POOLED if pooled else OPEN_TRANSFERS):
                return
            if not pooled and self._lent.get(lender, 0) >= OPEN_TRANSFERS:
                return
            queue.popleft()
            self._begun[rank] = self._begun.get(rank, 0) + 1
            self._lent[lender] = self._lent.get(lender, 0) + 1
            self._begin(step)

    def _begin(self, step: Step) -> None:
        if (pool := self._pools.get(_lender(step))) is not None:
            self._begin_pooled(step, pool)
            return
        begins, lends = self._endpoint(step.begins_at), self._endpoint(_lender(step))
        source = self._recipient.outgoing(step)
        landing = self._recipient.landing(step)
        added = None
        if landing is None and source is not None:
            added = landing = memoryview(bytearray(step.size_bytes))
        source = self._zeros[: step.size_bytes] if source is None else source
        landing = self._sink[: step.size_bytes] if landing is None else landing
        local, remote = (landing, source) if step.pulled else (source, landing)
        window = lends.export(remote)
        window.authorise(begins.gpu)
        transfer = _Transfer(step=step, window=window, landing=added)
        if not step.pulled and step.size_bytes <= len(remote):
            window.await_bytes(step.size_bytes)
            self._landing[lends.gpu, window.number] = transfer
        self._ask(begins, transfer, local, window.reference())

    def _begin_pooled(self, step: Step, pool: PooledRank) -> None:
        """Begin a store to pooled memory, or a load from it."""
        if step.pulled:
            landing = self._recipient.landing(step)
            local = self._sink[: step.size_bytes] if landing is None else landing
        else:
            source = self._recipient.outgoing(step)
            local = self._zeros[: step.size_bytes] if source is None else source
        reference, offset = pool.place(step)
        transfer = _Transfer(step=step, window=None, landing=None)
        self._ask(self._endpoint(step.begins_at), transfer, local, reference, offset)

    def _ask(
        self, begins: Endpoint, transfer: _Transfer, local: memoryview, reference: WindowReference, offset: int = 0
    ) -> None:
        """Have a GPU load or store all of a transfer, which stands in a window from `offset` on."""
        step = transfer.step

        def parts() -> Iterator[int]:
            ask = begins.read if step.pulled else begins.write
            for done in range(0, step.size_bytes, len(local)):
                part = local[: step.size_bytes - done]
                # all parts have the same memory of a window that is the transfer's own
                yield ask(reference, part, offset + (done if transfer.window is None else 0), vc=step.vc)

        transfer.parts = parts()
        for _ in range(OPEN_PARTS):
            self._ask_more(begins, transfer)

    def _ask_more(self, begins: Endpoint, transfer: _Transfer) -> None:
        """Begin the next operation of a transfer, if there is one."""
        if (handle := next(transfer.parts, None)) is not None:
            self._transfers[begins.gpu, handle] = transfer
            transfer.left += 1

    def on_done(self, endpoint: Endpoint, done: Done) -> None:
        """An operation of one of the GPUs is done, or what it waits for is there."""
        if done.kind is Kind.ARRIVED:
            if (landed := self._landing.pop((endpoint.gpu, done.handle), None)) is not None:
                landed.arrived = True
                self.counts.ended += 1
                self._recipient.on_arrived(landed.step, done.ended_ns, landed.landing)
            return
        if (ping := self._pings.pop((endpoint.gpu, done.handle), None)) is not None:
            self._on_ping(*ping, done)
            return
        try:
            if self._switch.on_done(endpoint, done):
                return
        except TrafficError as error:
            self._end(str(error))
            return
        transfer = self._transfers.pop((endpoint.gpu, done.handle), None)
        if transfer is None:
            return
        transfer.left -= 1
        transfer.error = transfer.error or done.error
        if transfer.error is None:
            self._ask_more(endpoint, transfer)
        if transfer.left:
            return
        step = transfer.step
        if step.withdraws and (pool := self._pools.get(_lender(step))) is not None:
            pool.withdraw_view(step.begins_at)
        if transfer.window is not None:
            transfer.window.withdraw()
            if not step.pulled:
                self._landing.pop((self._endpoint(_lender(step)).gpu, transfer.window.number), None)
        self._begun[step.begins_at] -= 1
        self._lent[_lender(step)] -= 1
        if transfer.error is None or (transfer.arrived and self._packets.counts_errors):
            if not transfer.arrived:
                self.counts.ended += 1
                self._recipient.on_arrived(step, done.ended_ns, transfer.landing)
            self._recipient.on_sent(step, done.ended_ns)
        else:
            self.counts.ended -= transfer.arrived
            self._fail(step, transfer.error, done.ended_ns)
        for rank in [rank for rank, queue in self._waiting.items() if queue]:
            self._begin_waiting(rank)

    def _on_switch_ended(self, step: Step, error: ScaleUpError | None, now: int) -> None:
        """A part of an operation of the switch is over."""
        if error is not None:
            self._fail(step, error, now)
            return
        self.counts.ended += 1
        self._recipient.on_arrived(step, now, None)
        self._recipient.on_sent(step, now)

    def _fail(self, step: Step, error: ScaleUpError, now: int) -> None:
        assert step.destination is not None
        self.counts.failed += 1
        if self._packets.counts_errors:
            self._recipient.on_lost(step, now)
            return
        if self._failed and isinstance(error, OperationCancelled):
            return
        what = "a read" if step.pulled else "a write"
        source, destination = (self._places[rank].name for rank in (step.source, step.destination))
        down = self._down_text(step.source) or self._down_text(step.destination)
        self._end(f"{what} of {step.size_bytes} bytes from {source} to {destination} failed: {error}{down}")

    def _end(self, reason: str) -> None:
        """Say once that the domain cannot go on."""
        if not self._failed:
            self._failed = True
            self._recipient.on_failed(f"{self._name}: {reason}")

    # --- what is due -------------------------------------------------------------------------------------

    def step(self, at: int) -> None:
        """Look whether anything moves, which is due at the time of `next_due`."""
        self._look_at = None
        for rank in [rank for rank in self._again if not self._unanswered[rank]]:
            self._ping(rank, self._again.pop(rank))
        moved = sum(
            int(endpoint.native.endpoint_counted(endpoint.handle).contents.responses)
            for endpoint in self._open.values()
        )
        counts = self.counts
        if moved != self._moved or not counts.progress_ns:
            self._moved, counts.progress_ns = moved, at
        if not self._transfers and not self._switch.busy:
            return
        stall_ns = at - max(counts.progress_ns, self._busy_since_ns)
        if stall_ns < self._packets.timeout_ns:
            self._look_at = at + max(LOOK_NS, self._packets.timeout_ns // 50)
            return
        counts.stalled, counts.stall_ns = True, stall_ns
        if not self._packets.counts_errors:
            waiting = len({id(one) for one in self._transfers.values()})
            self._end(f"nothing has moved for {stall_ns / 1e9:.1f} s, and {waiting} transfers wait{self._down_text()}")
        for endpoint in self._open.values():  # pooled memory asks for nothing
            endpoint.cancel()

    def turn(self, now: int) -> None:
        """Do whatever is due by now."""
        if (due := self.next_due()) is not None and due <= now:
            self.step(now)

    def next_due(self) -> int | None:
        """Return when to call `step` again; None where nothing is under way."""
        if self._look_at is None and (
            self._again
            or self._setting_up
            or self._pings
            or ((self._transfers or self._switch.busy) and not self._failed)
        ):
            self._look_at = self._endpoints.clock_ns() + LOOK_NS
        return self._look_at

    # --- what was seen -----------------------------------------------------------------------------------

    def report(self, ranks: Iterable[int], begin_ns: int) -> dict[str, Any]:
        """Return what the endpoints of some ranks have counted, and the domain of this process, since the begin."""
        mine = list(ranks)
        ends = [end for rank in mine for end in self._ends(rank)]
        counts = self.counts
        return {
            "domain": self._packets.name,
            "rtt_ns": self._packets.rtt_ns,
            "idle_rtt_ns": self.idle_rtt_ns,
            "ended": counts.ended,
            "failed": counts.failed,
            "stalled": counts.stalled,
            "stall_ns": counts.stall_ns,
            "pool_bytes": sum(self._pools[rank].region.granted_bytes for rank in mine if rank in self._pools),
            "progress_ns": max(0, counts.progress_ns - begin_ns),
            "gpus": {str(endpoint.gpu): endpoint.counters() for endpoint in ends},
            "latencies": _summed(
                (endpoint.latencies() for endpoint in ends), [self._before.get(rank, {}) for rank in mine]
            ),
        }

    @property
    def _name(self) -> str:
        return f"scale-up domain {self._packets.name}"

    def _endpoint(self, rank: int) -> Endpoint:
        try:
            return self._open[rank]
        except KeyError:
            raise TrafficError(f"{self._name}: rank {rank} has no GPU in it") from None

    def _down_text(self, rank: int | None = None) -> str:
        """Say which planes are down, of one rank's GPU or of all; "" where none is."""
        found: dict[str, Sequence[int]] = {}
        for one in (*self._open, *self._pools) if rank is None else (rank,):
            for endpoint in self._ends(one):
                if planes := endpoint.planes_down():
                    found[self._places[one].name] = planes
        words = [f"{name} plane {', '.join(str(plane + 1) for plane in planes)}" for name, planes in found.items()]
        return f" (down: {'; '.join(words[:4])}{' and more' if len(words) > 4 else ''})" if words else ""


def _lender(step: Step) -> int:
    """The rank that lends its memory: it does not begin the transfer."""
    assert step.destination is not None
    return step.source if step.pulled else step.destination


def _summed(tables: Iterable[Mapping[int, int]], before: Iterable[Mapping[int, int]]) -> list[list[int]]:
    """Return (ns, transactions) of all together, without those before."""
    total: Counter[int] = Counter()
    for table in tables:
        total.update(table)
    for table in before:
        total.subtract(table)
    return [[latency_ns, count] for latency_ns, count in sorted(total.items()) if count]
