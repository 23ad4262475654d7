"""Kinds of storage: checkpoints, datasets read while accelerators compute, weights of models, KV caches, fio's jobs."""

from __future__ import annotations

from testbed.base.errors import WorkloadError
from testbed.workload.kinds.kind import Fabric, WorkloadKind
from testbed.workload.parameters import Values, parameters_of
from testbed.workload.steps import Workload
from testbed.workload.storage import (
    Checkpoint,
    DatasetStreaming,
    FioJobs,
    KvOffload,
    Staging,
    generate_checkpoint,
    generate_dataset_streaming,
    generate_fio_jobs,
    generate_kv_offload,
    generate_staging,
)


def _checkpoint(values: Values, fabric: Fabric) -> Workload:
    if values.given("model") and values.given("bytes"):
        raise WorkloadError("the bytes follow from the model", field="bytes")
    return generate_checkpoint(values.make(Checkpoint), ranks=fabric.ranks)


def _dataset_streaming(values: Values, fabric: Fabric) -> Workload:
    return generate_dataset_streaming(values.make(DatasetStreaming), ranks=fabric.ranks, rng=fabric.rng)


def _model_staging(values: Values, fabric: Fabric) -> Workload:
    return generate_staging(values.make(Staging), ranks=fabric.ranks)


def _kv_offload(values: Values, fabric: Fabric) -> Workload:
    return generate_kv_offload(values.make(KvOffload), ranks=fabric.ranks, rng=fabric.rng)


def _fio(values: Values, fabric: Fabric) -> Workload:
    return generate_fio_jobs(values.make(FioJobs), ranks=fabric.ranks)


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
        build=_dataset_streaming,
    ),
    WorkloadKind(
        name="model-staging",
        description="Hosts load the weights of a model from storage, all of them or one for each group.",
        parameters=parameters_of(Staging),
        build=_model_staging,
    ),
    WorkloadKind(
        name="kv-offload",
        description="Prompts arrive (open loop), read what was seen before of their KV caches, and write the rest.",
        parameters=parameters_of(KvOffload),
        build=_kv_offload,
    ),
    WorkloadKind(
        name="fio",
        description="Hosts run jobs of fio against storage targets: rw, bs, iodepth, numjobs, size, runtime and so on.",
        parameters=parameters_of(FioJobs),
        build=_fio,
        by_fio=True,
    ),
)
