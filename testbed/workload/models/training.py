"""A training step in three dimensions: pipelined micro-batches, tensor-parallel AllReduces, then the gradients.

Every rank computes a pass, sums it with its tensor-parallel group and hands it to the next stage; after its last
backward pass the gradients are summed over the data-parallel group. Passes of the next step wait for that.

A pipeline's schedule says in which order a stage does its forward and backward passes. Both leave the same bubble, (p -
1) / m of the time of m micro-batches on p stages; 1F1B holds the activations of p micro-batches at most instead of m.
Sources: Huang et al., "GPipe", NeurIPS 2019, figure 2; Narayanan et al., "Efficient large-scale language model training
on GPU clusters using Megatron-LM", SC 2021, section 2.2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from testbed.workload.builder import Frontier, StepBuilder
from testbed.workload.choices import choose
from testbed.workload.collectives.algorithms import add_collective
from testbed.workload.collectives.datatype import DataType
from testbed.workload.collectives.operation import Algorithm, CollectiveKind, CollectiveOperation, hyphenated
from testbed.workload.models.language_models import TrainingVolumes
from testbed.workload.models.layout import ParallelLayout
from testbed.workload.parameters import asked, choice, flag, whole
from testbed.workload.steps import Slice, Workload


class PipelineSchedule(StrEnum):
    GPIPE = "gpipe"
    ONE_FORWARD_ONE_BACKWARD = "1f1b"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A micro-batch through one stage."""

    backward: bool
    micro_batch: int


def schedule_of(schedule: PipelineSchedule | str, *, stage: int, stages: int, micro_batches: int) -> list[Pass]:
    """The passes of one stage, in order."""
    forward = [Pass(backward=False, micro_batch=number) for number in range(micro_batches)]
    backward = [Pass(backward=True, micro_batch=number) for number in range(micro_batches)]
    match choose(PipelineSchedule, schedule, "schedule"):
        case PipelineSchedule.GPIPE:
            return forward + backward[::-1]
        case PipelineSchedule.ONE_FORWARD_ONE_BACKWARD:
            warm_up = min(stages - stage - 1, micro_batches)
            steady = [one for pair in zip(forward[warm_up:], backward, strict=False) for one in pair]
            return forward[:warm_up] + steady + backward[micro_batches - warm_up :]


_DATA_TYPE = DataType.BFLOAT16

SCHEDULE = choice(
    "schedule",
    PipelineSchedule.ONE_FORWARD_ONE_BACKWARD.value,
    tuple(PipelineSchedule),
    "Says in which order a stage makes its passes.",
)
STEPS = whole("steps", 1, "Says how many training steps there are, one after the other.", high=100_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Training steps: which rank has which part of a model, what a step moves, and in which order.

    Sharded gradients need a `data_algorithm` that suits both ReduceScatter and AllGather; None is the default of each.
    """

    layout: ParallelLayout
    volumes: TrainingVolumes
    micro_batches: int = asked(whole("micro_batches", 4, "Says how many micro-batches a step has.", high=10_000))
    schedule: PipelineSchedule | str = asked(SCHEDULE)
    steps: int = asked(STEPS)
    buckets: int = asked(
        whole(
            "buckets",
            1,
            "Says in how many parts gradients are summed, each when its part of the last pass is done.",
            high=4096,
        )
    )
    sharded: bool = asked(
        flag("sharded", "Says whether gradients go by ReduceScatter and AllGather (ZeRO) instead of AllReduce.")
    )
    data_algorithm: Algorithm | str | None = asked(
        choice(
            "data_algorithm",
            None,
            hyphenated((Algorithm.RING, Algorithm.TREE, Algorithm.HALVING_DOUBLING)),
            "Names the algorithm of the gradients' collective; the default is ring.",
        )
    )


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


def generate_training(
    training: Training, *, ranks_per_domain: int = 0, name: str = "training-step", folds: bool = False
) -> Workload:
    """Training steps, one after the other.

    The gradients of a bucket are summed once its part of the last backward pass is done, so that only those of the
    last bucket are exposed. With `folds` a ring is one step.
    """
    layout, volumes = training.layout, training.volumes
    builder = StepBuilder(layout.ranks, ranks_per_domain=ranks_per_domain, folds=folds)
    if volumes.tensor_forward_bytes and layout.tensor > 1:
        builder.note("The tensor-parallel AllReduces of a pass through a stage are one of the same total size.")
    done: Frontier = dict.fromkeys(range(layout.ranks), ())
    for step in range(training.steps):
        progress = _Progress(done=done)
        _add_passes(builder, training, progress, label=f"step{step}")
        done = _add_gradients(builder, training, progress, label=f"step{step}")
    return builder.build(name)


def generate_pipeline(
    *,
    stages: int,
    micro_batches: int,
    size_bytes: int,
    forward_ns: int = 0,
    backward_ns: int = 0,
    schedule: PipelineSchedule | str = PipelineSchedule.ONE_FORWARD_ONE_BACKWARD,
    steps: int = 1,
) -> Workload:
    """Pipeline parallelism alone: activations of `size_bytes` from stage to stage, their gradients back."""
    training = Training(
        layout=ParallelLayout(pipeline=stages),
        volumes=TrainingVolumes(activation_bytes=size_bytes, forward_ns=forward_ns, backward_ns=backward_ns),
        micro_batches=micro_batches,
        schedule=schedule,
        steps=steps,
    )
    return generate_training(training, name="pipeline")


def _add_passes(builder: StepBuilder, training: Training, progress: _Progress, *, label: str) -> None:
    """Add all stages' passes, each once the pass that it needs from another stage has been added."""
    stages = training.layout.pipeline
    queues = [
        schedule_of(training.schedule, stage=stage, stages=stages, micro_batches=training.micro_batches)[::-1]
        for stage in range(stages)
    ]
    while any(queues):
        for stage, queue in enumerate(queues):
            while queue and _is_ready(queue[-1], stage, stages, progress):
                one = queue.pop()
                parts = 1 if queue else training.buckets
                _add_pass(builder, training, one, stage, progress, parts=parts, label=label)
                progress.passed.add((one.backward, one.micro_batch, stage))


def _is_ready(one: Pass, stage: int, stages: int, progress: _Progress) -> bool:
    if one.backward:
        return stage == stages - 1 or (True, one.micro_batch, stage + 1) in progress.passed
    return stage == 0 or (False, one.micro_batch, stage - 1) in progress.passed


def _add_pass(
    builder: StepBuilder, training: Training, one: Pass, stage: int, progress: _Progress, *, parts: int, label: str
) -> None:
    """Add a pass through a stage, its computing in `parts`, and what it sends."""
    layout, volumes = training.layout, training.volumes
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
            operation = CollectiveOperation(
                kind=CollectiveKind.ALL_REDUCE, size_bytes=tensor_bytes, datatype=_DATA_TYPE
            )
            summed = add_collective(builder, operation, members=group, after=entry, label=f"{label}.tensor")
            progress.done.update(builder.join_all(group, summed))
        if 0 <= neighbour < layout.pipeline and volumes.activation_bytes:
            for tensor, rank in enumerate(group):
                other = layout.rank(tensor=tensor, pipeline=neighbour, data=data)
                sent = builder.transfer(
                    rank, other, volumes.activation_bytes, after=progress.done[rank], label=f"{label}.pipeline"
                )
                progress.arrived[one.backward, one.micro_batch, other] = (sent,)


def _add_gradients(builder: StepBuilder, training: Training, progress: _Progress, *, label: str) -> Frontier:
    """Sums the gradients of each part over the data-parallel ranks; returns what the next step waits for."""
    layout, size_bytes = training.layout, training.volumes.gradient_bytes
    done = dict(progress.done)
    if layout.data == 1 or size_bytes == 0:
        return done
    kinds = (
        (CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER) if training.sharded else (CollectiveKind.ALL_REDUCE,)
    )
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
                    operation = CollectiveOperation(
                        kind=kind,
                        size_bytes=part.length * _DATA_TYPE.size_bytes,
                        datatype=_DATA_TYPE,
                        algorithm=training.data_algorithm,
                    )
                    words = f"{label}.gradients.{bucket}.{kind}"
                    ready = add_collective(builder, operation, members=group, after=ready, label=words)
                for rank in group:
                    done[rank] += ready[rank]
    return builder.join_all(range(layout.ranks), done)
