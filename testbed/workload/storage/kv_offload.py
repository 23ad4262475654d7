"""KV caches on storage: a prompt whose beginning was seen before reads its keys and values, and computes the rest.

A prompt has blocks of tokens. Those that were seen before are read from storage, and what is missing is computed and
written there for later prompts, beside the reads of others. The first token is there when all is, and has a deadline.

Source: Qin et al., "Mooncake: Trading more storage for less computation", FAST 2025: blocks of 512 tokens, prompts of
7,590 tokens on average, hit ratios of 30 % to 50 % (its trace of conversations).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from testbed.workload.builder import Lane, StepBuilder
from testbed.workload.draws import draw_below, draw_exponential
from testbed.workload.models.language_models import H100_BF16_FLOPS, UTILISATION, language_model
from testbed.workload.parameters import asked, number
from testbed.workload.requests.token_lengths import draw_between, prompt_lengths
from testbed.workload.steps import FirstToken, Workload
from testbed.workload.storage.places import STORAGE, storage_and_users
from testbed.workload.storage.prompts import (
    ACCELERATORS,
    BYTES_FACTOR,
    IN_FLIGHT,
    MODEL,
    PREFILLING,
    REQUESTS,
    REQUESTS_PER_S,
    TTFT_LIMIT,
    VALUE_BYTES,
)

BLOCK_TOKENS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class KvOffload:
    """Prompts that arrive, how much of them was seen before, and who computes them."""

    model: str = asked(MODEL)
    storage: int | tuple[int, ...] = asked(STORAGE)
    hosts: int | tuple[int, ...] | None = asked(PREFILLING)
    requests: int = asked(REQUESTS)
    requests_per_s: float = asked(REQUESTS_PER_S)
    prompt_tokens: tuple[int, ...] = asked(prompt_lengths(BLOCK_TOKENS, 14_668))
    hit_ratio: float = asked(
        number("hit_ratio", 0.5, "Gives the probability that a block was seen before, and is read.", low=0, high=1)
    )
    accelerators: int = asked(ACCELERATORS)
    in_flight: int = asked(IN_FLIGHT)
    ttft_limit_ns: int = asked(TTFT_LIMIT)
    value_bytes: int = asked(VALUE_BYTES)
    bytes_factor: float = asked(BYTES_FACTOR)


@dataclass(frozen=True, slots=True)
class _Prompt:
    host: int
    at_ns: int
    tokens: int
    hits: int


def generate_kv_offload(offload: KvOffload, *, ranks: int, rng: random.Random) -> Workload:
    """Prompts arrive as a Poisson process (open loop), each at a host that is drawn, with a length drawn evenly.

    Its blocks of 512 tokens that were seen before are read from one storage rank after the other, then what is left
    is computed, behind what the host computes already, and its whole blocks are written.
    """
    targets, hosts = storage_and_users(
        offload.storage, offload.hosts, ranks=ranks, name="hosts", what="offloading KV caches"
    )
    model, factor = language_model(offload.model), offload.bytes_factor
    block_bytes = max(1, round(model.kv_cache_bytes(BLOCK_TOKENS, value_bytes=offload.value_bytes) * factor))
    token_s = model.forward_flops(1) / (H100_BF16_FLOPS * UTILISATION * offload.accelerators)
    builder = StepBuilder(ranks)
    busy: dict[int, tuple[int, ...]] = {}
    asked_for = []
    for index, prompt in enumerate(_draw(offload, hosts, rng)):
        label, host = f"prompt[{index}]", prompt.host
        first = draw_below(rng, len(targets))
        read = [
            builder.transfer(
                targets[(first + block) % len(targets)],
                host,
                block_bytes,
                start_ns=prompt.at_ns,
                lane=Lane(name="reads", in_flight=offload.in_flight),
                pulled=True,
                label=f"{label}.read.{block}",
            )
            for block in range(prompt.hits)
        ]
        compute_ns = round((prompt.tokens - prompt.hits * BLOCK_TOKENS) * token_s * 1e9 * factor)
        computed = builder.compute(
            host, compute_ns, after=[*read, *busy.get(host, ())], start_ns=prompt.at_ns, label=f"{label}.prefill"
        )
        busy[host] = (computed,)
        asked_for.append(
            FirstToken(
                step=computed,
                due_ns=prompt.at_ns,
                service_ns=compute_ns,
                limit_ns=round(offload.ttft_limit_ns * factor),
            )
        )
        for block in range(prompt.hits, prompt.tokens // BLOCK_TOKENS):
            builder.transfer(
                host,
                targets[(first + block) % len(targets)],
                block_bytes,
                after=(computed,),
                lane=Lane(name="writes", in_flight=offload.in_flight),
                label=f"{label}.write.{block}",
            )
    if factor != 1:
        builder.note(f"Of the bytes of the KV caches of {model.name}, and of all times, {factor:g} are modelled.")
    return builder.build("kv-offload", first_tokens=asked_for)


def _draw(offload: KvOffload, hosts: list[int], rng: random.Random) -> Iterator[_Prompt]:
    """Yield the prompts in the order in which they arrive."""
    at_s = 0.0
    for _ in range(offload.requests):
        at_s += draw_exponential(rng, 1 / offload.requests_per_s)
        tokens = draw_between(rng, offload.prompt_tokens)
        hits = sum(rng.random() < offload.hit_ratio for _ in range(tokens // BLOCK_TOKENS))
        yield _Prompt(hosts[draw_below(rng, len(hosts))], round(at_s * 1e9 * offload.bytes_factor), tokens, hits)
