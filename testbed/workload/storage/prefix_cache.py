"""A cache of prefixes that many hosts read: keys and values of beginnings that prompts have in common.

One host computes each prefix once and keeps it in memory that the others may read and not write; a host whose prompt
begins with it loads its blocks and computes the rest. Without `shared` each host keeps a copy of its own.

Source: Zheng et al., "SGLang: Efficient execution of structured language model programs", NeurIPS 2024, section 3:
prompts share their beginnings, such as instructions and examples. Blocks are those of `kv_offload`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from testbed.base.errors import WorkloadError
from testbed.workload.builder import Lane, StepBuilder
from testbed.workload.draws import draw_below
from testbed.workload.parameters import asked, duration, flag, whole
from testbed.workload.requests.token_lengths import draw_between, prompt_lengths
from testbed.workload.steps import Workload
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
    Prompts,
)

NEWS_BYTES = 64
"""The message by which the host that keeps prefixes tells another one that they are there: a line of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixCache:
    """Prefixes that are kept, and prompts that begin with them."""

    model: str = asked(MODEL)
    storage: int | tuple[int, ...] = asked(STORAGE)
    hosts: int | tuple[int, ...] | None = asked(PREFILLING)
    shared: bool = asked(
        flag("shared", "Says whether the first host keeps prefixes for all; else each has its own copy.", default=True)
    )
    prefixes: int = asked(whole("prefixes", 4, "Says how many prefixes there are.", high=10_000))
    blocks: int = asked(whole("blocks", 8, "Says how many blocks of 512 tokens a prefix has.", high=10_000))
    requests: int = asked(REQUESTS)
    requests_per_s: float = asked(REQUESTS_PER_S)
    warm_up_ns: int = asked(
        duration("warm_up", "1s", "Gives the time from the begin until prompts arrive: prefixes are written meanwhile.")
    )
    lease_ns: int | None = asked(
        duration(
            "lease",
            None,
            "Gives the time from the begin after which the first host lets nobody else read its prefixes; by default"
            " there is none.",
        )
    )
    prompt_tokens: tuple[int, ...] = asked(prompt_lengths(64, 1024))
    accelerators: int = asked(ACCELERATORS)
    in_flight: int = asked(IN_FLIGHT)
    ttft_limit_ns: int = asked(TTFT_LIMIT)
    value_bytes: int = asked(VALUE_BYTES)
    bytes_factor: float = asked(BYTES_FACTOR)


def generate_prefix_cache(cache: PrefixCache, *, ranks: int, rng: random.Random) -> Workload:
    """Prefixes are written first, block by block to one storage rank after the other, and other hosts are told.

    Then prompts arrive as a Poisson process (open loop), each at a host and with a prefix that are drawn evenly, and a
    rest whose length is. The prefix is read, the rest computed behind what its host computes already. With a `lease`,
    reads by other hosts that come later than its end are refused, by a transport that has grants.
    """
    targets, hosts = storage_and_users(
        cache.storage, cache.hosts, ranks=ranks, name="hosts", what="a cache of prefixes"
    )
    if not cache.requests:
        raise WorkloadError("nobody reads the prefixes", field="requests")
    builder = StepBuilder(ranks)
    prompts = Prompts(cache, builder)
    count = cache.prefixes * cache.blocks
    written = {
        owner: [
            builder.transfer(
                owner,
                targets[block % len(targets)],
                prompts.block_bytes,
                lane=Lane(name="writes", in_flight=cache.in_flight),
                label=f"keep.{owner}.{block}",
            )
            for block in range(count)
        ]
        for owner in (hosts[:1] if cache.shared else hosts)
    }
    there = {owner: tuple(steps) for owner, steps in written.items()}
    for reader in hosts[1:] if cache.shared else ():
        there[reader] = (builder.transfer(hosts[0], reader, NEWS_BYTES, after=there[hosts[0]], label=f"told.{reader}"),)
    if cache.lease_ns is not None:
        if not cache.shared:
            raise WorkloadError("what each host keeps for itself nobody else reads", field="lease")
        for target in targets:
            builder.transfer(
                hosts[0],
                target,
                NEWS_BYTES,
                after=there[hosts[0]],
                start_ns=round(cache.lease_ns * cache.bytes_factor),
                withdraws=True,
                label="lease",
            )
    for index, at_ns in enumerate(prompts.arrivals_ns(rng, after_ns=cache.warm_up_ns)):
        host, prefix = hosts[draw_below(rng, len(hosts))], draw_below(rng, cache.prefixes)
        owner = hosts[0] if cache.shared else host
        label = f"prompt[{index}]"
        read = [
            builder.transfer(
                targets[block % len(targets)],
                host,
                prompts.block_bytes,
                after=there[host],
                start_ns=at_ns,
                lane=Lane(name="reads", in_flight=cache.in_flight),
                pulled=True,
                restores=written[owner][block],
                label=f"{label}.read.{block}",
            )
            for block in range(prefix * cache.blocks, (prefix + 1) * cache.blocks)
        ]
        prompts.prefill(host, draw_between(rng, cache.prompt_tokens), read=read, at_ns=at_ns, label=label)
    return prompts.build("prefix-cache")
