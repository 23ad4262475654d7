"""Kinds of inference: requests over HTTP, serving, KV caches that meet at one rank."""

from __future__ import annotations

from testbed.workload.kinds.kind import FabricView, WorkloadKind, built_by
from testbed.workload.models.inference import Serving, generate_kv_cache_incast, generate_serving
from testbed.workload.parameters import Values, listed, parameters_of, rank, size, some_ranks
from testbed.workload.requests.inference_requests import InferenceRequests, generate_inference_requests


def _prefill(values: Values, fabric: FabricView) -> list[int]:
    others = [rank for rank in range(fabric.ranks) if rank != values.whole("decode")]
    return listed(values.some_ranks("prefill"), others, "prefill")


KINDS = (
    WorkloadKind(
        name="inference",
        description="Prompts arrive (open loop), and KV caches go from prefill to decode ranks.",
        parameters=parameters_of(Serving),
        build=built_by(generate_serving, Serving),
    ),
    WorkloadKind(
        name="inference-requests",
        description="Clients ask servers over HTTP (open loop), which answer token by token.",
        parameters=parameters_of(InferenceRequests),
        build=built_by(generate_inference_requests, InferenceRequests),
        over_http=True,
    ),
    WorkloadKind(
        name="kv-cache-incast",
        description="Prefill ranks send a KV cache each to one decode rank at once.",
        parameters=(
            size("bytes", "16MB", "Gives the size of each KV cache."),
            rank("decode", 0, "Names the rank that receives."),
            some_ranks("prefill", None, "Says how many ranks prefill, or which; by default all others."),
        ),
        build=built_by(generate_kv_cache_incast, prefill=_prefill),
    ),
)
