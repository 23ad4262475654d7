"""Max-min fair rates of flows that may use several paths at once, by linear programmes solved one after another.

First the common rate of all flows is raised as far as it goes; those that cannot have more (their row's dual value is
above 0) keep it, the common rate of the others is raised further, and so on: lexicographic max-min (Nace and Pioro,
"Max-min fairness and its applications to routing and load-balancing", IEEE Communications Surveys 10(4), 2008).

It is own since what it finds is in records, which are the same to the byte from one machine and version to another:
HiGHS (`highspy` 1.16, 8 MB) finds the same rates to 1e-14 and no closer, so that every prediction of adaptive spraying
would change. HiGHS takes 20 times as long for 8 flows, as long for 32, and a tenth of the time for the largest that is
solved here.

One tableau serves them all: a dense primal simplex, whose next programme begins where the last one ended. Dantzig's
rule picks the column; after steps without progress, Bland's, which cannot cycle.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

MAX_ENTRIES = 250_000
"""A larger tableau is refused: 64 flows over 8 paths each take about a second."""
_EPSILON = 1e-9
_STALLED = 20
"""Steps without progress after which Bland's rule takes over until there is some."""


class TooLarge(ValueError):
    """The programme would not be solved in reasonable time."""


def splittable_max_min(
    paths: Sequence[Sequence[Sequence[int]]], capacities: Sequence[float] | Floats, multiplicity: Sequence[int]
) -> Floats:
    """The rate of one flow of each kind. `paths[k]` are the paths (link numbers) of kind k, of which there are
    `multiplicity[k]` flows, all alike. Raises `TooLarge`."""
    constraints = _constraints(paths, capacities)
    scale = max(constraints.values(), default=0.0)
    if not paths or scale == 0:
        return np.zeros(len(paths))
    kinds, columns = len(paths), sum(map(len, paths))
    rows = kinds + len(constraints)
    if rows * (columns + rows + kinds) > MAX_ENTRIES:
        raise TooLarge(
            f"{sum(multiplicity)} flows over {columns} paths and {len(constraints)} kinds of links are too many for an"
            " exact answer"
        )
    tableau = _Tableau(paths, {uses: limit / scale for uses, limit in constraints.items()})
    return tableau.solve(multiplicity) * scale


_Uses = tuple[tuple[int, int], ...]
"""The load of a link: pairs of a path (numbered over all kinds) and how often it crosses the link."""


def _constraints(paths: Sequence[Sequence[Sequence[int]]], capacities: Sequence[float] | Floats) -> dict[_Uses, float]:
    """The capacity of each set of paths that share a link; of links that carry the same, the smallest."""
    uses: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for number, path in enumerate(path for kind in paths for path in kind):
        for link in path:
            uses[link][number] += 1
    limits: dict[_Uses, float] = {}
    for link, crossing in uses.items():
        key = tuple(sorted(crossing.items()))
        limits[key] = min(float(capacities[link]), limits.get(key, np.inf))
    return limits


class _Tableau:
    """Rows: of each kind, multiplicity * rate - sum of its paths <= 0; of each constraint, its paths <= capacity.

    Columns: paths, then the slack of each row, then one common rate for each programme; last the right-hand side.
    """

    def __init__(self, paths: Sequence[Sequence[Sequence[int]]], constraints: Mapping[_Uses, float]) -> None:
        self.kinds = len(paths)
        columns = sum(map(len, paths))
        rows = self.kinds + len(constraints)
        self.slack = columns
        self.width = columns + rows
        """Columns in use; there is room for a common rate per kind, and the right-hand side is the last one."""
        self.table = np.zeros((rows, columns + rows + self.kinds + 1))
        column = 0
        for kind, ways in enumerate(paths):
            self.table[kind, column : column + len(ways)] = -1.0
            column += len(ways)
        for row, (uses, limit) in enumerate(constraints.items(), start=self.kinds):
            for path, crossings in uses:
                self.table[row, path] = crossings
            self.table[row, -1] = limit
        self.table[np.arange(rows), columns + np.arange(rows)] = 1.0
        self.basis = columns + np.arange(rows)
        self.free = np.ones(self.table.shape[1] - 1, dtype=bool)
        """Columns that may enter the basis: not those that an earlier optimum holds at 0."""
        self.free[self.width :] = False

    def solve(self, multiplicity: Sequence[int]) -> Floats:
        weight = np.asarray(multiplicity, dtype=np.float64)
        rates = np.zeros(self.kinds)
        active = np.ones(self.kinds, dtype=bool)
        common = 0.0
        while active.any():
            cost, level = self._raise(np.where(active, weight, 0.0))
            common += level
            rates[active] = common
            duals = -cost[self.slack : self.slack + self.kinds]
            stuck = active & (duals > _EPSILON)
            if not stuck.any():
                # Rounding hid who is stuck: the largest dual is one of them.
                stuck[int(np.argmax(np.where(active, duals, -np.inf)))] = True
            active &= ~stuck
            self.free &= cost >= -_EPSILON
        return rates

    def _raise(self, weight: Floats) -> tuple[Floats, float]:
        """Add a common rate for the kinds that have a weight and maximise it: reduced costs, and the rate."""
        entering = self.width
        self.width += 1
        self.free[entering] = True
        slacks = self.table[:, self.slack : self.slack + self.kinds]
        self.table[:, entering] = slacks @ weight
        cost = np.zeros(self.table.shape[1] - 1)
        cost[entering] = 1.0
        objective = 0.0
        stalled = 0
        while True:
            gain = np.where(self.free, cost, 0.0)
            if stalled > _STALLED:
                candidates = np.flatnonzero(gain > _EPSILON)
                if not len(candidates):
                    break
                column = int(candidates[0])
            else:
                column = int(np.argmax(gain))
                if gain[column] <= _EPSILON:
                    break
            progress = self._pivot(column, cost)
            objective += progress
            stalled = 0 if progress > _EPSILON * 1e-3 else stalled + 1
        return cost, objective

    def _pivot(self, column: int, cost: Floats) -> float:
        """Bring a column into the basis; what the objective gains."""
        entries, limits = self.table[:, column], self.table[:, -1]
        rows = np.flatnonzero(entries > _EPSILON)
        if not len(rows):
            raise ValueError("a flow has a path that nothing limits")
        ratios = limits[rows] / entries[rows]
        smallest = ratios.min()
        tied = rows[ratios <= smallest + 1e-12]
        row = int(tied[np.argmin(self.basis[tied])])
        self.table[row] /= self.table[row, column]
        others = np.flatnonzero(np.abs(self.table[:, column]) > 0)
        others = others[others != row]
        across = np.flatnonzero(self.table[row])  # the tableau of a fabric is sparse for long
        self.table[np.ix_(others, across)] -= np.outer(self.table[others, column], self.table[row, across])
        np.maximum(limits, 0.0, out=limits)  # rounding
        gained = float(cost[column] * self.table[row, -1])
        cost -= cost[column] * self.table[row, :-1]
        self.basis[row] = column
        return gained
