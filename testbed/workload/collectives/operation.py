"""A collective as it is asked for: its kind and algorithm, how much, and in how many parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from testbed.workload.collectives.datatype import DataType
from testbed.workload.parameters import asked, whole


class CollectiveKind(StrEnum):
    ALL_REDUCE = "all_reduce"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_GATHER = "all_gather"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    GATHER = "gather"
    SCATTER = "scatter"
    ALL_TO_ALL = "all_to_all"
    SEND_RECV = "send_recv"


class Algorithm(StrEnum):
    RING = "ring"
    TREE = "tree"
    HALVING_DOUBLING = "halving_doubling"
    HIERARCHICAL = "hierarchical"
    DIRECT = "direct"
    NVLS = "nvls"
    """In the switches of each scale-up domain (NVLink SHARP), and along the rails between several."""
    PXN = "pxn"
    """With a relay inside the scale-up domain, so that what crosses the fabric stays on its rail."""


ALGORITHMS: Mapping[CollectiveKind, tuple[Algorithm, ...]] = {
    CollectiveKind.ALL_REDUCE: (
        Algorithm.RING,
        Algorithm.TREE,
        Algorithm.HALVING_DOUBLING,
        Algorithm.HIERARCHICAL,
        Algorithm.NVLS,
    ),
    CollectiveKind.REDUCE_SCATTER: (Algorithm.RING, Algorithm.HALVING_DOUBLING),
    CollectiveKind.ALL_GATHER: (Algorithm.RING, Algorithm.HALVING_DOUBLING),
    CollectiveKind.BROADCAST: (Algorithm.RING,),
    CollectiveKind.REDUCE: (Algorithm.RING,),
    CollectiveKind.GATHER: (Algorithm.DIRECT,),
    CollectiveKind.SCATTER: (Algorithm.DIRECT,),
    CollectiveKind.ALL_TO_ALL: (Algorithm.DIRECT, Algorithm.PXN),
    CollectiveKind.SEND_RECV: (Algorithm.DIRECT,),
}
"""The algorithms of each kind; the first is the default."""

ROOTED = frozenset({CollectiveKind.BROADCAST, CollectiveKind.REDUCE, CollectiveKind.GATHER, CollectiveKind.SCATTER})
OUT_OF_PLACE = frozenset({CollectiveKind.ALL_TO_ALL, CollectiveKind.SEND_RECV})


def hyphenated(words: tuple[Algorithm, ...]) -> tuple[str, ...]:
    """Algorithms as files have them: `halving-doubling`."""
    return tuple(word.value.replace("_", "-") for word in words)


CHUNKS = whole(
    "chunks",
    None,
    "Says in how many parts, one after the other, data goes; by default 8 for trees and chains, 256 over the ranks for"
    " NVLS in one scale-up domain, else 1.",
    high=4096,
)
IN_FLIGHT = whole("in_flight", 2, "Says how many chunks are under way at once from one rank to another.", high=4096)
WINDOW = whole(
    "window",
    None,
    "Limits the transfers that a rank has under way (1 is serial); by default all are at once.",
    high=100_000,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveOperation:
    """One collective, whichever ranks take part.

    `size_bytes` is S as `algorithms` describes it, a whole number of elements; all-to-all rounds it down to equal
    blocks, as nccl-tests does. `algorithm` None is the first one of `ALGORITHMS`; `rail_algorithm` is what a
    hierarchical AllReduce, or NVLS over several scale-up domains, does along a rail. `window` is of all-to-all.
    """

    kind: CollectiveKind | str
    size_bytes: int
    datatype: DataType = DataType.FLOAT32
    algorithm: Algorithm | str | None = None
    rail_algorithm: Algorithm | str = Algorithm.RING
    chunks: int | None = asked(CHUNKS)
    in_flight: int = asked(IN_FLIGHT)
    window: int | None = asked(WINDOW)
