"""Serving with prefill and decode on different ranks: the KV cache of each prompt goes from one to the other.

Source: Zhong et al., "DistServe: Disaggregating prefill and decoding", OSDI 2024; sizes and the incast of several
prefill ranks to one decode rank from draft-calabria-bmwg-ai-fabric-inference-bench (individual Internet-Draft,
2026-08-12: 64 KB to 1 GB; M = 2 to 32 at 16 MB).
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from testbed.errors import WorkloadError
from testbed.workload.builder import StepBuilder
from testbed.workload.draws import draw_below, draw_exponential
from testbed.workload.models.language_models import LanguageModel
from testbed.workload.steps import Slice, Workload

TOKEN_BYTES = 4
"""A token's number, in a prompt and in an answer."""


def generate_kv_cache_incast(*, ranks: int, prefill: Sequence[int], decode: int, size_bytes: int) -> Workload:
    """Every prefill rank sends a KV cache of `size_bytes` to one decode rank at once."""
    if not prefill:
        raise WorkloadError("an incast needs a prefill rank", field="prefill")
    builder = StepBuilder(ranks)
    for rank in prefill:
        builder.transfer(rank, decode, size_bytes, label=f"kv-cache.{rank}")
    return builder.build("kv-cache-incast")


def generate_serving(
    *,
    ranks: int,
    frontend: int,
    prefill: Sequence[int],
    decode: Sequence[int],
    model: LanguageModel,
    requests: int,
    requests_per_s: float,
    prompt_tokens: tuple[int, int],
    rng: random.Random,
    prefill_ns_per_token: int,
    decode_ns: int,
    pieces: int = 1,
    value_bytes: int = 2,
    bytes_factor: float = 1.0,
) -> Workload:
    """`requests` that arrive as a Poisson process at the `frontend` rank (open loop), until their first token is back.

    A prompt has a length drawn evenly between both of `prompt_tokens`. Prefill ranks take requests in turn and work
    through them one by one; the KV cache goes to a decode rank in `pieces`, each once its layers are computed (of its
    size, `bytes_factor` is sent); after all of it, the first token takes `decode_ns`. The time to first token of
    request i is the end of `request[i].first-token` less the start of `request[i].prompt`.
    """
    shortest, longest = prompt_tokens
    if not prefill or not decode or len({frontend, *prefill, *decode}) != 1 + len(prefill) + len(decode):
        raise WorkloadError("front-end, prefill and decode are different ranks, one of each at least", field="prefill")
    if not 1 <= shortest <= longest or requests < 1 or requests_per_s <= 0:
        raise WorkloadError("there are requests, at some rate, of one token at least", field="requests")
    if pieces < 1 or prefill_ns_per_token < 0 or bytes_factor <= 0:
        raise WorkloadError("a KV cache goes in one piece at least, prefill takes time", field="pieces")
    builder = StepBuilder(ranks)
    busy: dict[int, tuple[int, ...]] = {}
    arrival_ns = 0.0
    for request in range(requests):
        label = f"request[{request}]"
        tokens = shortest + draw_below(rng, longest - shortest + 1)
        worker, target = prefill[request % len(prefill)], decode[draw_below(rng, len(decode))]
        arrival_ns += draw_exponential(rng, 1e9 / requests_per_s)
        prompt = builder.transfer(
            frontend, worker, tokens * TOKEN_BYTES, start_ns=int(arrival_ns), label=f"{label}.prompt"
        )
        before = (*busy.get(worker, ()), prompt)
        size_bytes = max(1, round(model.kv_cache_bytes(tokens, value_bytes=value_bytes) * bytes_factor))
        times = Slice(offset=0, length=tokens * prefill_ns_per_token).split(pieces)
        cache = []
        for number, part in enumerate(Slice(offset=0, length=size_bytes).split(pieces)):
            before = (builder.compute(worker, times[number].length, after=before, label=f"{label}.prefill"),)
            if part.length:
                cache.append(
                    builder.transfer(worker, target, part.length, after=before, label=f"{label}.kv-cache.{number}")
                )
        busy[worker] = before
        decoded = builder.compute(target, decode_ns, after=cache, label=f"{label}.decode")
        builder.transfer(target, frontend, TOKEN_BYTES, after=(decoded,), label=f"{label}.first-token")
    return builder.build("serving")
