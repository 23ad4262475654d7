"""Max-min fair rates of flows that come and go, of which only those are computed anew that a change reaches.

An allocation is max-min fair if each flow has a bottleneck: a link that is full, on which no flow is faster (Bertsekas
and Gallager, Data Networks, section 6.5.2). So after a change it is enough to find the flows whose bottleneck is none
any longer, to fill their rates into what all others leave, and to look whether that has taken a bottleneck from
others; they join, until none is left. In the end every flow has one, so that the rates are those of `max_min.fill`.
"""

from __future__ import annotations

import numpy as np

from testbed.workload.oracles.max_min import Floats, Indexes, LinkUsage, fill_to_bottlenecks

_CLOSE = 1e-9
"""The relative difference below which a link is full, and two rates are the same."""
_MOST_OF_ALL = 0.5
"""All flows are filled at once where a change has reached so large a share of them."""
_PATIENCE = 3
"""So often flows are filled anew, with those that it was unfair to: most changes need it two or three times."""
_GROWTH = 2
"""After that there are so many times as many of them as the time before."""
_LEAST_GROWN = 64
"""So many flows are filled about as fast as one."""


class FairShares:
    """The flows that are sending, by numbers that whoever adds them chooses, small ones.

    `rates` has the rate of each flow as of the last `settle`, in the unit of `capacity`; 0 for flows that are not
    there.
    """

    def __init__(self, capacity: Floats) -> None:
        self.rates: Floats = np.zeros(64)
        self._capacity = np.asarray(capacity, dtype=np.float64)
        self._load = np.zeros(len(self._capacity))
        self._links: dict[int, Indexes] = {}
        self._weights: dict[int, Floats] = {}
        self._on: dict[int, set[int]] = {}
        """The flows on each link that has any."""
        self._held: dict[int, set[int]] = {}
        """The flows whose bottleneck a link is."""
        self._bottleneck: dict[int, int] = {}
        self._new: set[int] = set()
        self._changed: set[int] = set()
        """Links that have been relieved."""

    def __len__(self) -> int:
        return len(self._links)

    def add(self, flow: int, links: Indexes, weights: Floats) -> None:
        """Add a flow that uses so much of each of these different links for each unit of its rate."""
        if flow >= len(self.rates):
            self.rates = np.concatenate((self.rates, np.zeros(max(flow + 1, len(self.rates)))))
        self._links[flow], self._weights[flow] = links, weights
        on = self._on
        for link in links.tolist():
            if link in on:
                on[link].add(flow)
            else:
                on[link] = {flow}
        self._new.add(flow)

    def remove(self, flow: int) -> None:
        """Take a flow out."""
        links, weights = self._links.pop(flow), self._weights.pop(flow)
        self._load[links] -= weights * self.rates[flow]
        self.rates[flow] = 0.0
        for link in links.tolist():
            left = self._on[link]
            left.discard(flow)
            if not left:
                del self._on[link]
                self._load[link] = 0.0
        self._release(flow)
        self._new.discard(flow)
        self._changed.update(links.tolist())

    def settle(self) -> int:
        """Make all rates max-min fair again, and return how many flows were looked at."""
        alone = self._give_alone()
        work = self._reached()
        self._new, self._changed = set(), set()
        turns = 0
        while work:
            turns += 1
            if len(work) > _MOST_OF_ALL * len(self._links):
                work = set(self._links)
            local, links, mine = self._fill(work)
            if len(work) == len(self._links):
                break
            more = self._unfair(work, local, links, mine)
            if not more:
                break
            if turns < _PATIENCE:
                work |= more
            else:
                self._widen(work, more)
        return alone + len(work)

    def _give_alone(self) -> int:
        """Give new flows that share no link with another all that their links have; return how many these are."""
        on = self._on
        found = [flow for flow in self._new if all(len(on[link]) == 1 for link in self._links[flow].tolist())]
        for flow in found:
            links, weights = self._links[flow], self._weights[flow]
            allowed = self._capacity[links] / weights
            slowest = int(allowed.argmin())
            rate = float(allowed[slowest])
            self.rates[flow] = rate
            self._load[links] = weights * rate
            self._hold(flow, int(links[slowest]))
            self._new.discard(flow)
        return len(found)

    def _reached(self) -> set[int]:
        """The flows that are new, and those whose bottleneck has been relieved or has a new flow."""
        work = set(self._new)
        for flow in self._new:
            for link in self._links[flow].tolist():
                work |= self._held.get(link, _NONE)
        for link in self._changed:
            work |= self._held.get(link, _NONE)
        return work

    def _widen(self, work: set[int], more: set[int]) -> None:
        """Add `more` to `work` and, where these are few, the faster ones that share a full link with them, and so on.

        A change may go from flow to flow along a chain, and all of them would be filled anew for each that joins. Flows
        that it does not reach are filled to what they have.
        """
        most = max(_LEAST_GROWN, _GROWTH * len(work))
        work |= more
        edge = list(more)
        while edge and len(work) < most:
            near: list[int] = []
            for flow in edge:
                least = self.rates[flow] * (1 - _CLOSE)
                links = self._links[flow]
                full = self._load[links] >= self._capacity[links] * (1 - _CLOSE)
                for link in links[full].tolist():
                    on = self._on[link]
                    if len(on) <= most:
                        joining = [other for other in on - work if self.rates[other] >= least]
                        work.update(joining)
                        near += joining
                    if len(work) >= most:
                        return
            edge = near

    def _fill(self, work: set[int]) -> tuple[list[int], Indexes, LinkUsage]:
        """Fill the rates of some flows into what all others leave.

        Returns the flows in order, the links that they use, and their usage in the places of both.
        """
        local = list(work)
        each = [self._links[flow] for flow in local]
        flow = np.repeat(np.arange(len(local), dtype=np.int64), [len(some) for some in each])
        links, place = np.unique(np.concatenate(each), return_inverse=True)
        usage = LinkUsage(flow, place, np.concatenate([self._weights[one] for one in local]), len(local))
        numbers = np.array(local, dtype=np.int64)
        others = self._load[links] - usage.loads(self.rates[numbers], len(links))
        others[others < _CLOSE * self._capacity[links]] = 0.0
        rates, bottlenecks = fill_to_bottlenecks(usage, np.maximum(self._capacity[links] - others, 0.0))
        self.rates[numbers] = rates
        self._load[links] = others + usage.loads(rates, len(links))
        for one, at in zip(local, links[bottlenecks].tolist(), strict=True):
            if self._bottleneck.get(one) != at:
                self._release(one)
                self._hold(one, at)
        return local, links, usage

    def _hold(self, flow: int, link: int) -> None:
        self._bottleneck[flow] = link
        self._held.setdefault(link, set()).add(flow)

    def _release(self, flow: int) -> None:
        before = self._bottleneck.pop(flow, None)
        if before is not None:
            held = self._held[before]
            held.discard(flow)
            if not held:
                del self._held[before]

    def _unfair(self, work: set[int], local: list[int], links: Indexes, mine: LinkUsage) -> set[int]:
        """The flows beside `work` that have no bottleneck any longer, or that are faster at one of `work`."""
        own = self.rates[np.array(local, dtype=np.int64)]
        rate_of = dict(zip(local, own.tolist(), strict=True))
        fastest = np.zeros(len(links))
        np.maximum.at(fastest, mine.link, own[mine.flow])
        full = self._load[links] >= self._capacity[links] * (1 - _CLOSE)
        found: set[int] = set()
        rates = self.rates
        for link, most, is_full in zip(links.tolist(), fastest.tolist(), full.tolist(), strict=True):
            held = self._held.get(link)
            if held is None:
                continue
            others = held - work
            if others and (not is_full or most > rates[next(iter(others))] * (1 + _CLOSE)):
                found |= others
            if len(others) == len(held):
                continue
            apart = self._on[link] - work
            if apart:
                slowest = min(rate_of[flow] for flow in held if flow in rate_of)
                found.update(flow for flow in apart if rates[flow] > slowest * (1 + _CLOSE) + 1e-30)
        return found


_NONE: frozenset[int] = frozenset()
