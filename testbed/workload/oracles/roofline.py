"""Lower bounds on the time of collectives, of a training step and of any workload.

Of a workload three bounds hold, and the roofline is the largest: the longest chain of steps that wait for each other,
each as fast as alone; what any NIC must send or receive; what any rank must compute. A ring AllReduce of n ranks
comes out as 2(n-1)/n * S * 8 / B from the chain and from the NICs alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from testbed.workload.steps import Compute, InSwitch, Transfer, Workload


def workload_roofline_s(  # noqa: PLR0913  # what networks are like
    workload: Workload,
    *,
    rate_bps: Callable[[int], float],
    scale_up_bps: float,
    in_switch_bps: float = 0.0,
    scale_up_latency_s: float = 0.0,
    latency_s: Callable[[int, int], float] = lambda source, destination: 0.0,
    wire_bytes: Callable[[int], int] = int,
    scale: float = 1.0,
    since_first_transfer: bool = False,
) -> float:
    """The roofline of any workload whose ranks have a NIC each, and a link each way into their scale-up domain.

    `rate_bps` (of a rank's NIC) and `scale_up_bps` are lab rates, as is `in_switch_bps` of operations in the scale-up
    switch (0: as `scale_up_bps`). `latency_s(source, destination)` is added to each transfer over the fabric in a chain
    (half a base RTT, where nothing waits for the acknowledgement), `scale_up_latency_s` to each over scale-up links;
    `wire_bytes` adds headers (`Framing.wire_bytes`); `scale` multiplies the workload's times, which are real ones.
    With `since_first_transfer` time counts, as a job's does (`metrics.collectives.jct`), from when the first transfer
    can begin.
    """
    if scale_up_bps <= 0:
        raise ValueError("rates must be above 0")
    ended: list[float] = []
    busy: defaultdict[tuple[str, int], float] = defaultdict(float)
    operations: set[int] = set()
    begins: list[float] = []
    for step in workload.steps:
        ready = max((ended[before] for before in step.after), default=0.0)
        match step:
            case Compute():
                ready = max(ready, step.start_ns * 1e-9 * scale)
                duration = step.duration_ns * 1e-9 * scale
                busy["compute", step.rank] += duration
                ended.append(ready + duration)
            case Transfer():
                ready = max(ready, step.start_ns * 1e-9 * scale)
                begins.append(ready)
                if step.in_switch is not None:
                    once_s = 8 * step.size_bytes / (in_switch_bps or scale_up_bps)
                    _add_in_switch(busy, step, step.in_switch, once_s, first=step.in_switch.operation not in operations)
                    operations.add(step.in_switch.operation)
                    ended.append(ready + 2 * once_s + scale_up_latency_s)
                    continue
                network = "scale-up" if step.scale_up else "fabric"
                bits = 8 * (step.size_bytes if step.scale_up else wire_bytes(step.size_bytes))
                sent_s, received_s = (
                    bits / (scale_up_bps if step.scale_up else rate_bps(rank))
                    for rank in (step.source, step.destination)
                )
                busy[network + " sent", step.source] += sent_s
                busy[network + " received", step.destination] += received_s
                hop_s = scale_up_latency_s if step.scale_up else latency_s(step.source, step.destination)
                ended.append(ready + max(sent_s, received_s) + hop_s)
    first_s = min(begins, default=0.0) if since_first_transfer else 0.0
    computing = (busy_s for (what, _), busy_s in busy.items() if what == "compute")
    sending = (busy_s for (what, _), busy_s in busy.items() if what != "compute")
    return max((*(end_s - first_s for end_s in (*ended, *computing)), *sending), default=0.0)


def _add_in_switch(
    busy: defaultdict[tuple[str, int], float], step: Transfer, part: InSwitch, once_s: float, *, first: bool
) -> None:
    """Add the uses of links by one part of an operation in the switch, and by all of it where it is the `first`.

    Every rank's piece, that of the operation's one end too, goes through the switch once; so does the sum or the copy.
    """
    sent, received = "scale-up sent", "scale-up received"
    one, one_way, many, many_way = (
        (step.source, sent, step.destination, received)
        if part.multicast
        else (step.destination, received, step.source, sent)
    )
    busy[many_way, many] += once_s
    if first:
        busy[one_way, one] += once_s
        busy[many_way, one] += once_s
