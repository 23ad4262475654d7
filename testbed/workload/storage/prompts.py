"""Prompts whose KV cache is kept: the parameters that their workloads have in common, when they arrive, the bytes of a
block of their caches, and how hosts compute them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Protocol

from testbed.workload.builder import StepBuilder
from testbed.workload.draws import draw_exponential
from testbed.workload.models.language_models import H100_BF16_FLOPS, MODELS, UTILISATION, language_model
from testbed.workload.parameters import choice, duration, number, some_ranks, whole
from testbed.workload.steps import FirstToken, Workload

BLOCK_TOKENS = 512
"""The tokens of a block. Source: Qin et al., "Mooncake", FAST 2025."""

MODEL = choice("model", "8B", tuple(MODELS), "Names the model whose KV cache it is.")
PREFILLING = some_ranks("hosts", None, "Says how many ranks prefill, or which; by default all that are not storage.")
REQUESTS = whole("requests", 32, "Says how many prompts arrive.", high=100_000)
REQUESTS_PER_S = number(
    "requests_per_s", 20, "Says how often prompts arrive at all hosts together.", low=0.001, high=1e9
)
ACCELERATORS = whole("accelerators", 8, "Says how many H100 a host has, which compute a prompt together.", high=1024)
IN_FLIGHT = whole("in_flight", 16, "Says how many blocks of a host are read, and written, at once.", high=100_000)
TTFT_LIMIT = duration("ttft_limit", "2s", "Gives the longest time to first token of a prompt that counts as goodput.")
VALUE_BYTES = whole("value_bytes", 2, "Gives the bytes of a value of the cache.", high=8)
BYTES_FACTOR = number(
    "bytes_factor",
    0.001,
    "Multiplies the bytes of the caches and all times, those between prompts and the limit too, so that rates stay.",
    low=1e-9,
    high=1000,
)


class PromptParameters(Protocol):
    """The values of the parameters above that every workload of prompts has."""

    @property
    def model(self) -> str: ...
    @property
    def requests(self) -> int: ...
    @property
    def requests_per_s(self) -> float: ...
    @property
    def accelerators(self) -> int: ...
    @property
    def ttft_limit_ns(self) -> int: ...
    @property
    def value_bytes(self) -> int: ...
    @property
    def bytes_factor(self) -> float: ...


class Prompts:
    """The prompts of a workload that is being built: each host computes those that it gets one after the other."""

    def __init__(self, asked: PromptParameters, builder: StepBuilder) -> None:
        self._asked = asked
        self._builder = builder
        self._model = language_model(asked.model)
        block = self._model.kv_cache_bytes(BLOCK_TOKENS, value_bytes=asked.value_bytes)
        self.block_bytes = max(1, round(block * asked.bytes_factor))
        self._token_s = self._model.forward_flops(1) / (H100_BF16_FLOPS * UTILISATION * asked.accelerators)
        self._latest: dict[int, tuple[int, ...]] = {}
        self._first_tokens: list[FirstToken] = []

    def arrivals_ns(self, rng: random.Random, *, after_ns: int = 0) -> Iterator[int]:
        """Yield when each prompt arrives: as a Poisson process (open loop), that begins at `after_ns`."""
        at_s = 0.0
        for _ in range(self._asked.requests):
            at_s += draw_exponential(rng, 1 / self._asked.requests_per_s)
            yield round((at_s * 1e9 + after_ns) * self._asked.bytes_factor)

    def prefill(self, host: int, tokens: int, *, read: Sequence[int], at_ns: int, label: str) -> int:
        """Have a host compute these tokens of a prompt once what it reads is there; return that step."""
        factor = self._asked.bytes_factor
        compute_ns = round(tokens * self._token_s * 1e9 * factor)
        after = [*read, *self._latest.get(host, ())]
        computed = self._builder.compute(host, compute_ns, after=after, start_ns=at_ns, label=f"{label}.prefill")
        self._latest[host] = (computed,)
        limit_ns = round(self._asked.ttft_limit_ns * factor)
        self._first_tokens.append(FirstToken(step=computed, due_ns=at_ns, service_ns=compute_ns, limit_ns=limit_ns))
        return computed

    def build(self, kind: str) -> Workload:
        """Return the workload, with the first token of each prompt."""
        factor = self._asked.bytes_factor
        if factor != 1:
            self._builder.note(
                f"Of the bytes of the KV caches of {self._model.name}, and of all times, {factor:g} are modelled."
            )
        return self._builder.build(kind, first_tokens=self._first_tokens)
