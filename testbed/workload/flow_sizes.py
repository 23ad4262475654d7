"""Distributions of flow sizes of data centres' front-ends, and how a size is drawn from one.

The points are those of the HPCC repository (alibaba-edu/High-Precision-Congestion-Control, traffic_gen/
WebSearch_distribution.txt and FbHdp_distribution.txt); between two points sizes are spread evenly (custom_rand.py).
WebSearch is from Alizadeh et al., "Data Center TCP (DCTCP)", SIGCOMM 2010; FbHdp, Facebook's Hadoop cluster, from Roy
et al., "Inside the social network's (datacenter) network", SIGCOMM 2015.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSizes:
    """`points` are sizes in bytes and the per cent of all flows that are not larger: from 0 to 100, both rising."""

    name: str
    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        if len(self.points) < 2 or self.points[0][1] != 0 or self.points[-1][1] != 100:
            raise ValueError(f"the distribution {self.name} does not run from 0 to 100 per cent")
        if any(b[0] <= a[0] or b[1] <= a[1] for a, b in pairwise(self.points)) or self.points[0][0] < 0:
            raise ValueError(f"the distribution {self.name} does not rise from point to point")

    @property
    def mean_bytes(self) -> float:
        return sum((a[0] + b[0]) / 2 * (b[1] - a[1]) for a, b in pairwise(self.points)) / 100

    def size_at(self, percent: float) -> int:
        """The size in bytes, at least 1, that `percent` of all flows do not exceed."""
        place = max(1, bisect_left(self.points, percent, key=lambda point: point[1]))
        (size, share), (next_size, next_share) = self.points[place - 1], self.points[place]
        return max(1, int(size + (next_size - size) * (percent - share) / (next_share - share)))

    def up_to(self, largest_bytes: int) -> FlowSizes:
        """The flows of this distribution that are not larger. Raises `ValueError` where there are none."""
        if largest_bytes >= self.points[-1][0]:
            return self
        if largest_bytes <= self.points[0][0]:
            raise ValueError(f"{self.name} has no flows of {largest_bytes} bytes or less")
        place = bisect_left(self.points, largest_bytes, key=lambda point: point[0])
        (size, share), (next_size, next_share) = self.points[place - 1], self.points[place]
        kept = share + (next_share - share) * (largest_bytes - size) / (next_size - size)
        points = [(bytes_, 100 * percent / kept) for bytes_, percent in self.points[:place]]
        return FlowSizes(name=self.name, points=(*points, (largest_bytes, 100.0)))

    def draw(self, rng: random.Random) -> int:
        """A size in bytes."""
        return self.size_at(rng.random() * 100)


WEB_SEARCH = FlowSizes(
    name="WebSearch",
    points=(
        (0, 0),
        (10_000, 15),
        (20_000, 20),
        (30_000, 30),
        (50_000, 40),
        (80_000, 53),
        (200_000, 60),
        (1_000_000, 70),
        (2_000_000, 80),
        (5_000_000, 90),
        (10_000_000, 97),
        (30_000_000, 100),
    ),
)

FB_HDP = FlowSizes(
    name="FbHdp",
    points=(
        (0, 0),
        (100, 1),
        (200, 2),
        (300, 5),
        (350, 15),
        (400, 20),
        (500, 30),
        (600, 40),
        (700, 50),
        (1_000, 60),
        (2_000, 67),
        (7_000, 70),
        (30_000, 72),
        (50_000, 82),
        (80_000, 87),
        (120_000, 90),
        (300_000, 95),
        (1_000_000, 97.5),
        (2_000_000, 99),
        (10_000_000, 100),
    ),
)

FLOW_SIZES: Mapping[str, FlowSizes] = {sizes.name: sizes for sizes in (WEB_SEARCH, FB_HDP)}
"""By the names of the HPCC repository."""
