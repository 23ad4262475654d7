"""Kinds of storage: checkpoints, datasets read while accelerators compute, weights of models, KV caches, fio's jobs."""

from __future__ import annotations

from testbed.base.errors import WorkloadError
from testbed.workload.kinds.kind import FabricView, WorkloadKind, built_by
from testbed.workload.parameters import Values, parameters_of
from testbed.workload.steps import Workload
from testbed.workload.storage import (
    Checkpoint,
    DatasetStreaming,
    FioJobs,
    KvOffload,
    PrefixCache,
    Staging,
    generate_checkpoint,
    generate_dataset_streaming,
    generate_fio_jobs,
    generate_kv_offload,
    generate_prefix_cache,
    generate_staging,
)


def _checkpoint(values: Values, fabric: FabricView) -> Workload:
    if values.given("model") and values.given("bytes"):
        raise WorkloadError("the bytes follow from the model", field="bytes")
    return generate_checkpoint(values.make(Checkpoint), ranks=fabric.ranks)


KINDS = (
    WorkloadKind(
        name="checkpoint",
        description="Ranks write to few storage ranks, periodically, or read back (restart).",
        parameters=parameters_of(Checkpoint),
        build=_checkpoint,
    ),
    WorkloadKind(
        name="dataset-streaming",
        description="Hosts read batches of a dataset from storage, shuffled, while their accelerators compute.",
        parameters=parameters_of(DatasetStreaming),
        build=built_by(generate_dataset_streaming, DatasetStreaming),
    ),
    WorkloadKind(
        name="model-staging",
        description="Hosts load the weights of a model from storage, all of them or one for each group.",
        parameters=parameters_of(Staging),
        build=built_by(generate_staging, Staging),
    ),
    WorkloadKind(
        name="kv-offload",
        description="Prompts arrive (open loop), read what was seen before of their KV caches, and write the rest.",
        parameters=parameters_of(KvOffload),
        build=built_by(generate_kv_offload, KvOffload),
    ),
    WorkloadKind(
        name="prefix-cache",
        description="Beginnings of prompts are kept once for all hosts to read, or by each host for itself.",
        parameters=parameters_of(PrefixCache),
        build=built_by(generate_prefix_cache, PrefixCache),
    ),
    WorkloadKind(
        name="fio",
        description="Hosts run jobs of fio against storage targets: rw, bs, iodepth, numjobs, size, runtime and so on.",
        parameters=parameters_of(FioJobs),
        build=built_by(generate_fio_jobs, FioJobs),
        by_fio=True,
    ),
)
