"""Traffic patterns of independent transfers: who sends to whom, without data to check.

The catalogue is that of htsim's connection matrices (incast, outcast and incast, permutation, tornado, all-to-all;
Broadcom/csg-htsim, sim/datacenter/connection_matrices) and of draft-calabria-bmwg-ai-fabric-training-bench.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Hashable, Sequence
from enum import StrEnum

from testbed.base.errors import WorkloadError
from testbed.workload.builder import Lane, StepBuilder
from testbed.workload.choices import choose
from testbed.workload.draws import draw_below, draw_derangement
from testbed.workload.steps import Workload

UNDER_WAY = 2
"""Transfers of a background flow at once, so that its link never idles between two."""


class Scope(StrEnum):
    ANY = "any"
    """To any other rank."""
    INTER_LEAF = "inter-leaf"
    """To a rank of another leaf."""


def generate_point_to_point(
    *,
    ranks: int,
    size_bytes: int,
    source: int = 0,
    destination: int = 1,
    flows: int = 1,
    rounds: int = 1,
    reads: bool = False,
) -> Workload:
    """`flows` transfers of `size_bytes` side by side from one rank to another, `rounds` times. The destination `reads`
    the bytes, or the source writes them."""
    builder = StepBuilder(ranks)
    last: tuple[int, ...] = ()
    for turn in range(rounds):
        last = tuple(
            builder.transfer(source, destination, size_bytes, after=last, pulled=reads, label=f"p2p[{turn}].{flow}")
            for flow in range(flows)
        )
    return builder.build("point-to-point")


def generate_incast(
    *,
    ranks: int,
    size_bytes: int,
    destination: int = 0,
    senders: int | Sequence[int] | None = None,
    jitter_ns: int = 0,
    rng: random.Random | None = None,
) -> Workload:
    """Several ranks send `size_bytes` each to one at once.

    `senders` is how many (the ranks after the destination, in turn), which, or None for all others. With `jitter_ns`
    each starts at a time that `rng` draws evenly from 0 to it.
    """
    builder = StepBuilder(ranks)
    for source in _others(ranks, destination, senders):
        start_ns = draw_below(rng, jitter_ns + 1) if jitter_ns and rng is not None else 0
        builder.transfer(source, destination, size_bytes, start_ns=start_ns, label=f"incast.{source}")
    return builder.build("incast")


def generate_overlapped_incast(
    *, ranks: int, long_bytes: int, burst_bytes: int, burst_start_ns: int, senders: int = 3, destination: int = 0
) -> Workload:
    """A long flow, and after a while an incast of `senders` others to its destination."""
    builder = StepBuilder(ranks)
    long, *burst = _others(ranks, destination, senders + 1)
    builder.transfer(long, destination, long_bytes, label="long")
    for source in burst:
        builder.transfer(source, destination, burst_bytes, start_ns=burst_start_ns, label=f"burst.{source}")
    return builder.build("overlapped-incast")


def generate_incast_victim(
    *,
    ranks: int,
    size_bytes: int,
    victim_bytes: int,
    victim_start_ns: int,
    senders: int | None = None,
    victim_source: int | None = None,
    victim_vc: int | None = None,
) -> Workload:
    """Ranks 1, 2 and so on send to rank 0, and the last rank but one sends to the last one, which nobody else does.

    `senders` is how many send to rank 0; None: all but the victim's two. `victim_source` sends the victim's bytes
    instead, and may be one of the senders, whose queues the victim then shares; all but the last rank are senders then.
    Inside a scale-up domain the victim's frames may have a virtual channel of their own. Source: the victim flow of
    DCQCN (Zhu et al., SIGCOMM 2015, section 2.2).
    """
    builder = StepBuilder(ranks)
    for source in _others(ranks - (2 if victim_source is None else 1), 0, senders):
        builder.transfer(source, 0, size_bytes, label=f"incast.{source}")
    victim = ranks - 2 if victim_source is None else victim_source
    builder.transfer(victim, ranks - 1, victim_bytes, start_ns=victim_start_ns, vc=victim_vc, label="victim")
    return builder.build("incast-victim")


def generate_outcast(
    *, ranks: int, size_bytes: int, source: int = 0, receivers: int | Sequence[int] | None = None
) -> Workload:
    """One rank sends `size_bytes` to each of several at once. `receivers` as the senders of an incast."""
    builder = StepBuilder(ranks)
    for destination in _others(ranks, source, receivers):
        builder.transfer(source, destination, size_bytes, label=f"outcast.{destination}")
    return builder.build("outcast")


def generate_outcast_incast(*, ranks: int, size_bytes: int, receivers: int = 4) -> Workload:
    """Rank 0 sends to ranks 1 to `receivers`, and one more rank sends to the last of those.

    Fair per-flow shares are 1 / `receivers` of rank 0's link for its flows; the other sender may take the rest of the
    shared receiver's. Source: NDP (Handley et al., SIGCOMM 2017), "in and out" of csg-htsim's sim/EXAMPLES.
    """
    builder = StepBuilder(ranks)
    for destination in range(1, receivers + 1):
        builder.transfer(0, destination, size_bytes, label=f"outcast.{destination}")
    builder.transfer(receivers + 1, receivers, size_bytes, label=f"incast.{receivers + 1}")
    return builder.build("outcast-incast")


def generate_permutation(  # noqa: PLR0913  # what a permutation has
    *,
    ranks: int,
    size_bytes: int,
    rng: random.Random,
    scope: Scope | str = Scope.ANY,
    leaf_of: Callable[[int], Hashable] | None = None,
    flows: int = 1,
    sources: Collection[int] | None = None,
    reads: bool = False,
) -> Workload:
    """Each rank sends to one other and receives from one other, drawn by `rng`: a derangement.

    Of that, only `sources` send, if they are given. `flows` transfers of `size_bytes` each make up a pair, which its
    destination `reads`, or its source writes. Raises
    `WorkloadError` where more than half of the ranks are in one leaf and the scope is inter-leaf, or nobody sends.
    """
    leaves: list[Hashable] = list(range(ranks))
    if choose(Scope, scope, "scope") is Scope.INTER_LEAF:
        if leaf_of is None:
            raise WorkloadError("an inter-leaf permutation needs to know the leaf of each rank", field="leaf_of")
        leaves = [leaf_of(rank) for rank in range(ranks)]
    pairs = list(enumerate(draw_derangement(rng, leaves)))
    if sources is not None:
        pairs = [pair for pair in pairs if pair[0] in sources]
        if not pairs:
            raise WorkloadError("nobody sends", field="sources")
    return _pairs("permutation", pairs, ranks, size_bytes, flows, reads=reads)


def generate_tornado(*, ranks: int, size_bytes: int, shift: int | None = None, flows: int = 1) -> Workload:
    """Rank i sends to i + `shift` (half of all ranks unless told): all traffic crosses the spine.

    Source: Singh et al., "GOAL: A load-balanced adaptive routing algorithm for torus networks", ISCA 2003.
    """
    by = max(1, ranks // 2) if shift is None else shift % ranks
    if ranks < 2:
        raise WorkloadError("a tornado needs two ranks", field="ranks")
    if by == 0:
        message = f"a shift by {shift} of {ranks} ranks leads each back to itself"
        raise WorkloadError(message, field="shift", hint=f"shift: 1 to {ranks - 1}")
    return _pairs("tornado", [(rank, (rank + by) % ranks) for rank in range(ranks)], ranks, size_bytes, flows)


def generate_background(
    *,
    ranks: int,
    size_bytes: int,
    pairs: int,
    duration_ns: int,
    rate_bps: int,
    load: float,
    rng: random.Random,
) -> Workload:
    """`pairs` of ranks, drawn by `rng`, each with a transfer of `size_bytes` in every period of its link's `load`.

    `load` is a share of `rate_bps` (0 to 1); transfers that fall behind follow one another as fast as they can, at most
    two at once, so that a congested background never piles up. Each pair begins at a random part of its period.
    """
    if ranks < 2:
        raise WorkloadError("background traffic needs two ranks", field="ranks")
    period_ns = max(1, round(size_bytes * 8e9 / (load * rate_bps)))
    builder = StepBuilder(ranks)
    for pair in range(pairs):
        source = draw_below(rng, ranks)
        destination = (source + 1 + draw_below(rng, ranks - 1)) % ranks
        first_ns = draw_below(rng, period_ns)
        for turn, start_ns in enumerate(range(first_ns, duration_ns, period_ns)):
            builder.transfer(
                source,
                destination,
                size_bytes,
                start_ns=start_ns,
                lane=Lane(name=("background", pair), in_flight=UNDER_WAY),
                label=f"background[{pair}].{turn}",
            )
    return builder.build("background")


def _pairs(
    name: str, pairs: Sequence[tuple[int, int]], ranks: int, size_bytes: int, flows: int, *, reads: bool = False
) -> Workload:
    builder = StepBuilder(ranks)
    for source, destination in pairs:
        for flow in range(flows):
            label = f"{name}.{source}" if flows == 1 else f"{name}.{source}.{flow}"
            builder.transfer(source, destination, size_bytes, pulled=reads, label=label)
    return builder.build(name)


def _others(ranks: int, centre: int, which: int | Sequence[int] | None) -> list[int]:
    if which is None:
        which = ranks - 1
    if isinstance(which, int):
        if not 1 <= which < ranks:
            message = f"{which} other ranks are asked for; there are {ranks - 1}"
            raise WorkloadError(message, field="senders", hint="fewer, or a larger topology")
        return [(centre + 1 + offset) % ranks for offset in range(which)]
    return list(which)
