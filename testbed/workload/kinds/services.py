"""Kinds of inference and storage: serving, KV caches that meet at one rank, checkpoints."""

from __future__ import annotations

from dataclasses import replace

from testbed.errors import WorkloadError
from testbed.workload.kinds.kind import Fabric, WorkloadKind, listed
from testbed.workload.kinds.training import model_choice
from testbed.workload.models.inference import generate_kv_cache_incast, generate_serving
from testbed.workload.models.language_models import MODELS
from testbed.workload.parameters import (
    Parameter,
    ParameterType,
    Values,
    choice,
    duration,
    flag,
    number,
    rank,
    size,
    some_ranks,
    whole,
)
from testbed.workload.steps import Workload
from testbed.workload.storage import checkpoint_bytes_per_rank, generate_checkpoint


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
    frontend = values.whole("frontend")
    others = [rank for rank in range(fabric.ranks) if rank != frontend]
    prefill = values.some_ranks("prefill")
    workers = listed(max(1, len(others) // 2) if prefill is None else prefill, others, "prefill")
    left = [rank for rank in others if rank not in workers]
    prompt = values.value("prompt_tokens")
    if len(prompt) != 2:
        raise WorkloadError("prompt_tokens are the shortest and the longest prompt", field="prompt_tokens")
    factor = values.number("bytes_factor")
    model = MODELS[values.text("model")]
    workload = generate_serving(
        ranks=fabric.ranks,
        frontend=frontend,
        prefill=workers,
        decode=listed(values.some_ranks("decode"), left, "decode"),
        model=model,
        requests=values.whole("requests"),
        requests_per_s=values.number("requests_per_s"),
        prompt_tokens=(prompt[0], prompt[1]),
        rng=fabric.rng,
        prefill_ns_per_token=values.ns("prefill_per_token"),
        decode_ns=values.ns("decode_time"),
        pieces=values.whole("pieces"),
        value_bytes=values.whole("value_bytes"),
        bytes_factor=factor,
    )
    if factor == 1:
        return workload
    note = f"Of the bytes of the KV caches of {model.name} {factor:g} are modelled."
    return replace(workload, notes=(*workload.notes, note))


def _checkpoint(values: Values, fabric: Fabric) -> Workload:
    which = values.some_ranks("storage")
    storage = list(range(fabric.ranks))[-which:] if isinstance(which, int) else list(which or ())
    writers = values.some_ranks("writers")
    others = [rank for rank in range(fabric.ranks) if rank not in storage]
    sources = listed(writers, others, "writers")
    notes: tuple[str, ...] = ()
    if values.given("model"):
        if values.given("bytes"):
            raise WorkloadError("the bytes follow from the model", field="bytes")
        model, factor = MODELS[values.text("model")], values.number("bytes_factor")
        whole_bytes = checkpoint_bytes_per_rank(model.parameters, len(sources) or 1)
        size_bytes = max(1, round(whole_bytes * factor))
        notes = (f"Of the bytes of a checkpoint of {model.name} {factor:g} are modelled.",)
    else:
        size_bytes = values.bytes("bytes")
    workload = generate_checkpoint(
        ranks=fabric.ranks,
        storage=storage,
        size_bytes=size_bytes,
        writers=sources,
        stripes=values.whole("stripes"),
        in_flight=values.whole("in_flight"),
        checkpoints=values.whole("checkpoints"),
        period_ns=values.ns("period"),
        read_back=values.flag("read_back"),
    )
    return replace(workload, notes=(*workload.notes, *notes))


KINDS = (
    WorkloadKind(
        name="inference",
        description="Prompts arrive (open loop), and KV caches go from prefill to decode ranks.",
        parameters=(
            choice("model", "8B", tuple(MODELS), "Names the model whose KV cache it is."),
            whole("requests", 16, "Says how many requests arrive.", high=100_000),
            number("requests_per_s", 2000, "Says how often requests arrive, in real time.", low=0.001, high=1e9),
            Parameter(
                name="prompt_tokens",
                type=ParameterType.LIST,
                description="Lists the shortest and the longest prompt, in tokens.",
                default=(128, 1024),
                low=2,
                high=2,
                item=whole("tokens", None, "Counts tokens."),
            ),
            rank("frontend", 0, "Names the rank that prompts come from."),
            some_ranks("prefill", None, "Says how many ranks prefill, or which; by default half of the others."),
            some_ranks("decode", None, "Says how many ranks decode, or which; by default all that are left."),
            duration("prefill_per_token", "1us", "Says how long a prompt computes for each of its tokens."),
            duration("decode_time", "100us", "Says how long the first token computes, once all of the cache is there."),
            whole(
                "pieces", 4, "Says in how many pieces a KV cache goes, each when its layers are computed.", high=4096
            ),
            whole("value_bytes", 2, "Gives the bytes of a value of the cache.", high=8),
            number("bytes_factor", 0.01, "Multiplies the bytes of the caches.", low=1e-9, high=1000),
        ),
        build=_serving,
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
    WorkloadKind(
        name="checkpoint",
        description="Ranks write to few storage ranks, periodically, or read back (restart).",
        parameters=(
            size("bytes", "16MB", "Says what each writer writes."),
            some_ranks("storage", 1, "Says how many ranks (the last ones) are storage, or which."),
            some_ranks("writers", None, "Says how many ranks write, or which; by default all that are not storage."),
            whole(
                "stripes",
                1,
                "Says in how many parts a file is written, to one storage rank after the other.",
                high=100_000,
            ),
            whole("in_flight", 2, "Says how many stripes of a writer are under way at once.", high=100_000),
            whole("checkpoints", 1, "Says how many checkpoints there are.", high=100_000),
            duration("period", "0ns", "Gives the time from the begin of one checkpoint to that of the next."),
            flag("read_back", "Turns the transfers round: a restart."),
            model_choice("Takes the bytes from the optimiser's state of this model, spread over the writers."),
            number("bytes_factor", 0.001, "Multiplies, with a model, its bytes.", low=1e-9, high=1000),
        ),
        build=_checkpoint,
    ),
)
