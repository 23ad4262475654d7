"""Max-min fair shares of links (Bertsekas and Gallager, Data Networks, section 6.5.2), and what they finish when.

A flow's rate can only be raised by lowering that of a flow which has no more. Computed exactly by progressive filling:
all rates rise together until a link is full, whose flows stop there. All links that are a bottleneck to all of their
flows are filled in one step, whatever their level, so that few steps are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Indexes = npt.NDArray[np.int64]

_EQUAL = 1e-12
"""Relative difference below which two levels are the same."""


@dataclass(frozen=True, slots=True, eq=False)
class LinkUsage:
    """Which flow uses which link, and how much of it for each unit of its own rate.

    Three arrays of one length: flow and link numbers and weights above 0. A flow on one path has weight 1 on each of
    its links, one sprayed evenly over two paths 1/2 on the links of each.
    """

    flow: Indexes
    link: Indexes
    weight: Floats
    flows: int

    def of(self, chosen: npt.NDArray[np.bool_]) -> LinkUsage:
        """Return the usage without the entries of flows that are not `chosen`; numbers stay."""
        keep = chosen[self.flow]
        return LinkUsage(self.flow[keep], self.link[keep], self.weight[keep], self.flows)

    def loads(self, amounts: Floats, links: int) -> Floats:
        """Return what each link carries when each flow sends `amounts`."""
        return np.asarray(np.bincount(self.link, self.weight * amounts[self.flow], minlength=links), dtype=np.float64)


def usage_of(routes: Sequence[Sequence[int]], weights: Sequence[Sequence[float]] | None = None) -> LinkUsage:
    """`routes[f]` are the links of flow f, `weights[f]` what it uses of each (1 where not given)."""
    lengths = np.fromiter(map(len, routes), dtype=np.int64, count=len(routes))
    total = int(lengths.sum())
    flow = np.repeat(np.arange(len(routes), dtype=np.int64), lengths)
    link = np.fromiter((link for route in routes for link in route), dtype=np.int64, count=total)
    if weights is None:
        return LinkUsage(flow, link, np.ones(total), len(routes))
    if [len(each) for each in weights] != lengths.tolist():
        raise ValueError("weights are not of the shape of the routes")
    weight = np.fromiter((weight for each in weights for weight in each), dtype=np.float64, count=total)
    if not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise ValueError("a weight is negative or not a number")
    used = weight > 0
    return LinkUsage(flow[used], link[used], weight[used], len(routes))


def max_min_shares(
    routes: Sequence[Sequence[int]],
    capacities: Sequence[float] | Floats,
    *,
    weights: Sequence[Sequence[float]] | None = None,
) -> Floats:
    """The max-min fair rate of each flow, in the unit of `capacities`.

    `routes[f]` are indexes into `capacities`. Raises `ValueError` for a link that
    does not exist, a negative capacity, or a flow that nothing limits.
    """
    usage = usage_of(routes, weights)
    capacity = np.asarray(capacities, dtype=np.float64)
    if len(usage.link) and not (usage.link.min() >= 0 and usage.link.max() < len(capacity)):
        raise ValueError(f"a route names a link that is not among the {len(capacity)}")
    if not (capacity >= 0).all():
        raise ValueError("a capacity is negative or not a number")
    limited = np.zeros(usage.flows, dtype=bool)
    limited[usage.flow[np.isfinite(capacity[usage.link])]] = True
    if not limited.all():
        raise ValueError(f"nothing limits flow {int(np.argmin(limited))}")
    return fill(usage, capacity)


def fill(usage: LinkUsage, capacity: Floats) -> Floats:
    """Progressive filling; flows without entries get 0. `max_min_shares` without its checks."""
    return fill_to_bottlenecks(usage, capacity)[0]


def fill_to_bottlenecks(usage: LinkUsage, capacity: Floats) -> tuple[Floats, Indexes]:
    """Return the rate of each flow, and the link that is its bottleneck: full, and used by none that is faster.

    A flow without entries has the rate 0 and the bottleneck -1.
    """
    rates = np.zeros(usage.flows)
    bottlenecks = np.full(usage.flows, -1, dtype=np.int64)
    present = np.bincount(usage.link, minlength=len(capacity)) > 0
    used: Indexes = np.flatnonzero(present)
    link: Indexes = (np.cumsum(present, dtype=np.int64) - 1)[usage.link]
    residual = capacity[used].astype(np.float64)
    flow, weight = usage.flow, usage.weight
    while len(flow):
        demand = np.bincount(link, weight, minlength=len(used))
        level = np.full(len(used), np.inf)
        np.divide(residual, demand, out=level, where=demand > 0)
        np.maximum(level, 0.0, out=level)
        at_link = level[link]
        lowest = np.full(usage.flows, np.inf)
        np.minimum.at(lowest, flow, at_link)
        elsewhere = lowest[flow] < at_link * (1 - _EQUAL)
        open_links = np.bincount(link, elsewhere, minlength=len(used)) > 0
        closed = ~open_links[link]
        stops = np.zeros(usage.flows, dtype=bool)
        stops[flow[closed]] = True
        bottlenecks[flow[closed]] = used[link[closed]]
        rates[stops] = lowest[stops]
        frozen = stops[flow]
        residual -= np.bincount(link[frozen], weight[frozen] * rates[flow[frozen]], minlength=len(used))
        flow, link, weight = flow[~frozen], link[~frozen], weight[~frozen]
    return rates, bottlenecks


def completion_times(sizes: Sequence[float] | Floats, rates: Callable[[npt.NDArray[np.bool_]], Floats]) -> Floats:
    """Return when each flow has sent its size if rates are those of `rates(which are still sending)` at any time.

    A fluid: rates change only when a flow ends. `inf` for a flow that never gets a rate.
    """
    remaining = np.array(sizes, dtype=np.float64)
    ended = np.zeros(len(remaining))
    total = remaining.copy()
    active = remaining > 0
    now = 0.0
    while active.any():
        now_rates = rates(active)
        moving = active & (now_rates > 0)
        if not moving.any():
            ended[active] = np.inf
            break
        step = float((remaining[moving] / now_rates[moving]).min())
        now += step
        remaining[moving] -= step * now_rates[moving]
        done = moving & (remaining <= 1e-9 * total)
        ended[done] = now
        active &= ~done
    return ended


def fluid_completion_times(
    sizes: Sequence[float] | Floats, usage: LinkUsage, capacity: Sequence[float] | Floats
) -> Floats:
    """Return completion times under max-min shares of fixed routes; sizes in the unit of capacity times seconds."""
    limits = np.asarray(capacity, dtype=np.float64)
    return completion_times(sizes, lambda active: fill(usage.of(active), limits))
