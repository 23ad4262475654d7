"""Lower bounds on the time of collectives, of a training step and of any workload.

Of a workload three bounds hold, and the roofline is the largest: the longest chain of steps that wait for each other,
each as fast as alone; what any NIC must send or receive; what any rank must compute. A ring AllReduce of n ranks
comes out as 2(n-1)/n * S * 8 / B from the chain and from the NICs alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from testbed.workload.steps import Compute, Transfer, Workload


def workload_roofline_s(
    workload: Workload,
    *,
    rate_bps: Callable[[int], float],
    scale_up_bps: float,
    latency_s: float = 0.0,
    wire_bytes: Callable[[int], int] = int,
    scale: float = 1.0,
) -> float:
    """The roofline of any workload whose ranks have a NIC each.

    `rate_bps` (of a rank's NIC) and `scale_up_bps` are lab rates; `latency_s` is added to each transfer over the fabric
    in a chain (half a base RTT, where nothing waits for the acknowledgement); `wire_bytes` adds headers
    (`Framing.wire_bytes`); `scale` multiplies the workload's times, which are real ones.
    """
    if scale_up_bps <= 0:
        raise ValueError("rates must be above 0")
    ended: list[float] = []
    busy: defaultdict[tuple[str, int], float] = defaultdict(float)
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
                network = "scale-up" if step.scale_up else "fabric"
                bits = 8 * (step.size_bytes if step.scale_up else wire_bytes(step.size_bytes))
                sent_s, received_s = (
                    bits / (scale_up_bps if step.scale_up else rate_bps(rank))
                    for rank in (step.source, step.destination)
                )
                busy[network + " sent", step.source] += sent_s
                busy[network + " received", step.destination] += received_s
                ended.append(ready + max(sent_s, received_s) + (0.0 if step.scale_up else latency_s))
    return max((*ended, *busy.values()), default=0.0)
