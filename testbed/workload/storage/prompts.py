"""Parameters of workloads of prompts whose KV cache is kept: model, arrivals, accelerators, deadline and sizes."""

from __future__ import annotations

from testbed.workload.models.language_models import MODELS
from testbed.workload.parameters import choice, duration, number, some_ranks, whole

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
