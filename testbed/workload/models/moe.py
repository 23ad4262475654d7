"""Mixture of experts: tokens go to the ranks of their experts (dispatch) and come back (combine), layer by layer.

With every expert as popular as any other, a rank sends B k H P / N bytes to each (draft-calabria-bmwg-ai-fabric-
inference-bench, individual Internet-Draft, 2026-08-12: 21.8 KB for k = 2, H = 4096, B = 128, N = 96). In real models
some experts are hot; here their popularity falls as Zipf's law.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from testbed.errors import WorkloadError
from testbed.workload.builder import Frontier, StepBuilder
from testbed.workload.choices import require_positive
from testbed.workload.draws import draw_order
from testbed.workload.steps import Workload

MAX_CHOICES = 5_000_000
"""Choices of an expert for a token that are drawn for one workload; more take minutes."""

Counts = list[list[int]]
"""Tokens from a rank (first index) to another (second)."""


def generate_moe(
    *,
    ranks: int,
    experts: int,
    top_k: int,
    tokens: int,
    hidden: int,
    rng: random.Random,
    skew: float = 0.0,
    layers: int = 1,
    dispatch_value_bytes: int = 2,
    combine_value_bytes: int = 2,
    compute_ns_per_token: int = 0,
    window: int | None = None,
    ranks_per_host: int = 0,
) -> Workload:
    """`layers` of dispatch, computing and combine; every rank has `tokens` of them, each for `top_k` experts.

    Rank r has the experts r E / N to (r + 1) E / N. The i-th most popular expert is chosen in proportion to i^-`skew`
    (0: all alike); `rng` says which those are. A rank computes once all its tokens are there, `compute_ns_per_token`
    for each, and goes on to the next layer once all of its own have come back. `window` limits the transfers that a
    rank has under way. FP8 dispatch is `dispatch_value_bytes` = 1.
    """
    _check(ranks, experts, top_k, tokens, layers, skew, window)
    require_positive(hidden=hidden, dispatch_value_bytes=dispatch_value_bytes, combine_value_bytes=combine_value_bytes)
    builder = StepBuilder(ranks, ranks_per_host=ranks_per_host)
    popularity = _popularity(experts, skew, rng)
    done: Frontier = dict.fromkeys(range(ranks), ())
    for layer in range(layers):
        counts = draw_token_counts(popularity, ranks=ranks, tokens=tokens, top_k=top_k, rng=rng)
        back: Counts = [list(row) for row in zip(*counts, strict=True)]
        label = f"layer{layer}"
        done = _exchange(builder, counts, hidden * dispatch_value_bytes, done, window, label=f"{label}.dispatch")
        for rank in range(ranks):
            busy_ns = sum(back[rank]) * compute_ns_per_token
            done[rank] = (builder.compute(rank, busy_ns, after=done[rank], label=f"{label}.experts"),)
        done = _exchange(builder, back, hidden * combine_value_bytes, done, window, label=f"{label}.combine")
        done = builder.join_all(range(ranks), done)
    return builder.build("moe")


def draw_token_counts(
    popularity: Sequence[float], *, ranks: int, tokens: int, top_k: int, rng: random.Random
) -> Counts:
    """Return how many tokens each rank sends to each (itself included): `top_k` different experts for every token."""
    experts = len(popularity)
    ends = list(accumulate(popularity))
    counts = [[0] * ranks for _ in range(ranks)]
    for row in counts:
        for _ in range(tokens):
            chosen: list[int] = []
            left = ends[-1]
            for _ in range(top_k):
                # a place among the weights of those not chosen yet, moved behind each chosen one that lies before it
                place = rng.random() * left
                for expert in chosen:
                    if place >= ends[expert] - popularity[expert]:
                        place += popularity[expert]
                expert = min(bisect_right(ends, place), experts - 1)
                while expert in chosen:  # the last bits of a sum
                    expert = (expert + 1) % experts
                left -= popularity[expert]
                chosen.append(expert)
                chosen.sort()
                row[expert * ranks // experts] += 1
    return counts


def _popularity(experts: int, skew: float, rng: random.Random) -> list[float]:
    places = draw_order(rng, range(1, experts + 1))
    return [place**-skew for place in places]


def _exchange(
    builder: StepBuilder, counts: Counts, token_bytes: int, after: Frontier, window: int | None, *, label: str
) -> Frontier:
    """An all-to-all of unequal sizes, each rank beginning with the next one."""
    ranks = len(counts)
    with builder.watch(range(ranks), after) as done:
        for distance in range(1, ranks):
            for source in range(ranks):
                destination = (source + distance) % ranks
                if counts[source][destination]:
                    builder.transfer(
                        source,
                        destination,
                        counts[source][destination] * token_bytes,
                        after=after[source],
                        lane=label,
                        in_flight=ranks if window is None else window,
                        label=label,
                    )
    # a rank that only received has not waited for its own work
    return {rank: tuple(sorted({*done[rank], *after[rank]})) for rank in range(ranks)}


def _check(ranks: int, experts: int, top_k: int, tokens: int, layers: int, skew: float, window: int | None) -> None:
    if min(ranks, experts, top_k, tokens, layers) < 1 or skew < 0:
        raise WorkloadError("ranks, experts, top_k, tokens and layers are at least 1, the skew 0", field="experts")
    if experts % ranks:
        raise WorkloadError(f"{experts} experts cannot be spread evenly over {ranks} ranks", field="experts")
    if window is not None and window < 1:
        raise WorkloadError(f"a window holds at least one transfer, not {window}", field="window")
    if top_k > experts:
        raise WorkloadError(f"a token cannot go to {top_k} of {experts} experts", field="top_k")
    if ranks * tokens * top_k * layers > MAX_CHOICES:
        raise WorkloadError(f"more than {MAX_CHOICES} choices of an expert", field="tokens", hint="fewer tokens")
