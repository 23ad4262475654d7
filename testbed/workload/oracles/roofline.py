"""Lower bounds on the time of collectives, of a training step and of any workload.

Of a workload three bounds hold, and the roofline is the largest: the longest chain of steps that wait for each other,
each as fast as alone, from when the first of all begins; what any NIC must send or receive; what any rank must compute.
A ring AllReduce of n ranks comes out as 2(n-1)/n * S * 8 / B from the chain and from the NICs alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from testbed.workload.steps import Compute, FoldedRing, InSwitch, Transfer, Workload

NO_MEMORY: Mapping[int, float] = MappingProxyType({})
"""No rank is pooled memory."""


def workload_roofline_s(  # noqa: PLR0913  # what networks are like
    workload: Workload,
    *,
    rate_bps: Callable[[int], float],
    scale_up_bps: float,
    in_switch_bps: float = 0.0,
    scale_up_latency_s: float = 0.0,
    latency_s: Callable[[int, int], float] | float = 0.0,
    wire_bytes: Callable[[int], int] = int,
    memory_bps: Mapping[int, float] = NO_MEMORY,
    scale: float = 1.0,
) -> float:
    """The roofline of any workload whose ranks have a NIC each, and a link each way into their scale-up domain.

    `rate_bps` (of a rank's NIC) and `scale_up_bps` are lab rates, as is `in_switch_bps` of operations in the scale-up
    switch (0: as `scale_up_bps`). `latency_s` (of two ranks, or of all) is added to each transfer over the fabric in a
    chain (half a base RTT, where nothing waits for the acknowledgement), `scale_up_latency_s` to each over scale-up
    links; `wire_bytes` adds headers (`Framing.wire_bytes`); `memory_bps` are the rates of ranks that are pooled memory;
    `scale` multiplies the workload's times, which are real ones.
    """
    if scale_up_bps <= 0:
        raise ValueError("rates must be above 0")
    away_s = latency_s if callable(latency_s) else lambda *_: latency_s
    ended: list[float] = []
    load = NicLoad(
        rate_bps=rate_bps,
        scale_up_bps=scale_up_bps,
        in_switch_bps=in_switch_bps or scale_up_bps,
        wire_bytes=wire_bytes,
        memory_bps=memory_bps,
    )
    computed: defaultdict[int, float] = defaultdict(float)
    begun: list[float] = []
    for step in workload.steps:
        ready = max((ended[before] for before in step.after), default=0.0)
        ready = max(ready, step.start_ns * 1e-9 * scale)
        match step:
            case Compute():
                duration = step.duration_ns * 1e-9 * scale
                if step.is_work:
                    begun.append(ready)
                    computed[step.rank] += duration
                ended.append(ready + duration)
            case Transfer():
                begun.append(ready)
                way_s = scale_up_latency_s if step.scale_up else away_s(step.source, step.destination)
                ended.append(ready + load.add(step) + way_s)
            case FoldedRing():
                begun.append(ready)
                ended.append(ready + load.add_ring(step, scale_up_latency_s, away_s))
    chain_s = max(ended, default=0.0) - min(begun, default=0.0)
    return float(max(chain_s, load.busiest_s, *computed.values()))


def ring_round_s(busy_s: Sequence[float], ways_s: Sequence[float], chunks: int = 1) -> float:
    """Return how long a round of a ring takes whose links need `busy_s` for a block, with the ways behind them.

    Each link carries one block a round, and each block goes all the way round: so it is the longest of what a link
    needs and of the mean of what a chunk needs with its way.
    """
    mean_s = sum(busy / chunks + way for busy, way in zip(busy_s, ways_s, strict=True)) / len(busy_s)
    return max(*busy_s, mean_s)


class NicLoad:
    """The load of transfers on the NIC of each rank and on its links into the scale-up domain, each way.

    Rates are in bit/s; `wire_bytes` adds headers to what goes over a NIC. A rank that is pooled memory has neither, and
    in `memory_bps` what it reads and writes, both together.
    """

    def __init__(
        self,
        *,
        rate_bps: Callable[[int], float],
        scale_up_bps: float,
        in_switch_bps: float,
        wire_bytes: Callable[[int], int] = int,
        memory_bps: Mapping[int, float] = NO_MEMORY,
    ) -> None:
        self._rate_bps = rate_bps
        self._scale_up_bps = scale_up_bps
        self._in_switch_bps = in_switch_bps
        self._wire_bytes = wire_bytes
        self._memory_bps = memory_bps
        self._busy_s: defaultdict[tuple[str, int], float] = defaultdict(float)
        self._operations: set[int] = set()

    @property
    def busiest_s(self) -> float:
        """Return how long the busiest of them sends or receives: no order of the transfers makes it less."""
        return max(self._busy_s.values(), default=0.0)

    def add(self, step: Transfer) -> float:
        """Count a transfer, and return how long it takes alone (s)."""
        if step.in_switch is not None:
            once_s = 8 * step.size_bytes / self._in_switch_bps
            self._add_in_switch(step, step.in_switch, once_s)
            return 2 * once_s
        network = "scale-up" if step.scale_up else "fabric"
        bits = 8 * (step.size_bytes if step.scale_up else self._wire_bytes(step.size_bytes))
        alone_s = 0.0
        for rank, way in ((step.source, " sent"), (step.destination, " received")):
            use = (network + way, rank)
            busy_s = bits / (self._scale_up_bps if step.scale_up else self._rate_bps(rank))
            if (memory_bps := self._memory_bps.get(rank)) is not None:
                use, busy_s = ("memory", rank), bits / memory_bps
            self._busy_s[use] += busy_s
            alone_s = max(alone_s, busy_s)
        return alone_s

    def add_ring(self, ring: FoldedRing, inside_s: float, away_s: Callable[[int, int], float]) -> float:
        """Count all rounds of a ring, and return how long it takes alone (s).

        A rank sends its blocks one after the other, and each goes all the way round: a round takes as long as the
        slowest link, or as the mean link with the way behind it, whichever is more. `inside_s` and `away_s` are the
        ways inside a domain and over the fabric.
        """
        busy_s: list[float] = []
        ways_s: list[float] = []
        for source, destination in ring.edges:
            inside = source in ring.inside
            network = "scale-up" if inside else "fabric"
            bits = 8 * (ring.size_bytes if inside else self._wire_bytes(ring.size_bytes))
            sent_s, received_s = (
                bits / (self._scale_up_bps if inside else self._rate_bps(rank)) for rank in (source, destination)
            )
            self._busy_s[network + " sent", source] += ring.rounds * sent_s
            self._busy_s[network + " received", destination] += ring.rounds * received_s
            busy_s.append(max(sent_s, received_s))
            ways_s.append(inside_s if inside else away_s(source, destination))
        return ring.rounds * ring_round_s(busy_s, ways_s, ring.chunks)

    def _add_in_switch(self, step: Transfer, part: InSwitch, once_s: float) -> None:
        """Add the uses of links by one part of an operation in the switch, and by all of it where it is the first.

        Every rank's piece, that of the operation's one end too, goes through the switch once; so does the sum or the
        copy.
        """
        sent, received = "scale-up sent", "scale-up received"
        one, one_way, many, many_way = (
            (step.source, sent, step.destination, received)
            if part.multicast
            else (step.destination, received, step.source, sent)
        )
        self._busy_s[many_way, many] += once_s
        if part.operation not in self._operations:
            self._operations.add(part.operation)
            self._busy_s[one_way, one] += once_s
            self._busy_s[many_way, one] += once_s
