"""A training step in three dimensions: pipelined micro-batches, tensor-parallel AllReduces, then the gradients.

Every rank computes a pass, sums it with its tensor-parallel group and hands it to the next stage; after its last
backward pass the gradients are summed over the data-parallel group. Passes of the next step wait for that.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from testbed.errors import WorkloadError
from testbed.workload.builder import Frontier, StepBuilder
from testbed.workload.collectives.algorithms import Algorithm, Kind, add_collective
from testbed.workload.collectives.datatype import DataType
from testbed.workload.models.language_models import MODELS, LanguageModel, TrainingVolumes, training_volumes
from testbed.workload.models.layout import ParallelLayout
from testbed.workload.models.pipeline import Pass, Schedule, schedule_of
from testbed.workload.steps import Slice, Workload

_DATA_TYPE = DataType.BFLOAT16


@dataclass(slots=True, kw_only=True)
class _Progress:
    """While steps are added: what each rank's next pass waits for, what came from other stages, buckets ready."""

    done: Frontier
    arrived: dict[tuple[bool, int, int], tuple[int, ...]] = field(default_factory=dict)
    """By direction, micro-batch and receiving rank."""
    passed: set[tuple[bool, int, int]] = field(default_factory=set)
    """By direction, micro-batch and stage."""
    buckets: dict[int, list[int]] = field(default_factory=dict)
    """The pieces of a rank's last backward pass."""


def generate_training_step(
    *,
    layout: ParallelLayout,
    volumes: TrainingVolumes,
    micro_batches: int,
    schedule: Schedule | str = Schedule.ONE_FORWARD_ONE_BACKWARD,
    ranks_per_host: int = 0,
    steps: int = 1,
    buckets: int = 1,
    sharded: bool = False,
    data_algorithm: Algorithm | str | None = None,
    name: str = "training-step",
) -> Workload:
    """`steps` training steps, one after the other.

    `buckets` cuts the gradients, each part being summed once its part of the last backward pass is done, so that only
    the last one is exposed. `sharded` sums them by ReduceScatter and AllGather (ZeRO) and not by AllReduce; then
    `data_algorithm` must suit both.
    """
    if steps < 1 or buckets < 1:
        raise WorkloadError("there is at least one step, and one bucket of gradients", field="steps")
    builder = StepBuilder(layout.ranks, ranks_per_host=ranks_per_host)
    if volumes.tensor_forward_bytes and layout.tensor > 1:
        builder.note("The tensor-parallel AllReduces of a pass through a stage are one of the same total size.")
    done: Frontier = dict.fromkeys(range(layout.ranks), ())
    for step in range(steps):
        progress = _Progress(done=done)
        label = f"step{step}"
        _add_passes(builder, layout, volumes, schedule, micro_batches, progress, buckets=buckets, label=label)
        done = _add_gradients(
            builder, layout, volumes.gradient_bytes, progress, sharded=sharded, algorithm=data_algorithm, label=label
        )
    return builder.build(name)


def generate_model_training(
    model: LanguageModel | str,
    *,
    layout: ParallelLayout,
    micro_batches: int,
    micro_batch: int = 1,
    bytes_factor: float = 1.0,
    time_factor: float = 1.0,
    schedule: Schedule | str = Schedule.ONE_FORWARD_ONE_BACKWARD,
    ranks_per_host: int = 0,
    steps: int = 1,
    buckets: int = 1,
    sharded: bool = False,
) -> Workload:
    """A training step of a model ("8B", "70B", "405B", "175B" or one's own), its bytes and times scaled to the lab."""
    if isinstance(model, str):
        if model not in MODELS:
            raise WorkloadError(f"no model of size {model!r} is known (one of {', '.join(MODELS)})", field="model")
        model = MODELS[model]
    volumes = training_volumes(model, layout, micro_batch=micro_batch)
    return generate_training_step(
        layout=layout,
        volumes=volumes.scaled(bytes_factor=bytes_factor, time_factor=time_factor),
        micro_batches=micro_batches,
        schedule=schedule,
        ranks_per_host=ranks_per_host,
        steps=steps,
        buckets=buckets,
        sharded=sharded,
        name=f"training {model.name}",
    )


def generate_pipeline(
    *,
    stages: int,
    micro_batches: int,
    size_bytes: int,
    forward_ns: int = 0,
    backward_ns: int = 0,
    schedule: Schedule | str = Schedule.ONE_FORWARD_ONE_BACKWARD,
    steps: int = 1,
) -> Workload:
    """Pipeline parallelism alone: activations of `size_bytes` from stage to stage, their gradients back."""
    return generate_training_step(
        layout=ParallelLayout(pipeline=stages),
        volumes=TrainingVolumes(activation_bytes=size_bytes, forward_ns=forward_ns, backward_ns=backward_ns),
        micro_batches=micro_batches,
        schedule=schedule,
        steps=steps,
        name="pipeline",
    )


def _add_passes(
    builder: StepBuilder,
    layout: ParallelLayout,
    volumes: TrainingVolumes,
    schedule: Schedule | str,
    micro_batches: int,
    progress: _Progress,
    *,
    buckets: int,
    label: str,
) -> None:
    """Add all stages' passes, each once the pass that it needs from another stage has been added."""
    stages = layout.pipeline
    queues = [
        schedule_of(schedule, stage=stage, stages=stages, micro_batches=micro_batches)[::-1] for stage in range(stages)
    ]
    while any(queues):
        for stage, queue in enumerate(queues):
            while queue and _is_ready(queue[-1], stage, stages, progress):
                one = queue.pop()
                _add_pass(builder, layout, volumes, one, stage, progress, parts=1 if queue else buckets, label=label)
                progress.passed.add((one.backward, one.micro_batch, stage))


def _is_ready(one: Pass, stage: int, stages: int, progress: _Progress) -> bool:
    if one.backward:
        return stage == stages - 1 or (True, one.micro_batch, stage + 1) in progress.passed
    return stage == 0 or (False, one.micro_batch, stage - 1) in progress.passed


def _add_pass(
    builder: StepBuilder,
    layout: ParallelLayout,
    volumes: TrainingVolumes,
    one: Pass,
    stage: int,
    progress: _Progress,
    *,
    parts: int,
    label: str,
) -> None:
    way = "backward" if one.backward else "forward"
    label = f"{label}.{way}.mb{one.micro_batch}.stage{stage}"
    duration_ns = volumes.backward_ns if one.backward else volumes.forward_ns
    tensor_bytes = volumes.tensor_backward_bytes if one.backward else volumes.tensor_forward_bytes
    neighbour = stage - 1 if one.backward else stage + 1
    for data in range(layout.data):
        group = layout.tensor_group(pipeline=stage, data=data)
        for rank in group:
            before = progress.done[rank] + progress.arrived.pop((one.backward, one.micro_batch, rank), ())
            pieces: list[int] = []
            for part in Slice(offset=0, length=duration_ns).split(parts):
                before = (builder.compute(rank, part.length, after=before, label=label),)
                pieces.extend(before)
            progress.done[rank] = before
            progress.buckets[rank] = pieces
        if len(group) > 1 and tensor_bytes:
            entry = {rank: progress.done[rank] for rank in group}
            summed = add_collective(
                builder,
                Kind.ALL_REDUCE,
                members=group,
                size_bytes=tensor_bytes,
                datatype=_DATA_TYPE,
                after=entry,
                label=f"{label}.tensor",
            )
            progress.done.update(builder.join_all(group, summed))
        if 0 <= neighbour < layout.pipeline and volumes.activation_bytes:
            for tensor, rank in enumerate(group):
                other = layout.rank(tensor=tensor, pipeline=neighbour, data=data)
                sent = builder.transfer(
                    rank, other, volumes.activation_bytes, after=progress.done[rank], label=f"{label}.pipeline"
                )
                progress.arrived[one.backward, one.micro_batch, other] = (sent,)


def _add_gradients(
    builder: StepBuilder,
    layout: ParallelLayout,
    size_bytes: int,
    progress: _Progress,
    *,
    sharded: bool,
    algorithm: Algorithm | str | None,
    label: str,
) -> Frontier:
    """Sums the gradients of each part over the data-parallel ranks; returns what the next step waits for."""
    done = dict(progress.done)
    if layout.data == 1 or size_bytes == 0:
        return done
    kinds = (Kind.REDUCE_SCATTER, Kind.ALL_GATHER) if sharded else (Kind.ALL_REDUCE,)
    for stage in range(layout.pipeline):
        for tensor in range(layout.tensor):
            group = layout.data_group(tensor=tensor, pipeline=stage)
            elements = Slice(offset=0, length=size_bytes // _DATA_TYPE.size_bytes)
            parts = elements.split(len(progress.buckets[group[0]]))
            for bucket, part in enumerate(parts):
                if part.length == 0:
                    continue
                ready: Frontier = {rank: (progress.buckets[rank][bucket],) for rank in group}
                for kind in kinds:
                    ready = add_collective(
                        builder,
                        kind,
                        members=group,
                        size_bytes=part.length * _DATA_TYPE.size_bytes,
                        datatype=_DATA_TYPE,
                        algorithm=algorithm,
                        after=ready,
                        label=f"{label}.gradients.{bucket}.{kind}",
                    )
                for rank in group:
                    done[rank] += ready[rank]
    return builder.join_all(range(layout.ranks), done)
