"""The flows that are sending: how fast each of them is, and when it has sent all.

Rates are constant between two times at which they are made fair, so that a flow ends at a time that is known, unless
its rate changes before. `native/sending.c` does the same in a twentieth of the time, where modules are compiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from testbed.workload.oracles.fair_shares import FairShares
from testbed.workload.oracles.max_min import Floats, Indexes

if TYPE_CHECKING:
    from testbed.run.flows.native import sending as native


class Sending:
    """Flows over links of these capacities (bit/s), each known by the number of its step. Times are s."""

    def __init__(self, capacity: Floats) -> None:
        self._shares = FairShares(capacity)
        self._step: list[int] = []
        """The step of each flow, by the number that its shares are known by."""
        self._free: list[int] = []
        known = len(self._shares.rates)
        self._left = np.zeros(known)
        """The bits that each had left at the time `_since`."""
        self._since = np.zeros(known)
        self._due = np.full(known, np.inf)
        self._rates = np.zeros(known)
        """The rates by which `_due` was computed."""

    def __len__(self) -> int:
        return len(self._shares)

    def add(self, step: int, links: Indexes, weights: Floats, bits: float, at_s: float) -> None:
        """Begin to send the bits of a step at a time; it uses so much of these links for each unit of its rate."""
        if self._free:
            flow = self._free.pop()
            self._step[flow] = step
        else:
            flow = len(self._step)
            self._step.append(step)
        self._shares.add(flow, links, weights)
        if more := len(self._shares.rates) - len(self._due):
            self._left, self._since, self._rates = (
                np.concatenate((values, np.zeros(more))) for values in (self._left, self._since, self._rates)
            )
            self._due = np.concatenate((self._due, np.full(more, np.inf)))
        self._left[flow], self._since[flow] = bits, at_s

    def settle(self, now_s: float) -> int:
        """Make all rates fair from now on, and return how many flows were looked at.

        A flow that is to begin later than now sends from then on.
        """
        looked_at = self._shares.settle()
        rates, before = self._shares.rates, self._rates
        flows = np.flatnonzero(rates != before)
        began = flows[(before[flows] > 0) | (self._since[flows] < now_s)]
        sent = (now_s - self._since[began]) * before[began]
        self._left[began] = np.maximum(self._left[began] - sent, 0.0)
        self._since[began] = now_s
        takes = np.full(len(flows), np.inf)
        np.divide(self._left[flows], rates[flows], out=takes, where=rates[flows] > 0)
        self._due[flows] = self._since[flows] + takes
        before[flows] = rates[flows]
        return looked_at

    def next_s(self) -> float:
        """Return when the first of the flows has sent all, infinity for never."""
        return float(self._due.min(initial=np.inf))

    def take(self, until_s: float) -> list[tuple[int, float]]:
        """Take out the flows that have sent all by then: the step of each, and the time."""
        found = []
        for flow in np.flatnonzero((self._due <= until_s) & np.isfinite(self._due)).tolist():
            found.append((self._step[flow], float(self._due[flow])))
            self._shares.remove(flow)
            self._due[flow], self._rates[flow] = np.inf, 0.0
            self._free.append(flow)
        return found

    def rates(self) -> dict[int, float]:
        """Return the rate of each flow as of the last `settle`, by its step."""
        gone = set(self._free)
        return {step: float(self._shares.rates[flow]) for flow, step in enumerate(self._step) if flow not in gone}


def sending_over(capacity: Floats) -> Sending | native.Sending:
    """Return that no flow sends yet over links of these capacities; compiled, where modules are."""
    try:
        from testbed.run.flows.native import sending
    except ImportError:  # it is there in a build alone
        return Sending(capacity)
    return sending.Sending(capacity)
