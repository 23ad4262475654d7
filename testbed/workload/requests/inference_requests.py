"""Requests for inference from clients to servers, as real traffic: each is answered token by token.

What goes over the network is small and bursty: a request has some 4 bytes for each token of its prompt and 200 more,
and each token of the answer is one event of 50 to 250 bytes. Servers compute for times that are given here, however
many requests they have (they batch continuously), so that all waiting beyond those times is the network's.

Requests arrive by the laws of an open loop, in which no arrival waits for an answer. The gamma law is what `vllm bench
serve --burstiness` and AIPerf's `--arrival-pattern gamma` draw: intervals of shape 1 / CV^2. A Poisson process has a CV
of 1. Bursts are Poisson arrivals whose rate is a multiple of the base rate.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from testbed.base.errors import WorkloadError
from testbed.workload.choices import choose
from testbed.workload.draws import draw_below, draw_gamma
from testbed.workload.frontend import MAX_BURST_FACTOR, next_arrival, regular_bursts
from testbed.workload.parameters import (
    Parameter,
    ParameterType,
    asked,
    choice,
    duration,
    listed,
    number,
    size,
    some_ranks,
    whole,
)
from testbed.workload.requests.token_lengths import LENGTH_PRESETS, MOST_TOKENS, TokenLengths
from testbed.workload.requests.traces import load_request_trace
from testbed.workload.steps import Request, Workload


class ArrivalLaw(StrEnum):
    POISSON = "poisson"
    """Intervals are exponential."""
    GAMMA = "gamma"
    """Intervals have a gamma distribution with the coefficient of variation asked for."""
    ON_OFF = "on-off"
    """A Poisson process whose rate is a multiple of the base rate in bursts."""
    TRACE = "trace"
    """Arrivals are those of a file."""


BYTES_PER_PROMPT_TOKEN = 4
"""English text in UTF-8 has so many, as tokenizers cut it."""
REQUEST_OVERHEAD_BYTES = 200
"""The header of a request, and what its body has beside the prompt."""
MOST_OUTPUT_TOKENS = 2_000_000
"""All answers together have no more: each is a packet, and a time that is kept."""
MOST_REQUESTS = 200_000
MOST_CHUNK_BYTES = 65_536
NOTE = "Servers compute for the times given, however many requests they have: no queue but the network's."


class ServerChoice(StrEnum):
    """The rule by which a request gets its server."""

    ROUND_ROBIN = "round-robin"
    RANDOM = "random"


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceRequests:
    """Requests for inference: who asks whom, when, for how much, and what a server takes to compute it."""

    clients: int | tuple[int, ...] | None = asked(
        some_ranks("clients", None, "Says how many ranks send requests, or which; by default half of all.")
    )
    servers: int | tuple[int, ...] | None = asked(
        some_ranks("servers", None, "Says how many ranks answer, or which; by default all that send none.")
    )
    balance: str = asked(
        choice("balance", ServerChoice.ROUND_ROBIN, tuple(ServerChoice), "Says which server gets the next request.")
    )
    arrivals: str = asked(
        choice("arrivals", ArrivalLaw.POISSON, tuple(ArrivalLaw), "Names the law by which requests arrive (open loop).")
    )
    requests_per_s: float = asked(
        number(
            "requests_per_s",
            100,
            "Says how often requests arrive, of all clients together and in real time; outside bursts.",
            low=0.001,
            high=1e9,
        )
    )
    cv: float = asked(
        number("cv", 2, "Gives the coefficient of variation of the intervals of gamma arrivals.", low=0.1, high=100)
    )
    burst_on_ns: int = asked(duration("burst_on", "1s", "Gives the length of a burst of on-off arrivals.", low=1))
    burst_off_ns: int = asked(duration("burst_off", "4s", "Gives the time before each burst of on-off arrivals."))
    burst_factor: float = asked(
        number("burst_factor", 10, "Says how much more often requests arrive in a burst.", low=1, high=MAX_BURST_FACTOR)
    )
    span_ns: int = asked(duration("span", "10s", "Says for how long requests arrive, in real time.", low=1))
    trace: str | None = asked(
        Parameter(
            name="trace",
            type=ParameterType.FILE,
            description="Names a file of requests in the CSV format of Azure's LLM traces or of BurstGPT.",
        )
    )
    trace_speed: float = asked(
        number("trace_speed", 1, "Says how much faster than recorded a trace is replayed.", low=0.001, high=1e6)
    )
    lengths: str = asked(
        choice(
            "lengths",
            None,
            tuple(TokenLengths),
            "Says how many tokens prompts and answers have; by default those of the trace, or fixed numbers.",
        )
    )
    prompt_tokens: int = asked(
        whole("prompt_tokens", 1024, "Gives the tokens of a prompt of fixed length.", high=MOST_TOKENS)
    )
    output_tokens: int = asked(
        whole("output_tokens", 32, "Gives the tokens of an answer of fixed length.", high=MOST_TOKENS)
    )
    prefill_ns: int = asked(
        duration("prefill", "30ms", "Says how long a server computes until the first token, whatever the prompt.")
    )
    prefill_ns_per_token: int = asked(
        duration("prefill_per_token", "0ns", "Says how much longer it computes for each token of the prompt.")
    )
    tpot_ns: int = asked(duration("tpot", "10ms", "Says how long it computes from one token to the next."))
    chunk_bytes: int = asked(size("chunk_bytes", "150B", "Gives the bytes of a token in the answer.", low=16))
    ttft_limit_ns: int = asked(
        duration("ttft_limit", "500ms", "Gives the longest time to the first token that counts as goodput.", low=1)
    )
    tpot_limit_ns: int = asked(
        duration("tpot_limit", "50ms", "Gives the longest mean time between tokens that counts as goodput.", low=1)
    )


def generate_inference_requests(asked_for: InferenceRequests, *, ranks: int, rng: random.Random) -> Workload:
    """The requests of clients to servers among `ranks` ranks. Each arrival is at a client drawn evenly.

    Raises `WorkloadError`, and `SpecError` for a trace.
    """
    clients, servers = _places(asked_for, ranks)
    law = choose(ArrivalLaw, asked_for.arrivals, "arrivals")
    lengths = asked_for.lengths or (TokenLengths.TRACE if law is ArrivalLaw.TRACE else TokenLengths.FIXED)
    _check(asked_for, law, lengths)
    in_turn = choose(ServerChoice, asked_for.balance, "balance") is ServerChoice.ROUND_ROBIN
    found: list[Request] = []
    tokens = 0
    for at_ns, prompt, output in _drawn(asked_for, law, lengths, rng):
        tokens += output
        if len(found) == MOST_REQUESTS or tokens > MOST_OUTPUT_TOKENS:
            raise WorkloadError(
                f"more than {MOST_REQUESTS} requests or {MOST_OUTPUT_TOKENS} tokens of answers are asked for",
                field="span",
                hint="a shorter span, fewer requests_per_s, or shorter answers",
            )
        found.append(
            Request(
                number=len(found),
                client=clients[draw_below(rng, len(clients))],
                server=servers[len(found) % len(servers) if in_turn else draw_below(rng, len(servers))],
                start_ns=int(at_ns),
                prompt_tokens=prompt,
                output_tokens=output,
                request_bytes=BYTES_PER_PROMPT_TOKEN * prompt + REQUEST_OVERHEAD_BYTES,
                chunk_bytes=asked_for.chunk_bytes,
                prefill_ns=asked_for.prefill_ns + prompt * asked_for.prefill_ns_per_token,
                tpot_ns=asked_for.tpot_ns,
                ttft_limit_ns=asked_for.ttft_limit_ns,
                tpot_limit_ns=asked_for.tpot_limit_ns,
            )
        )
    if not found:
        raise WorkloadError(
            "no request arrives within the span", field="span", hint="a longer span, or more requests_per_s"
        )
    return Workload(name="inference-requests", ranks=ranks, steps=(), requests=tuple(found), notes=(NOTE,))


def _places(asked_for: InferenceRequests, ranks: int) -> tuple[list[int], list[int]]:
    everyone = range(ranks)
    servers_named = asked_for.servers if isinstance(asked_for.servers, tuple) else ()
    wanted = max(1, ranks // 2) if asked_for.clients is None else asked_for.clients
    clients = listed(wanted, [rank for rank in everyone if rank not in servers_named], "clients")
    servers = listed(asked_for.servers, [rank for rank in everyone if rank not in clients], "servers")
    if not clients or not servers or set(clients) & set(servers):
        raise WorkloadError("clients and servers are different ranks, one of each at least", field="servers")
    if len(set(clients)) < len(clients) or len(set(servers)) < len(servers):
        raise WorkloadError("a rank is named twice", field="clients")
    if any(not 0 <= rank < ranks for rank in (*clients, *servers)):
        raise WorkloadError(f"there are {ranks} ranks, from 0 to {ranks - 1}", field="clients")
    return clients, servers


def _check(asked_for: InferenceRequests, law: ArrivalLaw, lengths: str) -> None:
    uses_trace = law is ArrivalLaw.TRACE or lengths == TokenLengths.TRACE
    if uses_trace and asked_for.trace is None:
        raise WorkloadError("arrivals or lengths of a trace need a file", field="trace", hint="trace: FILE.csv")
    if asked_for.trace is not None and not uses_trace:
        raise WorkloadError("the trace is used for nothing", field="trace", hint="arrivals: trace, or lengths: trace")
    if asked_for.chunk_bytes > MOST_CHUNK_BYTES:
        raise WorkloadError(f"a token has at most {MOST_CHUNK_BYTES} bytes", field="chunk_bytes")


def _drawn(
    asked_for: InferenceRequests, law: ArrivalLaw, lengths: str, rng: random.Random
) -> Iterator[tuple[float, int, int]]:
    """Yield the time of each arrival in ns, and the tokens of its prompt and answer."""
    trace = load_request_trace(asked_for.trace).requests if asked_for.trace is not None else ()
    traced = [request.at_ns / asked_for.trace_speed for request in trace]
    for turn, at_ns in enumerate(_arrivals(asked_for, law, rng, traced)):
        if lengths == TokenLengths.TRACE:
            request = trace[turn % len(trace)]
            yield at_ns, request.prompt_tokens, request.output_tokens
        elif lengths == TokenLengths.FIXED:
            yield at_ns, asked_for.prompt_tokens, asked_for.output_tokens
        else:
            preset = LENGTH_PRESETS[lengths]
            yield at_ns, preset.prompt.draw(rng), preset.output.draw(rng)


def _arrivals(
    asked_for: InferenceRequests, law: ArrivalLaw, rng: random.Random, traced: Sequence[float]
) -> Iterator[float]:
    """Yield the times (ns) of arrivals within the span.

    The first interval of gamma arrivals begins at 0, as in `vllm bench serve`; in a short span the expected number of
    arrivals therefore differs from that of a stationary process by about (cv^2 - 1) / 2.
    """
    mean_ns, span_ns = 1e9 / asked_for.requests_per_s, asked_for.span_ns
    if law is ArrivalLaw.TRACE:
        yield from (at_ns for at_ns in traced if at_ns < span_ns)
        return
    bursts = regular_bursts(
        on_ns=asked_for.burst_on_ns, off_ns=asked_for.burst_off_ns, factor=asked_for.burst_factor, duration_ns=span_ns
    )

    def following(at_ns: float) -> float:
        if law is ArrivalLaw.GAMMA:
            return at_ns + draw_gamma(rng, shape=1.0 / (asked_for.cv * asked_for.cv), mean=mean_ns)
        return next_arrival(at_ns, mean_ns, bursts if law is ArrivalLaw.ON_OFF else (), rng)

    at_ns = following(0.0)
    while at_ns < span_ns:
        yield at_ns
        at_ns = following(at_ns)
