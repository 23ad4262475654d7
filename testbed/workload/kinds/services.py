"""Kinds of inference: requests over HTTP, serving, KV caches that meet at one rank."""

from __future__ import annotations

from testbed.workload.kinds.kind import Fabric, WorkloadKind
from testbed.workload.models.inference import Serving, generate_kv_cache_incast, generate_serving
from testbed.workload.parameters import Values, listed, parameters_of, rank, size, some_ranks
from testbed.workload.requests.inference_requests import InferenceRequests, generate_inference_requests
from testbed.workload.steps import Workload


def _kv_cache_incast(values: Values, fabric: Fabric) -> Workload:
    decode = values.whole("decode")
    others = [rank for rank in range(fabric.ranks) if rank != decode]
    return generate_kv_cache_incast(
        ranks=fabric.ranks,
        prefill=listed(values.some_ranks("prefill"), others, "prefill"),
        decode=decode,
        size_bytes=values.bytes("bytes"),
    )


def _serving(values: Values, fabric: Fabric) -> Workload:
    return generate_serving(values.make(Serving), ranks=fabric.ranks, rng=fabric.rng)


def _inference_requests(values: Values, fabric: Fabric) -> Workload:
    return generate_inference_requests(values.make(InferenceRequests), ranks=fabric.ranks, rng=fabric.rng)


KINDS = (
    WorkloadKind(
        name="inference",
        description="Prompts arrive (open loop), and KV caches go from prefill to decode ranks.",
        parameters=parameters_of(Serving),
        build=_serving,
    ),
    WorkloadKind(
        name="inference-requests",
        description="Clients ask servers over HTTP (open loop), which answer token by token.",
        parameters=parameters_of(InferenceRequests),
        build=_inference_requests,
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
        build=_kv_cache_incast,
    ),
)
