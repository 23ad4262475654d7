"""KV caches on storage: a prompt whose beginning was seen before reads its keys and values, and computes the rest.

A prompt has blocks of tokens. Those that were seen before are read from storage, and what is missing is computed and
written there for later prompts, beside the reads of others. The first token is there when all is, and has a deadline.

Source: Qin et al., "Mooncake: Trading more storage for less computation", FAST 2025: blocks of 512 tokens, prompts of
7,590 tokens on average, hit ratios of 30 % to 50 % (its trace of conversations).
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from testbed.workload.builder import Lane, StepBuilder
from testbed.workload.draws import draw_below
from testbed.workload.parameters import asked, number
from testbed.workload.requests.token_lengths import draw_between, prompt_lengths
from testbed.workload.steps import Workload
from testbed.workload.storage.places import STORAGE, storage_and_users
from testbed.workload.storage.prompts import (
    ACCELERATORS,
    BLOCK_TOKENS,
    BYTES_FACTOR,
    IN_FLIGHT,
    MODEL,
    PREFILLING,
    REQUESTS,
    REQUESTS_PER_S,
    TTFT_LIMIT,
    VALUE_BYTES,
    Prompts,
)


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


def generate_kv_offload(offload: KvOffload, *, ranks: int, rng: random.Random) -> Workload:
    """Prompts arrive as a Poisson process (open loop), each at a host that is drawn, with a length drawn evenly.

    Its blocks of 512 tokens that were seen before are read from one storage rank after the other, then what is left
    is computed, behind what the host computes already, and its whole blocks are written.
    """
    targets, hosts = storage_and_users(
        offload.storage, offload.hosts, ranks=ranks, name="hosts", what="offloading KV caches"
    )
    builder = StepBuilder(ranks)
    prompts = Prompts(offload, builder)
    for index, at_ns in enumerate(prompts.arrivals_ns(rng)):
        tokens = draw_between(rng, offload.prompt_tokens)
        hits = sum(rng.random() < offload.hit_ratio for _ in range(tokens // BLOCK_TOKENS))
        label, host = f"prompt[{index}]", hosts[draw_below(rng, len(hosts))]
        first = draw_below(rng, len(targets))
        read = [
            builder.transfer(
                targets[(first + block) % len(targets)],
                host,
                prompts.block_bytes,
                start_ns=at_ns,
                lane=Lane(name="reads", in_flight=offload.in_flight),
                pulled=True,
                label=f"{label}.read.{block}",
            )
            for block in range(hits)
        ]
        computed = prompts.prefill(host, tokens - hits * BLOCK_TOKENS, read=read, at_ns=at_ns, label=label)
        for block in range(hits, tokens // BLOCK_TOKENS):
            builder.transfer(
                host,
                targets[(first + block) % len(targets)],
                prompts.block_bytes,
                after=(computed,),
                lane=Lane(name="writes", in_flight=offload.in_flight),
                label=f"{label}.write.{block}",
            )
    return prompts.build("kv-offload")
