"""Mixture of experts: tokens go to the ranks of their experts (dispatch) and come back (combine), layer by layer.

With every expert as popular as any other, a rank sends B k H P / N bytes to each (draft-calabria-bmwg-ai-fabric-
inference-bench, individual Internet-Draft, 2026-08-12: 21.8 KB for k = 2, H = 4096, B = 128, N = 96). In real models
some experts are hot; here their popularity falls as Zipf's law.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from testbed.errors import WorkloadError
from testbed.workload.builder import Frontier, Lane, StepBuilder
from testbed.workload.choices import require_positive
from testbed.workload.collectives.operation import WINDOW
from testbed.workload.draws import draw_order
from testbed.workload.parameters import asked, duration, number, whole
from testbed.workload.steps import Workload

MAX_CHOICES = 5_000_000
"""Choices of an expert for a token that are drawn for one workload; more take minutes."""

Counts = list[list[int]]
"""Tokens from a rank (first index) to another (second)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureOfExperts:
    """Layers of a mixture of experts: `tokens` of each rank, and the experts that they go to."""

    experts: int | None = asked(
        whole(
            "experts",
            None,
            "Says how many experts there are, a multiple of the ranks; by default 8 for each rank.",
            high=100_000,
        )
    )
    top_k: int = asked(whole("top_k", 2, "Says how many experts each token has.", high=1024))
    tokens: int = asked(whole("tokens", 128, "Says how many tokens each rank has."))
    hidden: int = asked(whole("hidden", 4096, "Says how many values a token has."))
    skew: float = asked(
        number(
            "skew",
            0,
            "Makes the i-th most popular expert get tokens in proportion to i^-skew; with 0 all are alike.",
            low=0,
            high=5,
        )
    )
    layers: int = asked(
        whole("layers", 1, "Says how many layers of dispatch, computing and combine there are.", high=10_000)
    )
    dispatch_value_bytes: int = asked(
        whole("dispatch_value_bytes", 2, "Gives the bytes of a value on its way out (FP8: 1).", high=8)
    )
    combine_value_bytes: int = asked(
        whole("combine_value_bytes", 2, "Gives the bytes of a value on its way back.", high=8)
    )
    compute_ns_per_token: int = asked(
        duration("compute_per_token", "0ns", "Says how long an expert computes for each token.")
    )
    window: int | None = asked(WINDOW)


def generate_moe(moe: MixtureOfExperts, *, ranks: int, rng: random.Random, ranks_per_domain: int = 0) -> Workload:
    """Layers of dispatch, computing and combine on `ranks` ranks.

    Rank r has the experts r E / N to (r + 1) E / N; `rng` says which of all are the popular ones. A rank computes once
    all its tokens are there, and goes on to the next layer once all of its own have come back.
    """
    experts = 8 * ranks if moe.experts is None else moe.experts
    _check(moe, ranks, experts)
    window = ranks if moe.window is None else moe.window
    builder = StepBuilder(ranks, ranks_per_domain=ranks_per_domain)
    popularity = _popularity(experts, moe.skew, rng)
    out_bytes, back_bytes = (moe.hidden * value for value in (moe.dispatch_value_bytes, moe.combine_value_bytes))
    done: Frontier = dict.fromkeys(range(ranks), ())
    for layer in range(moe.layers):
        counts = draw_token_counts(popularity, ranks=ranks, tokens=moe.tokens, top_k=moe.top_k, rng=rng)
        back: Counts = [list(row) for row in zip(*counts, strict=True)]
        label = f"layer{layer}"
        done = _exchange(builder, counts, out_bytes, done, window, label=f"{label}.dispatch")
        for rank in range(ranks):
            busy_ns = sum(back[rank]) * moe.compute_ns_per_token
            done[rank] = (builder.compute(rank, busy_ns, after=done[rank], label=f"{label}.experts"),)
        done = _exchange(builder, back, back_bytes, done, window, label=f"{label}.combine")
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
    builder: StepBuilder, counts: Counts, token_bytes: int, after: Frontier, window: int, *, label: str
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
                        lane=Lane(name=label, in_flight=window),
                        label=label,
                    )
    # a rank that only received has not waited for its own work
    return {rank: tuple(sorted({*done[rank], *after[rank]})) for rank in range(ranks)}


def _check(moe: MixtureOfExperts, ranks: int, experts: int) -> None:
    top_k, tokens, layers = moe.top_k, moe.tokens, moe.layers
    if min(ranks, experts, top_k, tokens, layers) < 1 or moe.skew < 0:
        raise WorkloadError("ranks, experts, top_k, tokens and layers are at least 1, the skew 0", field="experts")
    if experts % ranks:
        raise WorkloadError(f"{experts} experts cannot be spread evenly over {ranks} ranks", field="experts")
    if moe.window is not None and moe.window < 1:
        raise WorkloadError(f"a window holds at least one transfer, not {moe.window}", field="window")
    if top_k > experts:
        raise WorkloadError(f"a token cannot go to {top_k} of {experts} experts", field="top_k")
    if ranks * tokens * top_k * layers > MAX_CHOICES:
        raise WorkloadError(f"more than {MAX_CHOICES} choices of an expert", field="tokens", hint="fewer tokens")
    require_positive(
        hidden=moe.hidden,
        dispatch_value_bytes=moe.dispatch_value_bytes,
        combine_value_bytes=moe.combine_value_bytes,
    )
