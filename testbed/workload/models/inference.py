"""Serving with prefill and decode on different ranks: the KV cache of each prompt goes from one to the other.

Source: Zhong et al., "DistServe: Disaggregating prefill and decoding", OSDI 2024; sizes and the incast of several
prefill ranks to one decode rank from draft-calabria-bmwg-ai-fabric-inference-bench (individual Internet-Draft,
2026-08-12: 64 KB to 1 GB; M = 2 to 32 at 16 MB).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.base.errors import WorkloadError
from testbed.workload.builder import StepBuilder
from testbed.workload.draws import draw_below, draw_exponential
from testbed.workload.models.language_models import MODELS, language_model
from testbed.workload.parameters import asked, choice, duration, listed, number, rank, some_ranks, whole
from testbed.workload.requests.token_lengths import draw_between, prompt_lengths
from testbed.workload.steps import Slice, Workload

TOKEN_BYTES = 4
"""A token's number, in a prompt and in an answer."""


def generate_kv_cache_incast(*, ranks: int, prefill: Sequence[int], decode: int, size_bytes: int) -> Workload:
    """Every prefill rank sends a KV cache of `size_bytes` to one decode rank at once."""
    if not prefill:
        raise WorkloadError("an incast needs a prefill rank", field="prefill")
    builder = StepBuilder(ranks)
    for source in prefill:
        builder.transfer(source, decode, size_bytes, label=f"kv-cache.{source}")
    return builder.build("kv-cache-incast")


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Requests to a model, the ranks that serve them, and the KV caches that go between those."""

    model: str = asked(choice("model", "8B", tuple(MODELS), "Names the model whose KV cache it is."))
    requests: int = asked(whole("requests", 16, "Says how many requests arrive.", high=100_000))
    requests_per_s: float = asked(
        number("requests_per_s", 2000, "Says how often requests arrive, in real time.", low=0.001, high=1e9)
    )
    prompt_tokens: tuple[int, ...] = asked(prompt_lengths(128, 1024))
    frontend: int = asked(rank("frontend", 0, "Names the rank that prompts come from."))
    prefill: int | tuple[int, ...] | None = asked(
        some_ranks("prefill", None, "Says how many ranks prefill, or which; by default half of the others.")
    )
    decode: int | tuple[int, ...] | None = asked(
        some_ranks("decode", None, "Says how many ranks decode, or which; by default all that are left.")
    )
    prefill_ns_per_token: int = asked(
        duration("prefill_per_token", "1us", "Says how long a prompt computes for each of its tokens.")
    )
    decode_ns: int = asked(
        duration("decode_time", "100us", "Says how long the first token computes, once all of the cache is there.")
    )
    pieces: int = asked(
        whole("pieces", 4, "Says in how many pieces a KV cache goes, each when its layers are computed.", high=4096)
    )
    value_bytes: int = asked(whole("value_bytes", 2, "Gives the bytes of a value of the cache.", high=8))
    bytes_factor: float = asked(
        number("bytes_factor", 0.01, "Multiplies the bytes of the caches.", low=1e-9, high=1000)
    )


def generate_serving(serving: Serving, *, ranks: int, rng: random.Random) -> Workload:
    """Requests arrive as a Poisson process at the front-end rank (open loop), until their first token is back.

    A prompt has a length drawn evenly between both of `prompt_tokens`. Prefill ranks take requests in turn and work
    through them one by one; the KV cache goes to a decode rank in pieces, each once its layers are computed; after all
    of it, the first token is computed. The time to first token of request i is the end of `request[i].first-token`
    less the start of `request[i].prompt`.
    """
    prefill, decode = _places(serving, ranks)
    model = language_model(serving.model)
    builder = StepBuilder(ranks)
    busy: dict[int, tuple[int, ...]] = {}
    arrival_ns = 0.0
    for request in range(serving.requests):
        label = f"request[{request}]"
        tokens = draw_between(rng, serving.prompt_tokens)
        worker, target = prefill[request % len(prefill)], decode[draw_below(rng, len(decode))]
        arrival_ns += draw_exponential(rng, 1e9 / serving.requests_per_s)
        prompt = builder.transfer(
            serving.frontend, worker, tokens * TOKEN_BYTES, start_ns=int(arrival_ns), label=f"{label}.prompt"
        )
        before = (*busy.get(worker, ()), prompt)
        kv_cache_bytes = model.kv_cache_bytes(tokens, value_bytes=serving.value_bytes)
        size_bytes = max(1, round(kv_cache_bytes * serving.bytes_factor))
        times = Slice(offset=0, length=tokens * serving.prefill_ns_per_token).split(serving.pieces)
        cache = []
        for number_, part in enumerate(Slice(offset=0, length=size_bytes).split(serving.pieces)):
            before = (builder.compute(worker, times[number_].length, after=before, label=f"{label}.prefill"),)
            if part.length:
                cache.append(
                    builder.transfer(worker, target, part.length, after=before, label=f"{label}.kv-cache.{number_}")
                )
        busy[worker] = before
        decoded = builder.compute(target, serving.decode_ns, after=cache, label=f"{label}.decode")
        builder.transfer(target, serving.frontend, TOKEN_BYTES, after=(decoded,), label=f"{label}.first-token")
    if serving.bytes_factor != 1:
        builder.note(f"Of the bytes of the KV caches of {model.name} {serving.bytes_factor:g} are modelled.")
    return builder.build("serving")


def _places(serving: Serving, ranks: int) -> tuple[list[int], list[int]]:
    """The ranks that prefill, and those that decode."""
    others = [rank for rank in range(ranks) if rank != serving.frontend]
    wanted = max(1, len(others) // 2) if serving.prefill is None else serving.prefill
    prefill = listed(wanted, others, "prefill")
    decode = listed(serving.decode, [rank for rank in others if rank not in prefill], "decode")
    different = len({serving.frontend, *prefill, *decode}) == 1 + len(prefill) + len(decode)
    if not prefill or not decode or not different:
        raise WorkloadError("front-end, prefill and decode are different ranks, one of each at least", field="prefill")
    return prefill, decode
