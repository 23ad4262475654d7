"""Random draws that are the same on every machine and Python version for the same generator handed in.

Only the sequence of `random()` is promised across Python's versions ("Notes on Reproducibility", library reference of
`random`), so that everything here is made from it.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TypeVar

from testbed.base.errors import WorkloadError

Item = TypeVar("Item")


def draw_below(rng: random.Random, limit: int) -> int:
    """An integer from 0 to `limit` - 1, each as likely."""
    return int(rng.random() * limit)


def draw_exponential(rng: random.Random, mean: float) -> float:
    """An interval of a Poisson process, in the unit of `mean`."""
    return -math.log(1.0 - rng.random()) * mean


def draw_normal(rng: random.Random) -> float:
    """Return a draw of the normal distribution of mean 0 and standard deviation 1 (Box and Muller, 1958)."""
    radius = math.sqrt(-2.0 * math.log(1.0 - rng.random()))
    return radius * math.cos(2.0 * math.pi * rng.random())


def draw_lognormal(rng: random.Random, *, median: float, mean: float) -> float:
    """Return a draw of the lognormal distribution with this median and mean, in their unit.

    Its mu is ln(median) and its sigma sqrt(2 ln(mean / median)); the mean is not below the median.
    """
    return median * math.exp(math.sqrt(2.0 * math.log(mean / median)) * draw_normal(rng))


def draw_gamma(rng: random.Random, *, shape: float, mean: float) -> float:
    """Return a draw of the gamma distribution with this shape and mean, in the unit of `mean`.

    Source: Marsaglia and Tsang, "A simple method for generating gamma variables", ACM TOMS 26 (3), 2000; shapes below 1
    by their section 6.
    """
    boost = 1.0
    d = shape - 1.0 / 3.0
    if shape < 1.0:
        boost = (1.0 - rng.random()) ** (1.0 / shape)
        d += 1.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = draw_normal(rng)
        v = (1.0 + c * x) ** 3
        if v > 0.0 and math.log(1.0 - rng.random()) < 0.5 * x * x + d - d * v + d * math.log(v):
            return d * v * boost * mean / shape


def draw_order(rng: random.Random, items: Sequence[Item]) -> list[Item]:
    """Return all items in a random order."""
    return sorted(items, key=lambda _: rng.random())


def draw_derangement(rng: random.Random, blocks: Sequence[Hashable]) -> list[int]:
    """A random permutation p of positions in which p[i] is never in the block of i (`blocks[i]` is i's).

    A random order is repaired by swaps: where position i holds one of its own block b, any j outside b that holds one
    from outside b may swap with it, which mends i and does not harm j. Of n positions at most 2 |b| - 1 < n are in b or
    hold one of b, so such a j exists. Raises `WorkloadError` where a block has more than half of all positions.
    """
    if blocks:
        block, largest = Counter(blocks).most_common(1)[0]
        if 2 * largest > len(blocks):
            raise WorkloadError(
                f"no permutation leaves its block: {largest} of {len(blocks)} ranks are in block {block!r}",
                field="scope",
                hint="scope: any allows pairs within a leaf; or give the fabric more leaves, all alike",
            )
    order = draw_order(rng, range(len(blocks)))
    for i, own in enumerate(blocks):
        if blocks[order[i]] == own:
            choices = [j for j in range(len(blocks)) if blocks[j] != own and blocks[order[j]] != own]
            j = choices[draw_below(rng, len(choices))]
            order[i], order[j] = order[j], order[i]
    return order
