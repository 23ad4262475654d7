"""Mixture of experts: tokens go to the ranks of their experts (dispatch) and come back (combine), layer by layer.

With every expert as popular as any other, a rank sends B k H P / N bytes to each (draft-calabria-bmwg-ai-fabric-
inference-bench, individual Internet-Draft, 2026-08-12: 21.8 KB for k = 2, H = 4096, B = 128, N = 96). In real models
some experts are hot; here their popularity falls as Zipf's law.

With a relay a token crosses the fabric once for each scale-up domain that has any of its experts, to the GPU on its own
rail, which passes it on over scale-up links, once to each rank; on the way back that GPU adds up what comes for one
token. This is how DeepEP does it between NVLink domains (deepseek-ai/DeepEP, `README.md`, normal kernels).
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from testbed.base.errors import WorkloadError
from testbed.workload.builder import Frontier, Lane, StepBuilder
from testbed.workload.collectives.operation import WINDOW
from testbed.workload.draws import draw_order
from testbed.workload.parameters import asked, duration, flag, number, whole
from testbed.workload.steps import Workload

MAX_CHOICES = 5_000_000
"""Choices of an expert for a token that are drawn for one workload; more take minutes."""

Counts = list[list[int]]
"""Tokens from a rank (first index) to another, or to a domain (second)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    """The destinations of the tokens of each rank, itself included."""

    experts: Counts
    """To each rank, a token as often as it has experts there."""
    ranks: Counts
    """To each rank, a token once."""
    domains: Counts
    """To each scale-up domain, a token once."""


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
    relay: bool = asked(
        flag("relay", "Sends a token once to each scale-up domain, whose GPU on its rail passes it on (DeepEP).")
    )
    domains_per_token: int | None = asked(
        whole(
            "domains_per_token",
            None,
            "Limits the scale-up domains that a token's experts may be in (DeepSeek-V3: 4); by default there is none.",
            high=100_000,
        )
    )
    window: int | None = asked(WINDOW)


def generate_moe(moe: MixtureOfExperts, *, ranks: int, rng: random.Random, ranks_per_domain: int = 0) -> Workload:
    """Layers of dispatch, computing and combine on `ranks` ranks.

    Rank r has the experts r E / N to (r + 1) E / N; `rng` says which of all are the popular ones. A rank computes once
    all its tokens are there, and goes on to the next layer once all of its own have come back.
    """
    experts = 8 * ranks if moe.experts is None else moe.experts
    _check(moe, ranks, experts, ranks_per_domain)
    window = ranks if moe.window is None else moe.window
    builder = StepBuilder(ranks, ranks_per_domain=ranks_per_domain)
    popularity = _popularity(experts, moe.skew, rng)
    out_bytes, back_bytes = (moe.hidden * value for value in (moe.dispatch_value_bytes, moe.combine_value_bytes))
    done: Frontier = dict.fromkeys(range(ranks), ())
    for layer in range(moe.layers):
        tokens = draw_tokens(moe, popularity, ranks=ranks, ranks_per_domain=max(1, ranks_per_domain), rng=rng)
        counts = tokens.experts
        back: Counts = [list(row) for row in zip(*counts, strict=True)]
        label = f"layer{layer}"
        if moe.relay:
            relayed = _Relayed(builder, tokens, window)
            done = relayed.dispatch(out_bytes, done, label=f"{label}.dispatch")
        else:
            done = _exchange(builder, counts, out_bytes, done, window, label=f"{label}.dispatch")
        for rank in range(ranks):
            busy_ns = sum(back[rank]) * moe.compute_ns_per_token
            done[rank] = (builder.compute(rank, busy_ns, after=done[rank], label=f"{label}.experts"),)
        if moe.relay:
            done = relayed.combine(back_bytes, done, label=f"{label}.combine")
        else:
            done = _exchange(builder, back, back_bytes, done, window, label=f"{label}.combine")
        done = builder.join_all(range(ranks), done)
    return builder.build("moe")


def draw_tokens(
    moe: MixtureOfExperts, popularity: Sequence[float], *, ranks: int, ranks_per_domain: int, rng: random.Random
) -> TokenCounts:
    """Draw `top_k` different experts for every token, in at most `domains_per_token` domains."""
    experts, domains = len(popularity), ranks // ranks_per_domain
    limit = moe.domains_per_token
    shares = [sum(popularity[d * experts // domains : (d + 1) * experts // domains]) for d in range(domains)]
    counts = TokenCounts(
        experts=[[0] * ranks for _ in range(ranks)],
        ranks=[[0] * ranks for _ in range(ranks)],
        domains=[[0] * domains for _ in range(ranks)],
    )
    for source in range(ranks):
        for _ in range(moe.tokens):
            weights = popularity
            if limit is not None and limit < domains:
                allowed = set(_draw_some(shares, limit, rng))
                weights = [one if e * domains // experts in allowed else 0.0 for e, one in enumerate(popularity)]
            places = [expert * ranks // experts for expert in _draw_some(weights, moe.top_k, rng)]
            for rank in places:
                counts.experts[source][rank] += 1
            for rank in set(places):
                counts.ranks[source][rank] += 1
            for domain in {rank // ranks_per_domain for rank in places}:
                counts.domains[source][domain] += 1
    return counts


def _draw_some(weights: Sequence[float], count: int, rng: random.Random) -> list[int]:
    """Draw so many different indices, each in proportion to its weight among those not drawn yet."""
    ends = list(accumulate(weights))
    chosen: list[int] = []
    left = ends[-1]
    for _ in range(count):
        # a place among the weights of those not chosen yet, moved behind each chosen one that lies before it
        place = rng.random() * left
        for index in chosen:
            if place >= ends[index] - weights[index]:
                place += weights[index]
        index = min(bisect_right(ends, place), len(weights) - 1)
        while index in chosen or not weights[index]:  # the last bits of a sum
            index = (index + 1) % len(weights)
        left -= weights[index]
        chosen.append(index)
        chosen.sort()
    return chosen


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


class _Relayed:
    """Dispatch and combine with a relay: the GPU of the destination's domain on the source's rail."""

    def __init__(self, builder: StepBuilder, tokens: TokenCounts, window: int) -> None:
        self._builder = builder
        self._tokens = tokens
        self._window = window
        self._ranks = len(tokens.ranks)
        self._domains = len(tokens.domains[0])
        self._size = self._ranks // self._domains

    def dispatch(self, token_bytes: int, after: Frontier, *, label: str) -> Frontier:
        """Every token goes once to each domain of its experts, and from there once to each of their ranks."""
        with self._builder.watch(range(self._ranks), after) as done:
            for source, domain, relay in self._ways():
                came = after[source]
                if relay != source:
                    count = self._tokens.domains[source][domain]
                    came = self._send(source, relay, count * token_bytes, after[source], label=f"{label}.rail")
                    if not came:
                        continue
                for rank in self._others(domain, relay):
                    size = self._tokens.ranks[source][rank] * token_bytes
                    self._send(relay, rank, size, came, label=f"{label}.inside")
        return {rank: tuple(sorted({*done[rank], *after[rank]})) for rank in range(self._ranks)}

    def combine(self, token_bytes: int, after: Frontier, *, label: str) -> Frontier:
        """Add up in the relay what the ranks of a domain have for a token, which goes back as one."""
        with self._builder.watch(range(self._ranks), after) as done:
            for source, domain, relay in self._ways():
                given: list[int] = []
                for rank in self._others(domain, relay):
                    size = self._tokens.ranks[source][rank] * token_bytes
                    given += self._send(rank, relay, size, after[rank], label=f"{label}.inside")
                if relay != source:
                    size = self._tokens.domains[source][domain] * token_bytes
                    self._send(relay, source, size, (*given, *after[relay]), label=f"{label}.rail")
        return {rank: tuple(sorted({*done[rank], *after[rank]})) for rank in range(self._ranks)}

    def _ways(self) -> Iterator[tuple[int, int, int]]:
        """Return the source, the domain and its relay of each exchange; each source begins with the next domain."""
        for distance in (*range(1, self._domains), 0):
            for source in range(self._ranks):
                domain = (source // self._size + distance) % self._domains
                yield source, domain, domain * self._size + source % self._size

    def _others(self, domain: int, relay: int) -> Iterator[int]:
        for turn in range(1, self._size):
            yield domain * self._size + (relay + turn) % self._size

    def _send(
        self, source: int, destination: int, size_bytes: int, after: tuple[int, ...], *, label: str
    ) -> tuple[int, ...]:
        if not size_bytes:
            return ()
        lane = Lane(name=label, in_flight=self._window)
        return (self._builder.transfer(source, destination, size_bytes, after=after, lane=lane, label=label),)


def _check(moe: MixtureOfExperts, ranks: int, experts: int, ranks_per_domain: int) -> None:
    if experts % ranks:
        message = f"{experts} experts cannot be spread evenly over {ranks} ranks"
        raise WorkloadError(message, field="experts", hint=f"experts: {-(-experts // ranks) * ranks}")
    if moe.top_k > experts:
        raise WorkloadError(f"a token cannot go to {moe.top_k} of {experts} experts", field="top_k")
    if ranks * moe.tokens * moe.top_k * moe.layers > MAX_CHOICES:
        raise WorkloadError(f"more than {MAX_CHOICES} choices of an expert", field="tokens", hint="fewer tokens")
    if moe.domains_per_token is not None:
        domains = ranks // max(1, ranks_per_domain)
        if moe.top_k > moe.domains_per_token * experts // domains:
            raise WorkloadError(
                f"{moe.domains_per_token} of {domains} scale-up domains do not have {moe.top_k} experts",
                field="domains_per_token",
            )
