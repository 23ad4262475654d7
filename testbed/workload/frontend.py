"""Front-end traffic: mice that arrive whether or not the earlier ones are done (open loop), and bursts of them.

Every rank begins flows as a Poisson process of its own, to ranks drawn evenly, as traffic_gen.py of the HPCC repository
does. A closed loop would slow its arrivals just when the network is slow and hide the tail ("coordinated omission").
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.base.errors import WorkloadError
from testbed.workload.builder import MAX_STEPS, StepBuilder
from testbed.workload.draws import draw_below, draw_exponential
from testbed.workload.flow_sizes import FlowSizes
from testbed.workload.parameters import asked, duration, listed, number, some_ranks
from testbed.workload.steps import Workload

MAX_BURST_FACTOR = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """A burst: from `start_ns` on, for `duration_ns`, flows arrive `factor` times (1 to 10) as often."""

    start_ns: int
    duration_ns: int
    factor: float

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns


def regular_bursts(*, on_ns: int, off_ns: int, factor: float, duration_ns: int) -> tuple[Burst, ...]:
    """ON/OFF: after `off_ns` of the base load a burst of `on_ns`, again and again until `duration_ns`."""
    starts = range(off_ns, duration_ns, on_ns + off_ns)
    return tuple(Burst(start_ns=start, duration_ns=min(on_ns, duration_ns - start), factor=factor) for start in starts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mice:
    """Flows of drawn sizes that begin within `duration_ns` and offer `load` (0 to 1) of the link of each source.

    In a burst the offered load is `load` times its factor. `sources` and `destinations` are how many ranks or which,
    None for all of them.
    """

    sizes: FlowSizes
    load: float = asked(
        number("load", 0.2, "Says what each source offers, as a share of its link.", low=0.0001, high=1)
    )
    duration_ns: int = asked(duration("span", "1ms", "Says for how long flows begin.", low=1))
    bursts: tuple[Burst, ...] = ()
    sources: int | tuple[int, ...] | None = asked(
        some_ranks("sources", None, "Says how many ranks send, or which; by default all.")
    )
    destinations: int | tuple[int, ...] | None = asked(
        some_ranks("destinations", None, "Says how many ranks receive, or which; by default all.")
    )


def generate_mice(mice: Mice, *, ranks: int, rate_bps: int, rng: random.Random) -> Workload:
    """The flows of `mice` on ranks whose links have `rate_bps`.

    A load over 1, in a burst, is more than the network can carry, and a note says so.
    """
    senders = listed(mice.sources, range(ranks), "sources")
    receivers = listed(mice.destinations, range(ranks), "destinations")
    sizes, load, duration_ns, bursts = mice.sizes, mice.load, mice.duration_ns, mice.bursts
    if len(set(senders) | set(receivers)) < 2 or not senders or not receivers:
        raise WorkloadError("front-end flows need a source and another rank to go to", field="ranks")
    mean_ns = sizes.mean_bytes * 8e9 / (load * rate_bps)
    if len(senders) * duration_ns / mean_ns > MAX_STEPS:
        raise WorkloadError(
            f"about {len(senders) * duration_ns / mean_ns:.3g} flows are more than {MAX_STEPS}",
            field="load",
            hint="a shorter duration or larger flows",
        )
    builder = StepBuilder(ranks)
    arrivals = [(next_arrival(0.0, mean_ns, bursts, rng), source) for source in senders]
    heapq.heapify(arrivals)
    while arrivals and arrivals[0][0] < duration_ns:
        start_ns, source = arrivals[0]
        choices = [rank for rank in receivers if rank != source]
        if not choices:
            raise WorkloadError(f"rank {source} has nobody else to send to", field="destinations")
        destination = choices[draw_below(rng, len(choices))]
        builder.transfer(
            source,
            destination,
            sizes.draw(rng),
            start_ns=int(start_ns),
            label=f"mice.{builder.next_number}",
        )
        heapq.heapreplace(arrivals, (next_arrival(start_ns, mean_ns, bursts, rng), source))
    peak = load * max((burst.factor for burst in bursts), default=1.0)
    if peak > 1:
        builder.note(f"In bursts the offered load is {peak:.0%} of a link: overload, not merely high load.")
    return builder.build(f"mice-{sizes.name.lower()}")


def next_arrival(now_ns: float, mean_ns: float, bursts: Sequence[Burst], rng: random.Random) -> float:
    """Return the next arrival of a Poisson process whose rate changes in steps: its work is used up faster in a burst.

    `mean_ns` is the mean time between arrivals of the base load."""
    work = draw_exponential(rng, mean_ns)
    for burst in bursts:
        if burst.end_ns <= now_ns:
            continue
        before = max(0.0, burst.start_ns - now_ns)
        if work <= before:
            return now_ns + work
        begun = now_ns + before
        inside = (burst.end_ns - begun) * burst.factor
        if work - before <= inside:
            return begun + (work - before) / burst.factor
        work -= before + inside
        now_ns = burst.end_ns
    return now_ns + work
